//! The gateway's ticket keys: sealing under the newest, opening under any that is kept, rotation, and the bytes that carry them
//! over a restart. They are the gateway's own, or those of several gateways, which a store makes and gives out ([`TicketKeys::shared`]). Owns the sealed format `version | key id (8) | nonce (12) | AES-256-GCM(content)`, of which version and
//! key id are authenticated; must never be shown, nor used for anything else.

use core::time::Duration;

use dormouse_crypto::{Secret, aead256_open, aead256_seal};
use dormouse_sansio::{Entropy, UnixTime};
use dormouse_wire::codec::Reader;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::TicketRefusal;
use super::content::TicketContent;
use crate::codec::{In, Out, TicketFormatError};
use crate::limits;

const VERSION: u8 = 2;
const HEAD: usize = 1 + 8;
const NONCE: usize = 12;
const TAG: usize = 16;
const EXPORT_VERSION: u8 = 1;

/// A set of keys that is no use: the exported bytes are damaged or of another version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyExportError {
    /// Not an export.
    #[error("ticket keys cannot be read: {0}")]
    Format(#[from] TicketFormatError),
    /// An export without keys.
    #[error("ticket keys cannot be read: there are none")]
    Empty,
}

/// Why no ticket is made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// None of the keys that gateways share is for this time.
    #[error(
        "no ticket key of the gateways' database is for this time: it was not reached for too long, or this machine's clock is behind \
         (dormouse cluster status shows both)"
    )]
    NoKey,
    /// The content is too long, or the cipher fails.
    #[error(transparent)]
    Crypto(#[from] dormouse_crypto::Error),
}

#[derive(Clone, Zeroize, ZeroizeOnDrop)]
struct Key {
    #[zeroize(skip)]
    id: u64,
    /// Seconds since 1970.
    #[zeroize(skip)]
    born: u64,
    secret: [u8; 32],
}

/// A key that several gateways share.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SharedKey {
    /// Its name in tickets.
    #[zeroize(skip)]
    pub id: u64,
    /// It seals from then on, until the next one does.
    #[zeroize(skip)]
    pub seals_from: UnixTime,
    /// It opens until then, and is wiped.
    #[zeroize(skip)]
    pub opens_until: UnixTime,
    /// The key of AES-256-GCM.
    pub secret: [u8; 32],
}

/// By what is known of a key: its secret is its name's.
impl PartialEq for SharedKey {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.seals_from, self.opens_until) == (other.id, other.seals_from, other.opens_until)
    }
}

impl Eq for SharedKey {}

impl core::fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SharedKey({:016x})", self.id)
    }
}

/// Who makes the keys, and when they go.
#[derive(Clone)]
enum Makers {
    /// This gateway: a key seals for `rotate_after`; then it only opens, for `keep_for`.
    Us { rotate_after: Duration, keep_for: Duration },
    /// The store of several gateways. Of each key when it goes, in the order of the keys.
    Store { until: Vec<UnixTime> },
}

/// The keys, newest last. Nonces are drawn at random, which is safe for some 2^32 tickets of one key (NIST SP 800-38D, section
/// 8.3): years of one gateway's traffic, where rotation takes days.
pub struct TicketKeys {
    keys: Vec<Key>,
    makers: Makers,
}

impl core::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let ids: Vec<_> = self.keys.iter().map(|key| format!("{:016x}", key.id)).collect();
        f.debug_struct("TicketKeys").field("ids", &ids).finish_non_exhaustive()
    }
}

impl TicketKeys {
    /// A first key. A key seals for `rotate_after`; then it only opens, for `keep_for` (the longest ticket lifetime), and is wiped.
    ///
    /// > The key that is used to protect the ticket MUST have a lifetime that is significantly longer than the lifetime of an
    /// > IKE SA. (RFC 5723, section 6.2)
    #[must_use]
    pub fn generate(
        now: UnixTime,
        rotate_after: Duration,
        keep_for: Duration,
        entropy: &mut dyn Entropy,
    ) -> Self {
        let mut keys = Self { keys: Vec::new(), makers: Makers::Us { rotate_after, keep_for } };
        keys.push(now, entropy);
        keys
    }

