//! Entries for fuzz targets: each takes any bytes, must not panic, and checks what holds for all of them.

use core::time::Duration;

use dormouse_keying::SaId;
use dormouse_sansio::{Instant, Seeded, UnixTime};
use dormouse_wire::ike::dormancy::LoadReport;
use dormouse_wire::ike::{Fragment, PayloadType};

use crate::fragment::Reassembler;
use crate::load::LoadHistory;
use crate::ticket::lineage::{Memory, Name, Operation, Outcome, Row, TicketHolder};
use crate::ticket::{ClientTicket, TicketContent, TicketKeys};

/// Decoding a ticket's content (as if it had been sealed by us), and encoding it again.
pub fn ticket_content(data: &[u8]) {
    if let Ok(content) = TicketContent::fuzz_decode(data) {
        assert_eq!(content.fuzz_encode(), data, "one value has one encoding");
    }
}

/// Decoding a stored client ticket, and encoding it again.
pub fn client_ticket(data: &[u8]) {
    if let Ok(ticket) = ClientTicket::decode(data) {
        assert_eq!(ticket.encode().as_bytes(), data, "one value has one encoding");
    }
}

/// Any operations on a store of lineages, four bytes each: what, which lineage, and two SAs of it. A ticket that was accepted is not
/// accepted again while the tip is neither of its two SAs, and no holder has more rows than it may have.
pub fn lineages(data: &[u8]) {
    let name = |n: u8| Name([n % 16; 16]);
    let mut store = Memory::default();
    for (at, four) in data.chunks_exact(4).enumerate() {
        let [what, lineage, a, b] = *four else { continue };
        let now = UnixTime(at as u64);
        let ends = now + Duration::from_secs(u64::from(b));
        let holder = TicketHolder([what / 8 % 2; 32]);
        let (lineage, own, before) = (Name([lineage; 16]), name(a), name(b));
        let next = Name([16 + a % 8; 16]);
        let confirm = Operation::Confirm { sa: SaId::new(1), lineage, own, before, next, ends };
        let operation = match what % 8 {
            0..=2 => Operation::Insert(Row { id: lineage, holder, tip: own, ends }),
            3 => Operation::Advance { lineage, from: own, to: before, ends },
            4 => Operation::End { sa: None, lineage, holder },
            5 if b == 0 => Operation::EndAll { holder },
            _ => confirm,
        };
        if store.apply(now, &operation) == Outcome::Done && operation == confirm {
            assert_eq!(store.apply(now, &confirm), Outcome::Superseded, "accepted twice");
        }
        for holder in [TicketHolder([0; 32]), TicketHolder([1; 32])] {
            let theirs = store.rows().filter(|row| row.holder == holder).count();
            assert!(theirs <= crate::limits::LINEAGES_PER_HOLDER);
        }
    }
}

/// What a gateway reads at its start besides: ticket keys, which must go on rotating, and the history of its load, which must go on
/// learning and telling.
pub fn gateway_state(data: &[u8]) {
    let hour = Duration::from_secs(3600);
    if let Ok(mut keys) = TicketKeys::import(data, hour, hour) {
        assert_eq!(keys.export().as_bytes(), data, "one value has one encoding");
        for now in [UnixTime(0), UnixTime(1_800_000_000), UnixTime(u64::MAX)] {
            keys.rotate(now, &mut Seeded::new(1));
        }
        assert!(TicketKeys::import(keys.export().as_bytes(), hour, hour).is_ok());
    }
    if let Some(mut history) = LoadHistory::import(data) {
        for half_hour in 0..4 {
            let now = UnixTime(half_hour * 1800);
            history.record(now, 3, Duration::from_millis(40));
            let report = history.report(now, 2);
            assert_eq!(LoadReport::parse(&report.emit()), Ok(report), "emission changed the meaning");
        }
        assert!(LoadHistory::import(&history.export()).is_some(), "what was learned cannot be read");
    }
}

/// Reassembly of any sequence of authenticated fragments: `id, number, total, length, bytes...`, one after the other.
pub fn reassembly(mut data: &[u8]) {
    let mut reassembler = Reassembler::new();
    while let Some((&[id, number, total, length], rest)) = data.split_first_chunk::<4>() {
        let (piece, rest) = rest.split_at(usize::from(length).min(rest.len()));
        data = rest;
        let fragment = Fragment { number: number.into(), total: total.into() };
        if let Ok(Some(whole)) =
            reassembler.add(Instant::ZERO, id.into(), fragment, PayloadType::from(number), Vec::new(), piece)
        {
            assert!(whole.plain.len() <= crate::limits::MESSAGE_MAX);
        }
    }
    reassembler.forget_before(u32::MAX);
}
