//! Repair of a radio hop at the access router, so that the two ends of a connection do not take what the radio loses for congestion.
//!
//! Owns copies of packets on their way to a device, until the device has them, and the timers that say when one is sent again. Pure:
//! no clock, no sockets, no randomness. Must never change a packet, send one that it was not given, or make an acknowledgement.
//!
//! - [`tcp::Agent`] is SNOOP (Balakrishnan, Seshan, Amir and Katz, "Improving TCP/IP Performance over Wireless Networks", MobiCom 1995):
//!   it reads TCP headers, so it works on plain packets and on those whose headers it may read.
//!
//! # Driving contract
//! The agent stands between the router's queue and the radio: it sees a packet when the radio takes it, not when it begins to wait.
//! So its round-trip times are those of the radio alone, what it repeats overtakes the queue, and what the queue drops it never had:
//! congestion stays visible to the ends.
//!
//! - Whenever the radio is idle: [`tcp::Agent::poll_transmit`]; what that gives is sent first. If it gives nothing, send the next
//!   packet of the queue, and show it to [`tcp::Agent::to_device`].
//! - Show every packet from the device to [`tcp::Agent::from_device`], and send it on unless that says otherwise.
//! - [`tcp::Agent::handle_timeout`] when [`tcp::Agent::poll_timeout`] is due.

pub mod fuzz;
pub mod tcp;
