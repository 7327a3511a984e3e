//! The two keys of Microsoft (RFC 2548 sections 2.4.2 and 2.4.3), which servers hand the MSK out in. Owns how they are hidden.

use dormouse_crypto::{Secret, eap};

use super::attribute::{self, VENDOR};
use super::sealed::Pending;
use crate::keys::Msk;

const MICROSOFT: [u8; 4] = 311_u32.to_be_bytes();
const SEND: u8 = 16;
const RECEIVE: u8 = 17;

/// The MSK: the key that the gateway receives with, and the one that it sends with (RFC 5216 section 2.3: "MS-MPPE-Recv-Key" is the first half). `None` if one is
/// missing or does not decrypt.
pub(super) fn msk(attributes: &[(u8, &[u8])], pending: &Pending, secret: &Secret) -> Option<Msk> {
    let find = |wanted| {
        let microsoft = attribute::all(attributes, VENDOR).filter_map(|value| value.strip_prefix(&MICROSOFT));
        let value = microsoft.filter_map(attribute::parse).flatten().find(|(kind, _)| *kind == wanted)?.1;
        reveal(value, pending, secret)
    };
    let (receive, send) = (find(RECEIVE)?, find(SEND)?);
    Some(Msk::of(&[receive.as_bytes(), send.as_bytes()]))
}

/// `b(1) = MD5(S + R + A)`, `b(i) = MD5(S + c(i-1))`, `p(i) = c(i) xor b(i)`
fn reveal(value: &[u8], pending: &Pending, secret: &Secret) -> Option<Secret> {
    let (salt, hidden) = value.split_at_checked(2)?;
    if hidden.is_empty() || !hidden.len().is_multiple_of(16) {
        return None;
    }
    let mut plain = Secret::from(hidden);
    let mut pad = eap::md5(&[secret.as_bytes(), &pending.authenticator, salt]);
    for (block, hidden) in plain.as_mut_bytes().chunks_exact_mut(16).zip(hidden.chunks_exact(16)) {
        block.iter_mut().zip(pad).for_each(|(byte, mask)| *byte ^= mask);
        pad = eap::md5(&[secret.as_bytes(), hidden]);
    }
    let (len, rest) = plain.as_bytes().split_first()?;
    let key = rest.get(..usize::from(*len)).filter(|key| !key.is_empty())?;
    Some(Secret::from(key))
}
