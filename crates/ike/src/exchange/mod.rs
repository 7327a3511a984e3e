//! The exchanges of an established IKE SA, one file each. An exchange never is a state of the SA: it is a request under
//! way ([`crate::sa::Exchange`]) with what its answer needs, or the answer to a request of the peer.

pub(crate) mod child;
pub(crate) mod delete;
pub(crate) mod informational;
pub(crate) mod keepalive;
pub(crate) mod mobike;
pub(crate) mod rekey;
pub(crate) mod resume;
pub(crate) mod sleep;
