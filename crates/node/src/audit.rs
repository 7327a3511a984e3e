//! What a gateway puts on record of those who come to it: who, when, from where, how, why, how much. Owns the records' content and the bound
//! on those that strangers cause; where they are written is the driver's. docs/audit.md has their fields.
//!
//! A record never holds a secret: it is made of what a peer has proved or claimed, of addresses, counts, and words of our own. What a
//! peer can choose is a [`Text`], which is one line and short.

use crate::event::Event;
use crate::node::Node;
use crate::sessions::Session;
use dormouse_crypto::cert::Identity;
use dormouse_esp::Tunnel;
use dormouse_ike::admission::Credential;
use dormouse_ike::{NegotiationError, Pace};
use dormouse_keying::Owner;
use dormouse_sansio::Instant;
use dormouse_wire::ike::AuthMethod;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Longest text of a record, in characters.
const TEXT_MOST: usize = 512;
/// Records of one kind that strangers, or one client that moves, can cause at once, and how long it takes for the next one.
const BURST: u32 = 30;
const EVERY: Duration = Duration::from_secs(2);
/// Refusals of one identity among them. What is remembered of it is bounded by the pace of all: some 180 identities.
const BURST_OF_ONE: u32 = 5;
const EVERY_OF_ONE: Duration = Duration::from_secs(60);

/// A text that a peer may have chosen: one line without control characters, cut at 512 characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text(String);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut out = String::new();
        for (i, c) in text.chars().enumerate() {
            match c {
                _ if i == TEXT_MOST => {
                    out.push('…');
                    break;
                }
                // A backslash too, so that what is escaped cannot be mistaken for what was sent. Of other alphabets only letters and digits:
                // there are invisible marks among the rest, and such that turn the direction of writing.
                '\\' => out.push_str("\\\\"),
                ' '..='~' => out.push(c),
                c if c.is_alphanumeric() => out.push(c),
                c => out.extend(c.escape_default()),
            }
        }
        Self(out)
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

/// How a client's session began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// A full exchange.
    Full,
    /// By ticket, in two round trips.
    Slow,
    /// By ticket, in one round trip.
    #[serde(rename = "quick")]
    AtOnce,
}

/// Who a client is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Who {
    /// As it is displayed.
    pub identity: Text,
    /// `fqdn`, `email`, `ipv4`, `ipv6`, `dn`, `keyid` or, of HIP, `hit`.
    pub identity_type: &'static str,
    /// SHA-256 of its certificate, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// A client's session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Client {
    /// Name of the connection.
    pub connection: Text,
    /// Who has proved to be there.
    #[serde(flatten)]
    pub who: Who,
    /// How: `psk`, `certificate` or `hip`.
    pub method: &'static str,
    /// Its outer address and port.
    pub from: SocketAddr,
    /// Its inner addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
}

/// What ESP has carried for a client, inner packets, without padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Traffic {
    /// From it.
    pub packets_in: u64,
    /// From it.
    pub bytes_in: u64,
    /// To it.
    pub packets_out: u64,
    /// To it.
    pub bytes_out: u64,
}

impl Traffic {
    pub(crate) fn add(&mut self, tunnel: &Tunnel) {
        let (received, sent) = (tunnel.inbound.counters(), tunnel.outbound.counters());
        self.packets_in += received.packets;
        self.bytes_in += received.bytes;
        self.packets_out += sent.packets;
        self.bytes_out += sent.bytes;
    }
}

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum What {
    /// A session began by a full exchange.
    Login {
        /// Whose.
        #[serde(flatten)]
        client: Client,
        /// [`How::Full`].
        how: How,
    },
    /// A session began by ticket.
    Resumption {
        /// Whose.
        #[serde(flatten)]
        client: Client,
        /// By which form.
        how: How,
    },
    /// A session goes on from another outer address.
    Address {
        /// Whose, with the new address.
        #[serde(flatten)]
        client: Client,
        /// The old one.
        was: SocketAddr,
    },
    /// A session has ended.
    End {
        /// Whose.
        #[serde(flatten)]
        client: Client,
        /// Why.
        why: Text,
        /// How long it lasted.
        seconds: u64,
        /// What it carried.
        #[serde(flatten)]
        traffic: Traffic,
    },
    /// A login or a resumption was refused.
    Refusal {
        /// From where.
        from: SocketAddr,
        /// Who it said it was, as far as it said so.
        #[serde(flatten)]
        claimed: Option<Who>,
        /// Why.
        why: Text,
    },
    /// An operator has denied an identity or a certificate.
    Denial {
        /// An identity, or the fingerprint of a certificate.
        whom: Text,
        /// The operator's user id, by the control socket.
        #[serde(skip_serializing_if = "Option::is_none")]
        by_uid: Option<u32>,
    },
    /// An operator has taken a denial back.
    Allowance {
        /// As it was denied.
        whom: Text,
        /// As in [`What::Denial`].
        #[serde(skip_serializing_if = "Option::is_none")]
        by_uid: Option<u32>,
    },
}

