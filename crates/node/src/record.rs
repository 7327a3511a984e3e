//! One record of a gateway's audit. Owns its content; docs/audit.md has the fields.
//!
//! A record never holds a secret: it is made of what a peer has proved or claimed, of addresses, counts, and words of our own. What a
//! peer can choose is a [`Text`], which is one line and short.

use dormouse_esp::Tunnel;
use serde::{Serialize, Serializer};
use std::net::{IpAddr, SocketAddr};

/// Longest text of a record, in characters.
const TEXT_MOST: usize = 512;

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
    /// It goes on here, as another gateway is gone (RFC 6311).
    TakenOver,
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
    pub(crate) fn add_all(&mut self, other: Self) {
        self.packets_in += other.packets_in;
        self.bytes_in += other.bytes_in;
        self.packets_out += other.packets_out;
        self.bytes_out += other.bytes_out;
    }

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
    /// A client's certificate was renewed: another one is given out.
    Renewal {
        /// By which connection.
        connection: Text,
        /// Whose, with the new certificate.
        #[serde(flatten)]
        who: Who,
        /// The inner address that asked, and its port.
        from: SocketAddr,
        /// Until when the new certificate counts, in Unix time.
        until_unix: u64,
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
            What::Renewal { connection: identity.into(), who: who(identity), from, until_unix: 7 },
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
}
