//! Values of cells: times, numbers, addresses, directions, protocols. Owns what is accepted; must never know a format's columns.

use crate::seen::Addr;
use dormouse_energy::Direction;

/// Seconds with decimals, exactly, in nanoseconds. `None` for anything else, negative numbers included.
#[must_use]
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut nanos: u64 = if whole.is_empty() { 0 } else { digits(whole)? };
    nanos = nanos.checked_mul(1_000_000_000)?;
    let mut unit = 100_000_000;
    for b in fraction.bytes() {
        if !b.is_ascii_digit() {
            // An exponent (Zeek's JSON, a spreadsheet's CSV): rare, and not exact anyway.
            return text
                .parse::<f64>()
                .ok()
                .and_then(|s| core::time::Duration::try_from_secs_f64(s).ok())
                .and_then(|d| u64::try_from(d.as_nanos()).ok());
        }
        nanos = nanos.checked_add(u64::from(b - b'0') * unit)?;
        unit /= 10;
    }
    Some(nanos)
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().try_fold(0u64, |n, b| {
        if !b.is_ascii_digit() {
            return None;
        }
        n.checked_mul(10)?.checked_add(u64::from(b - b'0'))
    })
}

/// `2024-01-31 12:34:56.789`, also with `/` between year, month and day, in nanoseconds since 1970; UTC, unless `+hhmm` or `-hhmm` follows.
#[must_use]
pub(super) fn calendar(text: &str) -> Option<u64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut parts = date.split(['-', '/']).map(digits);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let (time, east) = match time.rfind(['+', '-']).and_then(|at| time.split_at_checked(at)) {
        Some((time, zone)) => (time, Some((zone.starts_with('+'), minutes_of_zone(zone.get(1..)?)?))),
        None => (time.trim_end_matches('Z'), None),
    };
    let mut clock = time.splitn(3, ':');
    let (hour, minute, second) = (digits(clock.next()?)?, digits(clock.next()?)?, seconds(clock.next()?)?);
    if !(1970..=2400).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
    {
        return None;
    }
    // Days since 1970-03-01-based years (Howard Hinnant, "chrono-compatible low-level date algorithms").
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted / 400, shifted % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    let minutes = (days * 24 + hour) * 60 + minute;
    let minutes = match east {
        Some((true, ahead)) => minutes.checked_sub(ahead)?,
        Some((false, behind)) => minutes + behind,
        None => minutes,
    };
    minutes.checked_mul(60_000_000_000)?.checked_add(second)
}

/// `hhmm` or `hh:mm`.
fn minutes_of_zone(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':').or_else(|| text.split_at_checked(2))?;
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

/// A number, also one that nfdump abbreviated; an empty cell is 0.
pub(super) fn number<T: TryFrom<u64>>(cell: &str, what: &str) -> Result<T, String> {
    if cell.is_empty() {
        return T::try_from(0).map_err(|_| String::new());
    }
    digits(cell)
        .or_else(|| scaled(cell))
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| format!("{cell:?} is no {what}"))
}

/// nfdump abbreviates counts as `1.5 M`.
fn scaled(cell: &str) -> Option<u64> {
    let (value, unit) = cell.split_once(' ')?;
    let factor = match unit.trim() {
        "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return None,
    };
    Some((seconds(value)? / 1_000).checked_mul(factor)? / 1_000_000)
}

/// nfdump writes ICMP type and code as `3.1` in the port column.
pub(super) fn port(cell: &str) -> Result<u16, String> {
    number(cell.split('.').next().unwrap_or_default(), "port")
}

/// An IP address.
pub(super) fn address(cell: &str) -> Result<Addr, String> {
    cell.parse::<core::net::IpAddr>().map(Addr::from).map_err(|_| format!("{cell:?} is no IP address"))
}

/// Which way a packet went, in the words that exporters use.
pub(super) fn direction(cell: &str) -> Result<Direction, String> {
    match cell {
        "out" => return Ok(Direction::Outgoing),
        "in" => return Ok(Direction::Incoming),
        _ => {}
    }
    match cell.to_ascii_lowercase().as_str() {
        "out" | "outgoing" | "o" | "up" | "tx" | "sent" | ">" | "1" => Ok(Direction::Outgoing),
        "in" | "incoming" | "i" | "down" | "rx" | "received" | "<" | "0" => Ok(Direction::Incoming),
        "" | "-" | "?" | "unknown" => Ok(Direction::Unknown),
        _ => Err(format!("{cell:?} is no direction, expected out or in")),
    }
}

/// An IP protocol by number or name; 0 for an unknown one.
pub(super) fn protocol(cell: &str) -> u16 {
    if let Some(number) = digits(cell) {
        return u16::try_from(number).unwrap_or(0);
    }
    match cell.to_ascii_lowercase().as_str() {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        "icmp6" | "ipv6-icmp" => 58,
        "igmp" => 2,
        "gre" => 47,
        "esp" => 50,
        "sctp" => 132,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        assert_eq!(seconds("1258531221.486539"), Some(1_258_531_221_486_539_000));
        assert_eq!(seconds("0.000000001"), Some(1));
        assert_eq!(seconds("7"), Some(7_000_000_000));
        assert_eq!(seconds("1.5e3"), Some(1_500_000_000_000));
        assert_eq!(seconds(".5"), Some(500_000_000));
        for bad in ["", ".", "-1", "nan", "1 2", "x", "99999999999999999999"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn calendar_times_are_utc() {
        assert_eq!(calendar("1970-01-01 00:00:00"), Some(0));
        assert_eq!(calendar("2000-02-29 23:59:59.5"), Some(951_868_799_500_000_000));
        assert_eq!(calendar("2021-03-08T15:22:15.831389Z"), Some(1_615_216_935_831_389_000));
        assert_eq!(calendar("2021/03/08 15:22:15.831389"), Some(1_615_216_935_831_389_000));
        assert_eq!(calendar("2021-03-08T17:52:15.831389+0230"), Some(1_615_216_935_831_389_000));
        assert_eq!(calendar("2021-03-08T10:22:15.831389-05:00"), Some(1_615_216_935_831_389_000));
        assert_eq!(calendar("2021-03-08T10:22:15-9"), None);
        assert_eq!(calendar("1970-01-01T00:00:00+0100"), None);
        assert_eq!(calendar("2021-13-08 15:22:15"), None);
        assert_eq!(calendar("1615216935"), None);
    }
}
