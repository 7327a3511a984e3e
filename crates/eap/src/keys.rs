//! The two secrets of the crate's interface: the key that a conversation ends in, and what stands for a password. Owns their form; must never show
//! them but where that is asked for by name.

use dormouse_crypto::{Secret, eap};

use crate::limits::MAX_PASSWORD;

/// The Master Session Key of a conversation (RFC 3748 section 7.10): 64 bytes, wiped when dropped, compared in constant time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Msk(Secret);

impl Msk {
    /// Bytes of it.
    pub const LEN: usize = 64;

    /// The parts put together, cut or filled up with zeros to 64 bytes. Zeros at the end change nothing for a PRF that is an HMAC.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut key = Secret::zeroed(Self::LEN);
        for (to, from) in key.as_mut_bytes().iter_mut().zip(parts.iter().copied().flatten()) {
            *to = *from;
        }
        Self(key)
    }

    /// The 64 bytes, which IKEv2 makes AUTH payloads of (RFC 7296 section 2.16).
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// MD4 of a password in UTF-16LE (RFC 2759 section 8.3): all that MS-CHAPv2 needs of it, and so as good as the password itself to who finds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NtHash(Secret);

impl NtHash {
    /// Bytes of it.
    pub const LEN: usize = 16;

    /// Of a password. `None` if it is too long for any client (`MAX_PASSWORD` bytes).
    #[must_use]
    pub fn of_password(password: &str) -> Option<Self> {
        if password.len() > MAX_PASSWORD {
            return None;
        }
        // No more UTF-16 units than bytes: the vector never grows, which would leave a copy behind.
        let mut utf16 = Vec::with_capacity(2 * password.len());
        utf16.extend(password.encode_utf16().flat_map(u16::to_le_bytes));
        Some(Self(eap::md4(Secret::from(utf16).as_bytes())))
    }

    /// Of 32 hexadecimal digits, as files of users have it. `None` if they are not.
    #[must_use]
    pub fn from_hex(digits: &str) -> Option<Self> {
        let mut hash = Secret::zeroed(Self::LEN);
        unhex(digits.as_bytes(), hash.as_mut_bytes()).then_some(Self(hash))
    }

    /// 32 hexadecimal digits, for a file of users.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl From<[u8; Self::LEN]> for NtHash {
    fn from(hash: [u8; Self::LEN]) -> Self {
        Self(Secret::from(hash))
    }
}

/// Hexadecimal digits into exactly so many bytes; whether they are that.
pub(crate) fn unhex(digits: &[u8], out: &mut [u8]) -> bool {
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    if digits.len() != 2 * out.len() {
        return false;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let (Some(high), Some(low)) = (value(pair[0]), value(pair[1])) else { return false };
        *byte = high << 4 | low;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_filled_up() {
        let key = Msk::of(&[&[1; 16], &[2; 16]]);
        assert_eq!(key.as_bytes(), [&[1; 16][..], &[2; 16], &[0; 32]].concat());
        assert_eq!(Msk::of(&[&[7; 100]]).as_bytes(), [7; 64]);
        assert_eq!(format!("{key:?}"), "Msk(Secret(64 bytes))");
    }

    /// RFC 2759 sections 9.2 and 9.3 (whose "MyPw" is hashed as four ASCII bytes there, so only the first).
    #[test]
    fn hash_of_a_password() {
        let hash = NtHash::of_password("clientPass").expect("short");
        assert_eq!(hash.to_hex(), "44ebba8d5312b8d611474411f56989ae");
        assert_eq!(NtHash::from_hex("44EBBA8D5312B8D611474411F56989AE"), Some(hash.clone()));
        assert_ne!(NtHash::of_password("clientpass"), Some(hash));
        for bad in [
            "",
            "44ebba8d5312b8d611474411f56989a",
            "44ebba8d5312b8d611474411f56989aeaa",
            "zzebba8d5312b8d611474411f56989ae",
        ] {
            assert_eq!(NtHash::from_hex(bad), None, "{bad}");
        }
        // Beyond the first plane there are two UTF-16 units.
        assert!(
            NtHash::of_password("пароль🐭").is_some() && NtHash::of_password(&"x".repeat(1_025)).is_none()
        );
    }
}
