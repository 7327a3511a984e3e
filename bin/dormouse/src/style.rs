//! What every rendering shares: colour, only on a terminal and never against the user's will; lines of a list; quantities.

use dormouse_control::BlockStatus;
use dormouse_report::Table;
use std::fmt::Write as _;
use std::io::IsTerminal;

/// How text may be marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    /// For standard output.
    pub(crate) fn stdout() -> Self {
        Self::of(std::io::stdout().is_terminal())
    }

    /// For standard error.
    pub(crate) fn stderr() -> Self {
        Self::of(std::io::stderr().is_terminal())
    }

    /// Without marks.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self { colour: false }
    }

    fn of(terminal: bool) -> Self {
        // https://no-color.org: present and not empty.
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Self { colour: terminal && !unwanted && !dumb }
    }

    fn mark(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.mark("32", text)
    }

    pub(crate) fn warning(self, text: &str) -> String {
        self.mark("33", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.mark("31;1", text)
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.mark("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.mark("2", text)
    }
}

/// A line of an indented list; nothing if there is nothing to say.
pub(crate) fn field(out: &mut String, style: Style, title: &str, text: &str) {
    if !text.is_empty() {
        let _ = writeln!(out, "  {} {text}", style.dim(&format!("{title:<10}")));
    }
}

/// Two units at most: `3 h 12 min`, `48 s`, `1.5 s`.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "now".into();
    }
    if seconds < 10.0 {
        let text = format!("{seconds:.1}");
        return format!("{} s", text.strip_suffix(".0").unwrap_or(&text));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is not negative"
    )]
    let whole = seconds.round() as u64;
    let two = |large: u64, a: &str, small: u64, b: &str| {
        if small == 0 { format!("{large} {a}") } else { format!("{large} {a} {small} {b}") }
    };
    match whole {
        0..=89 => format!("{whole} s"),
        90..=3599 => two(whole / 60, "min", whole % 60, "s"),
        3600..=86_399 => two(whole / 3600, "h", whole % 3600 / 60, "min"),
        _ => two(whole / 86_400, "d", whole % 86_400 / 3600, "h"),
    }
}

/// Three digits and a unit.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if n < 1000 {
        return format!("{n} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = n as f64 / 1000.0;
    let mut unit = 0;
    // What would be rounded to four digits goes to the next unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {}", UNITS.get(unit).copied().unwrap_or_default())
}

/// A table with its heads dimmed; nothing without rows.
pub(crate) fn columns(table: &Table, style: Style) -> String {
    if table.rows.is_empty() { String::new() } else { table.columns("  ", |head| style.dim(head)) }
}

/// Whether what belongs into the tunnel is kept in it.
pub(crate) fn block_words(block: BlockStatus, style: Style) -> String {
    let force = if block.holds { style.good("in force") } else { style.warning("not in force") };
    format!("{}, {force}", block.mode.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_short_and_right() {
        let durations = [
            (0.0, "0 s"),
            (1.5, "1.5 s"),
            (89.4, "89 s"),
            (90.0, "1 min 30 s"),
            (3600.0, "1 h"),
            (90_000.0, "1 d 1 h"),
        ];
        for (seconds, text) in durations {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(duration(-1.0), "now");
        for (n, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }
}
