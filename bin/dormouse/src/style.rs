//! What every rendering shares: colour, only on a terminal and never against the user's will; lines of a list; lengths of time.

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
