//! The gateway's part. Owns one attempt of one user; must never say, by a message or by how long it takes, whether a name exists.

use core::mem;

use dormouse_crypto::{Prf, PrfKey, Secret, ct_eq};
use dormouse_sansio::Entropy;

use super::derive::{Derived, derive};
use super::{CHALLENGE, Op, VALUE, emit, parse, without_domain};
use crate::error::Error;
use crate::keys::{Msk, NtHash};
use crate::limits::MAX_NAME;
use crate::method::Turn;
use crate::users::Users;

/// What the method waits for.
#[derive(Debug)]
enum Wait {
    /// The peer's response.
    Response,
    /// That it has accepted our proof.
    Accepted { identity: String, msk: Msk },
    /// That it has seen the refusal.
    Refused(Error),
    /// Nothing.
    Over,
}

/// One conversation.
#[derive(Debug)]
pub(crate) struct Server {
    challenge: [u8; CHALLENGE],
    id: u8,
    wait: Wait,
}

impl Server {
    /// The conversation, and the data of its first request.
    pub(crate) fn start(identifier: u8, name: &str, entropy: &mut dyn Entropy) -> (Self, Vec<u8>) {
        let mut challenge = [0; CHALLENGE];
        entropy.fill(&mut challenge);
        let ask = emit(Op::Challenge, identifier, &[&[CHALLENGE as u8], &challenge, name.as_bytes()]);
        (Self { challenge, id: identifier, wait: Wait::Response }, ask)
    }

    /// What it will fail with, once that is certain although the peer may still be silent.
    pub(crate) const fn refusal(&self) -> Option<&Error> {
        if let Wait::Refused(why) = &self.wait { Some(why) } else { None }
    }

    pub(crate) fn receive(
        &mut self,
        data: &[u8],
        users: &dyn Users,
        decoy: &Secret,
        entropy: &mut dyn Entropy,
    ) -> Turn {
        let (op, value) = match parse(data) {
            Ok((op, _, value)) => (op, value),
            Err(why) => return Turn::Failed(why),
        };
        match (mem::replace(&mut self.wait, Wait::Over), op) {
            (Wait::Response, Op::Response) => match Response::parse(value) {
                Ok(response) => self.judge(&response, users, decoy, entropy),
                Err(why) => Turn::Failed(why),
            },
            // The peer "MUST NOT" go on if our proof is wrong; so this means that it is right.
            (Wait::Accepted { identity, msk }, Op::Success) => Turn::Done { identity, msk },
            (Wait::Accepted { .. }, Op::Failure) => Turn::Failed(Error::PeerRefused),
            (Wait::Refused(_), Op::ChangePassword) | (Wait::Response, Op::ChangePassword) => {
                Turn::Failed(Error::PasswordChange)
            }
            (Wait::Refused(why), _) => Turn::Failed(why),
            _ => Turn::Failed(Error::Unexpected("another message of MS-CHAPv2 was due")),
        }
    }

    fn judge(
        &mut self,
        response: &Response<'_>,
        users: &dyn Users,
        decoy: &Secret,
        entropy: &mut dyn Entropy,
    ) -> Turn {
        match check(&self.challenge, response, users, decoy) {
            Ok(Right { user, authenticator_response, msk }) => {
                self.wait = Wait::Accepted { identity: user, msk };
                let line = format!("{authenticator_response} M=OK");
                Turn::Ask(emit(Op::Success, self.id, &[line.as_bytes()]))
            }
            Err(why) => {
                self.wait = Wait::Refused(why);
                // "This field MUST be exactly 32 octets long and MUST be present" (RFC 2759 section 6), also where no retry is allowed.
                let mut challenge = [0; CHALLENGE];
                entropy.fill(&mut challenge);
                let line = format!("E=691 R=0 C={} V=3 M=Authentication failed", hex(&challenge));
                Turn::Ask(emit(Op::Failure, self.id, &[line.as_bytes()]))
            }
        }
    }
}

/// What a right response comes to.
pub(crate) struct Right {
    /// As [`Users`] has the name.
    pub(crate) user: String,
    /// `S=` and 40 digits.
    pub(crate) authenticator_response: String,
    pub(crate) msk: Msk,
}

/// Whether the response is that of a user; the same work for all names.
pub(crate) fn check(
    challenge: &[u8; CHALLENGE],
    response: &Response<'_>,
    users: &dyn Users,
    decoy: &Secret,
) -> Result<Right, Error> {
    let short = without_domain(response.name);
    let found = [response.name, short]
        .map(|name| core::str::from_utf8(name).ok().and_then(|name| Some((name, users.mschapv2(name)?))));
    let stand_in = decoy_hash(decoy, response.name);
    let (user, hash) = found.into_iter().flatten().next().map_or((None, stand_in), |(n, h)| (Some(n), h));
    let Derived { nt_response, authenticator_response, msk } =
        derive(&hash, challenge, response.peer_challenge, short);
    let right = ct_eq(&nt_response, response.nt_response);
    match user {
        Some(user) if right => {
            let authenticator_response = format!("S={}", hex(&authenticator_response));
            Ok(Right { user: user.to_owned(), authenticator_response, msk })
        }
        Some(_) => Err(Error::WrongPassword),
        None => Err(Error::UnknownUser),
    }
}

/// The value of a Response packet, and its name.
pub(crate) struct Response<'a> {
    pub(crate) peer_challenge: &'a [u8; CHALLENGE],
    pub(crate) nt_response: &'a [u8],
    pub(crate) name: &'a [u8],
}

impl<'a> Response<'a> {
    fn parse(value: &'a [u8]) -> Result<Self, Error> {
        let malformed = Error::Malformed("a response of MS-CHAPv2");
        let Some((&len, rest)) = value.split_first() else { return Err(malformed) };
        let Some((value, name)) = rest.split_at_checked(VALUE) else { return Err(malformed) };
        let Some((peer_challenge, rest)) = value.split_first_chunk() else { return Err(malformed) };
        if usize::from(len) != VALUE || name.len() > MAX_NAME {
            return Err(malformed);
        }
        // Eight reserved bytes before it, one of flags behind.
        Ok(Self { peer_challenge, nt_response: &rest[8..32], name })
    }
}

/// A hash for who does not exist: the same for the same name, and nobody knows its password.
fn decoy_hash(secret: &Secret, name: &[u8]) -> NtHash {
    let mac = PrfKey::new(Prf::HmacSha256, secret.as_bytes()).compute(&[name]);
    NtHash::from(mac.as_bytes().first_chunk().copied().unwrap_or([0; 16]))
}

/// "The hexadecimal digits A-F (if present) MUST be uppercase." (RFC 2759 section 5)
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}
