//! The traffic of the experiment: recordings, or a synthetic population under many seeds, each client followed once with every packet
//! waking and once with only its own. Owns how it is made and folded; must never look at a result.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};
use dormouse_energy::WakeOn;
use dormouse_energy::account::Settings;
use dormouse_energy::model::Model;
use dormouse_energy::profile::Profile;
use dormouse_energy::schedule::Policy;
use dormouse_trace::analyse::{Account, Analysis, ClientResult, Options, account, survey_all};
use dormouse_trace::clients::{Client, Directory, Rule};
use dormouse_trace::facts::Limits;
use dormouse_trace::fold::Sessions as Ends;
use dormouse_trace::generate::{Population, Recipe};
use dormouse_trace::input::Input;
use dormouse_trace::report::charts;
use dormouse_trace::report::figures::{Figures, Questions};
use dormouse_trace::report::json::{Accounting, Report};
use dormouse_trace::report::page;
use dormouse_trace::survey::FileSurvey;

use super::baselines::{Beside, ByOther, OTHERS, Other, others};
use super::idle::{Idle, Sessions};
use super::law::{Chooser, Law};
use super::raw::settings;
use crate::experiment::{Context, Reading};
use crate::results::format::stretches;

/// Synthetic clients, unless told otherwise: about as many as the paper's day has sessions.
const CLIENTS: u32 = 3_000;
/// In the short form.
const FEW: u32 = 400;
/// Seeds of the population. Clients of one seed share the hours of the day, those of different seeds nothing.
pub(super) const SEEDS: u32 = 20;
/// What of a recording could not be read is spelt out so often.
const LOSSES: usize = 5;
/// Added to the seed: populations on which no constant of Dormouse's scheduler was chosen (docs/policy.md names those).
const UNSEEN: u64 = 500_000;

/// The seed of a population: those of two seeds that a user gives share none.
const fn seed(given: u64, n: u32) -> u64 {
    given.wrapping_mul(SEEDS as u64).wrapping_add(UNSEEN + n as u64)
}

/// What came out.
pub(super) struct Traffic {
    /// With every packet waking, and with only what the client sends.
    pub(super) all: Analysis<Figures>,
    pub(super) outgoing: Analysis<Figures>,
    /// Each client's idle periods.
    pub(super) idle: Vec<Sessions>,
    /// Dormouse's scheduler against other baselines: with every packet waking, and with only what the client sends.
    pub(super) beside: [Vec<ByOther>; 2],
    pub(super) others: [Other; OTHERS],
    /// The questions of `all`.
    pub(super) questions: Questions,
    pub(super) synthetic: bool,
    /// In words.
    pub(super) words: Vec<String>,
}

/// The policies that are accounted, in their order.
pub(super) fn policies() -> Vec<Policy> {
    Options::policies(60.0)
}

impl Traffic {
    pub(super) fn new(context: &Context, profile: &Profile) -> anyhow::Result<Self> {
        let (model, others) = (profile.model()?, others(profile)?);
        let synthetic = context.recordings.is_empty();
        ensure!(
            !synthetic || context.reading == Reading::default(),
            "sites, and what a session is, can be chosen for recordings alone: of synthetic traffic both are known"
        );
        let settings = |wake_on| settings(model, wake_on, context.reading.session);
        let fold = |wake_on| match synthetic {
            true => made(context, settings(wake_on), model, &others),
            false => recorded(context, settings(wake_on), model, &others),
        };
        let (all, questions, mut words) = fold(WakeOn::All)?;
        let (outgoing, _, _) = fold(WakeOn::Outgoing)?;
        let (all, idle, beside) = parted(all);
        let (outgoing, _, beside_outgoing) = parted(outgoing);
        let synthetic = synthetic || all.files.iter().any(|f| f.synthetic.is_some());
        let (sessions, packets) =
            charts::sessions(&all).fold((0u64, 0u64), |(n, packets), s| (n + 1, packets + s.packets));
        words.push(format!(
            "{} clients in {sessions} sessions with {packets} packets ({})",
            all.clients.len(),
            all.rule
        ));
        words.push(
            "The paper: one day of 3,098 connections to the wireless network of Indiana University, as NetFlow"
                .to_owned(),
        );
        Ok(Self {
            all,
            outgoing,
            idle,
            beside: [beside, beside_outgoing],
            others,
            questions,
            synthetic,
            words,
        })
    }

    /// Whether the law of its silences is known, and something was chosen by it.
    pub(super) fn knows(&self) -> bool {
        self.idle.iter().flatten().any(|session| !session.chosen[0].is_empty())
    }
}

type Watched = (Figures, (Idle, Beside));
type Folded = (Analysis<Watched>, Questions, Vec<String>);

fn watched(questions: &Questions, settings: Settings, others: &[Other], client: &Client) -> Watched {
    (Figures::new(questions, client), (Idle::new(settings.session), Beside::new(settings, others)))
}

