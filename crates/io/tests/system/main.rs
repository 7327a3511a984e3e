//! The parts that talk to the system, against the system. What needs root runs in a network namespace of its own and says so
//! when it is skipped.

mod common;
mod control;
mod leases;
mod monitor;
mod netlink;
mod privileges;
mod resolv_conf;
mod resolved;
mod state;
