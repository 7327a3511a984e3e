//! What the paper leaves out of its comparison: power-save mode, which section 1.2 dismisses, and the device's own power while it waits for
//! the radio, which section 3.3 measures and Eq. 3 does not charge. Owns these costs, what follows from them and its words; must never
//! change Eq. 3 itself.

use dormouse_energy::WakeOn;
use dormouse_energy::account::{ClientReport, Ledger, Settings};
use dormouse_energy::cost::SleepCost;
use dormouse_energy::model::{Baseline, Exchange, Model};
use dormouse_energy::profile::Profile;
use dormouse_energy::schedule::{AverageUser, Paper, Policy, Scheduler};
use dormouse_report::Table;
use dormouse_sansio::Instant;
use dormouse_trace::activity::Moment;
use dormouse_trace::analyse::Watch;

use super::shares::{Clients, Results, SOME, Shares, clairvoyant, follow, saved, under};
use super::tables::{number, shown, wakes};
use super::traffic::Traffic;
use super::{LOAD, PROTOCOL};
use crate::experiment::Exhibit;
use crate::judge::stats::Measured;
use crate::judge::{Claim, Expect};

/// The figure of the profile that Eq. 3 leaves out: the device, on, with its radio off; in watts.
const DEVICE_POWER: &str = "device.baseline_power";
/// Section 1.2 gives power-save mode 250 mW and calls that so much of an active radio, which then has less than half of Figure 3's power.
const PART_OF_ACTIVE: f64 = 0.3;

/// A radio that stays on, or a device that waits, in another way than in Eq. 3.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other {
    pub(super) name: &'static str,
    pub(super) cost: SleepCost,
}

/// How many there are.
pub(super) const OTHERS: usize = 3;
const DEVICE: usize = 0;
const POWER_SAVE: usize = 1;

/// The costs of a device: the device charged while it waits, power-save mode, and power-save mode in section 1.2's other words.
///
/// # Errors
/// If the profile lacks a figure.
pub(super) fn others(profile: &Profile) -> anyhow::Result<[Other; OTHERS]> {
    let (model, device) = (profile.model()?, profile.power(DEVICE_POWER)?);
    let active = model.radio.idle_power;
    let saving = |baseline| Model { baseline, ..model }.sleep_cost(PROTOCOL, LOAD);
    let (within, beyond) = model.exchanges.of(PROTOCOL);
    let charged = |exchange: Exchange| {
        let instant = model.break_even_instant(exchange);
        instant + (model.break_even_with(exchange, LOAD) - instant) * (active + device) / active
    };
    let waits = SleepCost::hybrid(charged(within), charged(beyond), model.liveness_timeout);
    Ok([
        Other { name: "always active, the device charged while it waits", cost: waits },
        Other { name: "in power-save mode", cost: saving(Baseline::PowerSave) },
        Other {
            name: "in power-save mode at 30 % of active",
            cost: saving(Baseline::Watts(PART_OF_ACTIVE * active)),
        },
    ])
}

/// Dormouse's scheduler against each of [`others`] on one client. It looks at packets, so that it must live through them; what the others
/// do follows from idle periods.
pub(super) struct Beside {
    number: u32,
    ledgers: Vec<Ledger>,
    sessions: ByOther,
}

/// By baseline, the sessions of a client.
pub(super) type ByOther = Vec<Vec<ClientReport>>;

impl Beside {
    pub(super) fn new(settings: Settings, others: &[Other]) -> Self {
        let ledger = |other: &Other| {
            let policy = Policy::Dormouse.scheduler(other.cost.break_even());
            Ledger::new(Settings { cost: other.cost, ..settings }, vec![policy])
        };
        Self { number: 0, ledgers: others.iter().map(ledger).collect(), sessions: Vec::new() }
    }

    /// The sessions, once the last packet has passed.
    pub(super) fn sessions(self) -> ByOther {
        self.sessions
    }
}

impl Watch for Beside {
    fn moment(&mut self, moment: &Moment, session: u32) {
        if core::mem::replace(&mut self.number, session) != session {
            self.ledgers.iter_mut().for_each(Ledger::leave);
        }
        let now = Instant::from_nanos(moment.at);
        self.ledgers.iter_mut().for_each(|l| l.packets(now, &moment.info, moment.count));
    }

