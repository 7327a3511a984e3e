"""The checks of paper-003, of paper-003-handoff and of paper-003-cost."""
import statistics

from .claims import Check, about, above, below, by_round
from .intervals import joint, paired


class Handoff(Check):
    """Ratios of times, round by round, and what header keys add to a handoff."""

    def run(self):
        first, later = "initialization", "handoff"

        def over(a, b, figure):
            return paired(self.seed, *(self.times(point, figure) for point in (a, b)))

        def beyond(line):
            ready, rtt, alone = self.times((line, later), "ready"), self.times((line, later), "rtt"), self.times(("mobile-ip", later), "ready")
            values = [ready[n] - alone[n] - rtt[n] for n in sorted(ready) if n in alone and n in rtt]
            return joint(self.seed, [values], lambda drawn: statistics.median(drawn[0]))
        self.claim("goal: header keys add at most one round trip and 3 ms to a handoff by Mobile IP alone, with PKD and with DKM",
                   [(below(3), beyond("mobile-ip-pkd")), (below(3), beyond("mobile-ip-dkm"))])
        same = (1 / 1.25, 1.25)
        for words, expect, a, b, figure in (
            ("pure Mobile IP: a handoff's registration takes about as long as the first one", same, ("mobile-ip", later), ("mobile-ip", first), "exchange"),
            ("Mobile IP with IPsec: a handoff is shorter than the beginning", below(1), ("mobile-ip-ipsec", later), ("mobile-ip-ipsec", first), "ready"),
            ("Mobile IP with PKD: a handoff is shorter than the beginning", below(1), ("mobile-ip-pkd", later), ("mobile-ip-pkd", first), "ready"),
            ("Mobile IP with DKM: a handoff is shorter than the beginning", below(1), ("mobile-ip-dkm", later), ("mobile-ip-dkm", first), "ready"),
            ("a handoff with PKD takes about as long as with IPsec alone", same, ("mobile-ip-pkd", later), ("mobile-ip-ipsec", later), "ready"),
            ("a handoff with DKM takes longer than with PKD, whose keys are there before", above(1), ("mobile-ip-dkm", later), ("mobile-ip-pkd", later), "ready"),
            ("MOBIKE: packets flow sooner after a handoff than after the beginning", below(1), ("mobike", later), ("mobike", first), "pause"),
            ("MOBIKE with PKD: data wait no longer than without header keys", same, ("pkd", later), ("routers", later), "pause"),
            ("MOBIKE with DKM: data wait no longer than without header keys", same, ("dkm", later), ("routers", later), "pause"),
        ):
            self.claim(words, [(expect, over(a, b, figure))])

    def times(self, point, figure):
        samples = [s for s in self.raw["samples"] if (s["point"]["line"], s["point"]["phase"]) == point]
        return by_round(samples[0], figure) if samples else {}


