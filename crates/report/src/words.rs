//! Numbers as people read them.

/// A number with three digits that mean something.
#[must_use]
pub fn digits(value: f64) -> String {
    let places = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        v if v >= 0.01 => 4,
        _ => 5,
    };
    format!("{value:.places$}")
}

/// A part of one in percent.
#[must_use]
pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// Seconds as people say them.
#[must_use]
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

/// A count with its thousands apart.
#[must_use]
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let first = (digits.len() + 2) % 3 + 1;
    let (first, rest) = digits.split_at(first.min(digits.len()));
    let rest = rest.as_bytes().chunks(3).map(String::from_utf8_lossy);
    rest.fold(first.to_owned(), |out, three| out + "," + &three)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_read_them() {
        assert_eq!([0, 7, 999, 1_000, 1_234_567].map(thousands), ["0", "7", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.0123, 0.5, 12.34, 1_234.5].map(digits), ["0", "0.0123", "0.500", "12.3", "1234"]);
        assert_eq!([3.0, 600.0, 86_400.0].map(duration), ["3.0 s", "10.0 min", "24.0 h"]);
    }
}
