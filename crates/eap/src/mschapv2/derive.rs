//! The functions of RFC 2759 section 8 and RFC 3079 section 3.4. Owns nothing but arithmetic.

use dormouse_crypto::{HashAlg, Secret, eap, hash};

use super::CHALLENGE;
use crate::keys::{Msk, NtHash};

const SIGNING: &[u8] = b"Magic server to client signing constant";
const PADDING: &[u8] = b"Pad to make it do more than one iteration";
const MASTER: &[u8] = b"This is the MPPE Master Key";
/// What the peer sends and the authenticator receives with.
const TO_SERVER: &[u8] =
    b"On the client side, this is the send key; on the server side, it is the receive key.";
/// What the authenticator sends and the peer receives with.
const TO_CLIENT: &[u8] =
    b"On the client side, this is the receive key; on the server side, it is the send key.";

/// What a password, two challenges and a name come to.
pub(super) struct Derived {
    /// What the peer proves itself by.
    pub nt_response: [u8; 24],
    /// What the authenticator proves itself by.
    pub authenticator_response: [u8; 20],
    /// The key that both have then.
    pub msk: Msk,
}

/// `user` without a domain.
pub(super) fn derive(
    hash_of_password: &NtHash,
    authenticator_challenge: &[u8; CHALLENGE],
    peer_challenge: &[u8; CHALLENGE],
    user: &[u8],
) -> Derived {
    let challenge = challenge_hash(peer_challenge, authenticator_challenge, user);
    let nt_response = challenge_response(challenge, hash_of_password);
    let twice = eap::md4(hash_of_password.as_bytes());
    let digest = hash(HashAlg::Sha1, &[twice.as_bytes(), &nt_response, SIGNING]);
    let response = hash(HashAlg::Sha1, &[&digest, &challenge, PADDING]);
    Derived { nt_response, authenticator_response: first(&response), msk: msk(&twice, &nt_response) }
}

/// ChallengeHash (RFC 2759 section 8.2).
fn challenge_hash(peer: &[u8; CHALLENGE], authenticator: &[u8; CHALLENGE], user: &[u8]) -> [u8; 8] {
    first(&hash(HashAlg::Sha1, &[peer, authenticator, user]))
}

/// ChallengeResponse (RFC 2759 section 8.5): the hash filled up to three DES keys.
fn challenge_response(challenge: [u8; 8], hash_of_password: &NtHash) -> [u8; 24] {
    let keys = Secret::concat(&[hash_of_password.as_bytes(), &[0; 5]]);
    let mut response = [0; 24];
    for (third, key) in response.chunks_exact_mut(8).zip(keys.as_bytes().chunks_exact(7)) {
        third.copy_from_slice(&eap::des_encrypt(&first(key), challenge));
    }
    response
}

/// The MSK as everybody makes it: the authenticator's MasterReceiveKey, its MasterSendKey, and zeros (RFC 3079 section 3.3 has the keys; hostapd's
/// `eap_mschapv2_getKey` and strongSwan's `GenerateMSK` the order, the same at both ends).
fn msk(twice: &Secret, nt_response: &[u8; 24]) -> Msk {
    let master = Secret::from(hash(HashAlg::Sha1, &[twice.as_bytes(), nt_response, MASTER]));
    let start_key = |direction| {
        let master = &master.as_bytes()[..16];
        Secret::from(hash(HashAlg::Sha1, &[master, &[0; 40], direction, &[0xf2; 40]]))
    };
    let (receive, send) = (start_key(TO_SERVER), start_key(TO_CLIENT));
    Msk::of(&[&receive.as_bytes()[..16], &send.as_bytes()[..16]])
}

/// The first bytes; zeros where there are fewer, which no caller has.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> ([u8; 16], [u8; 16], NtHash) {
        let authenticator = *b"[]|}{?/><,`!2&&(";
        let peer = *b"!@#$%^&*()_+:3|~";
        (authenticator, peer, NtHash::of_password("clientPass").expect("short"))
    }

    /// RFC 2759 section 9.2.
    #[test]
    fn hash_example() {
        let (authenticator, peer, password) = example();
        assert_eq!(hex::encode(challenge_hash(&peer, &authenticator, b"User")), "d02e4386bce91226");
        assert_eq!(hex::encode(eap::md4(password.as_bytes())), "41c00c584bd2d91c4017a2a12fa59f3f");
        let derived = derive(&password, &authenticator, &peer, b"User");
        assert_eq!(hex::encode(derived.nt_response), "82309ecd8d708b5ea08faa3981cd83544233114a3d85d6df");
        assert_eq!(hex::encode(derived.authenticator_response), "407a5589115fd0d6209f510fe9c04566932cda56");
    }

    /// RFC 3079 section 3.5.3: "SendStartKey128 = 8B 7C DC 14 9B 99 3A 1B A1 18 CB 15 3F 56 DC CB", of the server (Magic3). The other
    /// half was computed from the same master key FD EC E3 71 7A 8C 83 8C B3 88 E5 27 AE 3C DD 31 with Python's hashlib.
    #[test]
    fn key_example() {
        let (authenticator, peer, password) = example();
        let msk = derive(&password, &authenticator, &peer, b"User").msk;
        assert_eq!(hex::encode(&msk.as_bytes()[16..32]), "8b7cdc149b993a1ba118cb153f56dccb");
        assert_eq!(hex::encode(&msk.as_bytes()[..16]), "d5f0e9521e3ea9589645e86051c82226");
        assert_eq!(msk.as_bytes()[32..], [0; 32]);
    }
}