class Cost(Check):
    """Ratios of processor times, round by round."""

    def run(self):
        exchange = lambda name: ("exchange", name)
        zoned, whole = (lambda step: ("packet", step, True)), (lambda step: ("packet", step, False))
        establish, rekey, migrate = exchange("zoned"), (exchange("rekey"), "all"), (exchange("migrate"), "all")
        near = lambda value, factor: (value / factor, value * factor)
        for words, expect, a, b in (
            ("establishing a session costs the device, which begins, more than its gateway", above(1), (establish, "device"), (establish, "gateway")),
            ("zones cost about nothing when a session is established", near(1, 1.25), (establish, "all"), (exchange("whole"), "all")),
            ("a rekeying costs less than establishing", below(1), rekey, (establish, "all")),
            ("keys for a router cost less than a rekeying", below(1), (exchange("distribute"), "all"), rekey),
            ("keys from the router before (DKM) cost less than a rekeying", below(1), migrate, rekey),
            ("keys by DKM, times those for one neighbour by PKD", near(1.2, 1.5), migrate, (exchange("proactive"), "all")),
            ("sealing in two zones, times sealing whole: no more than the paper's", below(1.79), (zoned("seal"), "packet"), (whole("seal"), "packet")),
            ("opening in two zones, times opening whole: no more than the paper's", below(1.16), (zoned("open"), "packet"), (whole("open"), "packet")),
            ("most of what sealing in zones costs is the cipher", above(0.5), (zoned("seal"), "bare"), (zoned("seal"), "packet")),
            ("SNOOP's own work on a packet costs less than opening its first zone", below(1), (whole("snoop"), "to_device"), (zoned("look"), "packet")),
            ("reading and keeping a packet, of the time that the radio takes for it: no more than the paper's", below(0.1),
             (zoned("snoop"), "to_device"), (zoned("snoop"), "air")),
        ):
            self.claim(words, [(expect, paired(self.seed, self.times(*a), self.times(*b)))])

    def times(self, point, figure):
        of = lambda p: ("exchange", p["exchange"]) if p["what"] == "exchange" else ("packet", p["step"], p["zoned"])
        samples = [s for s in self.raw["samples"] if of(s["point"]) == point]
        return by_round(samples[0], figure) if samples else {}


