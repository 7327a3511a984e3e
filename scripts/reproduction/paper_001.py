"""The checks of paper-001 and of paper-001-l2tp."""
import math
import statistics

from .claims import Check, about, above, below, by_round, within
from .intervals import FEWEST, joint, paired


class Paper001(Check):
    """The highest rates that arrive, and the ranges of sizes; all else names its samples."""

    # Of claims with directions and sizes: the range of the size, by the suite of the first stream and the rates of all in kbit/s.
    SIZES = {
        "Larger PDUs raise the reception rate, with and without IPsec (1,024 B over 256 B)":
            lambda suite, rates: {"none": within(2.66, 1.1), "3des-sha1": within(2.43, 1.1)}.get(suite),
        "Receiving a stream takes more energy with IPsec": lambda suite, rates: (1.23 / 1.1, 1.64 * 1.1),
        "Energy above idle grows with the rate of the stream":
            lambda suite, rates: {(256, 56): within(2.32, 1.1), (2000, 1000): within(1.52, 1.1)}.get(rates),
        "Fragmentation (2,048 B) collapses reception":
            lambda suite, rates: {"none": about(3.851, 2 * 0.651), "3des-sha1": about(1.440, 2 * 0.314)}.get(suite) if len(rates) == 1 else None,
    }

    # Of claims with sizes alone.
    ALONE = {"IPsec lowers the highest reception rate, by about a third": about(0.69, 0.1)}

    def sizes(self):
        """Which ranges the sizes have that the paper states, in the order of the directions before them."""
        for claim in self.report["claims"]:
            words, figures = claim["claim"], claim.get("figures", [])
            for figure in figures if words in self.ALONE else []:
                for name, limit in zip(("low", "high"), self.ALONE[words]):
                    self.same("ranges", words, limit, figure["expect"][name], 1e-9)
            if words not in self.SIZES:
                continue
            sized = [f for f in figures if None not in f["expect"].values()]
            expected = [r for f in figures if f not in sized for r in [self.size(words, f["from"])] if r]
            self.same("ranges", words, len(expected), len(sized))
            for limits, figure in zip(expected, sized):
                for name, limit in zip(("low", "high"), limits):
                    self.same("ranges", words, limit, figure["expect"][name], 1e-9)

    def size(self, words, source):
        points = [self.raw["samples"][n]["point"] for n in source["samples"]]
        rates = tuple(None if p.get("offered") is None else round(p["offered"] / 1e3) for p in points)
        return self.SIZES[words](points[0]["suite"], rates)

    def run(self):
        self.sizes()
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


class L2tp(Check):
    """Ratios of rates and of set-up times, and bytes that a packet has more, round by round."""

    def run(self):
        sizes = (256, 512, 1024)
        rates = lambda way, other: [paired(self.seed, *(self.of("stream", w, bytes, "rate") for w in (way, other))) for bytes in sizes]
        found = [f for f in rates("l2tp", "plain") if f]
        self.claim("L2TP/IPsec lowers the highest reception rate", [(below(1), f) for f in found])
        self.claim("L2TP/IPsec lowers the highest reception rate by about a third",
                   [(about(0.69, 0.1), f) for f in ([None] if self.emulated() else found)])
        larger = [paired(self.seed, *(self.of("stream", way, bytes, "rate") for bytes in (1024, 256))) for way in ("plain", "l2tp")]
        by_size = [(within(size, 1.1), None if self.emulated() else f) for size, f in zip((2.66, 2.43), larger)]
        self.claim("Larger PDUs raise the reception rate, without a VPN and by L2TP/IPsec (1,024 B over 256 B)", [(above(1), f) for f in larger] + by_size)
        self.claim("With IKEv2's own inner address the highest reception rate is above that of L2TP/IPsec",
                   [(above(1), f) for f in rates("ikev2", "l2tp") if f])
        self.claim("By L2TP/IPsec it takes longer until a packet inside is answered than with IKEv2's own inner address",
                   [(above(1), paired(self.seed, *(self.of("set-up", way, None, "set_up") for way in ("l2tp", "ikev2"))))])
        self.claim("A packet of L2TP/IPsec in transport mode has as many bytes more than with IKEv2's own inner address as UDP, L2TP and PPP have",
                   [((15.5, 20.5), f) for f in map(self.more, sizes) if f])

    def of(self, what, way, bytes, figure):
        point = {"what": what, "way": way, **({} if bytes is None else {"bytes": bytes})}
        samples = [s for s in self.raw["samples"] if s["point"] == point]
        return by_round(samples[0], figure) if samples else {}

    def more(self, bytes):
        l2tp, ikev2 = (self.of("packet", way, bytes, "on_cable") for way in ("l2tp", "ikev2"))
        return joint(self.seed, [[l2tp[n] - ikev2[n] for n in sorted(l2tp) if n in ikev2]], lambda drawn: statistics.median(drawn[0]))
