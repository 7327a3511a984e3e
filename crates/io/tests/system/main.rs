//! The parts that talk to the system, against the system. What needs root runs in a network namespace of its own and says so
//! when it is skipped.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod capture;
mod common;
mod control;
mod fetch;
mod frames;
mod monitor;
mod netlink;
mod privileges;
mod radio;
mod resolv_conf;
mod resolved;
mod state;
mod store;
