//! From recordings to results: survey, directory, one ordered stream, and the accounting of every client.
//!
//! The calling thread decodes and merges; clients are shared out to `threads` workers by number. Each client's packets reach
//! its worker in order of time, so results depend neither on the number of threads nor on the order of the files.

use core::time::Duration;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::clients::{Client, Directory, Ends, Rule, Wanted};
use crate::decode::Format;
use crate::flow::Spread;
use crate::input::Input;
use crate::merge::Merge;
use crate::seen::{ClientPacket, Seen};
use crate::survey::{Facts, FileSurvey, survey};
use dormouse_energy::PacketInfo;
use dormouse_energy::account::{ClientReport, Ledger, Settings};
use dormouse_energy::schedule::Policy;
use dormouse_sansio::Instant;

/// Packets handed to a worker at once.
const BATCH: usize = 4096;
/// Batches under way to one worker.
const BACKLOG: usize = 8;

/// What to do with the recordings.
#[derive(Clone, Debug)]
pub struct Options {
    /// The clients to account; if empty, clients are found by [`Rule`].
    pub wanted: Vec<Wanted>,
    /// The format, where it should not be recognised from the content.
    pub format: Option<Format>,
    /// How flows are spread.
    pub spread: Spread,
    /// How costs are counted.
    pub settings: Settings,
    /// The policies, `clairvoyant` apart.
    pub policies: Vec<Policy>,
    /// Worker threads, at least 1.
    pub threads: usize,
}

impl Options {
    /// The policies of every report, with the given fixed time-out in seconds.
    #[must_use]
    pub fn policies(timeout: f64) -> Vec<Policy> {
        vec![Policy::Never, Policy::Timeout(timeout), Policy::BreakEven, Policy::PAPER, Policy::Dormouse]
    }
}

/// What the first reading found.
#[derive(Debug)]
pub struct Survey {
    /// Each file, sorted by name.
    pub files: Vec<FileSurvey>,
    /// The facts of all files.
    pub facts: Facts,
}

/// One client's result.
#[derive(Clone, Debug)]
pub struct ClientResult<X> {
    /// The client.
    pub client: Client,
    /// First packet, in nanoseconds since 1970.
    pub first: u64,
    /// Last packet.
    pub last: u64,
    /// The accounting of each session, in order of time: the unit of every figure.
    pub sessions: Vec<ClientReport>,
    /// The same traffic as one session, in which absence counts as idle time.
    pub days: ClientReport,
    /// What else was collected.
    pub extra: X,
}

impl<X> ClientResult<X> {
    /// All sessions together.
    #[must_use]
    pub fn report(&self) -> ClientReport {
        ClientReport::sum(&self.sessions)
    }
}

/// The result of everything.
#[derive(Debug)]
pub struct Analysis<X> {
    /// The clients that had packets, sorted by name.
    pub clients: Vec<ClientResult<X>>,
    /// By which rule they were found.
    pub rule: Rule,
    /// Each file, sorted by name.
    pub files: Vec<FileSurvey>,
    /// Packets in all files, after flows were spread.
    pub packets: u64,
    /// Packets that belong to no client.
    pub unattributed: u64,
    /// Packets that came too late to be put in their place; they count as simultaneous with their client's last.
    pub late: u64,
}

/// Something that watches a client's packets beside the ledger: figures, exporters. One for each client.
pub trait Watch: Send {
    /// The client's next packet.
    fn packet(&mut self, at: u64, info: &PacketInfo);
    /// The last packet has passed.
    fn finish(&mut self) {}
}

impl Watch for () {
    fn packet(&mut self, _at: u64, _info: &PacketInfo) {}
}

impl<A: Watch, B: Watch> Watch for (A, B) {
    fn packet(&mut self, at: u64, info: &PacketInfo) {
        self.0.packet(at, info);
        self.1.packet(at, info);
    }

    fn finish(&mut self) {
        self.0.finish();
        self.1.finish();
    }
}

/// Progress of a long input: phase (0 survey, 1 accounting) and bytes read of that phase.
pub type Progress<'a> = &'a (dyn Fn(u32, u64) + Sync);