    /// The keys of several gateways, as their store has them now: none is ever made here. Each comes before it seals, so that no gateway
    /// meets a ticket of another one whose key it does not know; of more than fit the newest are taken.
    #[must_use]
    pub fn shared(mut keys: Vec<SharedKey>) -> Self {
        keys.sort_by_key(|key| (key.seals_from, key.id));
        keys.drain(..keys.len().saturating_sub(limits::TICKET_KEYS_RETIRED_MAX + 2));
        let until = keys.iter().map(|key| key.opens_until).collect();
        let key = |key: &SharedKey| Key { id: key.id, born: key.seals_from.0, secret: key.secret };
        Self { keys: keys.iter().map(key).collect(), makers: Makers::Store { until } }
    }

    fn push(&mut self, now: UnixTime, entropy: &mut dyn Entropy) {
        let mut key = Key { id: entropy.next_u64(), born: now.0, secret: [0; 32] };
        entropy.fill(&mut key.secret);
        self.keys.push(key);
    }

    /// Wipes keys whose tickets have all expired and makes a new key if the newest is old enough. Returns whether anything
    /// changed, so that the driver exports and stores the set before the next ticket is made.
    /// Never changes anything that is to be stored where a store has the keys.
    pub fn rotate(&mut self, now: UnixTime, entropy: &mut dyn Entropy) -> bool {
        match &mut self.makers {
            Makers::Us { rotate_after, keep_for } => {
                let (rotate_after, keep_for) = (*rotate_after, *keep_for);
                let age = |key: &Key| now.saturating_since(UnixTime(key.born));
                let due = self.keys.last().is_none_or(|key| age(key) >= rotate_after);
                if due {
                    self.push(now, entropy);
                }
                due | self.drop_useless(now, keep_for)
            }
            Makers::Store { until } => {
                let mut ends = until.iter();
                self.keys.retain(|_| ends.next().is_some_and(|until| now < *until));
                until.retain(|until| now < *until);
                false
            }
        }
    }

    /// A key made its last ticket when its successor was born.
    fn drop_useless(&mut self, now: UnixTime, keep_for: Duration) -> bool {
        let before = self.keys.len();
        let successors: Vec<u64> = self.keys.iter().skip(1).map(|key| key.born).collect();
        let mut successors = successors.into_iter();
        self.keys.retain(|_| match successors.next() {
            Some(born) => now.saturating_since(UnixTime(born)) <= keep_for,
            None => true,
        });
        let surplus = self.keys.len().saturating_sub(limits::TICKET_KEYS_RETIRED_MAX + 1);
        self.keys.drain(..surplus);
        before != self.keys.len()
    }

    /// Tickets of this lifetime are given from now on: keys are kept so long at least. Those of a store are kept as it says.
    pub fn keep_for_tickets_of(&mut self, lifetime: Duration) {
        if let Makers::Us { rotate_after, keep_for } = &mut self.makers {
            *keep_for = (*keep_for).max(*rotate_after + lifetime);
        }
    }

