//! What a gateway puts on record of those who come to it: who, when, from where, how, why, how much. Owns what becomes a record, and the bound
//! on those that strangers cause; where they are written is the driver's.

use crate::event::Event;
use crate::node::Node;
pub use crate::record::{Client, How, Record, Text, Traffic, What, Who};
use crate::sessions::Session;
use dormouse_crypto::cert::Identity;
use dormouse_ike::NegotiationError;
use dormouse_ike::admission::Credential;
use dormouse_keying::Owner;
use dormouse_sansio::{Instant, Pace, UnixTime};
use dormouse_wire::ike::AuthMethod;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Records of one kind that strangers, or one client that moves, can cause at once, and how long it takes for the next one.
const BURST: u32 = 30;
const EVERY: Duration = Duration::from_secs(2);
/// Refusals of one identity among them. What is remembered of it is bounded by the pace of all: some 180 identities.
const BURST_OF_ONE: u32 = 5;
const EVERY_OF_ONE: Duration = Duration::from_secs(60);

/// Who is refused; identities by [`Identity::canonical`], of which one has many spellings.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Refused {
    /// A sender that has proved no identity, or one that it may have made for this.
    Stranger,
    /// Who has proved this identity, and is not admitted.
    Peer(Vec<u8>),
    /// Who has a ticket of this identity with its secret: its owner, or a thief.
    Ticket(Vec<u8>),
}

/// What bounds the records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// Each kind has its own: strangers do not use up the pace of the others, nor do those who are denied that of thieves.
    strangers: Pace,
    peers: Refusals,
    tickets: Refusals,
    addresses: Pace,
    suppressed: u64,
}

/// At which pace refusals of those are on record who have proved something: of each identity at a slow one, so that none uses up that of all.
#[derive(Debug, Default)]
struct Refusals {
    all: Pace,
    each: BTreeMap<Vec<u8>, Pace>,
}

impl Refusals {
    fn may(&mut self, now: Instant, who: Vec<u8>) -> bool {
        let one = self.each.get(&who).copied().unwrap_or_default();
        let may = one.allows(now, EVERY_OF_ONE, BURST_OF_ONE) && self.all.may(now, EVERY, BURST);
        if may {
            self.each.retain(|_, pace| !pace.is_over(now));
            self.each.entry(who).or_default().may(now, EVERY_OF_ONE, BURST_OF_ONE);
        }
        may
    }
}

impl Records {
    /// Whether a refusal is put on record, or only counted.
    fn may_refuse(&mut self, now: Instant, whom: Refused) -> bool {
        let may = match whom {
            Refused::Stranger => self.strangers.may(now, EVERY, BURST),
            Refused::Peer(who) => self.peers.may(now, who),
            Refused::Ticket(who) => self.tickets.may(now, who),
        };
        self.suppressed += u64::from(!may);
        may
    }
}

/// How a peer proves its identity, in a word.
pub(crate) fn method(method: AuthMethod) -> &'static str {
    if method == AuthMethod::SharedKeyMic { "psk" } else { "certificate" }
}

fn kind(code: u8) -> &'static str {
    match code {
        0 => "hit",
        1 => "ipv4",
        2 => "fqdn",
        3 => "email",
        5 => "ipv6",
        9 => "dn",
        11 => "keyid",
        _ => "other",
    }
}

impl Node {
    /// Puts something on record. What IKE reports is recorded without being asked.
    pub fn record(&mut self, what: What) {
        let suppressed = std::mem::take(&mut self.records.suppressed);
        self.push(Event::Record(Box::new(Record { what, suppressed })));
    }

    fn client_on_record(&self, session: &Session) -> Client {
        let hex = |bytes: [u8; 32]| bytes.iter().map(|b| format!("{b:02x}")).collect();
        Client {
            connection: self.connections.name(session.connection).into(),
            who: Who {
                identity: session.peer.as_str().into(),
                identity_type: kind(session.who.identity.0),
                fingerprint: session.credential.as_ref().and_then(Credential::fingerprint).map(hex),
            },
            method: session.method,
            from: session.path.remote,
            addresses: session.assigned.addresses(),
        }
    }

    /// A client's session has begun.
    pub(crate) fn record_begin(&mut self, owner: Owner, how: How) {
        let Some(session) = self.sessions.get(owner) else { return };
        let client = self.client_on_record(session);
        self.record(match how {
            How::Full => What::Login { client, how },
            How::Slow | How::AtOnce | How::TakenOver => What::Resumption { client, how },
        });
    }

    /// A session goes on by another path.
    pub(crate) fn record_move(&mut self, now: Instant, owner: Owner, was: SocketAddr) {
        let Some(session) = self.sessions.get(owner) else { return };
        let ours = session.is_tentative() || self.connections.client(session.connection).is_some();
        // Another carrier between the same addresses is no move.
        let stays =
            session.path.remote.ip() == was.ip() && (was.port() == 0 || session.path.remote.port() == 0);
        if ours || session.path.remote == was || stays {
            return;
        }
        let client = self.client_on_record(session);
        if self.records.addresses.may(now, EVERY, BURST) {
            self.record(What::Address { client, was });
        } else {
            self.records.suppressed += 1;
        }
    }