/// Reads all inputs once, `threads` at a time.
#[must_use]
pub fn survey_all(
    inputs: &[Input],
    format: Option<Format>,
    threads: usize,
    progress: Progress<'_>,
) -> Survey {
    let next = AtomicUsize::new(0);
    let done = Mutex::new((Vec::new(), vec![0u64; inputs.len()]));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, inputs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(input) = inputs.get(at) else { return };
                    let report = |bytes: u64| {
                        if let Ok(mut done) = done.lock() {
                            if let Some(mine) = done.1.get_mut(at) {
                                *mine = bytes;
                            }
                            progress(0, done.1.iter().sum());
                        }
                    };
                    let result = survey(input, format, &report);
                    if let Ok(mut done) = done.lock() {
                        done.0.push(result);
                    }
                }
            });
        }
    });
    let mut results = done.into_inner().map(|d| d.0).unwrap_or_default();
    results.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    let mut facts = Facts::default();
    let mut files = Vec::with_capacity(results.len());
    for (file, of_file) in results {
        facts.merge(of_file);
        files.push(file);
    }
    Survey { files, facts }
}

/// Turns a packet into the events of the clients that it belongs to.
struct Attribution<'a> {
    directory: &'a Directory,
    /// For each file, the client numbers of its names.
    names: Vec<Vec<Option<Option<u32>>>>,
}

impl Attribution<'_> {
    #[inline]
    fn ends(&mut self, merge: &Merge<'_>, file: usize, seen: &Seen) -> Ends {
        if seen.name == 0 {
            return self.directory.ends(seen);
        }
        [self.named(merge, file, seen.name).map(|id| (id, seen.direction)), None]
    }

    fn named(&mut self, merge: &Merge<'_>, file: usize, name: u32) -> Option<u32> {
        let names = self.names.get_mut(file)?;
        let at = name as usize;
        if names.len() <= at {
            names.resize(at + 1, None);
        }
        let known = names.get_mut(at)?;
        *known.get_or_insert_with(|| merge.name(file, name).and_then(|n| self.directory.named(n)))
    }
}

/// Feeds every client's packets, in order of time, to `sink`.
/// Returns packets read, packets that belong to no client, packets that came too late.
pub fn stream(
    inputs: &[Input],
    survey: &Survey,
    directory: &Directory,
    spread: Spread,
    progress: Progress<'_>,
    sink: &mut dyn FnMut(ClientPacket),
) -> (u64, u64, u64) {
    let of = |input: &Input| survey.files.iter().find(|f| f.name == input.name());
    let files: Vec<_> = inputs.iter().filter_map(|i| Some((i, of(i)?))).collect();
    let mut attribution = Attribution { directory, names: vec![Vec::new(); files.len()] };
    let mut merge = Merge::new(files, spread);
    let (mut packets, mut unattributed) = (0u64, 0u64);
    while let Some((file, seen)) = merge.packet() {
        packets += 1;
        if packets.is_multiple_of(1 << 18) {
            progress(1, merge.offset());
        }
        let ends = attribution.ends(&merge, file, &seen);
        if ends == [None, None] {
            unattributed += 1;
        }
        for (client, direction) in ends.into_iter().flatten() {
            sink(ClientPacket { at: seen.at, client, info: seen.info(direction) });
        }
    }
    progress(1, merge.offset());
    (packets, unattributed, merge.late())
}

/// A client's account on its way.
pub struct Account<X> {
    first: u64,
    last: u64,
    sessions: Ledger,
    /// The same without an end of sessions; absent where there is none anyhow.
    days: Option<Ledger>,
    extra: X,
}

impl<X: Watch> Account<X> {
    /// For a client whose first packet comes at `first`.
    #[must_use]
    pub fn new(settings: Settings, policies: &[Policy], first: u64, extra: X) -> Self {
        let break_even = settings.cost.break_even();
        let ledger =
            |settings| Ledger::new(settings, policies.iter().map(|p| p.scheduler(break_even)).collect());
        let days = settings.session.map(|_| ledger(Settings { session: None, ..settings }));
        Self { first, last: first, sessions: ledger(settings), days, extra }
    }

    /// The client's next packet, in order of time.
    pub fn packet(&mut self, at: u64, info: &PacketInfo) {
        self.last = self.last.max(at);
        let now = Instant::from_nanos(at);
        self.sessions.packet(now, info);
        if let Some(days) = &mut self.days {
            days.packet(now, info);
        }
        self.extra.packet(at, info);
    }

    /// The last packet has passed.
    #[must_use]
    pub fn finish(mut self, client: Client) -> ClientResult<X> {
        self.extra.finish();
        let sessions = self.sessions.sessions();
        let days = self.days.map_or_else(|| ClientReport::sum(&sessions), Ledger::finish);
        ClientResult { client, first: self.first, last: self.last, sessions, days, extra: self.extra }
    }
}

