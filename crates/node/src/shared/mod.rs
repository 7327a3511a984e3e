//! A gateway that shares a store with others: what it hears of them and what it tells them, in which order ([`Courier`]), and what follows
//! from the news ([`Company`]). Owns the words of both; must never be a connection or a thread: who has these lends them as a [`Store`] and an
//! [`Office`]. `dormoused` does with PostgreSQL, `dormouse-sim` with a model of it.

mod balance;
mod clock;
mod company;
mod courier;
mod drain;
mod handovers;
mod queue;
mod takeovers;

pub use balance::{Balance, Destination, FACTOR, MARGIN, SharedBalance};
pub use company::{Company, Heard};
pub use courier::{BEAT, Beginning, Courier, KEPT, KEYS, RETRY, SILENT, begin};
pub use drain::{Drain, DrainEnd};
pub use queue::{BATCH, Batch, Changes, Waiting};

use crate::handover::Handover;
use crate::pool::{Addresses, Change, Lessee};
use dormouse_crypto::Secret;
use dormouse_ike::takeover::{Given, Left, Record, Takeover};
use dormouse_ike::ticket::SharedKey;
use dormouse_ike::ticket::counted::Counted;
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome, Row};
use dormouse_keying::SaId;
use dormouse_sansio::{Instant, UnixTime};
use std::fmt::Display;
use std::time::Duration;

/// Whom an administrator refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// A name or a fingerprint, in the notation in which it is displayed.
    pub whom: String,
    /// Since when.
    pub since: UnixTime,
}

/// A user with a password, of one connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedUser {
    /// The connection.
    pub connection: String,
    /// The user's name there.
    pub name: String,
    /// The password, or that there is none.
    pub password: SharedPassword,
}

/// What the store has of a password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SharedPassword {
    /// Its hash.
    Hash(Secret),
    /// The user was removed.
    Removed,
    /// Its hash is not sealed under this cluster's key.
    Unreadable,
}

/// What is said to the gateway's loop.
#[derive(PartialEq, Eq, Debug)]
pub enum Report {
    /// To one who waits.
    Outcome(SaId, Outcome),
    /// Whether the store can be asked.
    Reachable(bool),
    /// Everything is durable that was handed over before this mark ([`Waiting::mark`]).
    Written(u64),
    /// Changes of leases up to this number are durable, or cannot be written for now.
    Leased(u64),
    /// Of the gateways that share a store.
    News(Box<News>),
}

/// What other gateways have done, or the store says.
#[derive(PartialEq, Eq, Debug)]
pub enum News {
    /// The sessions of these lineages are not ours any more.
    Gone(Vec<Name>),
    /// The sessions of these lineages are more than their identities may have over all gateways.
    TooMany(Vec<Name>),
    /// All whom an administrator refuses.
    Denials(Vec<Denied>),
    /// A denial of ours is on record for all.
    OnRecord(Denied),
    /// All users with passwords whom gateways share.
    Users(Vec<SharedUser>),
    /// All leases there are.
    Leases(Vec<(Lessee, Addresses)>),
    /// A lease of another gateway's.
    Lease(Lessee, Addresses),
    /// An eviction of another gateway's.
    Evicted(Lessee),
    /// A lease of ours is not granted.
    Refused(Lessee),
    /// Of leases of ours it is not known whether they are granted, and will not be for now.
    Unwritten(Vec<Lessee>),
    /// All ticket keys.
    Keys(Vec<SharedKey>),
    /// The store has been out of reach for as long as it may be, or is back.
    TooLongAlone(bool),
    /// The store is, or may be, an earlier state of itself, and has none of our sessions on record.
    Forgotten,
    /// Other gateways have told us of devices.
    Arrived(Vec<Handover>),
    /// The device of this lineage is the other gateway's to which it was to go; or it is not, and cannot be now.
    HandedOver(Name, bool),
    /// Gateways that devices can go to.
    Others(Vec<Other>),
    /// All IKE SAs that a gateway of this name has left, which is silent now; none, once it is heard again. Without a name: an earlier run of this
    /// one.
    Left(String, Vec<Left>),
    /// The IKE SA of this lineage is this gateway's from now on; or it is not given.
    Given(Name, Option<Given>),
}

