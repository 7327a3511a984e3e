//! A first message that is sent for its answer alone: whether a responder is there, and how it sees us. Owns the message and what an answer says;
//! never computes a key, and no session comes of it: what the responder keeps for [`Question::new`] it forgets within its time for half-open
//! SAs, and for [`Question::of_size`] it keeps nothing. Nothing in an answer is authenticated.

use core::net::{IpAddr, SocketAddr};

use dormouse_crypto::suites::Group;
use dormouse_crypto::{DhPrivate, Error};
use dormouse_sansio::{Entropy, Path};
use dormouse_wire::ike::{
    ExchangeType, Flags, HEADER_LEN, Header, Message, NotifyType, Payload, Proposal, ProtocolId, Transform,
    TransformType,
};

use crate::keys::Spis;
use crate::limits::COOKIE_MAX;
use crate::natd::{self, Detection};
use crate::payloads::{View, nat_detection, notify};
use crate::proposal::{self, IkeProposal};

/// Cookies that are returned; a responder that asks for more has answered all the same.
const COOKIES: u8 = 2;
/// Bytes of a nonce (RFC 7296 section 3.9: 16 to 256).
const NONCE: usize = 32;
/// What fills a message up to its size, so that who reads it in a log or a recording knows what it was.
const FILLING: &[u8] = b"dormouse netcheck: the size of this message is a question about the path's MTU. ";
/// Bytes of a payload's header.
const PAYLOAD: usize = 4;

/// A question, until it is answered.
#[derive(Debug)]
pub struct Question {
    spi: u64,
    path: Path,
    nonce: Vec<u8>,
    offered: Vec<Proposal>,
    group: u16,
    public: Vec<u8>,
    tried: Vec<Group>,
    cookie: Option<Vec<u8>>,
    cookies: u8,
    filling: Vec<u8>,
}

/// What came of a datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It is no answer to this question.
    Foreign,
    /// The responder wants another form of it: [`Question::message`] has changed, and is to be sent.
    Again,
    /// It is answered.
    Answered(Answer),
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What it says of NATs; not supported if it says nothing, as a refusal does.
    pub nat: Detection,
    /// The error that it consists of, if it is one.
    pub refusal: Option<NotifyType>,
    spis: Spis,
    destination: Option<Vec<u8>>,
}

impl Question {
    /// One that a responder answers as it would answer the first message of a session with these proposals. `path.local` is what the
    /// responder would see if nothing translated it.
    ///
    /// # Errors
    /// The cryptographic library's.
    pub fn new(entropy: &mut dyn Entropy, path: Path, proposals: &[IkeProposal]) -> Result<Self, Error> {
        // Proposals without a group are refused by whoever reads them, which is an answer.
        let group = proposal::first_group(proposals).unwrap_or(Group::X25519);
        let public = DhPrivate::generate(group, entropy)?.public_value().to_vec();
        let mut new = Self::with(entropy, path, proposal::ike_offer(proposals, None), group.id(), public);
        new.tried.push(group);
        Ok(new)
    }

    /// One whose message has so many bytes and is refused without any effort: it offers nothing but what no responder takes (DES, MD5, MODP
    /// of 768 bits; all MUST NOT by RFC 8247). Smaller ones than its shortest form come as that.
    #[must_use]
    pub fn of_size(entropy: &mut dyn Entropy, path: Path, bytes: usize) -> Self {
        let of = |kind, id| Transform::new(kind, id);
        let transforms = vec![
            of(TransformType::Encryption, 2),
            of(TransformType::Prf, 1),
            of(TransformType::Integrity, 1),
            of(TransformType::KeyExchange, 1),
        ];
        let offered = vec![Proposal { number: 1, protocol: ProtocolId::Ike, spi: Vec::new(), transforms }];
        let mut public = vec![0; 96];
        entropy.fill(&mut public);
        let mut new = Self::with(entropy, path, offered, 1, public);
        let short = new.message().len() + PAYLOAD;
        new.filling = FILLING.iter().copied().cycle().take(bytes.saturating_sub(short)).collect();
        new
    }

    fn with(
        entropy: &mut dyn Entropy,
        path: Path,
        offered: Vec<Proposal>,
        group: u16,
        public: Vec<u8>,
    ) -> Self {
        let mut nonce = vec![0; NONCE];
        entropy.fill(&mut nonce);
        Self {
            // An SPI of zero names no initiator (RFC 7296 section 3.1).
            spi: entropy.next_u64().max(1),
            path,
            nonce,
            offered,
            group,
            public,
            tried: Vec::new(),
            cookie: None,
            cookies: 0,
            filling: Vec::new(),
        }
    }