/// The accounts of one worker.
struct Worker<'a, X> {
    options: &'a Options,
    watch: &'a (dyn Fn(&Client) -> X + Sync),
    directory: &'a Directory,
    workers: usize,
    accounts: Vec<Option<Box<Account<X>>>>,
}

impl<X: Watch> Worker<'_, X> {
    fn packet(&mut self, event: &ClientPacket) {
        let at = event.client as usize / self.workers;
        if self.accounts.len() <= at {
            self.accounts.resize_with(at + 1, || None);
        }
        let Some(slot) = self.accounts.get_mut(at) else { return };
        let account = slot.get_or_insert_with(|| {
            let client = self.directory.clients().get(event.client as usize);
            let extra = (self.watch)(client.unwrap_or(&UNKNOWN));
            Box::new(Account::new(self.options.settings, &self.options.policies, event.at, extra))
        });
        account.packet(event.at, &event.info);
    }

    fn finish(self, worker: usize) -> Vec<ClientResult<X>> {
        let accounts = self.accounts.into_iter().enumerate();
        accounts
            .filter_map(|(at, account)| {
                let client = self.directory.clients().get(at * self.workers + worker)?.clone();
                Some(account?.finish(client))
            })
            .collect()
    }
}

const UNKNOWN: Client = Client { name: String::new(), mac: None, addresses: Vec::new() };

fn work<X: Watch>(
    mut worker: Worker<'_, X>,
    number: usize,
    batches: &Receiver<Vec<ClientPacket>>,
) -> Vec<ClientResult<X>> {
    for batch in batches {
        batch.iter().for_each(|event| worker.packet(event));
    }
    worker.finish(number)
}

/// The whole way. `watch` makes what else is to be collected for each client; `()` collects nothing.
///
/// # Errors
/// Never for what is in the files: that is in [`FileSurvey::losses`]. When a worker died.
pub fn analyse<X: Watch>(
    inputs: &[Input],
    options: &Options,
    progress: Progress<'_>,
    watch: &(dyn Fn(&Client) -> X + Sync),
) -> io::Result<Analysis<X>> {
    let survey = survey_all(inputs, options.format, options.threads, progress);
    let (directory, rule) = Directory::find(&survey.facts, &options.wanted);
    account(inputs, survey, &directory, rule, options, progress, watch, &mut |_| ())
}

/// The second half of [`analyse`], for callers that need the survey or the directory: `tap` sees every event in order of time.
///
/// # Errors
/// As [`analyse`].
#[expect(clippy::too_many_arguments, reason = "the halves of one operation share its state")]
pub fn account<X: Watch>(
    inputs: &[Input],
    survey: Survey,
    directory: &Directory,
    rule: Rule,
    options: &Options,
    progress: Progress<'_>,
    watch: &(dyn Fn(&Client) -> X + Sync),
    tap: &mut dyn FnMut(&ClientPacket),
) -> io::Result<Analysis<X>> {
    let workers = options.threads.clamp(1, 64);
    let (mut clients, counts) = std::thread::scope(|scope| -> io::Result<_> {
        let mut senders: Vec<SyncSender<Vec<ClientPacket>>> = Vec::new();
        let mut handles = Vec::new();
        for number in 0..workers {
            let (sender, receiver) = sync_channel(BACKLOG);
            let worker = Worker { options, watch, directory, workers, accounts: Vec::new() };
            handles.push(scope.spawn(move || work(worker, number, &receiver)));
            senders.push(sender);
        }
        let mut batches: Vec<Vec<ClientPacket>> = (0..workers).map(|_| Vec::with_capacity(BATCH)).collect();
        let counts = stream(inputs, &survey, directory, options.spread, progress, &mut |event| {
            tap(&event);
            let to = event.client as usize % workers;
            if let (Some(batch), Some(sender)) = (batches.get_mut(to), senders.get(to)) {
                batch.push(event);
                if batch.len() == BATCH {
                    // A worker that died is noticed when it is joined.
                    let _ = sender.send(std::mem::replace(batch, Vec::with_capacity(BATCH)));
                }
            }
        });
        for (batch, sender) in batches.into_iter().zip(senders) {
            let _ = sender.send(batch);
        }
        let mut clients = Vec::new();
        for handle in handles {
            clients.extend(handle.join().map_err(|_| io::Error::other("an accounting thread died"))?);
        }
        Ok((clients, counts))
    })?;
    clients.sort_by(|a, b| a.client.cmp(&b.client));
    let (packets, unattributed, late) = counts;
    Ok(Analysis { clients, rule, files: survey.files, packets, unattributed, late })
}

/// Seconds as nanoseconds, for times within one client's recording.
#[must_use]
pub fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
