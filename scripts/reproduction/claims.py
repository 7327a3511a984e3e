"""The figures and verdicts of claims: what every experiment's check has in common."""
import math
import statistics

from .intervals import FEWEST, joint, paired_or_not


def verdict(figures):
    """The verdict of a claim by its figures; see docs/results.md, "Every verdict again"."""
    found = []
    for figure in figures:
        low, high = ((-math.inf, math.inf)[n] if figure["expect"][key] is None else figure["expect"][key] for n, key in enumerate(("low", "high")))
        ours = figure["ours"]
        if ours is None or None in ours.values() or ours["n"] < FEWEST:
            found.append("not-measurable")
        elif figure.get("tie") and 0.99 < ours["low"] and ours["high"] < 1.01:
            found.append("undecided")
        elif low < ours["low"] and ours["high"] < high:
            found.append("confirmed")
        elif ours["high"] <= low or ours["low"] >= high:
            found.append("contradicted")
        else:
            found.append("undecided")
    told = [f for f in found if f != "not-measurable"]
    if not told:
        return "not-measurable"
    if "confirmed" in told:
        return "confirmed" if len(set(found)) == 1 else "partly"
    return "contradicted" if "contradicted" in told else "undecided"


class Check:
    """Counts what was compared, and keeps what differs."""

    def __init__(self, raw, report):
        self.raw, self.report, self.seed = raw, report, raw["seed"]
        self.compared, self.differences, self.claimed = {}, [], set()

    def same(self, kind, place, ours, theirs, relative=1e-6):
        self.compared[kind] = self.compared.get(kind, 0) + 1
        if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
            equal = math.isclose(ours, theirs, rel_tol=relative, abs_tol=1e-6)
        else:
            equal = ours == theirs
        if not equal:
            self.differences.append(f"{kind}: {place}: {theirs!r} stands there, {ours!r} follows")

    def emulated(self):
        """Whether the processor is emulated, where no size is measurable."""
        return self.raw["machine"]["cpu"].startswith("QEMU TCG")

    def claim(self, words, expected):
        """The figures of a claim: for each the range that was stated beforehand, and what follows from the raw data."""
        claims = [c for c in self.report["claims"] if c["claim"] == words]
        self.same("claims", words, 1, len(claims))
        for claim in claims[:1]:
            self.claimed.add(words)
            theirs = claim.get("figures", [])
            self.same("claims", words, len(expected), len(theirs))
            for ((low, high), ours), figure in zip(expected, theirs):
                for name, limit in (("low", low), ("high", high)):
                    self.same("ranges", words, limit, figure["expect"][name], 1e-9)
                self.same("intervals", words, None if ours is None else ours["n"], (figure["ours"] or {}).get("n"))
                for name in ("value", "low", "high", "level") if ours else ():
                    self.same("intervals", f"{words}: {name}", ours[name], (figure["ours"] or {}).get(name))

    def run(self):
        """What an experiment's own class adds."""

    def verdicts(self):
        """What follows from the figures of claims; gives the claims whose verdict does not."""
        left = []
        for claim in self.report["claims"]:
            if claim.get("figures"):
                self.same("verdicts", claim["claim"], verdict(claim["figures"]), claim.get("finding"))
            elif claim.get("finding") == "not-measurable":
                self.same("verdicts", claim["claim"], verdict([]), claim["finding"])
            elif claim.get("finding"):
                left.append(claim["claim"])
        return left

    def named(self):
        """Figures that name the samples from which they follow."""
        for claim in self.report["claims"]:
            figures = claim.get("figures", [])
            for number, figure in enumerate(figures):
                if "from" not in figure:
                    continue
                ours, theirs = self.follows(figure["from"]), figure["ours"] or {}
                for name in ("value", "low", "high", "n", "level"):
                    place = f"{claim['claim']}: figure {number + 1}: {name}"
                    self.same("intervals", place, None if ours is None else ours[name], theirs.get(name))
            if figures and all("from" in figure for figure in figures):
                self.claimed.add(claim["claim"])

    def follows(self, source):
        samples = [self.raw["samples"][n] for n in source["samples"]]
        if source["figure"] == "arrived":
            return self.arrived(samples[0])
        ratios = [paired_or_not(self.seed, *(by_round(s, source["figure"]) for s in two)) for two in zip(samples[::2], samples[1::2])]
        if None in ratios or len(ratios) == 1:
            return ratios[0]
        a, b = ratios
        return {"value": a["value"] / b["value"], "low": a["low"] / b["high"], "high": a["high"] / b["low"],
                "n": min(a["n"], b["n"]), "level": min(a["level"], b["level"])}

    def arrived(self, sample):
        """Packets that arrived, in percent."""
        lost = by_round(sample, "loss")
        found = joint(self.seed, [[lost[n] for n in sorted(lost)]], lambda drawn: statistics.median(drawn[0]))
        part = lambda value: 100 * (1 - value)
        return found and {**found, "value": part(found["value"]), "low": part(found["high"]), "high": part(found["low"])}


def by_round(sample, figure):
    """A figure of a sample by round; see docs/results.md, "Samples"."""
    rounds = {r["round"]: {name: values[0] for name, values in r["figures"].items() if len(values) == 1} for r in sample["rounds"]}
    if figure in ("cpu", "cpu-time"):
        if any("cpu_system" in f for f in rounds.values()):
            rounds = {n: f for n, f in rounds.items() if "cpu_system" in f} if figure == "cpu" else rounds
        of = lambda f: f.get("cpu_thread", 0.0) + f.get("cpu_system", 0.0) if "cpu_thread" in f or "cpu_system" in f else None
        if figure == "cpu-time":
            whole = lambda f: None if of(f) is None or "throughput" not in f or "elapsed" not in f else of(f) * 1e-9 * f["throughput"] * f["elapsed"]
        else:
            whole = of
    else:
        name = {"energy": "joules_per_byte", "received": "packets_received"}.get(figure, figure)
        whole = lambda f: f.get(name)
    return {n: value for n, f in rounds.items() if (value := whole(f)) is not None}


def above(limit):
    return (limit, None)


def below(limit):
    return (None, limit)


def about(value, margin):
    return (value - margin, value + margin)


def within(value, factor):
    return (value / factor, value * factor)
