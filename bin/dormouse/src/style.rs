//! Colour, where it helps: only on a terminal, and never against the user's will.

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