/// Something for the store besides lineages and leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Errand {
    /// Nobody lets this one in.
    Deny(Denied),
    /// A denial is taken back.
    Allow(String),
    /// Another gateway is told of a device. Not tried again: what waits for it gets old.
    HandOver(Box<Parcel>),
    /// Say where devices can go: [`News::Others`].
    Others,
    /// These sessions go on, and the store has forgotten them; each with whether its holder has one at most.
    Again(Vec<(Row, bool)>),
    /// About an IKE SA that outlives its gateway. What is left of it is written until there is a later word; asking for one is not tried again.
    Takeover(Takeover),
    /// What was learned about latency and load. Not tried again: there is a newer one soon.
    KeepLoad(Vec<u8>),
}

/// Something for another gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parcel {
    /// The device, or what waits for it.
    pub handover: Handover,
    /// The gateway that has the device from now on, if this one has it now; `None`: for the one that has it, if that is another. Where the lineage
    /// is over, for the one at which its holder has come since.
    pub to: Option<String>,
}

/// Something from another gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrivedParcel {
    /// Its number, to be named when it has been read.
    pub number: i64,
    /// Of the session for which it is.
    pub lineage: Name,
    /// That session is over: its device has logged in since, or may not come back.
    pub over: bool,
    /// What it says; `None` if that cannot be read.
    pub handover: Option<Handover>,
}

/// Another gateway that can take devices over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Other {
    /// Its name.
    pub name: String,
    /// The names and addresses at which devices reach it, parted by commas.
    pub address: String,
    /// Sessions and sleepers that it had at its last heartbeat.
    pub devices: u64,
    /// How long a session took there then, if it knew.
    pub session: Option<Duration>,
}

/// What the store announces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// There are orders for us, or sessions that are too many, or something of devices.
    Orders,
    /// Denials have changed.
    Denials,
    /// Users have changed.
    Users,
    /// There is a new ticket key.
    Keys,
    /// A lease is new, has other addresses, or was used.
    Lease(Lessee, Addresses),
    /// A lease is gone.
    Evicted(Lessee),
    /// More leases have changed than could be said.
    Leases,
    /// Something that is not understood, and says nothing.
    Nothing,
}

/// The session of a lineage is no longer ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoneOrder {
    /// The order's number, to be named when it has been obeyed.
    pub number: i64,
    /// The lineage.
    pub lineage: Name,
}

/// What is true when a connection begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Joined {
    /// Which addresses are ours to give: those whose number is this one modulo `slots`.
    pub slot: u8,
    /// How many gateways share the pool.
    pub slots: u8,
    /// All lineages were removed just now: the store is, or may be, an earlier state of itself.
    pub emptied: bool,
    /// How often that was done, by whichever gateway, and one.
    pub incarnation: u64,
    /// Our heartbeat now.
    pub beats: u64,
}

/// One connection to the store. Each method is a transaction: done and durable when it returns, and with an error perhaps done all the same.
#[expect(async_fn_in_trait, reason = "one thread has the connection and all that waits for it")]
pub trait Store {
    /// Why the connection is given up.
    type Error: Display;

