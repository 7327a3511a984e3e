//! From recordings to results: survey, directory, activities by client and time, and the accounting of every client.
//!
//! The calling thread decodes, sorts and folds; clients are shared out to `threads` workers by number, and a worker has one client at a
//! time. Each client's pieces reach it in order of time, so results depend neither on the number of threads nor on the order of the files
//! nor on that of their records.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::activity::{Activity, Mark, Moment};
use crate::clients::{Client, Directory, Handed, Site, Wanted};
use crate::decode::{Format, Next};
use crate::facts::{Facts, Limits};
use crate::flow::Spread;
use crate::fold::{Fold, Piece, Sessions, View};
use crate::input::Input;
use crate::read::Reader;
use crate::seen::ClientPacket;
use crate::sort::Sorter;
use crate::survey::{FileSurvey, merge, survey};
use dormouse_energy::PacketInfo;
use dormouse_energy::account::{ClientReport, Ledger, Settings};
use dormouse_energy::schedule::Policy;
use dormouse_sansio::Instant;

/// Pieces handed to a worker at once.
const BATCH: usize = 1024;
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
    /// What ends a session, beside the silence in `settings`.
    pub sessions: Sessions,
    /// Bounds on the addresses and names that are remembered.
    pub limits: Limits,
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
    /// The facts of each site.
    pub sites: BTreeMap<String, Facts>,
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
    /// The clients that had packets, sorted by site and name.
    pub clients: Vec<ClientResult<X>>,
    /// By which rule they were found, in words.
    pub rule: String,
    /// Each file, sorted by name.
    pub files: Vec<FileSurvey>,
    /// Packets in all files.
    pub packets: u64,
    /// Packets that belong to no client.
    pub unattributed: u64,
    /// Packets of flows that were too many at once in one client ([`crate::fold::MAX_OPEN`]) to be put in their place.
    pub late: u64,
    /// Addresses that several devices had.
    pub handed: Vec<Handed>,
}

/// Something that watches a client's packets beside the ledger: figures, exporters. One for each client.
pub trait Watch: Send {
    /// The client's next packets, and the number of their session as the input tells it (silences end sessions beside).
    fn moment(&mut self, moment: &Moment, session: u32);
    /// The last packet has passed.
    fn finish(&mut self) {}
}

impl Watch for () {
    fn moment(&mut self, _moment: &Moment, _session: u32) {}
}

impl<A: Watch, B: Watch> Watch for (A, B) {
    fn moment(&mut self, moment: &Moment, session: u32) {
        self.0.moment(moment, session);
        self.1.moment(moment, session);
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
    limits: Limits,
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
                    let result = survey(input, format, limits, &report);
                    if let Ok(mut done) = done.lock() {
                        done.0.push(result);
                    }
                }
            });
        }
    });
    let mut results = done.into_inner().map(|d| d.0).unwrap_or_default();
    results.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    let mut all = Survey { files: Vec::with_capacity(results.len()), sites: BTreeMap::new() };
    for (mut file, facts) in results {
        merge(&mut all.sites, &mut file, facts, limits);
        all.files.push(file);
    }
    all
}

/// Packets that were read, and those of them that belong to no client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// All.
    pub packets: u64,
    /// Of no client.
    pub unattributed: u64,
}

/// One file on its way to activities.
struct Attribution<'a> {
    site: &'a Site,
    spread: Spread,
    /// The client numbers of the input's own.
    names: Vec<Option<Option<u32>>>,
    /// Clients whose next packet is the first behind an association.
    joined: BTreeSet<u32>,
    counts: Counts,
}