/// One record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Record {
    /// What has happened.
    #[serde(flatten)]
    pub what: What,
    /// Refusals and changes of address before this one that were not put on record, because there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub suppressed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

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
            How::Slow | How::AtOnce => What::Resumption { client, how },
        });
    }

    /// A session goes on by another path.
    pub(crate) fn record_move(&mut self, now: Instant, owner: Owner, was: SocketAddr) {
        let Some(session) = self.sessions.get(owner) else { return };
        let ours = session.tentative || self.connections.client(session.connection).is_some();
        if ours || session.path.remote == was {
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
        if session.tentative {
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

    fn who(identity: &str) -> Who {
        Who { identity: identity.into(), identity_type: "fqdn", fingerprint: Some("ab".repeat(32)) }
    }

    fn client(identity: &str) -> Client {
        Client {
            connection: "staff".into(),
            who: who(identity),
            method: "psk",
            from: SocketAddr::from(([192, 0, 2, 1], 4500)),
            addresses: vec![IpAddr::from([10, 0, 0, 2])],
        }
    }

    fn each(identity: &str) -> Vec<Record> {
        let (from, client) = (client(identity).from, || client(identity));
        let all = [
            What::Login { client: client(), how: How::Full },
            What::Resumption { client: client(), how: How::AtOnce },
            What::Address { client: client(), was: from },
            What::End { client: client(), why: identity.into(), seconds: 7, traffic: Traffic::default() },
            What::Refusal { from, claimed: Some(who(identity)), why: identity.into() },
            What::Refusal { from, claimed: None, why: identity.into() },
            What::Denial { whom: identity.into(), by_uid: Some(0) },
            What::Allowance { whom: identity.into(), by_uid: Some(0) },
        ];
        all.into_iter().map(|what| Record { what, suppressed: 3 }).collect()
    }

    #[test]
    fn every_field_is_documented() {
        let table = include_str!("../../../docs/audit.md");
        for record in each("alice.test") {
            let table_of = toml::Table::try_from(&record).expect("plain data");
            for (key, value) in &table_of {
                assert!(table.contains(&format!("| `{key}` |")), "{key} is not in docs/audit.md");
                if key == "event" {
                    assert!(table.contains(&format!("`{}`", value.as_str().expect("text"))), "{value}");
                }
            }
        }
    }

    #[test]
    fn a_hostile_identity_stays_one_short_line() {
        let evil = "a\nEVENT=login\r\u{1b}[2J\"}\n{\"event\":\"login\"}\u{202e}\u{2028}\0\\n".to_owned()
            + &"x".repeat(64 << 10);
        for record in each(&evil) {
            let json = format!("{record:?}");
            let text = toml::to_string(&record).expect("plain data");
            assert!(json.len() < 8 * TEXT_MOST && text.len() < 8 * TEXT_MOST, "{}", text.len());
            for value in
                toml::Table::try_from(&record).expect("plain data").values().filter_map(|v| v.as_str())
            {
                assert!(
                    !value.contains(|c: char| c.is_control() || "\u{202e}\u{2028}".contains(c)),
                    "{value}"
                );
            }
        }
        let Text(said) = Text::from("grün\\\n");
        assert_eq!(said, "grün\\\\\\n");
    }

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