    /// Carries out operations in their order. One outcome for each.
    async fn run(&mut self, operations: &[Operation]) -> Result<Vec<Outcome>, Self::Error>;
    /// These are all sessions here that are counted over all gateways. Those that are too many: of each identity the ones that began last, at the
    /// gateways that are there. Other gateways hear of theirs.
    async fn count(&mut self, sessions: &[Counted]) -> Result<Vec<Name>, Self::Error>;
    /// Those that are too many here, as another gateway has found by [`Store::count`].
    async fn too_many(&mut self) -> Result<Vec<Name>, Self::Error>;
    /// Of sessions that began here while the store could not be reached, each instead of all others of its holder: those whose holders have come to
    /// another gateway since, or have named them as their former ones there. `former`: lineages that these sessions took the place of.
    async fn overtaken(&mut self, began: &[Row], former: &[Name]) -> Result<Vec<Name>, Self::Error>;
    /// Writes changes of leases in their order. For each, whether it was granted.
    async fn write_leases(&mut self, changes: &[(Lessee, Change)]) -> Result<Vec<bool>, Self::Error>;
    /// All leases, the longest unused first.
    async fn leases(&mut self) -> Result<Vec<(Lessee, Addresses)>, Self::Error>;
    /// Orders that were not obeyed yet, the oldest first; of very many, some.
    async fn orders(&mut self) -> Result<Vec<GoneOrder>, Self::Error>;
    /// These have been obeyed.
    async fn obeyed(&mut self, orders: &[GoneOrder]) -> Result<(), Self::Error>;
    /// All denials.
    async fn denials(&mut self) -> Result<Vec<Denied>, Self::Error>;
    /// Writes a denial. Says why it can never be written, if so.
    async fn deny(&mut self, denial: &Denied) -> Result<Option<String>, Self::Error>;
    /// Takes a denial back, if there is one.
    async fn allow(&mut self, whom: &str) -> Result<(), Self::Error>;
    /// All users with passwords.
    async fn users(&mut self) -> Result<Vec<SharedUser>, Self::Error>;
    /// All ticket keys; missing ones are made.
    async fn keys(&mut self) -> Result<Vec<SharedKey>, Self::Error>;
    /// Tells other gateways of devices. For each, whether it was told: a device that was to go is that gateway's now.
    async fn hand_over(&mut self, parcels: &[Parcel]) -> Result<Vec<bool>, Self::Error>;
    /// What other gateways have told us, the oldest first; of very much, some.
    async fn handovers(&mut self) -> Result<Vec<ArrivedParcel>, Self::Error>;
    /// These have been read.
    async fn taken(&mut self, numbers: &[i64]) -> Result<(), Self::Error>;
    /// The other gateways that were heard lately and are not going themselves.
    async fn others(&mut self) -> Result<Vec<Other>, Self::Error>;
    /// This gateway leaves these IKE SAs, instead of what it has left of the same sessions; and none any more of those that are `over`.
    async fn leave(&mut self, records: &[&Record], over: &[Name]) -> Result<(), Self::Error>;
    /// The other gateways that have left IKE SAs, and whose sessions do not count as they are silent. Empty where none are taken over.
    async fn silent(&mut self) -> Result<Vec<String>, Self::Error>;
    /// All that this gateway has left; without a name, an earlier run of this one. Of very many, some.
    async fn left_by(&mut self, gateway: Option<&str>) -> Result<Vec<Left>, Self::Error>;
    /// Gives this IKE SA to this gateway, and to no other one, if the one that has it is silent, or an earlier run of this one.
    async fn claim(&mut self, lineage: Name) -> Result<Option<Given>, Self::Error>;
    /// Tells that we are there. The number of the heartbeat, and, if it is wanted with each, what [`Store::others`] says.
    async fn beat(&mut self) -> Result<(u64, Option<Vec<Other>>), Self::Error>;
    /// Keeps what this gateway has learned about latency and load.
    async fn keep_load(&mut self, history: &[u8]) -> Result<(), Self::Error>;
    /// What gateways have learned about latency and load: first our own, then the others', the newest first; of very many, some.
    async fn load_histories(&mut self) -> Result<Vec<Vec<u8>>, Self::Error>;
    /// Somebody else counts our heartbeats: both would give the same addresses.
    fn two_of_a_name(&self) -> Self::Error;
}

/// What a courier has besides a connection: clocks, a queue, and somebody to tell.
#[expect(async_fn_in_trait, reason = "one thread has the connection and all that waits for it")]
pub trait Office {
    /// What it connects to.
    type Store: Store;

    /// Connects, and takes the gateway's place; `beats` is the last own heartbeat that is remembered. `meanwhile` is called when something is
    /// handed over before that is done.
    async fn join(
        &mut self,
        beats: u64,
        meanwhile: impl FnMut(&mut Self),
    ) -> Result<(Self::Store, Joined), <Self::Store as Store>::Error>;
    /// The clock.
    fn now(&self) -> Instant;
    /// The time of day, by the machine's clock, which somebody may set.
    fn unix(&self) -> UnixTime;
    /// Does something to the queue.
    fn queue<T>(&mut self, act: impl FnOnce(&mut Waiting) -> T) -> T;
    /// Says something to the gateway's loop.
    fn report(&mut self, report: Report);
    /// The last heartbeat that was kept, 0 if none was.
    fn beats(&self) -> u64;
    /// Keeps the number of a heartbeat over a restart.
    fn keep_beats(&mut self, beats: u64);
    /// The leases that were kept last.
    fn owed(&self) -> Vec<(Lessee, Addresses)>;
    /// Keeps these over a restart, durably when it returns: clients have their addresses, and the store does not know of it yet.
    fn keep_owed(&mut self, owed: Vec<(Lessee, Addresses)>);
    /// Waits until something is handed over, or until then.
    async fn rest(&mut self, until: Instant);
    /// What the store has announced; what comes before `until` or before something is handed over is waited for. Without `until` nothing is.
    async fn notice(
        &mut self,
        store: &mut Self::Store,
        until: Option<Instant>,
    ) -> Result<Option<Notice>, <Self::Store as Store>::Error>;
}
