//! What an endpoint is made from. Owns the whole of its configuration; connections are [`crate::config`]'s, and what decides who is
//! admitted is [`crate::admission`]'s.

use core::fmt;
use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_keying::{OpenFirstZone, SpiSource};
use dormouse_wire::ike::Gateway;

use crate::admission::Admission;
use crate::config::{Connection, HalfOpen, HoldPolicy, Ports, RouterPolicy};
use crate::config_payload::AddressPool;
use crate::credential::Refusal;
use crate::load::LoadHistory;
use crate::spread::Spread;
use crate::ticket::TicketKeys;
use crate::work::Beside;

/// Everything an endpoint is made from.
pub struct EndpointConfig {
    /// The connections that may answer, in order of preference. (Those that call are handed to `connect`.)
    pub connections: Vec<Arc<Connection>>,
    /// UDP ports.
    pub ports: Ports,
    /// Bounds on half-open SAs.
    pub half_open: HalfOpen,
    /// Most IKE SAs held at once, in all states; a caller beyond that is dropped. `None`: no limit of its own.
    pub max_sas: Option<usize>,
    /// Nobody is let in for now ([`crate::Endpoint::serve_nobody`]).
    pub serves_nobody: bool,
    /// The window that we announce: requests of a peer that we are ready to keep at once (RFC 7296, section 2.3); 0 means 1.
    pub window: u32,
    /// Keys for the tickets that we give; `None`: no ticket is given or accepted.
    pub ticket_keys: Option<TicketKeys>,
    /// Sessions of an identity are counted together with those at other gateways ([`crate::ticket::counted`]): the store is asked before a
    /// login is answered.
    pub counts_together: bool,
    /// IKE SAs whose peers let their message ids be set anew (RFC 6311) are left for other gateways ([`crate::takeover`]).
    pub takeover: bool,
    /// Calls offer that message ids may be set anew (RFC 6311), as a strongSwan does: for simulations alone, which answer by
    /// [`Endpoint::answer_sync`](crate::Endpoint::answer_sync).
    #[doc(hidden)]
    pub offers_ids: bool,
    /// What is done for devices that announce a sleep.
    pub hold: HoldPolicy,
    /// Which public-key operations are ordered ([`Event::Work`](crate::Event::Work)).
    pub beside: Beside,
    /// What an earlier run has learned about latency and load.
    pub load: LoadHistory,
    /// What decides, beside the connections, who is admitted.
    pub admission: Admission,
    /// As an access router: whose keys it takes (`docs/wire/mlike.md`); `None`: none.
    pub router: Option<RouterPolicy>,
    /// As an access router: how the data plane opens a packet that another router shows. Keys move to that one by nothing else.
    pub open_first_zone: OpenFirstZone,
    /// What sends callers to other gateways by load; `None`: all are served here.
    pub spread: Option<Box<dyn Spread + Send>>,
    /// Where inner addresses come from; `None`: none are leased.
    pub pool: Option<Box<dyn AddressPool + Send>>,
    /// Where inbound SPIs of ESP come from: the data plane that CHILD SAs are installed in.
    pub spis: Box<dyn SpiSource>,
}

impl Default for EndpointConfig {
    /// Accepts no connection, gives no ticket or address, and has no data plane.
    fn default() -> Self {
        Self {
            connections: Vec::new(),
            ports: Ports::default(),
            half_open: HalfOpen::default(),
            max_sas: None,
            serves_nobody: false,
            window: 0,
            ticket_keys: None,
            counts_together: false,
            takeover: false,
            offers_ids: false,
            hold: HoldPolicy::default(),
            beside: Beside::default(),
            load: LoadHistory::default(),
            admission: Admission::default(),
            router: None,
            open_first_zone: |_, _| None,
            spread: None,
            pool: None,
            spis: Box::new(BTreeSet::new()),
        }
    }
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("connections", &self.connections.iter().map(|c| &c.name).collect::<Vec<_>>())
            .field("ports", &self.ports)
            .field("half_open", &self.half_open)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

impl EndpointConfig {
    /// Whether a peer's IKE_AUTH request may ask for no CHILD SA (RFC 6023).
    pub(crate) fn has_childless(&self) -> bool {
        self.connections.iter().any(|c| c.role.answers() && c.suits(true))
    }

    /// Where every caller is sent that can be, if all connections say the same: then nobody has to say first who is calling.
    pub(crate) fn redirects_all(&self) -> Option<&Gateway> {
        let mut all =
            self.connections.iter().filter(|c| c.role.answers()).map(|c| c.answering.redirect_to.as_ref());
        let first = all.next()??;
        all.all(|to| to == Some(first)).then_some(first)
    }

    /// The connection of this name that may answer.
    pub(crate) fn named(&self, name: &str) -> Result<&Arc<Connection>, Refusal> {
        let answering = self.connections.iter().find(|c| c.name == name && c.role.answers());
        answering.ok_or_else(|| Refusal::Closed(name.to_owned()))
    }
}