    /// The message to be sent, as often as it is to be repeated; without the marker of port 4500 (RFC 3948 section 2.2).
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let mut list: Vec<Payload> =
            self.cookie.iter().map(|cookie| notify(NotifyType::Cookie, cookie.clone())).collect();
        list.push(Payload::Sa(self.offered.clone()));
        list.push(Payload::Ke { group: self.group, data: self.public.clone() });
        list.push(Payload::Nonce(self.nonce.clone()));
        list.extend(nat_detection(Spis { i: self.spi, r: 0 }, &self.path, false));
        list.push(notify(NotifyType::IntermediateExchangeSupported, []));
        if !self.filling.is_empty() {
            list.push(Payload::VendorId(self.filling.clone()));
        }
        let flags = Flags { initiator: true, ..Flags::default() };
        let header = Header::new(self.spi, 0, ExchangeType::IkeSaInit, flags, 0);
        let mut out = Vec::with_capacity(HEADER_LEN + self.filling.len() + 512);
        // Nothing here is too long: at worst nothing is sent, and nothing answered.
        let _ = Message::emit(&header, &list, &mut out);
        out
    }

    /// Takes a datagram that came, without the marker.
    pub fn take(&mut self, entropy: &mut dyn Entropy, datagram: &[u8]) -> Taken {
        let Ok(message) = Message::parse(datagram) else { return Taken::Foreign };
        let header = &message.header;
        let ours = header.spi_i == self.spi
            && header.exchange == ExchangeType::IkeSaInit
            && header.flags.response
            && !header.flags.initiator
            && header.message_id == 0;
        if !ours {
            return Taken::Foreign;
        }
        let view = View(&message.payloads);
        if let Some(cookie) = view.notify(NotifyType::Cookie)
            && self.cookies < COOKIES
            && (1..=COOKIE_MAX).contains(&cookie.data.len())
        {
            self.cookie = Some(cookie.data.clone());
            self.cookies += 1;
            return Taken::Again;
        }
        if self.takes_group(entropy, view) {
            return Taken::Again;
        }
        let data = |kind| view.notifies().filter(move |n| n.kind == kind).map(|n| n.data.as_slice());
        let spis = Spis { i: self.spi, r: header.spi_r };
        let destination = data(NotifyType::NatDetectionDestinationIp).next();
        let nat = natd::detect(spis, &self.path, data(NotifyType::NatDetectionSourceIp), destination);
        let refusal = view.error().map(|n| n.kind);
        Taken::Answered(Answer { nat, refusal, spis, destination: destination.map(<[u8]>::to_vec) })
    }

    /// Whether the responder asks for another group that was offered too.
    fn takes_group(&mut self, entropy: &mut dyn Entropy, view: View<'_>) -> bool {
        let wanted =
            view.notify(NotifyType::InvalidKePayload).and_then(|n| n.data.first_chunk::<2>().copied());
        let Some(wanted) = wanted.map(u16::from_be_bytes) else { return false };
        let Some(group) = proposal::retry_group(wanted, &self.offered, &self.tried) else { return false };
        let Ok(fresh) = DhPrivate::generate(group, entropy) else { return false };
        self.group = group.id();
        self.public = fresh.public_value().to_vec();
        self.tried.push(group);
        true
    }
}

