"""The check of paper-002."""
import math
import statistics

from .claims import Check, about, above, below
from .intervals import student


class Paper002(Check):
    """Figures put together round by round: their mean over the rounds that have all of them, with Student's t."""
    # Seconds of the paper's phone: HIPL and OpenHIP active, HIPL and OpenHIP in standby.
    EXCHANGES = {"phone to server": (3.169, 3.089, 1.677, 1.895), "server to phone": (3.313, 2.758, 1.759, 1.851),
                 "phone to phone": (6.416, 4.297, 3.781, 3.501)}
    PAIRS = [("dsa", 512, 4.90, 1.46), ("dsa", 1024, 31.48, 16.54), ("dsa", 2048, 389.99, 308.61),
             ("rsa", 512, 0.51, 0.13), ("rsa", 1024, 3.56, 1.28), ("rsa", 2048, 40.73, 31.20)]
    TABLET, LAPTOP = {"tcp": 4.86, "hip": 3.27, "wpa": 4.84, "both": 3.14}, {"tcp": 21.77, "hip": 21.16}

    def run(self):
        self.samples = [s for s in self.raw["samples"] if s.get("verified")]
        self.rounds = sorted({r["round"] for s in self.raw["samples"] for r in s["rounds"]})
        near, alike = (lambda paper: (paper / 1.5, paper * 1.5)), (1 / 1.25, 1.25)
        seconds = {name: values[3] for name, values in self.EXCHANGES.items()}
        phone, server, both = "phone to server", "server to phone", "phone to phone"
        for name, values in self.EXCHANGES.items():
            self.mean(f"{name}: as long as on the phone", (min(values) / 1.5, max(values) * 1.5), lambda n, name=name: self.scaled(n, name))
        self.mean("it makes no difference whether phone or server begins", alike, lambda n: self.scaled(n, server) / self.scaled(n, phone))
        self.mean("between two phones, or tablets, it takes about twice what it takes with a server", near(seconds[both] / seconds[phone]),
                  lambda n: self.scaled(n, both) / self.scaled(n, phone))
        self.absent("an active phone takes longer than one in standby", above(1))
        self.absent("OpenHIP is a little faster than HIPL", below(1))
        self.of_key_pairs(near)
        self.of_stages(near)
        self.of_daemons(near)
        self.conclusions(seconds[phone])

    def of_key_pairs(self, near):
        for kind, bits, mean, _ in self.PAIRS:
            if (kind, bits) != ("rsa", 1024):
                words = f"{kind.capitalize()}-{bits}, times as long as Rsa-1024"
                self.mean(words, near(mean / 3.56), lambda n, kind=kind, bits=bits: self.created(n, kind, bits) / self.created(n, "rsa", 1024))
        for words, of in (("512 and 1024", (512, 1024)), ("2048", (2048,))):
            self.claim(f"times of pairs of {words} bits scatter as widely as on the phone (deviation over mean)",
                       [(near(deviation / mean), self.over_rounds(lambda n, kind=kind, bits=bits: self.scatter(n, kind, bits)))
                        for kind, bits, mean, deviation in self.PAIRS if bits in of])

    def of_stages(self, near):
        update, exchange = 0.287, 1.4
        self.mean("T2 grows exponentially with K: from K = 12 on it doubles with each bit", about(1, 0.2), self.doubling)
        self.mean("the 768-bit group saves something of a phone's exchange with a server, up to a third of a second", (0, 0.35 * 1.5),
                  lambda n: self.with_server(n, "rsa1024-v1", 3) - self.with_server(n, "rsa1024-v1", 2))
        self.mean("an UPDATE takes a small part of a base exchange", below(update / exchange * 1.5),
                  lambda n: self.update(n, "rsa1024-v1") / self.with_server(n, "rsa1024-v1", 3))
        self.mean("on the laptop it takes a tenth of a second", near(100), lambda n: self.of(n, {"what": "daemon", "key": "rsa2048"}, "moved"))

    def of_daemons(self, near):
        tablet, laptop = self.TABLET, self.LAPTOP
        rate, daemon = self.rate, lambda n, name: self.of(n, {"what": "daemon", "key": "rsa2048"}, name)
        for words, expected, limited, a, b in (
            ("ESP takes a third of TCP's throughput where the processor is the limit", about(tablet["hip"] / tablet["tcp"], 0.15), False, "hip", "tcp"),
            ("ESP takes hardly anything where the air is the limit", about(laptop["hip"] / laptop["tcp"], 0.05), True, "hip", "tcp"),
            ("encryption of the link has a minor impact (ours: a stand-in for WPA)", about(tablet["wpa"] / tablet["tcp"], 0.05), False, "wpa", "tcp"),
            ("and so it has below HIP", about(tablet["both"] / tablet["hip"], 0.05), False, "both", "hip"),
        ):
            self.mean(words, expected, lambda n, limited=limited, a=a, b=b: rate(n, limited, a) / rate(n, limited, b))
        # One power with HIP and without: the energy of a byte is as its time.
        self.mean("HIP consumes more energy for a byte than plain TCP", above(1), lambda n: rate(n, False, "tcp") / rate(n, False, "hip"))
        self.absent("the tablet takes as much power with HIP as without", about(1, 0.01))
        self.absent("a base exchange takes less power than a transfer", below(1))
        self.absent("the phone's battery lasts two thirds as long while it makes base exchanges", near(12 / 18))
        self.mean("the daemon takes nearly the whole processor when it starts", above(0.8), lambda n: daemon(n, "start_cpu") / daemon(n, "ready"))
        self.mean("the daemon takes little when it is idle", below(0.01), lambda n: daemon(n, "idle_cpu"))
        self.mean("HIP increases memory usage by 3 MB", near(3), lambda n: daemon(n, "own_memory") / 1e6)

    def conclusions(self, usable):
        too_long, asked = 2.6, 10_000
        papers, todays, servers = (self.counted(of) for of in ({"what": "responder", "key": "rsa1024-v1"}, {"what": "responder", "key": "p256"},
                                                               {"what": "server"}))
        each = lambda n, point, name: self.of(n, point, name) / point["associations"]
        within = lambda n, all: too_long * 1e3 / (each(n, all[-1], "responder") * self.slowness(n)) if all else math.nan
        growth = lambda n, all: each(n, all[-1], "responder") / each(n, all[0], "responder") if len(all) > 1 else math.nan
        last = lambda n, name: each(n, servers[-1], name) if servers else math.nan
        self.mean(f"too heavy between two phones: longer than the {usable} s that a server may take", above(usable),
                  lambda n: self.scaled(n, "phone to phone"))
        several = "too heavy for several associations at a phone, {}: not two within 2.6 s"
        self.mean(several.format("with the paper's keys"), below(2), lambda n: within(n, papers))
        self.mean(several.format("with ECDSA P-256"), below(2), lambda n: within(n, todays))
        self.mean("too heavy for many associations at one responder: each costs the more, the more there are", above(1.25), lambda n: growth(n, todays))
        self.mean("the same of the shipped daemon", above(1.25), lambda n: growth(n, servers))
        self.mean("too heavy in memory: 10,000 associations do not fit into the phone's 96 MB", above(96e6 / asked / 1e3),
                  lambda n: last(n, "held_memory") / 1e3)
        self.mean("too heavy in time: one responder takes more than an hour for 10,000 associations", above(60),
                  lambda n: last(n, "associated") * asked / 1e3 / 60)

    def mean(self, words, expected, figure):
        self.claim(words, [(expected, self.over_rounds(figure))])

    def absent(self, words, expected):
        self.claim(words, [(expected, None)])

    def over_rounds(self, figure):
        values = [value for n in self.rounds if math.isfinite(value := figure(n))]
        if not values:
            return None
        mean, count = math.fsum(values) / len(values), len(values)
        half = student(count - 1) * statistics.stdev(values) / math.sqrt(count) if count > 1 else None
        return {"value": mean, "low": None if half is None else mean - half, "high": None if half is None else mean + half, "n": count, "level": 0.95}

    def all(self, n, point, figure):
        found = [r["figures"].get(figure, []) for s in self.samples if s["point"] == point for r in s["rounds"] if r["round"] == n]
        return found[0] if found else []

    def of(self, n, point, figure):
        values = self.all(n, point, figure)
        return math.fsum(values) / len(values) if values else math.nan

    def counted(self, of):
        found = [s["point"] for s in self.raw["samples"] if all(s["point"].get(name) == value for name, value in of.items())]
        return sorted(found, key=lambda point: point["associations"])

    def created(self, n, kind, bits):
        point = {"what": "key-pair", "algorithm": kind, "bits": bits}
        return self.of(n, point, "created") - self.of(n, point, "started")

    def scatter(self, n, kind, bits):
        values = self.all(n, {"what": "key-pair", "algorithm": kind, "bits": bits}, "created")
        return statistics.stdev(values) / self.created(n, kind, bits) if len(values) > 1 else math.nan

    def slowness(self, n):
        """How many times slower the paper's phone makes an RSA pair of 1,024 bits."""
        return 3560 / self.created(n, "rsa", 1024)

    def ends(self, n, key, group, k=10):
        """Milliseconds of the initiator and of the responder."""
        point = {"what": "base-exchange", "key": key, "group": group, "k": k}
        return [sum(self.of(n, point, stage) for stage in stages) for stages in (("i1", "t2", "t4"), ("r1", "t3"))]

    def scaled(self, n, scenario):
        slow, (initiator, responder) = self.slowness(n), self.ends(n, "rsa1024-v1", 3)
        begins, answers = scenario.split(" to ")
        return (initiator * (slow if begins == "phone" else 1) + responder * (slow if answers == "phone" else 1)) / 1e3

    def with_server(self, n, key, group):
        initiator, responder = self.ends(n, key, group)
        return (initiator * self.slowness(n) + responder) / 1e3

    def update(self, n, key):
        of = lambda name: self.of(n, {"what": "update", "key": key}, name)
        return (of("mover") * self.slowness(n) + of("peer")) / 1e3

    def doubling(self, n):
        """The slope of a line through the logarithms of what a puzzle of 12 bits or more adds to none."""
        easy = {"what": "base-exchange", "key": "rsa1024-v1", "group": 3}
        ks = [s["point"]["k"] for s in self.raw["samples"] if {**s["point"], "k": 0} == {**easy, "k": 0}]
        base = self.of(n, {**easy, "k": 0}, "t2")
        added = [(k, self.of(n, {**easy, "k": k}, "t2") - base) for k in ks if k >= 12]
        if len(added) < 2 or not all(t2 > 0 for _, t2 in added):
            return math.nan
        return statistics.linear_regression([k for k, _ in added], [math.log2(t2) for _, t2 in added]).slope

    def rate(self, n, limited, way):
        point = {"what": "transfer", "encrypted": way in ("wpa", "both"), "limited": limited}
        return self.of(n, {**point, "hip": "ip"} if way in ("hip", "both") else point, "throughput")
