//! Every cryptographic algorithm that Dormouse uses, behind types that say what they are for.
//!
//! There is one back end, aws-lc-rs; `crypto-bigint` serves the MODP groups that it lacks, `rsa` (a release candidate) and `dsa` all
//! keys of HIP version 1 ([`hip::v1`]). [`suites`] is the one table of
//! algorithms: what is not in it cannot be configured, offered or accepted. The other modules are the operations that
//! IKEv2 and ESP are made of:
//!
//! - [`PacketKey`] protects ESP packets and IKE SK payloads, in place and without allocation;
//! - [`PrfKey`] and [`prf_plus`] derive keys (RFC 7296, sections 2.13 to 2.18);
//! - [`DhPrivate`] agrees on secrets;
//! - [`sign`] and [`cert`] authenticate peers;
//! - [`pkcs12`] and [`cms`] are the files in which others hand over keys, and what they have signed;
//! - [`hip`] has what the Host Identity Protocol uses besides;
//! - [`mobileip`] authenticates the registrations of Mobile IP;
//! - [`eap`] has the broken ones that MS-CHAPv2 and RADIUS are made of;
//! - [`measure`] has what only a benchmark may use, out of reach of everything else;
//! - [`Secret`] holds what must not leak: zeroized, redacted, compared in constant time.
//!
//! This crate must never draw randomness of its own for anything that a simulation has to repeat (private exponents come
//! from the [`Entropy`](dormouse_sansio::Entropy) that is handed in), read a clock or a file, or panic on input.

pub mod aead256;
pub mod cert;
pub mod cms;
pub mod dh;
pub mod eap;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod hash;
pub mod hip;
pub mod measure;
pub mod mobileip;
pub mod packet_key;
mod pem;
pub mod pkcs12;
pub mod prf;
pub mod psk;
mod secret;
pub mod sign;
pub mod suites;
mod tlv;

pub use aead256::{aead256_open, aead256_seal};
pub use dh::{DhPrivate, Drawn};
pub use error::{Error, Unauthentic};
pub use hash::{HashAlg, hash, hash_one, hash_reader};
pub use packet_key::{PacketKey, RestingKey};
pub use prf::{PrfKey, prf_plus};
pub use psk::{PskError, parse_psk};
pub use secret::{Secret, ct_eq};
pub use suites::{Encr, Group, Integ, Prf};
