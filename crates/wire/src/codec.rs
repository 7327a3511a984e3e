//! Bounded reading and length-patched writing of big-endian, type-length-value formats.
//!
//! Owns the only two places that touch offsets: [`Reader`], which cannot run past its slice, and [`Writer`], whose length
//! fields are filled in when the structure that they measure is finished. Must never know a protocol.

use crate::{Error, Result};

/// A cursor over a slice that refuses to run past its end. `what` names the structure in errors.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    what: &'static str,
    whole: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which hold the structure `what`.
    #[must_use]
    pub const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, whole: bytes, at: 0 }
    }

    /// Bytes read so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        // `at` never exceeds the length, so this does not saturate; it only cannot panic.
        self.whole.len().saturating_sub(self.at)
    }

    /// Whether everything was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer are left; nothing is consumed then.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let truncated = Error::Truncated { what: self.what, need: n, have: self.remaining() };
        let end = self.at.checked_add(n).ok_or(truncated)?;
        let bytes = self.whole.get(self.at..end).ok_or(truncated)?;
        self.at = end;
        Ok(bytes)
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer are left.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// One byte.
    ///
    /// # Errors
    /// [`Error::Truncated`] at the end.
    pub fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_be_bytes)
    }

    /// A big-endian 16-bit number.
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer than 2 bytes are left.
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// A big-endian 32-bit number.
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer than 4 bytes are left.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A big-endian 64-bit number.
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer than 8 bytes are left.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A reader over the next `n` bytes, which hold the nested structure `what`.
    ///
    /// # Errors
    /// [`Error::Truncated`] (naming the nested structure) if fewer are left.
    pub fn sub(&mut self, what: &'static str, n: usize) -> Result<Reader<'a>> {
        let have = self.remaining();
        match self.take(n) {
            Ok(bytes) => Ok(Reader::new(what, bytes)),
            Err(_) => Err(Error::Truncated { what, need: n, have }),
        }
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.whole.get(self.at..).unwrap_or_default();
        self.at = self.whole.len();
        rest
    }

    /// Ends reading.
    ///
    /// # Errors
    /// [`Error::Trailing`] unless everything was read.
    pub fn all(self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            extra => Err(Error::Trailing { what: self.what, extra }),
        }
    }
}

/// Which bytes a length field counts, besides those that follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counts {
    /// Only the bytes after the length field (configuration attributes).
    After,
    /// Everything from this [`Writer::position`] on, the length field included (IKE header, generic payload header).
    From(usize),
}

/// Appends a structure to a buffer.
///
/// A structure whose length comes before its content is written by [`Writer::length_u16`] or [`Writer::length_u32`]: both
/// return a guard to write the content to, and the length is filled in when the guard is dropped. A length that does not
/// fit in its field is remembered and reported by [`Writer::finish`], so nothing truncated is ever sent by mistake.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    base: usize,
    failed: Option<Error>,
}

impl<'a> Writer<'a> {
    /// Appends to `out`. Positions count from its present end.
    #[must_use]
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        let base = out.len();
        Self { out, base, failed: None }
    }

    /// Bytes written so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.out.len().saturating_sub(self.base)
    }

    /// Appends a byte.
    pub fn u8(&mut self, v: u8) {
        self.out.push(v);
    }

    /// Appends a big-endian 16-bit number.
    pub fn u16(&mut self, v: u16) {
        self.out.extend_from_slice(&v.to_be_bytes());
    }

    /// Appends a big-endian 32-bit number.
    pub fn u32(&mut self, v: u32) {
        self.out.extend_from_slice(&v.to_be_bytes());
    }

    /// Appends a big-endian 64-bit number.
    pub fn u64(&mut self, v: u64) {
        self.out.extend_from_slice(&v.to_be_bytes());
    }

    /// Appends bytes.
    pub fn bytes(&mut self, v: &[u8]) {
        self.out.extend_from_slice(v);
    }

    /// Appends `n` zero bytes.
    pub fn zeros(&mut self, n: usize) {
        self.out.resize(self.out.len() + n, 0);
    }

    /// Appends `n` as a byte that counts the `what` that follow.
    pub fn count_u8(&mut self, what: &'static str, n: usize) {
        let v = u8::try_from(n).unwrap_or_else(|_| self.fail(Error::TooLong { what, got: n, limit: 0xff }));
        self.u8(v);
    }

    /// Appends `n` as a 16-bit number that counts the `what` that follow.
    pub fn count_u16(&mut self, what: &'static str, n: usize) {
        let v =
            u16::try_from(n).unwrap_or_else(|_| self.fail(Error::TooLong { what, got: n, limit: 0xffff }));
        self.u16(v);
    }

    /// Writes the structure `what` behind a 16-bit length, patched when the guard is dropped.
    pub fn length_u16(&mut self, what: &'static str, counts: Counts) -> Measured<'_, 'a> {
        let at = self.position();
        self.u16(0);
        Measured { writer: self, what, counts, at, width: 2 }
    }

    /// Writes the structure `what` behind a 32-bit length, patched when the guard is dropped.
    pub fn length_u32(&mut self, what: &'static str, counts: Counts) -> Measured<'_, 'a> {
        let at = self.position();
        self.u32(0);
        Measured { writer: self, what, counts, at, width: 4 }
    }

    /// Records that a value cannot be expressed: [`Writer::finish`] will return the first such error.
    pub fn refuse(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    /// Refuses if the structure `what`, begun at position 0, is by now longer than `limit` bytes.
    pub fn refuse_above(&mut self, limit: usize, what: &'static str) {
        let got = self.position();
        if got > limit {
            self.refuse(Error::TooLong { what, got, limit });
        }
    }

    /// Ends writing.
    ///
    /// # Errors
    /// The first value that did not fit; the buffer is then cut back to what it was before this writer.
    pub fn finish(self) -> Result<()> {
        match self.failed {
            None => Ok(()),
            Some(error) => {
                self.out.truncate(self.base);
                Err(error)
            }
        }
    }

    fn fail<T: Default>(&mut self, error: Error) -> T {
        self.refuse(error);
        T::default()
    }

    fn patch(&mut self, at: usize, width: usize, length: usize, what: &'static str) {
        let limit = if width == 2 { 0xffff } else { 0xffff_ffff };
        if length > limit {
            self.refuse(Error::TooLong { what, got: length, limit });
            return;
        }
        let be = (length as u64).to_be_bytes();
        let start = self.base + at;
        if let (Some(field), Some(value)) = (self.out.get_mut(start..start + width), be.get(8 - width..)) {
            field.copy_from_slice(value);
        }
    }
}

