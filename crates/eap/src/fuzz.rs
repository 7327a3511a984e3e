//! Bodies of the fuzz targets: any bytes at each end of a conversation. Each panics if a property does not hold; none is for use in a program.

use std::sync::Arc;

use dormouse_crypto::Secret;
use dormouse_sansio::Seeded;

use crate::authenticator::{self, Authenticator, Config, Users};
use crate::keys::NtHash;
use crate::packet::Packet;
use crate::peer::{self, Credentials, Peer};

struct Alice;

impl Users for Alice {
    fn mschapv2(&self, user: &str) -> Option<NtHash> {
        if user == "alice" { NtHash::of_password("correct horse") } else { None }
    }
}

/// What `sent` becomes on its way: in each record of `edits` a byte that says of which message, one of where (from its end if the first's top bit is set), and one
/// that is put in.
fn edit(sent: &mut [u8], turn: u8, edits: &[u8]) {
    for edit in edits.chunks_exact(3) {
        let at = usize::from(edit[1]);
        let at = if edit[0] & 0x80 == 0 { Some(at) } else { sent.len().checked_sub(at + 1) };
        if edit[0] & 0x7f == turn
            && let Some(byte) = at.and_then(|at| sent.get_mut(at))
        {
            *byte = edit[2];
        }
    }
}

/// A conversation of MS-CHAPv2 whose messages are changed on their way. Returns whether both sides ended well.
///
/// # Panics
/// If they end well with different keys, or as somebody else, or if what they send is no packet.
pub fn conversation(data: &[u8]) -> bool {
    let mut random = Seeded::new(1);
    let config = Config::new(authenticator::Method::MsChapV2, Vec::new(), "gateway", &mut random);
    let (mut gateway, mut packet) = Authenticator::begin(&Arc::new(config), None, &mut random);
    let method = peer::Method::MsChapV2 { password: Secret::from(&b"correct horse"[..]) };
    let mut client = Peer::new(Credentials { identity: "alice".to_owned(), method });
    let mut key = None;
    for turn in 0..16 {
        assert!(Packet::parse(&packet).is_ok(), "the authenticator sends {packet:02x?}");
        edit(&mut packet, 2 * turn, data);
        match client.receive(&packet, &mut random) {
            peer::Step::Send(answer) => packet = answer,
            peer::Step::Succeeded(msk) => {
                assert!(key.is_some() && msk == key, "two keys");
                return true;
            }
            peer::Step::Failed(_) | peer::Step::Ignore => return false,
        }
        assert!(Packet::parse(&packet).is_ok(), "the peer sends {packet:02x?}");
        edit(&mut packet, 2 * turn + 1, data);
        match gateway.receive(&packet, &Alice, &mut random) {
            authenticator::Step::Send(request) => packet = request,
            authenticator::Step::Succeeded { packet: success, identity, msk } => {
                assert_eq!(identity, "alice");
                (packet, key) = (success, Some(msk));
            }
            authenticator::Step::Failed { packet: failure, .. } => packet = failure,
            authenticator::Step::Ignore => return false,
        }
    }
    false
}

/// Packets at each end, one after the other: in each record a byte of length and so many bytes.
///
/// # Panics
/// If either end succeeds: none of it comes from who knows the password.
pub fn packets(data: &[u8]) {
    let mut random = Seeded::new(2);
    let config = Config::new(authenticator::Method::MsChapV2, Vec::new(), "gateway", &mut random);
    let (mut gateway, _) = Authenticator::begin(&Arc::new(config), None, &mut random);
    let method = peer::Method::MsChapV2 { password: Secret::from(&b"correct horse"[..]) };
    let mut client = Peer::new(Credentials { identity: "alice".to_owned(), method });
    let mut rest = data;
    while let [len, tail @ ..] = rest {
        let (packet, after) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = after;
        if let Ok(parsed) = Packet::parse(packet) {
            assert_eq!(parsed.emit().as_deref(), Ok(packet));
        }
        assert!(!matches!(client.receive(packet, &mut random), peer::Step::Succeeded(_)));
        assert!(!matches!(
            gateway.receive(packet, &Alice, &mut random),
            authenticator::Step::Succeeded { .. }
        ));
    }
}

/// Answers of a RADIUS server: the first byte is the code, the rest attributes, as they are and once more under the right authenticators.
///
/// # Panics
/// If an answer that nobody has signed is taken, or one that is taken has an EAP packet that is none.
pub fn radius(data: &[u8]) {
    use crate::radius::{Access, Answer, Client, Connection};
    use dormouse_crypto::{eap, mobileip};

    let secret = Secret::from(&b"shared secret"[..]);
    let address = core::net::Ipv4Addr::LOCALHOST.into();
    let client = Arc::new(Client { secret: secret.clone(), name: "gateway".to_owned(), address });
    let mut access = Access::new(Connection { client, from: "192.0.2.1".to_owned() });
    let mut random = Seeded::new(3);
    let Ok(request) = Access::introduce("alice").and_then(|eap| access.ask(7, &eap, &mut random)) else {
        panic!("a request is refused")
    };
    assert!(access.answer(data).is_err());
    let Some((code, attributes)) = data.split_first() else { return };
    let body = [&[80, 18][..], &[0; 16], attributes].concat();
    let Ok(len) = u16::try_from(20 + body.len()) else { return };
    let head = [&[*code, 7][..], &len.to_be_bytes()].concat();
    let mut packet = [&head, &request[4..20], &body].concat();
    let mac = mobileip::Authenticator::HmacMd5.compute(&secret, &packet);
    packet[22..38].copy_from_slice(&mac);
    let authenticator = eap::md5(&[&packet, secret.as_bytes()]);
    packet[4..20].copy_from_slice(&authenticator);
    match access.answer(&packet) {
        Ok(
            Answer::Continue { eap }
            | Answer::Accepted { eap, .. }
            | Answer::Rejected { eap, .. }
            | Answer::Broken { eap, .. },
        ) => assert!(Packet::parse(&eap).is_ok()),
        Err(_) => assert!(access.waits_for() == Some(7)),
    }
}
