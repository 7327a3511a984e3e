//! A link emulator and a NAT model without I/O: they are handed time and datagrams, and hand datagrams back when they are due.
//!
//! Owns what a network does to datagrams between two hosts: [`Link`] carries them in one direction with a rate, a delay, a
//! bounded queue, loss (single and in bursts), duplication, reordering and independent bit errors; [`Nat`] rewrites the addresses between them.
//! Must never look inside a datagram, read a clock, or draw randomness that does not follow from its seed: the same calls
//! with the same seed give the same results.
//!
//! ```
//! use core::time::Duration;
//! use dormouse_netem::{Link, LinkConfig};
//! use dormouse_sansio::Instant;
//!
//! let config = LinkConfig { rate: Some(8_000), delay: Duration::from_millis(20), ..LinkConfig::default() };
//! let mut link = Link::new(config, 7);
//! link.enqueue(Instant::ZERO, "to the gateway", vec![0; 100]).expect("room in the queue");
//! let due = link.poll_timeout().expect("a datagram is under way").at;
//! assert_eq!(due - Instant::ZERO, Duration::from_millis(120)); // 800 bits at 8 kbit/s, then 20 ms
//! assert_eq!(link.poll_deliver(due), Some(("to the gateway", vec![0; 100])));
//! ```

mod bit_errors;
mod bursts;
mod link;
mod nat;

pub use bit_errors::BitErrors;
use bursts::Bursts;
pub use bursts::GilbertElliott;
pub use link::{Corruption, Dropped, Link, LinkConfig, LinkStats};
pub use nat::{Filtering, Mapping, Nat, NatConfig, NatDrop};