/// A structure behind a length field that is not known yet. Write through it; dropping it fills in the length.
#[derive(Debug)]
pub struct Measured<'w, 'a> {
    writer: &'w mut Writer<'a>,
    what: &'static str,
    counts: Counts,
    at: usize,
    width: usize,
}

impl<'a> core::ops::Deref for Measured<'_, 'a> {
    type Target = Writer<'a>;
    fn deref(&self) -> &Writer<'a> {
        self.writer
    }
}

impl<'a> core::ops::DerefMut for Measured<'_, 'a> {
    fn deref_mut(&mut self) -> &mut Writer<'a> {
        self.writer
    }
}

impl Drop for Measured<'_, '_> {
    fn drop(&mut self) {
        let from = match self.counts {
            Counts::After => self.at + self.width,
            Counts::From(position) => position,
        };
        let length = self.writer.position().saturating_sub(from);
        self.writer.patch(self.at, self.width, length, self.what);
    }
}

/// Declares an enum over a field of code points: known ones by name, all others kept in `Unknown`.
///
/// Values are made with `From` only, so that a known code point is never held as `Unknown`.
macro_rules! code_points {
    (
        $(#[$outer:meta])*
        pub enum $name:ident : $int:ty {
            $( $(#[$inner:meta])* $variant:ident = $value:literal, $label:literal; )+
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name {
            $( $(#[$inner])* #[doc = concat!("`", $label, "` (", stringify!($value), ").")] $variant, )+
            /// A code point without a name here. Made by `From` only, never for a value that has a variant.
            Unknown($int),
        }

        impl From<$int> for $name {
            fn from(v: $int) -> Self {
                match v {
                    $( $value => Self::$variant, )+
                    other => Self::Unknown(other),
                }
            }
        }

        impl From<$name> for $int {
            fn from(v: $name) -> Self {
                v.code()
            }
        }

        impl $name {
            /// Every code point that has a name, in the order of declaration.
            pub const KNOWN: &'static [Self] = &[$( Self::$variant, )+];

            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> $int {
                match self {
                    $( Self::$variant => $value, )+
                    Self::Unknown(other) => other,
                }
            }

            /// The registry's name, or `None` for a code point without one here.
            #[must_use]
            pub const fn label(self) -> Option<&'static str> {
                match self {
                    $( Self::$variant => Some($label), )+
                    Self::Unknown(_) => None,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.label() {
                    Some(label) => f.write_str(label),
                    None => write!(f, "{}({})", stringify!($name), self.code()),
                }
            }
        }
    };
}
pub(crate) use code_points;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_names_what_was_cut_short() {
        let mut r = Reader::new("outer", &[1, 2, 3]);
        assert_eq!(r.u16(), Ok(0x0102));
        assert_eq!(r.u32(), Err(Error::Truncated { what: "outer", need: 4, have: 1 }));
        assert_eq!(r.sub("inner", 2).err(), Some(Error::Truncated { what: "inner", need: 2, have: 1 }));
        assert_eq!(r.clone().all(), Err(Error::Trailing { what: "outer", extra: 1 }));
        assert_eq!(r.take(usize::MAX), Err(Error::Truncated { what: "outer", need: usize::MAX, have: 1 }));
        assert_eq!(r.rest(), &[3]);
        assert_eq!(r.all(), Ok(()));
    }

    #[test]
    fn nested_lengths_are_patched_on_drop() {
        let mut out = vec![0xaa];
        let mut w = Writer::new(&mut out);
        w.u8(7);
        {
            let mut outer = w.length_u32("outer", Counts::From(0));
            outer.u8(1);
            outer.length_u16("inner", Counts::After).bytes(&[2, 3, 4]);
        }
        assert_eq!(w.finish(), Ok(()));
        assert_eq!(out, [0xaa, 7, 0, 0, 0, 11, 1, 0, 3, 2, 3, 4]);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_leaves_the_buffer_as_it_was() {
        let mut out = vec![1];
        let mut w = Writer::new(&mut out);
        w.length_u16("blob", Counts::After).zeros(0x1_0000);
        assert_eq!(w.finish(), Err(Error::TooLong { what: "blob", got: 0x1_0000, limit: 0xffff }));
        assert_eq!(out, [1]);
    }
}
