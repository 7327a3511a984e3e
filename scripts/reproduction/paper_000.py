"""The check of paper-000: savings, tables and claims of policies."""
import math
import statistics
from bisect import bisect_left

from .claims import Check, about, above, below
from .intervals import FEWEST, numbers, ratio_of_sums
from .policies import AGES, Buckets, Device, Fixed, Listed, Paper, Session, blocks, clairvoyant, lived, stretches


class Paper000(Check):
    def run(self):
        settings = self.raw["settings"]
        self.names = settings["policies"]
        self.time_outs = [math.inf if t == "never" else t for t in settings["time_outs"]]
        self.device = Device(self.raw["profiles"]["laptop-000"], settings["liveness_timeout"])
        self.price, self.b = self.device.price("mobike+ticket", 20)
        self.same("model", "break-even time", self.b, settings["break_even"])
        for protocol, load, theirs in settings["optimum"]:
            self.same("model", f"{protocol} at {load}", self.device.price(protocol, load)[1], theirs)
        self.others = self.device.others("mobike+ticket", 20)
        names = ("always active, the device charged while it waits", "in power-save mode", "in power-save mode at 30 % of active")
        for name, (_, b), theirs in zip(names, self.others, settings["others"]):
            self.same("model", name, [name, True], [theirs[0], math.isclose(b, theirs[1], rel_tol=1e-9)])
        self.clients = [[r["figures"] for r in s["rounds"] if r["round"] > 0] for s in self.raw["samples"]]
        self.whole = [r["figures"] for s in self.raw["samples"] for r in s["rounds"] if r["round"] == 0]
        for sample, sessions in zip(self.raw["samples"], self.clients):
            self.accounts(sample["point"]["client"], sessions)
        self.tables()
        self.claims()

    def accounts(self, client, sessions):
        """What each policy pays that looks at nothing but past silences, from the silences; and the bounds of the others."""
        for figures in sessions:
            many, until = figures.get("periods", []), figures.get("until_sent", [])
            self.same("silences", client, [len(many), len(many)], [len(until), int(sum(figures.get("stretch_periods", [])))])
            self.same("silences", client, True, all(g <= end + 1e-9 for g, end in zip(many, until)))
        for which in ("all", "outgoing"):
            self.policies(client, sessions, which)
            rules = self.ledgers(which)
            for number, figures in enumerate(sessions):
                between = stretches(figures, which)
                for name, size, ledgers in rules:
                    found = blocks(figures, f"cost.{which}.{name}", size)
                    self.same("costs", f"{client}, session {number + 1}, {which}: accounts of {name}", True, len(found) in (0, len(ledgers)))
                    for block, (price, policies) in zip(found, ledgers):
                        self.ledger(f"{client}, session {number + 1}, {which}, {name}", between, price, policies, block)

    def policies(self, client, sessions, which):
        paper = {"paper": Paper(self.b)}
        fixed = {"never": Fixed(math.inf), "timeout": Fixed(60.0), "break-even": Fixed(self.b)}
        rules, sums = [{**fixed, **paper}.get(name) for name in self.names], [0.0, 0.0]
        for number, figures in enumerate(sessions):
            costs, place = figures[f"cost.{which}"], f"{client}, session {number + 1}, {which}"
            missed = self.ledger(place, stretches(figures, which), self.price, rules, costs)
            for ours, theirs in zip(missed, figures.get("missed.outgoing", []) if which == "outgoing" else []):
                self.same("missed opportunities", place, theirs if ours is None else ours, theirs)
            ours = dict(zip(self.names, costs[1:]))
            sums = [sums[0] + ours["dormouse"], sums[1] + ours["break-even"]]
        if which == "all":
            # docs/policy.md, "What is chosen".
            self.same("bounds", f"{client}: dormouse within 16 B of break-even", True, sums[0] <= sums[1] + 16 * self.b + 1e-6)

    def ledger(self, place, between, price, rules, costs):
        """An account: what a radio that never sleeps pays, each policy (None: of one that also looks at packets only a bound), the clairvoyant."""
        idle, _ = lived(Fixed(math.inf), price, between)
        self.same("costs", f"{place}: idle", idle.idle, costs[0])
        self.same("costs", f"{place}: clairvoyant", idle.best, costs[-1])
        missed = []
        for number, (rule, cost) in enumerate(zip(rules, costs[1:])):
            if rule is not None:
                ours, times = lived(rule, price, between)
                self.same("costs", f"{place}: policy {number}", ours.paid, cost)
            missed.append(None if rule is None else times)
        self.same("bounds", f"{place}: nothing costs less than the clairvoyant", True, min(costs) >= costs[-1] - 1e-6)
        return missed

    def ledgers(self, which):
        """The further accounts: name, number of policies, and for each account its price of a sleep and the policies."""
        settings, at = self.raw["settings"], self.device.price
        fixed = [(self.price, [Fixed(t) for t in self.time_outs])]
        others = [(price, [None]) for price, _ in self.others]
        if which == "all":
            return [("time-outs", len(self.time_outs), fixed), ("others", 1, others),
                    ("optimum", 0, [(at(protocol, load)[0], []) for protocol, load, _ in settings["optimum"]])]
        pairs = [(a, b) for a in settings["thresholds"] for b in settings["thresholds"]]
        rows = lambda protocol, thresholds, more: (at(protocol, 20)[0], [Paper(at(protocol, 20)[1], a, b) for a, b in thresholds] + more)
        believed = lambda: [Paper(at("mobike+ticket", load)[1]) for load in settings["loads"]]
        return [("time-outs", len(self.time_outs), fixed), ("others", 1, others),
                ("thresholds", len(pairs), [rows(protocol, pairs, []) for protocol in settings["protocols_of_thresholds"]]),
                ("protocols", 3, [rows(protocol, [(0.8, 0.5), (0.5, 0.8)], [None]) for protocol, _ in settings["protocols"]]),
                ("misjudged", len(settings["loads"]), [(at("mobike+ticket", load)[0], believed()) for load in settings["loads"]]),
                ("proxies", 2, [(self.price, [Paper(self.b), None]) for _ in range(2)])]

    def under(self, which, policy):
        """The sessions of each client under a policy, by its number; the clairvoyant stands last."""
        kept = []
        for sessions in self.clients:
            all_ = (s[f"cost.{which}"] for s in sessions)
            kept.append([Session(c[0], c[1 + policy], c[-1]) for c in all_ if c[0] > 0])
        return kept

    def account(self, name, policies, ledger, policy):
        kept = []
        for sessions in self.clients:
            all_ = (b[ledger] for b in (blocks(s, name, policies) for s in sessions) if len(b) > ledger)
            kept.append([Session(c[0], c[1 + policy], c[-1]) for c in all_ if c[0] > 0])
        return kept

    def ratio(self, clients, first, second):
        return ratio_of_sums(self.seed, [(sum(map(first, c)), sum(map(second, c))) for c in clients if c])

    def mean(self, clients):
        return self.ratio(clients, lambda s: s.percent, lambda s: 1.0)

    def gap(self, clients):
        return self.ratio(clients, lambda s: s.best_percent - s.percent, lambda s: 1.0)

    def of_maximum(self, clients):
        return self.ratio(clients, lambda s: 100 * s.percent, lambda s: s.best_percent)

    def share(self, clients):
        return self.ratio(clients, lambda s: 100 * (s.idle - s.paid), lambda s: s.idle - s.best)

    def of_all(self, clients):
        return self.ratio(clients, lambda s: 100 * (s.idle - s.paid), lambda s: s.idle)

    def part(self, clients, holds):
        return self.ratio(clients, lambda s: 100.0 if holds(s.percent) else 0.0, lambda s: 1.0)

    def losers(self, clients):
        pay = lambda c: 100.0 if sum(s.paid - s.idle for s in c) > 1e-6 else 0.0
        return ratio_of_sums(self.seed, [(pay(c), 1.0) for c in clients if c])

    def more(self, first, second):
        total = lambda c: sum(s.percent for s in c)
        return ratio_of_sums(self.seed, [(total(a) - total(b), float(len(a))) for a, b in zip(first, second) if a])

    def counted(self, of):
        """Percent of the sessions that were idle for which something holds; `of` gives for a session nothing, or whether it holds."""
        clusters = []
        for sessions in self.clients:
            told = [of(s) for s in sessions]
            if any(t is not None for t in told):
                idle = [t for s, t in zip(sessions, told) if s["cost.outgoing"][0] > 0]
                clusters.append((100.0 * sum(idle), float(len(idle))))
        return ratio_of_sums(self.seed, clusters)

    def tables(self):
        for which, words in (("all", "every packet wakes"), ("outgoing", "only what the client sends wakes")):
            rows = []
            add = lambda name, clients, days=None: rows.append([name] + [shown(f(clients)) for f in (self.mean, self.of_maximum, self.share, self.losers)]
                                                               + [shown(self.share(days)) if days else "–"])
            for n, name in enumerate(self.names):
                if n > 0:
                    days = (w[f"cost.{which}"] for w in self.whole)
                    add(name, self.under(which, n), [[Session(c[0], c[1 + n], c[-1])] if c[0] > 0 else [] for c in days])
            fixed, best = self.fixed(which)
            add(f"best fixed time-out in hindsight, {self.time_outs[best]:.2f} s", fixed[best])
            for words_, whole in (("the best for each client, in hindsight", True), ("the best for each session, in hindsight", False)):
                add(words_, [self.hindsight([clients[c] for clients in fixed], whole) for c in range(len(self.clients))])
            if self.raw["settings"].get("ages"):
                add("a policy that knows the law and the client", self.chosen(which))
            add("clairvoyant", self.under(which, len(self.names)))
            self.table(f"Policies, {words}", rows)
        pairs, rows = self.raw["settings"]["thresholds"], []
        for a, alpha in enumerate(pairs):
            for b, beta in enumerate(pairs):
                of = lambda ledger: self.account("cost.outgoing.thresholds", len(pairs) ** 2, ledger, a * len(pairs) + b)
                rows.append([f"{alpha:g}", f"{beta:g}"] + [shown(self.mean(of(ledger))) for ledger in range(2)])
        self.table("The paper's thresholds on its sample, only what the client sends wakes", rows)

    def fixed(self, which):
        """The sessions under each fixed time-out, and the number of the one with the largest mean saving."""
        many = len(self.time_outs)
        fixed = [self.account(f"cost.{which}.time-outs", many, 0, n) for n in range(many)]
        means = [statistics.fmean(s.percent for c in clients for s in c) for clients in fixed]
        return fixed, max(range(many), key=lambda n: (means[n], n))

    def chosen(self, which):
        """The sessions under the policy that knows the law: in each period off at the age that was chosen for it."""
        ages, kept = self.raw["settings"]["ages"], []
        for sample, sessions in zip(self.raw["samples"], self.clients):
            mine = []
            for figures in sessions:
                times = [ages[int(n)] if n < len(ages) else math.inf for n in figures.get(f"chosen.{which}", [])]
                self.same("silences", f"{sample['point']['client']}: chosen", len(times), len(figures.get("periods", [])))
                sum_, at = Session(0.0, 0.0, 0.0), 0
                for stretch in stretches(figures, which):
                    end = at + len(stretch[0])
                    one, _ = lived(Listed(times[at:end]), self.price, [stretch])
                    sum_, at = Session(sum_.idle + one.idle, sum_.paid + one.paid, sum_.best + one.best), end
                if sum_.idle > 0:
                    mine.append(sum_)
            kept.append(mine)
        return kept

    WAKES = {"all": ("every packet wakes", "every packet waking"),
             "outgoing": ("only what the client sends wakes", "only what the client sends waking")}

    def first_ages(self, which):
        """The paper's rule by its first age; gives what it comes to at the one with the largest mean saving."""
        rows, found = [], []
        ours = self.under(which, self.names.index("dormouse"))
        for first in (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0):
            clients = self.follow(which, self.price, lambda: Paper(self.b, first=first))
            mean, part, more = self.mean(clients), self.of_maximum(clients), self.more(ours, clients)
            rows.append([f"{first:g}", shown(mean), shown(part), shown(self.share(clients)), shown(more)])
            found.append((mean["value"] if mean else -math.inf, first, self.gap(clients), part, more))
        self.table(f"The paper's rule by the first age at which it is evaluated (alpha 0.5, beta 0.8), {self.WAKES[which][0]}", rows)
        return max(found, key=lambda of: of[:2])[2:]

    def splits(self, which):
        """The paper's own protocol, twenty times: the average user from all sessions but those that are held out, and judged on these."""
        idle = [[s.get("periods", []) for s in sessions] for sessions in self.clients]
        every = [(c, s) for c, sessions in enumerate(idle) for s in range(len(sessions))]
        count, source = min(100, len(every) // 4), numbers(self.seed)
        kept = [[[] for _ in idle] for _ in range(2)]
        for _ in range(20):
            left, held = list(every), set()
            while len(held) < count:
                at = next(source) * len(left) >> 64
                held.add(left[at])
                left[at] = left[-1]
                left.pop()
            others = sorted(g for c, s in left for g in idle[c][s])
            average = [(len(others) - bisect_left(others, age)) / max(len(others), 1) for age in AGES]
            for policy, make in enumerate((lambda: Paper(self.b, average=average), lambda: Fixed(self.b))):
                for mine, found in zip(kept[policy], self.follow(which, self.price, make, held)):
                    mine += found
        figures = [[self.gap(clients), self.of_maximum(clients)] for clients in kept]
        rows = [[name] + [shown(f) for f in of] for name, of in zip(("paper, alpha 0.5, beta 0.8", "break-even"), figures)]
        self.table(f"{count} sessions held out, the average user from all others; 20 splits, {self.WAKES[which][0]}", rows)
        return figures[0]

    def buckets(self, which):
        """The paper's cheaper method; gives what it saves more than Eq. 5, with all periods recorded and with the long ones."""
        eq5 = self.under(which, self.names.index("paper"))
        kinds = [("bucket of all idle periods", (0.0,)), ("bucket of those longer than break-even", (self.b,))]
        for width in (1, 10, 60):
            begins = range(0, 3600 + 2 * width, width)
            kinds += [(f"bucket of all, {width} s wide, off at its {('beginning', 'end')[end]}", (0.0, begins, end)) for end in (False, True)]
        of_kinds = [(name, self.follow(which, self.price, lambda: Buckets(self.b, *kind))) for name, kind in kinds]
        rows = [[name] + [shown(f(clients)) for f in (self.mean, self.of_maximum, self.share, self.losers)] for name, clients in [("Eq. 5", eq5)] + of_kinds]
        self.table(f"Eq. 5 and the buckets, {self.WAKES[which][0]}", rows)
        return [self.more(of, eq5) for _, of in of_kinds[:2]]

    def against(self, which):
        """What is saved against other baselines; gives for each what the paper's rule does, Eq. 3's first."""
        kept, rows = [], []
        settings = [("always active (Eq. 3)", self.price, self.b)] + [(name, *of) for (name, _), of in zip(self.raw["settings"]["others"], self.others)]
        for number, (name, price, b) in enumerate(settings):
            paper = self.follow(which, price, lambda: Paper(b))
            if number == 0:
                ours = self.under(which, self.names.index("dormouse"))
            else:
                ours = self.account(f"cost.{which}.others", 1, number - 1, 0)
            best = clairvoyant(paper)
            rows.append([name, f"{b:.1f}"] + [shown(f) for f in (
                self.part(best, lambda v: v > 1e-9), self.mean(best), self.mean(paper), self.mean(ours), self.of_all(best), self.of_all(paper), self.of_all(ours))])
            kept.append(paper)
        self.table(f"What is saved against other baselines than Eq. 3's, {self.WAKES[which][0]}", rows)
        return kept

    @staticmethod
    def hindsight(under, whole):
        """A client's sessions under the time-out that saves most of them together, or of each."""
        count = len(under[0])
        groups = [range(count)] if whole else [[s] for s in range(count)]
        kept = []
        for group in groups:
            best = max(range(len(under)), key=lambda n: (sum(under[n][s].percent for s in group), n))
            kept += [under[best][s] for s in group]
        return kept

    def follow(self, which, price, make, held=None):
        """The sessions of each client under a rule that lives through them; those that are held out, if only some are."""
        kept = []
        for c, sessions in enumerate(self.clients):
            counted = [s for s in range(len(sessions)) if held is None or (c, s) in held]
            rule, mine = make() if counted else None, []
            for s, figures in enumerate(sessions[:counted[-1] + 1] if counted else []):
                session, _ = lived(rule, price, stretches(figures, which))
                if session.idle > 0 and s in counted:
                    mine.append(session)
            kept.append(mine)
        return kept

    def table(self, title, rows):
        tables = [t for t in self.report["tables"] if t.get("title") == title]
        self.same("tables", title, 1, len(tables))
        for table in tables[:1]:
            self.same("tables", title, len(rows), len(table["rows"]))
            for ours, theirs in zip(rows, table["rows"]):
                self.same("table cells", title, ours, theirs)

    def claims(self):
        settings = self.raw["settings"]
        number = {name: n for n, name in enumerate(self.names)}
        optimum = [(p, load) for p, load, _ in settings["optimum"]].index(("mobike+ticket", 20))
        paper, ours = (self.under("outgoing", number[name]) for name in ("paper", "dormouse"))
        gains = self.part(self.account("cost.all.optimum", 0, optimum, 0), lambda v: v > 0)
        fifth = self.part(paper, lambda v: v >= 20)
        self.claim("Sessions that gain at all, clairvoyant, 20 clients at the gateway", [(about(78, 5), gains)])
        self.claim("Sessions that save 20 % or more of their idle energy with the paper's scheduler", [(above(50), fifth)])
        self.claim("The scheduler stays within 3.5 points of the optimum", [(below(3.5), self.gap(paper))])
        self.claim("It saves over 90 % of the maximum", [(above(90), self.of_maximum(paper))])
        beyond = []
        for which, (_, words) in self.WAKES.items():
            near = lambda found: [(below(3.5), found[0]), (above(90), found[1])]
            self.claim(f"Both by the paper's protocol: the average user from all but 100 sessions, {words}", near(self.splits(which)))
            favourable = self.first_ages(which)
            self.claim(f"Both at the first age, of those tried, at which the rule saves most, {words}", near(favourable))
            beyond.append((above(0), favourable[2]))
        self.claim("Dormouse's scheduler saves more than the paper's at the first age, of those tried, at which that saves most", beyond)
        self.how_much(number["dormouse"])
        self.left_out()
        protocols = [p for p, _ in settings["protocols"]]
        pairs = settings["thresholds"]
        theirs = pairs.index(0.5) * len(pairs) + pairs.index(0.8)
        half = lambda n, odd: self.account("cost.outgoing.thresholds", len(pairs) ** 2, 1, n)[odd::2]
        means = [(self.mean(half(n, 0)), n) for n in range(len(pairs) ** 2) if n != theirs]
        _, best = max((mean["value"], n) for mean, n in means if mean)
        self.claim("No thresholds are better than alpha 0.5 and beta 0.8, by a point", [(below(1), self.more(half(best, 1), half(theirs, 1)))])
        pay = lambda policy: self.part(self.account("cost.outgoing.protocols", 3, protocols.index("ikev2"), policy), lambda v: v < 0)
        self.claim("Sessions that pay for sleeping at alpha 0.8 and beta 0.5, with IKEv2", [(below(15), pay(0))])
        self.claim("The same at alpha 0.5 and beta 0.8", [(about(2, 2), pay(1))])
        much = self.part(self.account("cost.outgoing.protocols", 3, protocols.index("ikev2"), 1), lambda v: v <= -10)
        self.claim("Sessions that spend at least 10 % more by sleeping at alpha 0.5 and beta 0.8, with IKEv2", [(below(1), much)])
        self.directions(len(pairs))
        self.misjudged(len(settings["loads"]))

        def free(proxy):
            def of(session):
                if "lost" not in session:
                    return None
                lost = session["lost"][0] + (0 if proxy else session["proxied"][0])
                return lost == 0
            return self.counted(of)
        self.claim("Sessions without a lost packet, where the gateway does not answer for the client", [(about(60, 5), free(False))])
        self.claim("The same, gateway answering DHCP, DNS and MICROSOFT-DS", [(about(70, 5), free(True))])
        few = lambda s: s["missed.outgoing"][number["paper"]] < 10
        self.claim("Sessions with fewer than ten missed opportunities", [(about(90, 5), self.counted(few))])
        both = [[self.under(which, number[name]) for name in ("dormouse", "paper")] for which in self.WAKES]
        self.claim("Dormouse's scheduler saves more than the paper's", [(above(0), self.more(*pair)) for pair in both])


    def directions(self, many):
        """Figure 7: from the least to the largest of one threshold, the sessions under all values of the other side by side."""
        def moved(ledger, pair):
            at = lambda n: [self.account("cost.outgoing.thresholds", many ** 2, ledger, pair(n, other)) for other in range(many)]
            pooled = lambda n: [[s for sessions in of for s in sessions] for of in zip(*at(n))]
            return self.more(pooled(many - 1), pooled(0))
        alpha, beta = (lambda n, other: n * many + other), (lambda n, other: other * many + n)
        self.claim("As alpha increases, the average savings decrease", [(below(0), moved(ledger, alpha)) for ledger in range(2)])
        self.claim("As beta increases, better average savings are achieved", [(above(0), moved(ledger, beta)) for ledger in range(2)])

    def misjudged(self, loads):
        """Figure 9: what is lost by believing in another load than there is."""
        at = lambda truth, believed: self.account("cost.outgoing.misjudged", loads, truth, believed)
        self.claim("IGF with MOBIKE is fairly immune to a poor estimate of the break-even time: a wrong load costs less than a point of the mean saving",
                   [(below(1), self.more(at(t, t), at(t, b))) for t in range(loads) for b in range(loads) if b != t])

    def how_much(self, dormouse):
        """Whether dormouse's scheduler is as good as the best fixed time-out, and what is left for any policy; where the law is known."""
        if not self.raw["settings"].get("ages"):
            return
        beyond, left = [], []
        for which in ("all", "outgoing"):
            ours, (fixed, best) = self.under(which, dormouse), self.fixed(which)
            beyond.append((above(-1), self.more(ours, fixed[best])))
            left.append((above(0), self.more(self.chosen(which), ours)))
        self.claim("Dormouse's scheduler saves no more than a point less than the best fixed time-out in hindsight", beyond)
        self.claim("A policy that knows the law of the traffic and what is hidden of each client saves more than dormouse's scheduler: so much is left for any other", left)

    def left_out(self):
        """What the paper leaves aside: buckets, power-save mode, the device's own power."""
        self.buckets("all")
        self.claim("The bucket of the median idle period is where Eq. 5 reaches alpha: it saves as much, give or take a point",
                   [(about(0, 1), more) for more in self.buckets("outgoing")])
        every, sent = self.against("all"), self.against("outgoing")
        of = self.device.of
        alone = 100 * (1 - of["radio.power_save_power"] / of["radio.idle_power"])
        self.claim("Power-save mode may be left aside: switching the radio off saves more than power-save mode alone, clairvoyant",
                   [(above(0), self.ratio(every[0], lambda s: s.best_percent - alone, lambda s: 1.0))])
        for number, words in ((2, "against a radio in power-save mode"), (1, "with the device charged while it waits")):
            gain = lambda clients: [100.0 * sum(s.percent > 1e-9 for s in c) for c in clairvoyant(clients)]
            more = [(a - b, float(len(c))) for a, b, c in zip(gain(every[number]), gain(every[0]), every[0]) if c]
            self.claim(f"As many sessions gain at all, clairvoyant, {words} as by Eq. 3", [(about(0, 5), ratio_of_sums(self.seed, more))])
            self.claim(f"More than half of the sessions save 20 % or more with the paper's scheduler, {words}",
                       [(above(50), self.part(sent[number], lambda v: v >= 20))])


def shown(measured):
    if measured is not None and measured["n"] < FEWEST:
        return "{value:.1f}".format(**measured)
    return "–" if measured is None else "{value:.1f} [{low:.1f}, {high:.1f}]".format(**measured)