class Paper003(Check):
    """Ratios of rates, round by round; the paper's figures."""

    def run(self):
        of = lambda name: {(s["point"]["line"], s["point"]["kbit"], s["point"]["stack"]): {r["round"]: r["figures"][name][0] for r in s["rounds"] if name in r["figures"]}
                           for s in self.raw["samples"] if "loss" not in s["point"] and "every" not in s["point"]}
        self.rates, self.windows = of("rate"), of("mean_window")
        errors = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
        each = lambda limits, a, b, stack="reno", at=errors: [(limits, self.ratio((a, k), (b, k), stack)) for k in at]
        self.claim("SNOOP makes Reno faster at every error rate", each(above(1), "snoop", "tcp"))
        self.claim("SNOOP within MML-IPsec is faster than Reno alone at every error rate", each(above(1), "mml-snoop", "tcp"))
        self.claim("IPsec is as fast as MML-IPsec where one bit in 2 Mbit or more is wrong", each(about(1, 0.1), "ipsec", "mml", at=errors[:6]))
        self.claim("esp-arq, which exposes nothing, is as fast as SNOOP in clear, but for the 5 % of IPsec", each(above(0.95), "esp-arq", "snoop", at=(*errors, 0)))
        self.claim("esp-arq is no slower than SNOOP in clear at any error rate", each(above(0.99), "esp-arq", "snoop", at=(*errors, 0)))
        self.claim("esp-arq is no slower than SNOOP within MML-IPsec at any error rate", each(above(0.99), "esp-arq", "mml-snoop", at=(*errors, 0)))
        for stack, words in (("cubic", "CUBIC"), ("bbr", "BBR")):
            if any(key[2] == stack and rates for key, rates in self.rates.items()):
                self.claim(f"SNOOP makes {words} of today, with SACK, no slower at any error rate", each(above(0.99), "snoop", "tcp", stack))
                self.claim(f"by {words} too esp-arq is no slower than SNOOP within MML-IPsec", each(above(0.99), "esp-arq", "mml-snoop", stack, at=(*errors, 0)))
        for words, (low, high), a, b in (
            ("SNOOP at one wrong bit in 64 kbit, times Reno alone", (2, 4.5), ("snoop", 64), ("tcp", 64)),
            ("SNOOP at one in 8 Mbit, times Reno alone", about(1.1, 0.05), ("snoop", 8192), ("tcp", 8192)),
            ("IPsec without errors, of Reno in clear", about(0.95, 0.03), ("ipsec", 0), ("tcp", 0)),
            ("IPsec at one in 2 Mbit, of its rate without errors", about(0.73, 0.1), ("ipsec", 2048), ("ipsec", 0)),
            ("IPsec at one in 64 kbit, of its rate without errors", about(0.38, 0.1), ("ipsec", 64), ("ipsec", 0)),
            ("esp-arq at one wrong bit in 64 kbit, times IPsec alone", above(5), ("esp-arq", 64), ("ipsec", 64)),
            ("MML-IPsec without errors, of Reno in clear", about(0.91, 0.03), ("mml", 0), ("tcp", 0)),
            ("SNOOP within MML-IPsec at one wrong bit in 64 kbit, times MML-IPsec alone", (5 / 1.5, 7.5), ("mml-snoop", 64), ("mml", 64)),
            ("the same, times IPsec alone", (5 / 1.5, 7.5), ("mml-snoop", 64), ("ipsec", 64)),
            ("SNOOP within MML-IPsec at one in 8 Mbit, times MML-IPsec alone", about(1.19, 0.05), ("mml-snoop", 8192), ("mml", 8192)),
            ("SNOOP within MML-IPsec at one in 8 Mbit, times IPsec alone", about(1.14, 0.05), ("mml-snoop", 8192), ("ipsec", 8192)),
            ("SNOOP within MML-IPsec at one in 8 Mbit, times Reno alone", about(1.03, 0.05), ("mml-snoop", 8192), ("tcp", 8192)),
            ("SNOOP within MML-IPsec at one in 64 kbit, times Reno alone", (2.08 / 1.5, 3.12), ("mml-snoop", 64), ("tcp", 64)),
            ("sequence numbers at one in 512 kbit: their growth with SNOOP within MML-IPsec, times that with IPsec", (2 / 1.5, 3), ("mml-snoop", 512), ("ipsec", 512)),
            ("SNOOP within MML-IPsec at one in 512 kbit, times MML-IPsec alone", (1.8, 4.05), ("mml-snoop", 512), ("mml", 512)),
            ("MML-IPsec+SNOOP at one wrong bit in 64 kbit, times IPsec: at least five times", above(5), ("mml-snoop", 64), ("ipsec", 64)),
            ("MML-IPsec+SNOOP without errors, of IPsec: at most 3 % less", above(0.97), ("mml-snoop", 0), ("ipsec", 0)),
        ):
            self.claim(words, [((low, high), self.ratio(a, b))])
        self.shares()
        window = lambda paper, a, b: [((paper / 1.5, paper * 1.5), self.ratio((a, 512), (b, 512), of=self.windows))]
        self.claim("mean congestion window at one in 512 kbit: with SNOOP, times Reno alone", window(35 / 6, "snoop", "tcp"))
        self.claim("mean congestion window at one in 512 kbit: with SNOOP within MML-IPsec, times MML-IPsec alone", window(26 / 5, "mml-snoop", "mml"))

    def shares(self):
        """Figures 17 and 18: the rate by how many packets are in zones, from all of them to none."""
        some = {s["point"]["every"]: by_round(s, "rate") for s in self.raw["samples"] if "every" in s["point"]}
        every, none = (self.rates.get((line, 0, "reno"), {}) for line in ("mml", "ipsec"))
        rates = [every, *(some.get(n, {}) for n in (2, 3, 5, 10)), none]
        over = lambda a, b: paired(self.seed, a, b)
        self.claim("fewer packets in zones never make it slower", [(above(0.99), over(b, a)) for a, b in zip(rates, rates[1:])])
        self.claim("one packet in ten in zones, times all of them", [(above(1), over(rates[4], every))])
        self.claim("all packets in zones, of IPsec", [(about(0.93, 0.03), over(every, none))])
        self.claim("one packet in ten in zones, of IPsec", [(about(0.9925, 0.01), over(rates[4], none))])

    def ratio(self, a, b, stack="reno", of=None):
        of = self.rates if of is None else of
        return paired(self.seed, of.get((*a, stack), {}), of.get((*b, stack), {}))
