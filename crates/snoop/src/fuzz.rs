//! Bodies of the fuzz targets.

use core::time::Duration;

use dormouse_sansio::Instant;

use crate::tcp::{Agent, Limits, Stats, Verdict};

/// Packets of both directions and the time between them: in each record a byte that says what follows, one of time, one of length, and
/// so many bytes of a packet. What is sent must be what came, and what is held must stay within the bounds.
///
/// # Panics
/// If one of these is not so.
pub fn tcp(data: &[u8]) -> Stats {
    let limits = Limits { flows: 3, packets: 4, bytes: 400, ..Limits::default() };
    let mut agent = Agent::new(limits);
    let (mut now, mut rest) = (Instant::ZERO, data);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    while let [what, time, len, tail @ ..] = rest {
        let (packet, after) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = after;
        now += Duration::from_millis(u64::from(*time).pow(2));
        match what % 4 {
            0 | 1 => {
                agent.to_device(now, packet);
                seen.push(packet.to_vec());
            }
            2 => {
                let verdict = agent.from_device(now, packet);
                assert!(
                    verdict == Verdict::Forward || !seen.is_empty(),
                    "nothing was sent that could be repeated"
                );
            }
            _ => agent.handle_timeout(now),
        }
        let mut out = Vec::new();
        while what & 4 == 0 && agent.poll_transmit(now, &mut out) {
            assert!(seen.iter().any(|packet| packet.starts_with(&out)), "made up: {out:02x?}");
            out.clear();
        }
        let (flows, packets, bytes) = agent.held();
        assert!(flows <= limits.flows && packets <= limits.flows * limits.packets && bytes <= limits.bytes);
        assert!(agent.poll_timeout().is_none_or(|at| flows > 0 && at.at <= now + limits.garbage));
    }
    *agent.stats()
}
