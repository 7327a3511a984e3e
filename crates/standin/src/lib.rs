//! What a gateway does for a device whose radio is off: it answers what an idle device would answer, keeps what the device must
//! see, and drops what neither end needs.
//!
//! Owns what was learnt of each device while it was awake ([`StandIn::observe_inbound`], [`StandIn::observe_outbound`]), the packets that
//! wait for it, and every bound on both. Pure: no clock, no sockets, no randomness. Must never say anything on a device's
//! behalf that the device has not itself said or promised: above all, it never acknowledges a byte that the device did not
//! acknowledge.
//!
//! # Driving contract
//! - [`StandIn::enrol`] a device when it connects; while it is awake, show every packet from it and towards it. When it announces
//!   its sleep, [`StandIn::sleeps`]; from then on give every packet towards it to [`StandIn::handle`], and put what that
//!   appends to `out` on the network's side.
//! - When it is back, [`StandIn::wakes`] gives what was kept, in the order in which it came: send it in one burst.
//! - After each of these: [`StandIn::poll_transmit`] until it returns `false`, then [`StandIn::handle_timeout`] when
//!   [`StandIn::poll_timeout`] is due. While no device sleeps there is no deadline.
//!
//! Where an awake device's packets pass elsewhere for a while, [`StandIn::lend`] gives an [`Observer`] to be shown them there, and [`StandIn::take_back`] takes what it has seen.
//!
//! A device that sleeps may go to the stand-in of another gateway: [`StandIn::describe`] and [`StandIn::take_waiting`] here,
//! [`StandIn::enrol`], [`StandIn::sleeps`], [`StandIn::learn`] and [`StandIn::keep_on`] there.
//!
//! # What is answered
//! | asked | answered |
//! |---|---|
//! | ICMP and ICMPv6 echo, of a device that was seen to answer it | the reply. It also tells a DHCP server that the address is in use |
//! | ICMPv6 neighbour solicitation | an advertisement |
//! | TCP keep-alive, or data again that the device has acknowledged | the device's own last acknowledgement and window |
//! | TCP data, on a connection that was observed | a window of zero (see below); the data is kept |
//! | multicast DNS, about records that the device announced, from its own link ([`StandIn::set_links`]) | those records, with what is left of their time |
//! | NetBIOS name query, node status | the names that the device registered; a registration of one by others is refused |
//! | DNS query to a device that refused the last one | "refused", so that the asker asks its next server at once |
//! | a DHCP lease that would end during the sleep | is renewed, in the device's name, from the server that gave it |
//!
//! ## TCP
//! A segment with new data can be answered truthfully in one way only: "nothing more has arrived, and there is no room". That is
//! what a window of zero says (Goff et al., "Freeze-TCP", INFOCOM 2000), and it is the truth: a sender that reads it stops
//! sending, stops counting down to the end of the connection, and asks again now and then. On wake the device's last
//! acknowledgement is repeated with its own window, and the stream goes on. A sender that does not take the window back
//! (RFC 9293 section 3.8.6 demands that it does) repeats itself as if nothing had been said.
//!
//! This is also all that can be said to NetBIOS session keep-alives and SMB echo requests: both are data in a stream. To answer an
//! echo its request would have to be acknowledged, which leaves a hole in the stream that the device receives, and from SMB 3
//! on the answer is signed with a key that only the device has. The connection is kept; the request is kept; the device answers
//! it on wake.
//!
//! # What is kept
//! See [`Class`]: how long, which of several packets of one flow, and which goes first when room is needed. A packet that is not
//! kept is counted under its [`Reason`]. What a device misses is then only what the classes say: a call or a datagram that is
//! older than its class allows, or more than there is room for. There is no way to wake a device: its radio is off, and nothing
//! sent to it would arrive. It comes back by its own schedule.

mod answer;
mod buffer;
mod class;
mod counters;
mod device;
pub mod fuzz;
mod knowledge;
mod limits;
mod standin;

pub use class::Class;
pub use counters::{Counters, Kind, Reason};
pub use device::{DeviceId, Service};
pub use limits::{Limits, Rate};
pub use standin::{Heard, Observer, SleepInfo, Slept, StandIn, Verdict, Waiting};
