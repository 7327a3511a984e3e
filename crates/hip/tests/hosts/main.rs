//! Hosts against each other, by the verbs that the node uses.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ahead;
mod base_exchange;
mod collision;
mod critical;
mod ends;
mod hostile;
mod identities;
mod in_udp;
mod keepalive;
mod lifetime;
mod multihome;
mod quirks;
mod relay;
mod relay_families;
mod rendezvous;
mod sleep;
mod strangers;
mod updates;
mod v1;
mod vectors;
mod wake;
mod world;