    /// A client's session is over. One that was never confirmed has not begun: it may be a copied request's, of which there is no end, and
    /// a ticket that its owner has shown to be there with is refused by [`Node::record_refusal`].
    pub(crate) fn record_end(&mut self, now: Instant, session: &Session, why: &str) {
        if session.is_tentative() {
            return;
        }
        let client = self.client_on_record(session);
        let (why, seconds, traffic) = (why.into(), (now - session.established).as_secs(), session.carried);
        self.record(What::End { client, why, seconds, traffic });
    }

    /// A login or a resumption was refused. False if it was only counted.
    pub(crate) fn record_refusal(
        &mut self,
        now: Instant,
        from: SocketAddr,
        claimed: Option<&Identity>,
        error: &NegotiationError,
    ) -> bool {
        let whom = match (error, claimed) {
            (NegotiationError::NotAdmitted(_), Some(who)) => Refused::Peer(who.canonical()),
            // In the first message it has proved nothing: a ticket can be read on the wire.
            (NegotiationError::TicketRejected(_), Some(who)) => Refused::Ticket(who.canonical()),
            _ => Refused::Stranger,
        };
        let claimed = claimed.map(|identity| Who {
            identity: identity.to_string().as_str().into(),
            identity_type: kind(identity.to_ike().0),
            fingerprint: None,
        });
        self.refused(now, from, claimed, &error.to_string(), whom)
    }

    /// A peer of the key manager beside IKE was refused, after it had proved who it is; `named`: by name. False if it was only counted.
    pub(crate) fn record_hit_refusal(
        &mut self,
        now: Instant,
        from: SocketAddr,
        peer: &str,
        named: bool,
        why: &str,
    ) -> bool {
        let who = Who { identity: peer.into(), identity_type: kind(0), fingerprint: None };
        let whom = if named { Refused::Peer(peer.as_bytes().to_vec()) } else { Refused::Stranger };
        self.refused(now, from, Some(who), why, whom)
    }

    /// A client's certificate was renewed. `fingerprint`: of the new one, in hexadecimal digits.
    pub fn record_renewal(
        &mut self,
        connection: &str,
        identity: &Identity,
        fingerprint: String,
        from: SocketAddr,
        until: UnixTime,
    ) {
        let who = Who {
            identity: identity.to_string().as_str().into(),
            identity_type: kind(identity.to_ike().0),
            fingerprint: Some(fingerprint),
        };
        self.record(What::Renewal { connection: connection.into(), who, from, until_unix: until.0 });
    }

    /// A client's certificate was not renewed. False if it was only counted.
    pub fn record_renewal_refusal(
        &mut self,
        now: Instant,
        from: SocketAddr,
        claimed: Option<&Identity>,
        why: &str,
    ) -> bool {
        let whom = claimed.map_or(Refused::Stranger, |who| Refused::Peer(who.canonical()));
        let who = claimed.map(|identity| Who {
            identity: identity.to_string().as_str().into(),
            identity_type: kind(identity.to_ike().0),
            fingerprint: None,
        });
        self.refused(now, from, who, &format!("renewal: {why}"), whom)
    }

    fn refused(
        &mut self,
        now: Instant,
        from: SocketAddr,
        claimed: Option<Who>,
        why: &str,
        whom: Refused,
    ) -> bool {
        let may = self.records.may_refuse(now, whom);
        if may {
            self.record(What::Refusal { from, claimed, why: why.into() });
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_strangers_nor_who_is_denied_keep_others_off_the_record() {
        let (mut records, mut now) = (Records::default(), Instant::ZERO);
        let peer = |n: u16| Refused::Peer(n.to_be_bytes().to_vec());
        let ticket = |n: u16| Refused::Ticket(n.to_be_bytes().to_vec());
        let mut count = |now, whom: &dyn Fn(u16) -> Refused| {
            (0..1_000).filter(|n| records.may_refuse(now, whom(*n))).count()
        };
        assert_eq!(count(now, &|_| Refused::Stranger), BURST as usize);
        assert_eq!(count(now, &|_| peer(0)), BURST_OF_ONE as usize);
        assert_eq!(count(now, &|n| peer(n.min(1))), BURST_OF_ONE as usize, "another one that is denied");
        assert_eq!(count(now, &peer), (BURST - 2 * BURST_OF_ONE) as usize, "and very many");
        assert_eq!(count(now, &|_| ticket(0)), BURST_OF_ONE as usize, "a thief");
        // Who goes on for an hour leaves room for others all the time.
        for _ in 0..3_600 {
            now += Duration::from_secs(1);
            records.may_refuse(now, peer(0));
        }
        assert!((0..20).all(|n| records.may_refuse(now, peer(n + 1))));
        assert!(records.peers.each.len() <= 200, "{}", records.peers.each.len());
    }
}