impl Attribution<'_> {
    fn named(&mut self, reader: &Reader, number: u32) -> Option<u32> {
        let at = number as usize;
        if self.names.len() <= at {
            self.names.resize(at + 1, None);
        }
        let known = self.names.get_mut(at)?;
        *known.get_or_insert_with(|| reader.decoder().named(number).and_then(|n| self.site.named(&n)))
    }

    fn count(&mut self, packets: u64, clients: bool) {
        self.counts.packets = self.counts.packets.saturating_add(packets);
        if !clients {
            self.counts.unattributed = self.counts.unattributed.saturating_add(packets);
        }
    }

    /// Hands on the activities of both ends.
    #[inline]
    fn record(
        &mut self,
        reader: &Reader,
        next: &Next,
        sink: &mut dyn FnMut(Activity) -> io::Result<()>,
    ) -> io::Result<()> {
        match next {
            Next::Packet(seen) => {
                let ends = match seen.name.checked_sub(1) {
                    None => self.site.ends(seen),
                    Some(number) => [self.named(reader, number).map(|id| (id, seen.direction)), None],
                };
                self.count(1, ends != [None, None]);
                for (n, (client, direction)) in
                    ends.into_iter().enumerate().filter_map(|(n, e)| Some((n, e?)))
                {
                    let info = seen.info(direction);
                    let mut activity = Activity::packet(&ClientPacket { at: seen.at, client, info });
                    if (n == 0 && seen.joins()) || (!self.joined.is_empty() && self.joined.remove(&client)) {
                        activity.mark = Mark::Joins;
                    }
                    sink(activity)?;
                }
            }
            Next::Flow(flow) => {
                let ends = self.site.ends(&flow.first);
                self.count(flow.activity(0, flow.first.direction, self.spread).packets, ends != [None, None]);
                for (client, direction) in ends.into_iter().flatten() {
                    sink(flow.activity(client, direction, self.spread))?;
                }
            }
            Next::Burst(activity) => {
                let client = self.named(reader, activity.client);
                self.count(activity.packets, client.is_some());
                if let Some(client) = client {
                    sink(Activity { client, ..**activity })?;
                }
            }
            Next::Joins(mac) => self.joined.extend(self.site.device(*mac)),
            Next::Upkeep | Next::Damaged(_) | Next::End => {}
        }
        Ok(())
    }
}

/// Every client's activities, file by file in the order of the survey, as they are read.
///
/// # Errors
/// Those of `sink`. What changed in a file since the survey is not noticed.
pub fn gather(
    inputs: &[Input],
    survey: &Survey,
    directory: &Directory,
    spread: Spread,
    progress: Progress<'_>,
    sink: &mut dyn FnMut(Activity) -> io::Result<()>,
) -> io::Result<Counts> {
    let (mut counts, mut before) = (Counts::default(), 0);
    for file in survey.files.iter().filter(|f| f.format.is_some() && f.records > 0) {
        let Some(input) = inputs.iter().find(|i| i.name() == file.name) else { continue };
        let Ok(mut reader) = Reader::open(input, file.format) else { continue };
        let none = Site::default();
        let site = directory.site(&file.site).unwrap_or(&none);
        let mut of = Attribution { site, spread, names: Vec::new(), joined: BTreeSet::new(), counts };
        let mut records = 0u64;
        while let Some(next) = reader.record() {
            of.record(&reader, &next, sink)?;
            records += 1;
            if records.is_multiple_of(1 << 17) {
                progress(1, before + reader.offset());
            }
        }
        counts = of.counts;
        before += reader.offset();
    }
    progress(1, before);
    Ok(counts)
}

/// A client's account on its way.
pub struct Account<X> {
    first: u64,
    last: u64,
    sessions: Ledger,
    session: u32,
    /// The same without an end of sessions; absent where there is none anyhow.
    days: Option<Ledger>,
    extra: X,
}

impl<X: Watch> Account<X> {
    /// For a client whose first packet comes at `first`.
    #[must_use]
    pub fn new(settings: Settings, rule: Sessions, policies: &[Policy], first: u64, extra: X) -> Self {
        let break_even = settings.cost.break_even();
        let ledger =
            |settings| Ledger::new(settings, policies.iter().map(|p| p.scheduler(break_even)).collect());
        let ends = settings.session.is_some() || rule != Sessions::Silence;
        let days = ends.then(|| ledger(Settings { session: None, ..settings }));
        Self { first, last: first, sessions: ledger(settings), session: 0, days, extra }
    }

    /// The client's next packet, in order of time.
    pub fn packet(&mut self, at: u64, info: &PacketInfo) {
        self.moment(&Moment { at, count: 1, info: *info }, self.session, View::Both);
    }

    /// The client's next piece.
    pub fn piece(&mut self, piece: &Piece) {
        let Piece { activity, view } = piece;
        if activity.packets == 1 {
            let moment = Moment { at: activity.start, count: 1, info: activity.first };
            self.moment(&moment, activity.session, *view);
            return;
        }
        activity.moments().for_each(|moment| self.moment(&moment, activity.session, *view));
    }

    fn moment(&mut self, moment: &Moment, session: u32, view: View) {
        let Moment { at, count, info } = *moment;
        self.last = self.last.max(at);
        let now = Instant::from_nanos(at);
        if view != View::Client {
            if session != self.session {
                self.sessions.leave();
                self.session = session;
            }
            self.sessions.packets(now, &info, count);
            self.extra.moment(moment, session);
        }
        if let (Some(days), true) = (&mut self.days, view != View::Sessions) {
            days.packets(now, &info, count);
        }
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

/// The accounts of one worker, one after the other.
struct Worker<'a, X> {
    options: &'a Options,
    watch: &'a (dyn Fn(&Client) -> X + Sync),
    clients: &'a [Client],
    account: Option<(u32, Box<Account<X>>)>,
    done: Vec<ClientResult<X>>,
}

impl<X: Watch> Worker<'_, X> {
    fn piece(&mut self, piece: &Piece) {
        let number = piece.activity.client;
        if self.account.as_ref().is_none_or(|(client, _)| *client != number) {
            self.close();
            let Some(client) = self.clients.get(number as usize) else { return };
            let Options { settings, sessions, policies, .. } = self.options;
            let extra = (self.watch)(client);
            let account = Account::new(*settings, *sessions, policies, piece.activity.start, extra);
            self.account = Some((number, Box::new(account)));
        }
        if let Some((_, account)) = &mut self.account {
            account.piece(piece);
        }
    }

