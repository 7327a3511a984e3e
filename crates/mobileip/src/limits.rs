//! All bounds and timers of the crate in one place. Owns numbers only.
//!
//! An agent advertises at its interval, each time up to a tenth earlier or later; answers to solicitations go to the solicitor alone. A
//! mobile host solicits at once when it enters a link, twice more a second apart, and then at intervals that double up to a minute. A
//! request is repeated after a second, and then at intervals that double; a registration is renewed after three quarters of its
//! lifetime. A foreign agent forgets a request that is not answered within seven seconds.

use core::time::Duration;

/// Bytes that IP in IP adds.
pub const TUNNEL_HEADER: u16 = 20;
/// Time to live of what agents send, and of the outer headers of tunnels.
pub(crate) const TTL: u8 = 64;
/// Bindings of one mobile host at once.
pub(crate) const MAX_BINDINGS: usize = 4;
/// Requests of all mobile hosts together that a foreign agent has relayed and that are not answered.
pub(crate) const MAX_PENDING: usize = 64;
/// Of one home address.
pub(crate) const MAX_PENDING_OF_ONE: usize = 4;
/// Mobile hosts that a foreign agent serves, those that have moved on included.
pub(crate) const MAX_VISITORS: usize = 1_024;
/// Agents that a mobile host remembers of a link.
pub(crate) const MAX_AGENTS: usize = 8;
/// Packets that wait to be sent; the driver takes them after each call.
pub(crate) const MAX_OUTBOX: usize = 256;
/// Hosts whose last denial or answer is remembered, so that none gets more than one a second.
pub(crate) const MAX_PACED: usize = 256;
/// "except in cases where the foreign agent would be required to send out more than one such denial per second to the same mobile node"
/// (RFC 5944 section 3.7.2)
pub(crate) const PACE: Duration = Duration::from_secs(1);
/// "MAY delete any pending Registration Request after the request has been pending for more than 7 seconds" (RFC 5944 section 3.7.1)
pub(crate) const PENDING: Duration = Duration::from_secs(7);
/// How long packets are sent after a mobile host that has moved on, at most.
pub(crate) const SENT_AFTER: Duration = Duration::from_secs(10);
/// "The minimum time between Registration Requests MUST NOT be less than 1 second." (RFC 5944 section 3.6.3)
pub(crate) const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest wait for a reply.
pub(crate) const LAST_TIMEOUT: Duration = Duration::from_secs(32);
/// An agent whose next wait would be as long as this, with nothing heard of it, is given up if there is another.
pub(crate) const SILENT: Duration = Duration::from_secs(8);
/// The first solicitations.
pub(crate) const SOLICITATIONS: u32 = 3;
/// "The mobile node MAY send three initial solicitations at a maximum rate of one per second while searching for an agent." (RFC 5944
/// section 2.4)
pub(crate) const FIRST_SOLICITATION: Duration = Duration::from_secs(1);
/// "This maximum interval SHOULD be at least one minute between solicitations." (RFC 5944 section 2.4)
pub(crate) const LAST_SOLICITATION: Duration = Duration::from_secs(60);
/// How long an agent that refused, or did not answer, is not asked again while there is another.
pub(crate) const REFUSED: Duration = Duration::from_secs(10);
/// A tunnel never gets narrower than this by what routers report: anyone can forge such a report.
pub(crate) const MIN_TUNNEL: u16 = 576;
/// After so long a narrow tunnel is tried at its full width again (RFC 1191 section 6.3).
pub(crate) const NARROW: Duration = Duration::from_secs(600);