impl Answer {
    /// From which of these addresses, and which port, the responder has seen the question: its digest says so to who knows the address. One
    /// address costs some 65,000 SHA-1.
    #[must_use]
    pub fn seen_as(&self, addresses: impl IntoIterator<Item = IpAddr>) -> Option<SocketAddr> {
        let destination = self.destination.as_deref()?;
        let mut all =
            addresses.into_iter().flat_map(|ip| (1..=u16::MAX).map(move |port| SocketAddr::new(ip, port)));
        all.find(|seen| natd::digest(self.spis, *seen) == destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposal::default_ike_proposals;
    use dormouse_sansio::{Carrier, Seeded};

    fn path() -> Path {
        Path {
            local: "10.0.0.2:41000".parse().unwrap(),
            remote: "203.0.113.1:500".parse().unwrap(),
            carrier: Carrier::Ike,
        }
    }

    /// What a responder that sees the caller at `seen` answers.
    fn answer(question: &[u8], seen: &str, list: impl IntoIterator<Item = Payload>) -> Vec<u8> {
        let asked = Header::parse(question).unwrap();
        let flags = Flags { response: true, ..Flags::default() };
        let header = Header::new(asked.spi_i, 77, ExchangeType::IkeSaInit, flags, 0);
        let spis = Spis { i: asked.spi_i, r: 77 };
        let its = Path { local: path().remote, remote: seen.parse().unwrap(), carrier: Carrier::Ike };
        let mut all: Vec<Payload> = list.into_iter().collect();
        if all.is_empty() {
            all.extend(nat_detection(spis, &its, false));
        }
        let mut out = Vec::new();
        Message::emit(&header, &all, &mut out).unwrap();
        out
    }

    fn ask() -> (Seeded, Question) {
        let mut entropy = Seeded::new(7);
        let question = Question::new(&mut entropy, path(), &default_ike_proposals()).unwrap();
        (entropy, question)
    }

    fn answered(taken: Taken) -> Answer {
        let Taken::Answered(answer) = taken else { panic!("{taken:?}") };
        answer
    }

    #[test]
    fn an_answer_says_whether_we_are_translated_and_to_what_if_the_address_is_known() {
        for (seen, translated) in
            [("10.0.0.2:41000", false), ("198.51.100.6:41000", true), ("10.0.0.2:1024", true)]
        {
            let (mut entropy, mut question) = ask();
            let answer = answered(question.take(&mut entropy, &answer(&question.message(), seen, [])));
            let expected = Detection { supported: true, local: translated, remote: false };
            assert_eq!((answer.nat, answer.refusal), (expected, None));
            let seen: SocketAddr = seen.parse().unwrap();
            let others = ["192.0.2.1".parse().unwrap(), seen.ip()];
            assert_eq!(answer.seen_as(others), Some(seen));
            assert_eq!(answer.seen_as(["192.0.2.1".parse().unwrap()]), None);
        }
    }

    #[test]
    fn what_is_no_answer_to_this_question_is_foreign() {
        let (mut entropy, mut question) = ask();
        let right = answer(&question.message(), "10.0.0.2:41000", []);
        let own = question.message();
        let mut wrong = vec![Vec::new(), b"nonsense".to_vec(), own, right[..40].to_vec()];
        for at in [0, 18, 19, 23] {
            let mut other = right.clone();
            other[at] ^= if at == 19 { 0x20 } else { 1 };
            wrong.push(other);
        }
        for other in wrong {
            assert_eq!(question.take(&mut entropy, &other), Taken::Foreign, "{other:02x?}");
        }
        answered(question.take(&mut entropy, &right));
    }

    #[test]
    fn cookies_and_other_groups_are_given_a_few_times_and_count_as_answers_then() {
        let (mut entropy, mut question) = ask();
        for n in 0..COOKIES {
            let cookie = notify(NotifyType::Cookie, vec![n; 16]);
            let taken = question.take(&mut entropy, &answer(&question.message(), "10.0.0.2:1", [cookie]));
            assert_eq!(taken, Taken::Again);
            let Payload::Notify(first) = &Message::parse(&question.message()).unwrap().payloads[0] else {
                panic!()
            };
            assert_eq!((first.kind, &first.data), (NotifyType::Cookie, &vec![n; 16]));
        }
        let more = answer(&question.message(), "10.0.0.2:1", [notify(NotifyType::Cookie, [9; 16])]);
        assert!(!answered(question.take(&mut entropy, &more)).nat.supported);

        let (mut entropy, mut question) = ask();
        let before = question.message();
        let other = Group::Ecp256;
        let wants = |q: &Question| {
            answer(
                &q.message(),
                "10.0.0.2:1",
                [notify(NotifyType::InvalidKePayload, other.id().to_be_bytes())],
            )
        };
        assert_eq!(question.take(&mut entropy, &wants(&question)), Taken::Again);
        let again = Message::parse(&question.message()).unwrap();
        assert_eq!(View(&again.payloads).ke().unwrap().0, other.id());
        assert_ne!(before, question.message());
        // It has it: a responder that goes on asking has answered.
        let wants = wants(&question);
        let refused = answered(question.take(&mut entropy, &wants));
        assert_eq!(refused.refusal, Some(NotifyType::InvalidKePayload));
    }

    #[test]
    fn a_question_of_a_size_has_it_and_can_be_read() {
        let mut entropy = Seeded::new(7);
        let shortest = Question::of_size(&mut entropy, path(), 0).message().len();
        assert!(shortest < 400, "{shortest}");
        for size in [shortest + 5, 548, 1252, 1472, 8972] {
            let message = Question::of_size(&mut entropy, path(), size).message();
            assert_eq!(message.len(), size);
            Message::parse(&message).unwrap();
        }
    }
}
