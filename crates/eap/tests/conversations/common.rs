//! Both ends of a conversation, and what goes between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_crypto::Secret;
use dormouse_eap::authenticator::{self, Authenticator, Config, Users};
use dormouse_eap::packet::{Packet, Type};
use dormouse_eap::peer::{self, Credentials, Peer};
use dormouse_eap::{Error, Msk, NtHash};
use dormouse_sansio::Seeded;

/// Names and passwords.
pub(crate) struct Table(BTreeMap<String, NtHash>);

impl Table {
    pub(crate) fn new(users: &[(&str, &str)]) -> Self {
        let hash = |password| NtHash::of_password(password).expect("short");
        Self(users.iter().map(|(user, password)| ((*user).to_owned(), hash(password))).collect())
    }
}

impl Users for Table {
    fn mschapv2(&self, user: &str) -> Option<NtHash> {
        self.0.get(user).cloned()
    }
}

pub(crate) fn password(identity: &str, password: &str) -> Credentials {
    let method = peer::Method::MsChapV2 { password: Secret::from(password.as_bytes()) };
    Credentials { identity: identity.to_owned(), method }
}

pub(crate) fn mschapv2_config() -> Arc<Config> {
    Arc::new(Config::new(authenticator::Method::MsChapV2, Vec::new(), "gateway", &mut Seeded::new(3)))
}

/// How a conversation ended at both sides, and all that was sent.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) client: Option<Result<Option<Msk>, Error>>,
    pub(crate) gateway: Option<Result<(String, Msk), Error>>,
    pub(crate) sent: Vec<Vec<u8>>,
}

impl Outcome {
    /// The types of requests and responses, in order.
    pub(crate) fn kinds(&self) -> Vec<Type> {
        let kind = |packet: &Vec<u8>| match Packet::parse(packet) {
            Ok(Packet::Request { kind, .. } | Packet::Response { kind, .. }) => Some(kind),
            _ => None,
        };
        self.sent.iter().filter_map(kind).collect()
    }
}

/// Lets them talk; `on_the_way` may change each packet (by its number) before the other end gets it.
pub(crate) fn talk(
    credentials: Credentials,
    config: &Arc<Config>,
    known: Option<&str>,
    users: &dyn Users,
    mut on_the_way: impl FnMut(usize, &mut Vec<u8>),
) -> Outcome {
    let mut random = Seeded::new(4);
    let mut client = Peer::new(credentials);
    let (mut gateway, mut packet) = Authenticator::begin(config, known.map(str::to_owned), &mut random);
    let mut outcome = Outcome { client: None, gateway: None, sent: Vec::new() };
    for _ in 0..300 {
        on_the_way(outcome.sent.len(), &mut packet);
        outcome.sent.push(packet.clone());
        packet = match client.receive(&packet, &mut random) {
            peer::Step::Send(answer) => answer,
            peer::Step::Succeeded(msk) => {
                outcome.client = Some(Ok(msk));
                return outcome;
            }
            peer::Step::Failed(why) => {
                outcome.client = Some(Err(why));
                return outcome;
            }
            peer::Step::Ignore => return outcome,
        };
        on_the_way(outcome.sent.len(), &mut packet);
        outcome.sent.push(packet.clone());
        packet = match gateway.receive(&packet, users, &mut random) {
            authenticator::Step::Send(request) => request,
            authenticator::Step::Succeeded { packet, identity, msk } => {
                outcome.gateway = Some(Ok((identity, msk)));
                packet
            }
            authenticator::Step::Failed { packet, why } => {
                outcome.gateway = Some(Err(why));
                packet
            }
            authenticator::Step::Ignore => return outcome,
        };
    }
    panic!("no end: {outcome:?}");
}

/// Flips bits of every byte of every packet in turn, and runs the conversation each time. Nothing may panic, and both ends never come to
/// different keys. Returns for which packets and bytes both ended well all the same.
pub(crate) fn flip_everything(
    flips: &[u8],
    mut run: impl FnMut(&mut dyn FnMut(usize, &mut Vec<u8>)) -> Outcome,
) -> Vec<(usize, usize)> {
    let lengths: Vec<usize> = run(&mut |_, _| ()).sent.iter().map(Vec::len).collect();
    let mut fine = Vec::new();
    for (number, len) in lengths.into_iter().enumerate() {
        for at in 0..len {
            for flip in flips {
                let outcome = run(&mut |n, packet| {
                    if n == number
                        && let Some(byte) = packet.get_mut(at)
                    {
                        *byte ^= flip;
                    }
                });
                if let Some(Ok(msk)) = &outcome.client {
                    let gateway = outcome.gateway.as_ref().and_then(|g| g.as_ref().ok()).map(|(_, key)| key);
                    assert!(
                        msk.is_some() && msk.as_ref() == gateway,
                        "packet {number} byte {at}: {outcome:?}"
                    );
                    fine.push((number, at));
                }
            }
        }
    }
    fine
}
