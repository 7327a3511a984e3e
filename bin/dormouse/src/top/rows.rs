//! What a status says, as rows of `dormouse top`. Owns the words for states; what a peer can choose is cleaned of what a terminal would obey.

use super::model::Row;
use dormouse_control::{AbsentDevice, Connection, ConnectionState, HipPeer, HipState, Session, Status};

/// The word for a device that sleeps.
pub(crate) const ASLEEP: &str = "asleep";
/// Longest text of a field, in characters.
const LONGEST: usize = 128;

/// Takes the rows out of a status, each under a key that is its own.
pub(crate) fn of_status(status: &mut Status) -> Vec<(String, Row)> {
    let mut rows: Vec<(String, Row)> = status.connections.iter().map(of_connection).collect();
    if let Some(gateway) = &mut status.gateway {
        rows.extend(std::mem::take(&mut gateway.sessions).iter().map(of_session));
        rows.extend(gateway.absent.iter().map(of_absent));
    }
    if let Some(hip) = &status.hip {
        rows.extend(hip.peers.iter().map(|peer| of_peer(&hip.connection, peer)));
    }
    rows
}

/// A gateway's session.
pub(crate) fn of_session(it: &Session) -> (String, Row) {
    let asleep = it.stand_in.as_ref().and_then(|s| s.asleep);
    let row = Row {
        who: clean(&it.peer),
        connection: clean(&it.connection),
        state: if asleep.is_some() { ASLEEP } else { "up" }.to_owned(),
        address: it.addresses.first().map(|a| clean(a)).unwrap_or_default(),
        bytes: (it.traffic.bytes_in, it.traffic.bytes_out),
        quiet: Some(it.quiet_seconds),
        waiting: asleep.map_or(0, |a| a.packets),
        rate: (0.0, 0.0),
    };
    (format!("s{}", it.ike.spi), row)
}

fn of_connection(it: &Connection) -> (String, Row) {
    let row = Row {
        who: clean(it.peer.as_deref().or(it.gateway.as_deref()).unwrap_or_default()),
        connection: clean(&it.name),
        state: if it.state == ConnectionState::Asleep { ASLEEP } else { it.state.name() }.to_owned(),
        address: it.addresses.first().map(|a| clean(a)).unwrap_or_default(),
        bytes: (it.traffic.bytes_in, it.traffic.bytes_out),
        ..Row::default()
    };
    (format!("c{}", it.name), row)
}

fn of_absent(it: &AbsentDevice) -> (String, Row) {
    let asleep = it.stand_in.asleep;
    let row = Row {
        who: clean(&it.peer),
        connection: clean(&it.connection),
        state: ASLEEP.to_owned(),
        address: it.routes.first().map(|a| clean(a)).unwrap_or_default(),
        quiet: asleep.map(|a| a.since_seconds),
        waiting: asleep.map_or(0, |a| a.packets),
        ..Row::default()
    };
    (format!("a{} {} {}", it.connection, it.peer, it.routes.join(" ")), row)
}

fn of_peer(connection: &str, it: &HipPeer) -> (String, Row) {
    let state = match it.state {
        HipState::Up if it.asleep => ASLEEP.to_owned(),
        state => state.name().to_owned(),
    };
    let row = Row {
        who: clean(it.names.first().unwrap_or(&it.hit)),
        connection: clean(connection),
        state,
        address: clean(it.lsi.as_deref().unwrap_or(&it.hit)),
        bytes: (it.traffic.bytes_in, it.traffic.bytes_out),
        quiet: it.quiet_seconds,
        waiting: it.stand_in.as_ref().and_then(|s| s.asleep).map_or(0, |a| a.packets),
        rate: (0.0, 0.0),
    };
    (format!("h{}", it.hit), row)
}

/// Without what a terminal would obey, and short: of other alphabets only letters and digits, as there are invisible marks among the rest, and such that turn the
/// direction of writing.
pub(crate) fn clean(text: &str) -> String {
    let fits = |c: char| matches!(c, ' '..='~') || c.is_alphanumeric();
    text.chars().take(LONGEST).map(|c| if fits(c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_calls_itself_does_not_control_the_terminal() {
        let evil = format!("a\u{1b}[2J\r\n\u{202e}\u{9b}1m{}", "x".repeat(1 << 20));
        let (_, row) = of_session(&Session { peer: evil, ..Session::default() });
        assert!(row.who.starts_with("a?[2J????1mxx") && row.who.chars().count() == LONGEST, "{}", row.who);
        assert_eq!(clean("grün@例.test"), "grün@例.test");
    }
}