    fn finish(&mut self) {
        self.sessions = core::mem::take(&mut self.ledgers).into_iter().map(Ledger::sessions).collect();
    }
}

/// What schedulers do against one baseline.
struct Against {
    paper: Clients,
    dormouse: Clients,
}

fn paper(traffic: &Traffic, wake_on: WakeOn, cost: SleepCost) -> Clients {
    let make = || -> Box<dyn Scheduler> {
        Box::new(Paper::new(cost.break_even(), 0.5, 0.8, AverageUser::shipped()))
    };
    follow(&traffic.idle, wake_on, cost, |_, _| true, make)
}

impl Against {
    fn new(traffic: &Traffic, wake_on: WakeOn, other: usize) -> Option<Self> {
        let beside = &traffic.beside[usize::from(wake_on == WakeOn::Outgoing)];
        let sessions = |c: &ByOther| -> Vec<_> {
            c.get(other).into_iter().flatten().filter_map(|s| saved(s, 0)).collect()
        };
        let cost = traffic.others.get(other)?.cost;
        Some(Self { paper: paper(traffic, wake_on, cost), dormouse: beside.iter().map(sessions).collect() })
    }

    /// As in Eq. 3.
    fn active(results: &Results) -> Self {
        let of = |name| under(results, |c| &c.sessions, number(name));
        Self { paper: of("paper"), dormouse: of("dormouse") }
    }

    fn row(&self, shares: Shares, name: &str, break_even: f64) -> Vec<String> {
        let best = clairvoyant(&self.paper);
        let figures = [
            shares.part(&best, |v| v > SOME),
            shares.mean(&best),
            shares.mean(&self.paper),
            shares.mean(&self.dormouse),
            shares.of_all(&best),
            shares.of_all(&self.paper),
            shares.of_all(&self.dormouse),
        ];
        [name.to_owned(), format!("{break_even:.1}")].into_iter().chain(figures.map(shown)).collect()
    }
}

/// What is saved against each baseline, under both rules of waking.
pub(super) fn tables(traffic: &Traffic, shares: Shares) -> Vec<Exhibit<Table>> {
    let head = [
        "the radio that stays on is",
        "break-even, s",
        "sessions that gain, clairvoyant, %",
        "saved, mean %: clairvoyant",
        "the paper's rule",
        "dormouse's",
        "saved of all idle energy, %: clairvoyant",
        "the paper's rule",
        "dormouse's",
    ];
    let table = |wake_on: WakeOn, results: &Results| {
        let eq3 = traffic.questions.settings.cost.break_even();
        let mut rows = vec![Against::active(results).row(shares, "always active (Eq. 3)", eq3)];
        for (n, other) in traffic.others.iter().enumerate() {
            let against = Against::new(traffic, wake_on, n);
            rows.extend(against.map(|a| a.row(shares, other.name, other.cost.break_even())));
        }
        let title = format!("What is saved against other baselines than Eq. 3's, {}", wakes(wake_on));
        Exhibit::new("sections 1.2 and 3.3", Table::titled(title, head, rows))
    };
    vec![table(WakeOn::All, &traffic.all), table(WakeOn::Outgoing, &traffic.outgoing)]
}

/// How much less a radio takes in power-save mode than an active one, in percent.
fn of_power_save(model: &Model) -> f64 {
    100.0 * (1.0 - model.radio.power_save_power / model.radio.idle_power)
}

