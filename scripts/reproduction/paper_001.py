"""The check of paper-001."""
import math

from .claims import Check, about
from .intervals import FEWEST


class Paper001(Check):
    """The highest rates that arrive; all else names its samples."""

    def run(self):
        rates, found = (1000, 2000, 4000, 8000), {}
        for suite, engine in (("none", "plain"), ("3des-sha1", "dormouse")):
            found[suite] = {}
            for rate in rates:
                fits = [s for s in self.raw["samples"] if s.get("verified") and s["point"]["what"] == "stream" and s["point"]["suite"] == suite
                        and s["point"].get("engine", "dormouse") == engine and s["point"]["packet_bytes"] == 1024
                        and s["point"].get("offered") is not None and abs(s["point"]["offered"] / (rate * 1e3) - 1) < 0.01]
                if fits:
                    found[suite][rate] = self.arrived(fits[0])
        both = [r for r in rates if all(r in f for f in found.values())]
        highest = lambda suite, end: max((r for r, p in found[suite].items() if p and p["n"] >= FEWEST and p[end] > 80), default=None)
        values = [highest(suite, "value") for suite in found]
        ours = None
        if None not in values and not (both and values[0] == values[1] == max(both)):
            of = lambda suite, end: highest(suite, end) or math.nan
            fewest = [found[s][v] for s, v in zip(found, values)]
            ours = {"value": values[0] / values[1], "low": of("none", "low") / of("3des-sha1", "high"), "high": of("none", "high") / of("3des-sha1", "low"),
                    "n": min(f["n"] for f in fewest), "level": min(f["level"] for f in fewest)}
            ours = {name: None if value != value else value for name, value in ours.items()}
        if self.emulated():
            ours = None
        self.claim("IPsec halves the highest rate that arrives with less than 20 % loss", [(about(2, 0.5), ours)])
