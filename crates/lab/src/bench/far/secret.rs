//! The secret of one service: who has it may give orders. Owns how it is made, written and proved; must never show it but by
//! [`Pass::text`], nor compare it in variable time.
//!
//! It is `dmb1-` and 32 bytes in hexadecimal: the first half of the SHA-256 of the server's certificate, which was made for
//! this service, and a random token. The client accepts no other certificate. Then each side proves that it knows the token,
//! bound to the TLS connection by its exporter (RFC 8446, section 7.5): what one connection proves is worth nothing in
//! another.

use anyhow::{Context, Result, ensure};
use dormouse_crypto::{HashAlg, Prf, PrfKey, Secret, hash};
use dormouse_io::entropy::OsEntropy;
use dormouse_sansio::Entropy as _;

/// What a secret begins with: its version.
const PREFIX: &str = "dmb1-";
const HALF: usize = 16;

/// The secret, parsed.
#[derive(Clone)]
pub(super) struct Pass {
    fingerprint: [u8; HALF],
    token: Secret,
}

/// Who proves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    /// The device.
    Client,
    /// The far machine.
    Server,
}

impl Pass {
    /// A fresh one for a server with this certificate.
    pub(super) fn new(certificate: &[u8]) -> Self {
        let mut token = Secret::zeroed(HALF);
        OsEntropy.fill(token.as_mut_bytes());
        Self { fingerprint: fingerprint(certificate), token }
    }

    /// As users carry it from one machine to the other.
    pub(super) fn text(&self) -> String {
        format!("{PREFIX}{}{}", hex::encode(self.fingerprint), hex::encode(self.token.as_bytes()))
    }

    /// Reads what [`Pass::text`] wrote; white space around it does not matter.
    ///
    /// # Errors
    /// If it is no such text. The error does not repeat it.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let what = "this is no secret of dormouse bench --serve";
        let digits =
            text.trim().strip_prefix(PREFIX).with_context(|| format!("{what}: it begins with {PREFIX}"))?;
        let expected = 4 * HALF;
        ensure!(digits.len() == expected, "{what}: {} hexadecimal digits, expected {expected}", digits.len());
        let bytes =
            Secret::from(hex::decode(digits).ok().with_context(|| format!("{what}: not hexadecimal"))?);
        let (fingerprint, token) = bytes.as_bytes().split_first_chunk::<HALF>().context(what)?;
        Ok(Self { fingerprint: *fingerprint, token: Secret::from(token) })
    }

    /// Whether it is of the server with this certificate.
    pub(super) fn is_of(&self, certificate: &[u8]) -> bool {
        dormouse_crypto::ct_eq(&self.fingerprint, &fingerprint(certificate))
    }

    /// What `side` says in the connection with this exporter to prove that it knows the token.
    pub(super) fn proof(&self, side: Side, exporter: &[u8]) -> Secret {
        let side: &[u8] = match side {
            Side::Client => b"client",
            Side::Server => b"server",
        };
        PrfKey::new(Prf::HmacSha256, self.token.as_bytes()).compute(&[side, exporter])
    }

    /// Whether `said`, in hexadecimal, is that proof.
    pub(super) fn holds(&self, side: Side, exporter: &[u8], said: &str) -> bool {
        hex::decode(said).is_ok_and(|said| self.proof(side, exporter) == Secret::from(said))
    }
}

fn fingerprint(certificate: &[u8]) -> [u8; HALF] {
    let digest = hash(HashAlg::Sha256, &[certificate]);
    digest.first_chunk().copied().unwrap_or_default()
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pass({})", hex::encode(self.fingerprint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_survives_its_text_and_is_not_shown() {
        let pass = Pass::new(b"certificate");
        let again = Pass::parse(&format!(" {}\n", pass.text())).unwrap();
        assert!(again.is_of(b"certificate") && !again.is_of(b"another"));
        assert_eq!(again.token, pass.token);
        assert!(!format!("{pass:?}").contains(&hex::encode(pass.token.as_bytes())));
        assert_ne!(Pass::new(b"certificate").text(), pass.text(), "made anew each time");
    }

    #[test]
    fn what_is_no_secret_is_refused_without_repeating_it() {
        let good = Pass::new(b"c").text();
        let mut bad: Vec<String> = vec![String::new(), "dmb1-".into(), "hunter2".into(), format!("{good}00")];
        bad.extend([good.replace("dmb1", "dmb2"), format!("{}zz", &good[..good.len() - 2])]);
        bad.push(format!("{}é", &good[..good.len() - 2]));
        for text in bad {
            let error = format!("{:#}", Pass::parse(&text).unwrap_err());
            assert!(error.starts_with("this is no secret of dormouse bench --serve"), "{error}");
            assert!(text.len() < 6 || !error.contains(&text), "{error}");
        }
    }

    #[test]
    fn a_proof_holds_for_its_side_and_its_connection_alone() {
        let pass = Pass::new(b"c");
        let said = hex::encode(pass.proof(Side::Client, b"one").as_bytes());
        assert!(pass.holds(Side::Client, b"one", &said));
        assert!(!pass.holds(Side::Server, b"one", &said), "reflected");
        assert!(!pass.holds(Side::Client, b"two", &said), "carried over");
        assert!(!Pass::new(b"c").holds(Side::Client, b"one", &said), "another token");
        for nonsense in ["", "zz", &said[..62], &format!("{said}00")] {
            assert!(!pass.holds(Side::Client, b"one", nonsense));
        }
    }
}