    fn close(&mut self) {
        if let Some((number, account)) = self.account.take()
            && let Some(client) = self.clients.get(number as usize)
        {
            self.done.push(account.finish(client.clone()));
        }
    }

    fn work(mut self, batches: &Receiver<Vec<Piece>>) -> Vec<ClientResult<X>> {
        for batch in batches {
            batch.iter().for_each(|piece| self.piece(piece));
        }
        self.close();
        self.done
    }
}

/// The whole way. `watch` makes what else is to be collected for each client; `()` collects nothing.
///
/// # Errors
/// Never for what is in the files: that is in [`FileSurvey::losses`]. When a temporary file cannot be written, or a worker died.
pub fn analyse<X: Watch>(
    inputs: &[Input],
    options: &Options,
    progress: Progress<'_>,
    watch: &(dyn Fn(&Client) -> X + Sync),
) -> io::Result<Analysis<X>> {
    let survey = survey_all(inputs, options.format, options.limits, options.threads, progress);
    let (directory, rule) = Directory::find(&survey.sites, &options.wanted);
    account(inputs, survey, &directory, rule, options, progress, watch, &mut |_| ())
}

/// The second half of [`analyse`], for callers that need the survey or the directory: `tap` sees every piece of a client as a whole, client
/// by client and in order of time.
///
/// # Errors
/// As [`analyse`].
#[expect(clippy::too_many_arguments, reason = "the halves of one operation share its state")]
pub fn account<X: Watch>(
    inputs: &[Input],
    survey: Survey,
    directory: &Directory,
    rule: String,
    options: &Options,
    progress: Progress<'_>,
    watch: &(dyn Fn(&Client) -> X + Sync),
    tap: &mut dyn FnMut(&Activity),
) -> io::Result<Analysis<X>> {
    let mut sorter = Sorter::default();
    let counts = gather(inputs, &survey, directory, options.spread, progress, &mut |a| sorter.push(a))?;
    let workers = options.threads.clamp(1, 64);
    let (mut clients, late) = std::thread::scope(|scope| -> io::Result<_> {
        let mut senders: Vec<SyncSender<Vec<Piece>>> = Vec::new();
        let mut handles = Vec::new();
        for _ in 0..workers {
            let (sender, receiver) = sync_channel(BACKLOG);
            let worker =
                Worker { options, watch, clients: directory.clients(), account: None, done: Vec::new() };
            handles.push(scope.spawn(move || worker.work(&receiver)));
            senders.push(sender);
        }
        let mut batches: Vec<Vec<Piece>> = (0..workers).map(|_| Vec::with_capacity(BATCH)).collect();
        let mut out = |piece: &Piece| {
            if piece.view != View::Sessions {
                tap(&piece.activity);
            }
            let to = piece.activity.client as usize % workers;
            if let (Some(batch), Some(sender)) = (batches.get_mut(to), senders.get(to)) {
                batch.push(*piece);
                if batch.len() == BATCH {
                    // A worker that died is noticed when it is joined.
                    let _ = sender.send(std::mem::replace(batch, Vec::with_capacity(BATCH)));
                }
            }
        };
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let Settings { min_idle, session, .. } = options.settings;
        let mut fold = Fold::new(nanos(min_idle), session.map(nanos), options.sessions);
        for activity in sorter.sorted()? {
            fold.push(activity?, &mut out);
        }
        fold.finish(&mut out);
        for (batch, sender) in batches.into_iter().zip(senders) {
            let _ = sender.send(batch);
        }
        let mut clients = Vec::new();
        for handle in handles {
            clients.extend(handle.join().map_err(|_| io::Error::other("an accounting thread died"))?);
        }
        Ok((clients, fold.crowded()))
    })?;
    clients.sort_by(|a, b| a.client.cmp(&b.client));
    let Counts { packets, unattributed } = counts;
    let handed = directory.handed().to_vec();
    Ok(Analysis { clients, rule, files: survey.files, packets, unattributed, late, handed })
}

/// Seconds as nanoseconds, for times within one client's recording.
#[must_use]
pub fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