/// The watches apart.
fn parted(all: Analysis<Watched>) -> (Analysis<Figures>, Vec<Sessions>, Vec<ByOther>) {
    let (mut clients, mut idle, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    for ClientResult { client, first, last, sessions, days, extra } in all.clients {
        let (figures, (of_idle, of_beside)) = extra;
        clients.push(ClientResult { client, first, last, sessions, days, extra: figures });
        idle.push(of_idle.sessions());
        beside.push(of_beside.sessions());
    }
    let Analysis { rule, files, packets, unattributed, late, handed, .. } = all;
    (Analysis { clients, rule, files, packets, unattributed, late, handed }, idle, beside)
}

/// [`SEEDS`] populations, each on one thread from its packets to its accounts.
fn made(context: &Context, settings: Settings, model: Model, others: &[Other]) -> anyhow::Result<Folded> {
    let each = context.clients.unwrap_or(if context.short { FEW } else { CLIENTS }).div_ceil(SEEDS);
    let recipe =
        |n: u32| Recipe { clients: each, days: 1, seed: seed(context.seed, n), start: 1_700_006_400 };
    let client = |n: u32, id: u32| Client::named(&format!("seed-{}-{id:05}", recipe(n).seed));
    let names: Vec<Client> = (0..SEEDS).flat_map(|n| (0..each).map(move |id| client(n, id))).collect();
    let (questions, policies) = (Questions::new(settings, model, &names), policies());
    let (next, done) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    // Both rules at once, where every packet wakes.
    let law = (settings.wake_on == WakeOn::All).then(|| Law::new(settings.cost));
    let population = |n: u32| -> Vec<ClientResult<Watched>> {
        let mut accounts: Vec<Option<Account<Watched>>> = (0..each).map(|_| None).collect();
        let mut choosers: Vec<Chooser> = (0..each).map(|_| Chooser::default()).collect();
        let mut made = Population::new(recipe(n));
        while let Some(packet) = made.next() {
            let Some(slot) = accounts.get_mut(packet.client as usize) else { continue };
            let extra = || watched(&questions, settings, others, &client(n, packet.client));
            slot.get_or_insert_with(|| Account::new(settings, Ends::Silence, &policies, packet.at, extra()))
                .packet(packet.at, &packet.info);
            if let Some((law, chooser)) = law.as_ref().zip(choosers.get_mut(packet.client as usize)) {
                chooser.packet(law, &made, &packet);
            }
        }
        let finish = |((id, account), chooser): ((u32, Option<Account<Watched>>), Chooser)| {
            let mut client = account?.finish(client(n, id));
            client.extra.1.0.chosen = chooser.chosen;
            Some(client)
        };
        (0..each).zip(accounts).zip(choosers).filter_map(finish).collect()
    };
    std::thread::scope(|scope| {
        for _ in 0..context.threads.clamp(1, SEEDS as usize) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= SEEDS {
                        return;
                    }
                    let clients = population(n);
                    if let Ok(mut done) = done.lock() {
                        done.extend(clients);
                    }
                }
            });
        }
    });
    let mut clients: Vec<ClientResult<Watched>> =
        done.into_inner().map_err(|_| anyhow::anyhow!("an accounting thread died"))?;
    clients.sort_by(|a, b| a.client.cmp(&b.client));
    let packets = clients.iter().map(|c| c.days.packets).sum();
    let last = recipe(SEEDS - 1).seed;
    let words = vec![recipe(0).label(), format!("the same with each seed up to {last}: {SEEDS} populations")];
    let (rule, files, handed) = (Rule::Named.to_string(), Vec::new(), Vec::new());
    let analysis = Analysis { clients, rule, files, packets, unattributed: 0, late: 0, handed };
    Ok((analysis, questions, words))
}

fn recorded(context: &Context, settings: Settings, model: Model, others: &[Other]) -> anyhow::Result<Folded> {
    let Reading { session_by: sessions, flows: spread, .. } = context.reading;
    let files = context.recordings.iter().map(|path| Input::file(path)).collect();
    let inputs = context.reading.prepare(files)?;
    let threads = context.threads.max(1);
    let (wanted, policies) = (context.reading.wanted(), policies());
    let limits = Limits::default();
    let options = Options { wanted, format: None, spread, settings, sessions, limits, policies, threads };
    let survey = survey_all(&inputs, None, limits, threads, &|_, _| ());
    let (directory, rule) = Directory::find(&survey.sites, &options.wanted);
    let questions = Questions::new(settings, model, directory.clients());
    let watch = |client: &Client| watched(&questions, settings, others, client);
    let analysis = account(&inputs, survey, &directory, rule, &options, &|_, _| (), &watch, &mut |_| ())
        .context("reading the recordings")?;
    let mut words: Vec<String> = analysis.files.iter().flat_map(told).collect();
    words.extend(page::notes(&Report::new(&analysis, Accounting::of(&options))));
    Ok((analysis, questions, words))
}

/// A recording in words, with what of it could not be read.
fn told(f: &FileSurvey) -> Vec<String> {
    let site = if f.site == f.name { String::new() } else { format!(", of the site {}", f.site) };
    let lost = match f.losses.total() {
        0 => String::new(),
        lost => format!("; {}", stretches(lost)),
    };
    let what = if f.synthetic.is_some() { "synthetic" } else { "recorded" };
    let file = format!("{}: {} records, {what}{site}{lost}", f.name, f.records);
    let losses = f.losses.kept().iter().take(LOSSES).map(|loss| format!("lost: {loss}"));
    f.synthetic.iter().cloned().chain([file]).chain(losses).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{SEEDS, UNSEEN, seed};

    #[test]
    fn populations_of_neighbouring_seeds_share_none() {
        let all: BTreeSet<u64> = (0..50).flat_map(|given| (0..SEEDS).map(move |n| seed(given, n))).collect();
        assert_eq!(all.len(), 50 * SEEDS as usize);
        assert_eq!(all.first(), Some(&UNSEEN));
        let _ = seed(u64::MAX, SEEDS - 1);
    }
}