    /// Seals under the newest key that seals when the ticket is issued.
    /// "the ticket content MUST be integrity protected and encrypted" (RFC 5723 section 6.1)
    /// "An IKEv2 responder MUST use strong encryption and integrity protection of the ticket" (RFC 5723 section 9.1)
    ///
    /// # Errors
    /// If no shared key seals at that time, the content is longer than [`limits::TICKET_MAX`], or the cipher fails, which it does not.
    pub fn seal(&self, content: &TicketContent, entropy: &mut dyn Entropy) -> Result<Vec<u8>, SealError> {
        let key = match self.makers {
            Makers::Us { .. } => self.keys.last(),
            Makers::Store { .. } => self.keys.iter().rev().find(|key| key.born <= content.issued.0),
        };
        let key = key.ok_or(SealError::NoKey)?;
        let mut nonce = [0; NONCE];
        entropy.fill(&mut nonce);
        let mut sealed = content.encode().into_vec();
        let got = HEAD + NONCE + sealed.len() + TAG;
        if got > limits::TICKET_MAX {
            sealed.zeroize();
            let expected = limits::TICKET_MAX;
            return Err(dormouse_crypto::Error::Length { what: "ticket", got, expected }.into());
        }
        let head = head(key.id);
        // Encrypted in place: the plaintext does not outlive this line.
        aead256_seal(&key.secret, &nonce, &head, &mut sealed)?;
        let mut ticket = Vec::with_capacity(got);
        ticket.extend_from_slice(&head);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(&sealed);
        Ok(ticket)
    }

    /// Opens a presented ticket and checks its time. Whether it still counts is the store's to say ([`super::lineage`]).
    ///
    /// # Errors
    /// Why the ticket is refused.
    pub fn open(&self, ticket: &[u8], now: UnixTime) -> Result<TicketContent, TicketRefusal> {
        let length = TicketRefusal::Length(ticket.len());
        if ticket.len() > limits::TICKET_MAX {
            return Err(length);
        }
        let (head, rest) = ticket.split_first_chunk::<HEAD>().ok_or(length)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>().ok_or(length)?;
        let [version, id @ ..] = *head;
        if version != VERSION {
            return Err(TicketRefusal::Version(version));
        }
        let id = u64::from_be_bytes(id);
        let key = self.keys.iter().find(|key| key.id == id).ok_or(TicketRefusal::UnknownKey(id))?;
        let mut plain = sealed.to_vec();
        aead256_open(&key.secret, nonce, head, &mut plain).map_err(|_| TicketRefusal::Unauthentic)?;
        let plain = Secret::from(plain);
        let content = TicketContent::decode(plain.as_bytes())?;
        if now >= content.expires {
            return Err(TicketRefusal::Expired(now.0 - content.expires.0));
        }
        // Half a minute of a clock being corrected is no reason for a full exchange.
        match content.issued.0.saturating_sub(now.0) {
            0..=30 => Ok(content),
            ahead => Err(TicketRefusal::NotYetValid(ahead)),
        }
    }

    /// All keys, for the driver to store where only it can read.
    #[must_use]
    pub fn export(&self) -> Secret {
        let mut out = Out::new();
        out.u8(EXPORT_VERSION);
        out.list(&self.keys, |out, key| {
            out.u64(key.id);
            out.u64(key.born);
            out.raw(&key.secret);
        });
        out.into_secret()
    }

    /// Keys that were exported. Rotation settings are the configuration's, not the export's.
    ///
    /// # Errors
    /// [`KeyExportError`]: generate a new set; clients take the full exchange once.
    pub fn import(bytes: &[u8], rotate_after: Duration, keep_for: Duration) -> Result<Self, KeyExportError> {
        let read = || {
            let mut r = In(Reader::new("ticket keys", bytes));
            r.version(EXPORT_VERSION)?;
            let keys = r.list(|r| Ok(Key { id: r.u64()?, born: r.u64()?, secret: r.array()? }))?;
            r.0.all()?;
            Ok::<_, TicketFormatError>(keys)
        };
        let keys = read()?;
        if keys.is_empty() {
            return Err(KeyExportError::Empty);
        }
        Ok(Self { keys, makers: Makers::Us { rotate_after, keep_for } })
    }
}

/// "MUST additionally include a key identity field" (RFC 5723 section 6.1), and the version says which algorithms.
fn head(id: u64) -> [u8; HEAD] {
    let mut head = [VERSION; HEAD];
    if let Some((_, rest)) = head.split_first_mut() {
        rest.copy_from_slice(&id.to_be_bytes());
    }
    head
}
