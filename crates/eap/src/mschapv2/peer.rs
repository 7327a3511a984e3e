//! The client's part. Owns one attempt; must never take the server for one that knows the password before it has shown that.

use dormouse_crypto::Secret;
use dormouse_sansio::Entropy;

use super::derive::derive;
use super::{CHALLENGE, Op, VALUE, emit, field, parse, without_domain};
use crate::error::Error;
use crate::keys::{Msk, NtHash, unhex};

#[derive(Debug)]
enum State {
    /// Nothing has come.
    Start,
    /// We have answered the challenge.
    Responded { expected: Secret, msk: Msk },
    /// The server has proved itself.
    Proved(Msk),
    /// The server has said that it will fail.
    Refused(Error),
}

/// One conversation.
#[derive(Debug)]
pub(crate) struct Client {
    state: State,
}

impl Client {
    pub(crate) const fn new() -> Self {
        Self { state: State::Start }
    }

    /// Whether the server has spoken.
    pub(crate) const fn has_begun(&self) -> bool {
        !matches!(self.state, State::Start)
    }

    /// The key, once the server has proved that it knows the password.
    pub(crate) const fn msk(&self) -> Option<&Msk> {
        if let State::Proved(msk) = &self.state { Some(msk) } else { None }
    }

    /// What the server has said it will fail with.
    pub(crate) const fn refusal(&self) -> Option<&Error> {
        if let State::Refused(why) = &self.state { Some(why) } else { None }
    }

    /// The data of the answer.
    pub(crate) fn receive(
        &mut self,
        data: &[u8],
        user: &str,
        hash: &NtHash,
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<u8>, Error> {
        let (op, id, value) = parse(data)?;
        match (&self.state, op) {
            (State::Start, Op::Challenge) => self.respond(id, value, user, hash, entropy),
            (State::Responded { expected, msk }, Op::Success) => {
                let mut shown = [0; 20];
                let is_proof = field(value, "S").is_some_and(|digits| unhex(digits.as_bytes(), &mut shown));
                // "If the authenticator response is either missing or incorrect, the peer MUST end the session." (RFC 2759 section 5)
                if !is_proof || Secret::from(shown) != *expected {
                    return Err(Error::ServerUnproven);
                }
                self.state = State::Proved(msk.clone());
                Ok(vec![Op::Success as u8])
            }
            (State::Responded { .. }, Op::Failure) => {
                self.state = State::Refused(refusal(value));
                Ok(vec![Op::Failure as u8])
            }
            _ => Err(Error::Unexpected("another message of MS-CHAPv2 was due")),
        }
    }

    fn respond(
        &mut self,
        id: u8,
        value: &[u8],
        user: &str,
        hash: &NtHash,
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<u8>, Error> {
        // Behind the challenge is the server's name, or nothing: it proves nothing.
        let challenge = match value.split_first() {
            Some((len, rest)) if usize::from(*len) == CHALLENGE => rest.first_chunk::<CHALLENGE>(),
            _ => None,
        };
        let challenge = challenge.ok_or(Error::Malformed("a challenge of MS-CHAPv2"))?;
        let mut ours = [0; CHALLENGE];
        entropy.fill(&mut ours);
        let derived = derive(hash, challenge, &ours, without_domain(user.as_bytes()));
        let answer = emit(
            Op::Response,
            id,
            &[&[VALUE as u8], &ours, &[0; 8], &derived.nt_response, &[0], user.as_bytes()],
        );
        self.state =
            State::Responded { expected: Secret::from(derived.authenticator_response), msk: derived.msk };
        Ok(answer)
    }
}

/// By the numbers of RFC 2759 section 6.
fn refusal(line: &[u8]) -> Error {
    match field(line, "E").and_then(|code| code.parse().ok()) {
        Some(691) => Error::WrongPassword,
        Some(648) => Error::PasswordExpired,
        Some(647) => Error::AccountDisabled,
        code => Error::Refused(code),
    }
}
