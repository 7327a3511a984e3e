//! Key material. Owns the byte string that is wiped when dropped; it must never show its content or compare it in
//! variable time.

use core::fmt;

use zeroize::Zeroizing;

/// A secret byte string: zeroized on drop, redacted in `Debug`, compared in constant time.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// `len` zero bytes, to be filled through [`Secret::as_mut_bytes`].
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self(Zeroizing::new(vec![0; len]))
    }

    /// The content.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The content, to be filled in place. The length is fixed, so that no reallocation leaves a copy behind.
    #[must_use]
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no content.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts put together, in an allocation of exactly their size.
    #[must_use]
    pub fn concat(parts: &[&[u8]]) -> Self {
        let mut joined = Vec::with_capacity(parts.iter().map(|p| p.len()).sum());
        for part in parts {
            joined.extend_from_slice(part);
        }
        Self(Zeroizing::new(joined))
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }
}

impl<const N: usize> From<[u8; N]> for Secret {
    fn from(bytes: [u8; N]) -> Self {
        let bytes = Zeroizing::new(bytes);
        Self::from(&bytes[..])
    }
}

/// Takes the vector over; spare capacity is wiped with it.
impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl AsRef<[u8]> for Secret {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for Secret {
    /// Constant time in the content; the lengths are not secret.
    fn eq(&self, other: &Self) -> bool {
        ct_eq(&self.0, &other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

/// Whether `a` equals `b`, in time that depends on their lengths alone.
#[must_use]
pub fn ct_eq(a: &[u8], b: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(a, b).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_the_length_alone() {
        assert_eq!(format!("{:?}", Secret::from([0x5a; 32])), "Secret(32 bytes)");
    }

    #[test]
    fn equality_sees_content_and_length() {
        assert_eq!(Secret::from([1, 2, 3]), Secret::concat(&[&[1], &[2, 3]]));
        assert_ne!(Secret::from([1, 2, 3]), Secret::from([1, 2, 4]));
        assert_ne!(Secret::from([1, 2, 3]), Secret::from([1, 2]));
        assert!(ct_eq(&[], &[]));
    }
}