/// Whether the paper's headlines hold against these baselines.
pub(super) fn claims(traffic: &Traffic, shares: Shares) -> Vec<Claim> {
    let model = traffic.questions.model;
    let alone = of_power_save(&model);
    let active = Against::active(&traffic.all).paper;
    let more = shares.beyond(&active, alone);
    let mut claims = vec![
        Claim::new(
            "section 1.2",
            "Power-save mode may be left aside: switching the radio off saves more than power-save mode alone, clairvoyant",
            "250 mW are not trivial",
            format!(
                "{} points more: the clairvoyant saves {} % of an active radio's idle energy, power-save mode alone {alone:.1} %",
                shown(more),
                shown(shares.mean(&clairvoyant(&active)))
            ),
        )
        .judged(Expect::above(0.0), more)
        .because(format!(
            "a radio that takes {} W when it rests instead of {} W saves that in every silence, also in those too short to switch off; what its own \
             changes of state cost is not in the paper, and not counted",
            model.radio.power_save_power, model.radio.idle_power
        )),
    ];
    for (n, place, words) in [
        (POWER_SAVE, "section 1.2", "against a radio in power-save mode"),
        (DEVICE, "section 3.3", "with the device charged while it waits"),
    ] {
        let pair = [WakeOn::All, WakeOn::Outgoing].map(|wake_on| Against::new(traffic, wake_on, n));
        let ([Some(all), Some(outgoing)], Some(other)) = (pair, traffic.others.get(n)) else { continue };
        claims.extend(headlines(traffic, shares, other, [&all, &outgoing], place, words));
    }
    claims
}

fn headlines(
    traffic: &Traffic,
    shares: Shares,
    other: &Other,
    [all, outgoing]: [&Against; 2],
    place: &str,
    words: &str,
) -> [Claim; 2] {
    let before = Against::active(&traffic.outgoing);
    let [best, by_eq3] = [all, &Against::active(&traffic.all)].map(|against| clairvoyant(&against.paper));
    let (more, gain) = (shares.more_gain(&best, &by_eq3), |clients| shares.part(clients, |v| v > SOME));
    let fifth = |clients: &Clients| -> Option<Measured> { shares.part(clients, |v| v >= 20.0) };
    let why = format!(
        "the break-even time is {:.1} s instead of {:.1} s",
        other.cost.break_even(),
        traffic.questions.settings.cost.break_even()
    );
    [
        Claim::new(
            &format!("{place}, for section 3.4"),
            &format!("As many sessions gain at all, clairvoyant, {words} as by Eq. 3"),
            "78 % by Eq. 3",
            format!(
                "{} points more: {} %, by Eq. 3 {} %",
                shown(more),
                shown(gain(&best)),
                shown(gain(&by_eq3))
            ),
        )
        .judged(Expect::about(0.0, super::claims::POINTS), more)
        .because(why.clone()),
        Claim::new(
            &format!("{place}, for sections 3.5 and 6"),
            &format!("More than half of the sessions save 20 % or more with the paper's scheduler, {words}"),
            "more than 50 %, against an active radio by Eq. 3",
            format!(
                "{} %, by Eq. 3 {} %; with dormouse's {} and {} %",
                shown(fifth(&outgoing.paper)),
                shown(fifth(&before.paper)),
                shown(fifth(&outgoing.dormouse)),
                shown(fifth(&before.dormouse))
            ),
        )
        .judged(Expect::above(50.0), fifth(&outgoing.paper))
        .because(why),
    ]
}

/// What a reader must know of the comparison.
pub(super) fn notes(traffic: &Traffic) -> Vec<String> {
    let model = traffic.questions.model;
    let [device, saving, part] = traffic.others.map(|o| o.cost.break_even());
    vec![
        format!(
            "Power-save mode: section 1.2 leaves it aside because it still takes 250 mW. By the paper's own figures it takes {:.0} % less than the \
             radio that is always active, in every silence and without losing a packet. A radio that is switched off must then make good {:.0} J out of \
             {} W: the break-even time grows to {saving:.0} s, or to {part:.0} s if power-save mode takes 30 % of active, as section 1.2 also \
             says. Savings in those rows are parts of what a radio in power-save mode takes. What remains of the paper's case is a network without \
             power-save mode.",
            of_power_save(&model),
            model.radio.cycle_energy,
            model.radio.power_save_power
        ),
        format!(
            "The device's own power: section 3.3 measures what the device takes with its radio off, and says that it must be charged while the radio \
             and IPsec come back, for that long it is up for nothing else. Eq. 3 charges the radio's {} W alone. With both the break-even time is \
             {device:.1} s instead of {:.1} s. Which is right depends on the device: one that has other work meanwhile pays less.",
            model.radio.idle_power,
            traffic.questions.settings.cost.break_even()
        ),
    ]
}
