//! What an attacker on the link, or between the agents, can do with captured and made-up packets: nothing that a key protects, and of the rest as
//! little as can be.

mod foreign;
mod home;
mod host;
mod tunnels;
mod world;
