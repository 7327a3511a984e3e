//! Sequence numbers, which wrap (RFC 9293 section 3.4), and what SACK says with them. Owns the arithmetic.

use dormouse_wire::ip::tcp::Tcp;

/// Option kind of selective acknowledgements (RFC 2018).
const SACK: u8 = 5;

/// Whether `a` comes before `b`.
pub(crate) const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The blocks of a selective acknowledgement: first byte, and the one after the last. At most four fit a header.
pub(crate) fn sack_blocks<'a>(tcp: &Tcp<'a>) -> impl Iterator<Item = (u32, u32)> + use<'a> {
    let blocks = tcp.option(SACK).unwrap_or_default();
    blocks.chunks_exact(8).filter_map(|block| {
        let (first, end) = block.split_first_chunk::<4>()?;
        Some((u32::from_be_bytes(*first), u32::from_be_bytes(*end.first_chunk()?)))
    })
}
