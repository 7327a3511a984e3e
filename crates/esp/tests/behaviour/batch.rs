//! A batch sealed in one buffer is what the packets sealed one by one would be, end to end.

use crate::common::{SUITES, ipv4, pair, params, seal};
use dormouse_esp::{IPV4_IN_IP, SealError};

#[test]
fn batch_and_singles_agree() {
    for (encr, integ) in SUITES.into_iter().filter(|(encr, _)| encr.block_len() == 1) {
        let p = params(encr, integ);
        let ((mut one, _), (mut many, _)) = (pair(&p), pair(&p));
        let sizes = [1_300, 1_300, 1_300, 217];
        let stride = many.sealed_len(1_300);
        let mut buf = vec![0; 4 * stride];
        for (i, size) in sizes.into_iter().enumerate() {
            let at = i * stride + many.head_len();
            buf[at..at + size].copy_from_slice(&ipv4(size));
        }
        let total = many.seal_batch(&mut buf, stride, &sizes, IPV4_IN_IP).unwrap();
        let singles: Vec<u8> =
            sizes.into_iter().flat_map(|size| seal(&mut one, &ipv4(size), IPV4_IN_IP)).collect();
        assert_eq!(&buf[..total], &singles[..], "{encr} {integ:?}");
        assert_eq!(many.sequence(), 4);
    }
}

#[test]
fn a_cbc_batch_opens() {
    let (encr, integ) = SUITES[4];
    let (mut out, mut inb) = pair(&params(encr, integ));
    let stride = out.sealed_len(1_300);
    let mut buf = vec![0; 2 * stride];
    for slot in buf.chunks_mut(stride) {
        slot[24..1_324].copy_from_slice(&ipv4(1_300));
    }
    let total = out.seal_batch(&mut buf, stride, &[1_300, 1_300], IPV4_IN_IP).unwrap();
    for packet in buf[..total].chunks_mut(stride) {
        let opened = inb.open(packet).unwrap();
        assert_eq!(&packet[opened.inner], &ipv4(1_300)[..]);
    }
}

#[test]
fn a_batch_that_would_leave_gaps_is_refused_whole() {
    let (encr, integ) = SUITES[0];
    let (mut out, _) = pair(&params(encr, integ));
    let stride = out.sealed_len(1_000);
    let mut buf = vec![0; 3 * stride];
    let uneven = out.seal_batch(&mut buf, stride, &[1_000, 900, 1_000], IPV4_IN_IP);
    assert!(matches!(uneven, Err(SealError::Uneven { index: 1, .. })), "{uneven:?}");
    let big = out.seal_batch(&mut buf, stride, &[1_000, 1_004], IPV4_IN_IP);
    assert!(matches!(big, Err(SealError::Uneven { index: 1, .. })), "{big:?}");
    let short = out.seal_batch(&mut buf[..2 * stride], stride, &[1_000; 3], IPV4_IN_IP);
    assert!(matches!(short, Err(SealError::SlotTooSmall { .. })), "{short:?}");
    assert_eq!((out.sequence(), out.counters().packets), (0, 0), "nothing was taken");
    assert_eq!(out.seal_batch(&mut buf, stride, &[], IPV4_IN_IP), Ok(0));
}
