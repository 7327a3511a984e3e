//! Conversations of both ends, method by method.

mod common;
mod mschapv2;
mod tls;
mod ttls;
