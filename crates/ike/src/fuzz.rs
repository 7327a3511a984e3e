//! Entries for fuzz targets: each takes any bytes, must not panic, and checks what holds for all of them.

use core::time::Duration;

use dormouse_sansio::{Instant, Seeded, UnixTime};
use dormouse_wire::ike::dormancy::LoadReport;
use dormouse_wire::ike::{Fragment, PayloadType};

use crate::fragment::Reassembler;
use crate::load::LoadHistory;
use crate::ticket::{ClientTicket, TicketContent, TicketGuard, TicketKeys};

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

/// Loading spent records.
pub fn ticket_guard(data: &[u8]) {
    let guard = TicketGuard::load(data, UnixTime(0));
    assert_eq!(TicketGuard::load(&guard.export(), UnixTime(0)).len(), guard.len());
}

/// What a gateway reads at its start besides: ticket keys, which must go on rotating, and the history of its load, which must go on
/// learning and telling.
pub fn gateway_state(data: &[u8]) {
    let hour = Duration::from_secs(3600);
    if let Ok(mut keys) = TicketKeys::import(data, hour, hour) {
        assert_eq!(keys.export().as_bytes(), data, "one value has one encoding");
        for now in [UnixTime(0), keys.rotation_due(), UnixTime(u64::MAX)] {
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
