"""The check of paper-000-live: medians over bursts of the median over clients; rounds are resampled whole."""
import statistics

from .claims import Check, about, above, below
from .intervals import joint_rounds


class Live(Check):
    def run(self):
        sizes = sorted({s["point"]["clients"] for s in self.raw["samples"]})
        many = max([n for n in sizes if n <= 20], default=1)
        self.bursts = {}
        for sample in self.raw["samples"]:
            size, of = sample["point"]["clients"], {r["round"]: r["figures"].get("ready", []) for r in sample["rounds"]}
            self.bursts[sample["point"]["way"], size] = {
                n: [statistics.median(values[at:at + size]) for at in range(0, len(values), size)] for n, values in sorted(of.items()) if values}
        full, ticket, quick, update = "full", "strict", "quick", "update"
        over = lambda a, b: self.joint([a, b], lambda m: m[0] / m[1])
        self.claim("MOBIKE has the least latency of the three exchanges",
                   [(below(1), over((update, n), (other, n))) for n in sizes if n <= 20 for other in (full, ticket)])
        half = None if self.emulated() else over((ticket, 1), (full, 1))
        self.claim("With one client a ticket takes about half as long as a full exchange", [(about(0.5, 0.1), half)])
        gap = lambda n: self.joint([(full, n), (ticket, n)], lambda m: m[0] - m[1])
        grown = self.joint([(full, many), (ticket, many), (full, 1), (ticket, 1)], lambda m: m[0] - m[1] - (m[2] - m[3])) if many > 1 else None
        self.claim("A full exchange takes longer than a ticket, and the gap grows with the number of clients",
                   [(above(0), gap(1)), (above(0), gap(many) if many > 1 else None), (above(0), grown)])
        self.claim("MOBIKE's latency is constant for any number of clients",
                   [(about(1, 0.25), over((update, many), (update, 1)) if many > 1 else None)])
        self.claim("The same ticket in one round trip is faster than in the two of RFC 5723", [(below(1), over((quick, 1), (ticket, 1)))])

    def joint(self, of, statistic):
        return joint_rounds(self.seed, [self.bursts.get(key, {}) for key in of], lambda drawn: statistic([statistics.median(d) for d in drawn]))
