"""What a silence costs, and what policies pay that follow from past silences; see docs/policy.md."""
import math
from bisect import bisect_left, bisect_right


class Device:
    """Equation 3 on the figures of a profile."""

    def __init__(self, profile, liveness):
        factors = {"W": 1, "mW": 1e-3, "J": 1, "kJ": 1e3, "s": 1, "ms": 1e-3}
        self.of = {name: f["value"] * factors[f["unit"]] for name, f in profile["figures"].items()}
        self.liveness = liveness

    def break_even(self, exchange, load, rest=None, waits=1.0):
        """Against a radio that rests at so many watts (else the active one), and a device that waits at so many times the active radio's power."""
        of, rest = self.of, rest or self.of["radio.idle_power"]
        if exchange == "none":
            energy, time = 0.0, 0.0
        else:
            energy = of[f"{exchange}.energy"]
            time = of[f"{exchange}.time"] + of[f"{exchange}.time_per_client"] * (load - 1)
        return (of["radio.cycle_energy"] + energy) / rest + (of["radio.association_time"] + time) * waits * of["radio.idle_power"] / rest

    def price(self, protocol, load, rest=None, waits=1.0):
        """What a sleep costs in a silence of so many seconds."""
        parts = {"held": ["none"]}.get(protocol, protocol.split("+"))
        within, beyond = (self.break_even(parts[n], load, rest, waits) for n in (0, -1))
        return lambda g: within if g <= self.liveness else beyond, within if within <= self.liveness else max(beyond, self.liveness)

    def others(self, protocol, load):
        """What Eq. 3 leaves out; see docs/results.md, "The raw data of paper-000"."""
        active = self.of["radio.idle_power"]
        return [self.price(protocol, load, waits=(active + self.of["device.baseline_power"]) / active),
                self.price(protocol, load, rest=self.of["radio.power_save_power"]),
                self.price(protocol, load, rest=0.3 * active)]


AGES = [0.25]
while len(AGES) < 256:
    AGES.append(AGES[-1] * 1.05)
SHORTEST, SHAPE = 1.0, 1.5


def lasts(t):
    """The part of the average user's idle periods that last so long."""
    return (max(t, SHORTEST) / SHORTEST) ** -SHAPE


class Paper:
    """Equations 5 to 8."""
    AVERAGE = [lasts(age) for age in AGES]

    def __init__(self, b, alpha=0.5, beta=0.8, first=0.25, average=AVERAGE):
        self.alpha, self.off = alpha, None
        self.first, self.later_ages = bisect_left(AGES, first), [age + b for age in AGES]
        # How many periods reached so many of the ages, and of the ages plus b.
        self.periods, self.reached, self.reached_later = 0, [0] * (len(AGES) + 1), [0] * (len(AGES) + 1)
        self.trusted, last = [len(AGES)] * (len(AGES) + 1), len(AGES)
        for k in reversed(range(len(AGES))):
            reach = bisect_left(AGES, AGES[k] + b)
            after = average[reach] if reach < len(AGES) else 0.0
            if average[k] > 0 and after / average[k] > beta:
                last = k
            self.trusted[k] = last

    def time_out(self):
        if self.off is None:
            self.off = self.rule()
        return self.off

    def rule(self):
        own = unseen = len(AGES)
        now = later = self.periods
        first, alpha = self.first, self.alpha
        for k, (gone, gone_later) in enumerate(zip(self.reached, self.reached_later)):
            now -= gone
            later -= gone_later
            if not later:
                unseen = k
                break
            if later > alpha * now and k >= first:
                own = k
                break
        at = min(own, self.trusted[max(unseen, self.first)])
        return AGES[at] if at < len(AGES) else math.inf

    def learn(self, g):
        self.periods, self.off = self.periods + 1, None
        self.reached[bisect_right(AGES, g)] += 1
        self.reached_later[bisect_right(self.later_ages, g)] += 1


class Buckets:
    """The median of recorded periods, in buckets that begin at these ages; see docs/results.md, "The raw data of paper-000"."""

    def __init__(self, b, shortest, begins=AGES, at_end=False):
        self.shortest, self.begins, self.at_end, self.before = shortest, begins, at_end, Paper(b).time_out()
        self.counts, self.periods = [0] * len(begins), 0

    def time_out(self):
        wanted, below = (self.periods + 1) // 2, 0
        for number, count in enumerate(self.counts):
            below += count
            if 0 < wanted <= below:
                return [*self.begins[number:number + 2], math.inf][self.at_end]
        return self.before

    def learn(self, g):
        if g >= self.shortest:
            self.counts[max(bisect_right(self.begins, min(g, 3600)) - 1, 0)] += 1
            self.periods += 1


class Fixed:
    def __init__(self, t):
        self.t = t

    def time_out(self):
        return self.t

    def learn(self, g):
        pass


class Listed:
    """A time-out for each period, chosen elsewhere."""

    def __init__(self, times):
        self.times = iter(times)

    def time_out(self):
        return next(self.times)

    def learn(self, g):
        pass


def stretches(figures, which):
    """Silences between two packets that wake: how long they are, from the beginning of each to the second of these packets, the time between the
    two, and whether there was a second one."""
    periods = figures.get("periods", [])
    if which == "all":
        return [([g], [g], g, True) for g in periods]
    until, counts, found, at = figures.get("until_sent", []), figures.get("stretch_periods", []), [], 0
    for n, (count, length) in enumerate(zip(counts, figures.get("stretch_seconds", []))):
        end = at + int(count)
        found.append((periods[at:end], until[at:end], length, n + 1 < len(counts) or "stretch_open" not in figures))
        at = end
    return found


def lived(rule, price, between):
    """What a rule comes to; a radio that it switched off stays so until a packet wakes it. And how often it missed a chance."""
    session, missed = Session(0.0, 0.0, 0.0), 0
    for periods, until, length, woken in between:
        session.idle, session.best = session.idle + sum(periods), session.best + min(sum(periods), price(length))
        for g, end in zip(periods, until):
            t = rule.time_out()
            if t < g:
                session.paid += t + price(end)
                if woken:
                    rule.learn(end)
                break
            session.paid, missed = session.paid + g, missed + (g > price(g))
            rule.learn(g)
    return session, missed


class Session:
    """What a radio that never sleeps pays in a session, what a policy pays, and what the clairvoyant does."""

    def __init__(self, idle, paid, best):
        self.idle, self.paid, self.best = idle, paid, best

    percent = property(lambda s: 100 * (s.idle - s.paid) / s.idle)
    best_percent = property(lambda s: 100 * (s.idle - s.best) / s.idle)


def blocks(figures, name, policies):
    values, size = figures.get(name, []), policies + 2
    return [values[at:at + size] for at in range(0, len(values), size)]


def clairvoyant(clients):
    return [[Session(s.idle, s.best, s.best) for s in c] for c in clients]
