//! What a client says inside the tunnel (RFC 5281 section 11). Owns the choice between the ways to show a password, which is the client's.

use core::str;

use dormouse_crypto::ct_eq;
use dormouse_sansio::Entropy;

use super::Around;
use super::avp::{
    self, Avp, Code, EAP_MESSAGE, MS_CHAP_CHALLENGE, MS_CHAP2_RESPONSE, MS_CHAP2_SUCCESS, USER_NAME,
    USER_PASSWORD,
};
use crate::error::Error;
use crate::method::Turn;
use crate::mschapv2;
use crate::packet::{Packet, Type};

/// What is under way inside.
#[derive(Debug, Default)]
pub(super) enum Inner {
    /// Nothing: the client begins (RFC 5281 section 11.2).
    #[default]
    First,
    /// EAP-MSCHAPv2, with the identifier of the request that waits for its response.
    Eap { server: mschapv2::Server, identifier: u8 },
}

/// What follows.
pub(super) enum Said {
    /// These attributes go back.
    Ask(Vec<u8>),
    /// These attributes go back: with them we have proved that we know the password of this user, who has proved it.
    Proof(Vec<u8>, String),
    /// This user has proved the password, and there is nothing to say.
    Done(String),
}

impl Inner {
    pub(super) const fn refusal(&self) -> Option<&Error> {
        match self {
            Self::First => None,
            Self::Eap { server, .. } => server.refusal(),
        }
    }

    pub(super) fn receive(
        &mut self,
        said: &[u8],
        around: &Around<'_>,
        entropy: &mut dyn Entropy,
    ) -> Result<Said, Error> {
        const KNOWN: [Code; 5] =
            [USER_NAME, USER_PASSWORD, EAP_MESSAGE, MS_CHAP_CHALLENGE, MS_CHAP2_RESPONSE];
        let avps = avp::parse(said)?;
        if avps.iter().any(|avp| avp.is_mandatory && !KNOWN.contains(&avp.code)) {
            // "the receiving party MUST fail the negotiation if it does not understand the AVP" (RFC 5281 section 10.1)
            return Err(Error::Unexpected(
                "a way to log in inside EAP-TTLS that is none of PAP, MS-CHAPv2 and EAP-MSCHAPv2",
            ));
        }
        let one = |code| avps.iter().find(|avp: &&Avp<'_>| avp.code == code).map(|avp| avp.value);
        let eap: Vec<u8> =
            avps.iter().filter(|a| a.code == EAP_MESSAGE).flat_map(|a| a.value).copied().collect();
        if !eap.is_empty() || matches!(self, Self::Eap { .. }) {
            return self.eap(&eap, around, entropy);
        }
        let name = one(USER_NAME).ok_or(Error::Malformed("no name inside EAP-TTLS"))?;
        match (one(USER_PASSWORD), one(MS_CHAP_CHALLENGE), one(MS_CHAP2_RESPONSE)) {
            (Some(password), None, None) => pap(name, password, around).map(Said::Done),
            (None, Some(challenge), Some(response)) => ms_chap(name, challenge, response, around),
            _ => Err(Error::Malformed("no password inside EAP-TTLS")),
        }
    }

    /// EAP once more: an identity, and EAP-MSCHAPv2. Success and failure of the conversation inside are those of the one outside.
    fn eap(&mut self, packet: &[u8], around: &Around<'_>, entropy: &mut dyn Entropy) -> Result<Said, Error> {
        let Packet::Response { identifier: answers, kind, data } = Packet::parse(packet)? else {
            return Err(Error::Unexpected("a client sends responses"));
        };
        let (identifier, data) = match self {
            Self::First if kind == Type::IDENTITY => {
                let identifier = answers.wrapping_add(1);
                let (server, data) = mschapv2::Server::start(identifier, around.name, entropy);
                *self = Self::Eap { server, identifier };
                (identifier, data)
            }
            Self::Eap { identifier, .. } if answers != *identifier => {
                return Err(Error::Unexpected("the answer is to another question"));
            }
            Self::Eap { server, identifier } if kind == Type::MSCHAPV2 => {
                match server.receive(data, around.users, around.decoy, entropy) {
                    Turn::Ask(data) => {
                        *identifier = identifier.wrapping_add(1);
                        (*identifier, data)
                    }
                    // The key inside is not used: that of the tunnel is.
                    Turn::Done { identity, .. } => return Ok(Said::Done(identity)),
                    Turn::Failed(why) => return Err(why),
                }
            }
            Self::Eap { .. } if kind == Type::NAK => {
                return Err(Error::NoCommonMethod(data.iter().take(1).copied().map(Type).collect()));
            }
            _ => return Err(Error::Unexpected("another EAP packet was due inside EAP-TTLS")),
        };
        let request = Packet::Request { identifier, kind: Type::MSCHAPV2, data: &data }.emit()?;
        avp::emit(EAP_MESSAGE, &request).map(Said::Ask)
    }
}

/// RFC 5281 section 11.2.5: the password, "null-padded to a multiple of 16 octets".
fn pap(name: &[u8], password: &[u8], around: &Around<'_>) -> Result<String, Error> {
    let end = password.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let password = str::from_utf8(&password[..end]).map_err(|_| Error::WrongPassword)?;
    let mut names = [name, mschapv2::without_domain(name)].into_iter().filter_map(|n| str::from_utf8(n).ok());
    let user = names.find(|name| around.users.password(name, password));
    user.map(str::to_owned).ok_or(Error::WrongPassword)
}

/// RFC 5281 section 11.2.4: the challenge is not ours but of the tunnel, so that no response of another one serves.
fn ms_chap(name: &[u8], challenge: &[u8], response: &[u8], around: &Around<'_>) -> Result<Said, Error> {
    let malformed = || Error::Malformed("a response of MS-CHAPv2 inside EAP-TTLS");
    let (expected, identifier) = around.challenge.split_first_chunk().ok_or_else(malformed)?;
    // Identifier, flags, the client's challenge, eight zeros, the response.
    let ([given, _], rest) = response.split_first_chunk().ok_or_else(malformed)?;
    let (peer_challenge, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
    let (_, nt_response) = rest.split_first_chunk::<8>().ok_or_else(malformed)?;
    if nt_response.len() != 24 || name.len() > crate::limits::MAX_NAME {
        return Err(malformed());
    }
    if !ct_eq(challenge, expected) || identifier != [*given] {
        return Err(Error::Unexpected("a response of MS-CHAPv2 to another tunnel's challenge"));
    }
    let response = mschapv2::Response { peer_challenge, nt_response, name };
    let right = mschapv2::check(expected, &response, around.users, around.decoy)?;
    let proof = [&[*given][..], right.authenticator_response.as_bytes()].concat();
    Ok(Said::Proof(avp::emit(MS_CHAP2_SUCCESS, &proof)?, right.user))
}
