//! AES-CCM (RFC 4309, RFC 5282, RFC 3610), put together from the CTR and the CBC of the one back end, which has no CCM: so what is measured is what
//! is used, and a comparison of modes compares modes, and not libraries. Owns the composition; must never allocate per packet.

use aws_lc_rs::cipher::{self, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use zeroize::Zeroize;

use super::{Around, Protect};
use crate::error::Unauthentic;
use crate::secret::ct_eq;

const BLOCK: usize = 16;
/// Bytes of message that are fed to CBC at once; a multiple of the block. CBC yields as many bytes as it takes, and only the
/// last block is wanted, so it works on copies.
const CHUNK: usize = 512;
/// L in RFC 3610: what a nonce of 11 bytes leaves for the length.
/// "Implementations MUST support an L value of 4 octets" (RFC 4309 section 2)
const LENGTH_LEN: usize = 4;
/// AAD of so many bytes has its length in six bytes, and no longer in two (RFC 3610, section 2.2).
const LONG_AAD: usize = 0xff00;

/// The keys. How long the ICV is, the buffer for it says.
/// "The size of KEYMAT MUST be three octets longer than is needed for the associated AES key." (RFC 4309 section 7.1)
pub(super) struct Ccm {
    ctr: EncryptingKey,
    cbc: EncryptingKey,
    salt: [u8; 3],
}

impl Ccm {
    /// AES-128 or AES-256 by the length of `key`; `None` for another, or if `salt` has not three bytes.
    pub(super) fn new(key: &[u8], salt: &[u8]) -> Option<Self> {
        let algorithm = match key.len() {
            16 => &cipher::AES_128,
            32 => &cipher::AES_256,
            _ => return None,
        };
        let key = || UnboundCipherKey::new(algorithm, key).ok();
        Some(Self {
            ctr: EncryptingKey::ctr(key()?).ok()?,
            cbc: EncryptingKey::cbc(key()?).ok()?,
            salt: salt.try_into().ok()?,
        })
    }

    /// The block A_0 or, with other flags, B_0: flags | salt | `iv` | counter or length. `iv` has been checked to be 8 bytes.
    /// "Implementations MUST support a nonce of 11 octets." (RFC 4309 section 2)
    /// "For the use of AES CCM with the IKEv2 Encrypted Payload, this default nonce format MUST be used and an 11 octet nonce MUST be used."
    /// (RFC 5282 section 4)
    fn block(&self, flags: u8, iv: &[u8], last: u32) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[0] = flags;
        block[1..4].copy_from_slice(&self.salt);
        block[4..12].copy_from_slice(iv);
        block[12..].copy_from_slice(&last.to_be_bytes());
        block
    }

    fn ctr(&self, block: [u8; BLOCK], data: &mut [u8]) -> Result<(), Unauthentic> {
        let context = EncryptionContext::Iv128(FixedLength::from(block));
        self.ctr.less_safe_encrypt(data, context).map(drop).map_err(|_| Unauthentic)
    }

    /// T, before it is encrypted (RFC 3610, section 2.2). `icv_len` has been checked to be 8, 12 or 16.
    /// "The payload MUST NOT be longer than 4,294,967,295 octets" (RFC 4309 section 2)
    fn tag(&self, iv: &[u8], aad: &[u8], data: &[u8], icv_len: usize) -> Result<[u8; BLOCK], Unauthentic> {
        let flags = if aad.is_empty() { 0 } else { 0x40 }
            | u8::try_from((icv_len - 2) / 2 * 8).map_err(|_| Unauthentic)?
            | (LENGTH_LEN as u8 - 1);
        let len = u32::try_from(data.len()).map_err(|_| Unauthentic)?;
        let mut mac = CbcMac { key: &self.cbc, buffer: [0; CHUNK], used: 0, state: [0; BLOCK] };
        mac.update(&self.block(flags, iv, len))?;
        if !aad.is_empty() {
            let len = u32::try_from(aad.len()).map_err(|_| Unauthentic)?.to_be_bytes();
            if aad.len() < LONG_AAD {
                mac.update(&len[2..])?;
            } else {
                mac.update(&[0xff, 0xfe])?;
                mac.update(&len)?;
            }
            mac.update(aad)?;
            mac.pad()?;
        }
        mac.update(data)?;
        mac.pad()?;
        mac.flush()?;
        Ok(mac.state)
    }
}

impl Protect for Ccm {
    fn seal(&self, around: Around<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), Unauthentic> {
        let Around { aad, iv, .. } = around;
        let mut tag = self.tag(iv, aad, data, icv.len())?;
        self.ctr(self.block(LENGTH_LEN as u8 - 1, iv, 0), &mut tag)?;
        self.ctr(self.block(LENGTH_LEN as u8 - 1, iv, 1), data)?;
        icv.copy_from_slice(tag.get(..icv.len()).ok_or(Unauthentic)?);
        Ok(())
    }

    fn open(&self, around: Around<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), Unauthentic> {
        let Around { aad, iv, .. } = around;
        self.ctr(self.block(LENGTH_LEN as u8 - 1, iv, 1), data)?;
        let mut tag = self.tag(iv, aad, data, icv.len())?;
        self.ctr(self.block(LENGTH_LEN as u8 - 1, iv, 0), &mut tag)?;
        let expected = tag.get(..icv.len()).ok_or(Unauthentic)?;
        if ct_eq(expected, icv) {
            return Ok(());
        }
        // Nothing of what is not authentic is handed out.
        data.zeroize();
        Err(Unauthentic)
    }
}

/// CBC-MAC, fed in pieces.
struct CbcMac<'a> {
    key: &'a EncryptingKey,
    buffer: [u8; CHUNK],
    used: usize,
    state: [u8; BLOCK],
}

impl CbcMac<'_> {
    fn update(&mut self, mut data: &[u8]) -> Result<(), Unauthentic> {
        while !data.is_empty() {
            if self.used == CHUNK {
                self.flush()?;
            }
            let take = data.len().min(CHUNK - self.used);
            let (now, later) = data.split_at(take);
            self.buffer[self.used..self.used + take].copy_from_slice(now);
            self.used += take;
            data = later;
        }
        Ok(())
    }

    /// Zeros up to a whole block.
    fn pad(&mut self) -> Result<(), Unauthentic> {
        let end = self.used.next_multiple_of(BLOCK);
        self.update(&[0; BLOCK][..end - self.used])
    }

    /// Encrypts what is there, whole blocks, and keeps the last one.
    fn flush(&mut self) -> Result<(), Unauthentic> {
        let full = &mut self.buffer[..self.used];
        if full.is_empty() {
            return Ok(());
        }
        let context = EncryptionContext::Iv128(FixedLength::from(self.state));
        self.key.less_safe_encrypt(full, context).map_err(|_| Unauthentic)?;
        self.state.copy_from_slice(full.last_chunk::<BLOCK>().ok_or(Unauthentic)?);
        self.used = 0;
        Ok(())
    }
}

impl Drop for CbcMac<'_> {
    fn drop(&mut self) {
        // Of the message only what was not yet encrypted over.
        self.buffer[..self.used].zeroize();
    }
}
