//! Errors as they cross the socket: what went wrong, what was offered, what would have been accepted, and which line to change.

use crate::ExitCode;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of error: decides the exit code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The request is not understood.
    Request,
    /// The request is of another protocol version.
    Version,
    /// There is no connection of this name, or none was named and there are several.
    UnknownConnection,
    /// No daemon answers.
    NoDaemon,
    /// No network, or the session is down.
    NotConnected,
    /// One end could not prove who it is.
    Authentication,
    /// The two ends have no algorithms or traffic in common.
    Proposal,
    /// Not in time: no answer.
    Timeout,
    /// The gateway answered, and then no more.
    AnswersLost,
    /// A message is too big for the path and was not sent.
    TooBig,
    /// Not allowed.
    Permission,
    /// Anything else, or a kind that this version does not know.
    #[serde(other)]
    Other,
}

impl ErrorKind {
    /// The exit code of a command that ends with this error.
    #[must_use]
    pub const fn exit_code(self) -> ExitCode {
        match self {
            Self::Request | Self::UnknownConnection => ExitCode::Usage,
            Self::NoDaemon | Self::NotConnected => ExitCode::NotConnected,
            Self::Authentication => ExitCode::Authentication,
            Self::Proposal => ExitCode::NoProposal,
            Self::Timeout => ExitCode::Timeout,
            Self::AnswersLost => ExitCode::AnswersLost,
            Self::TooBig => ExitCode::TooBig,
            Self::Permission => ExitCode::Permission,
            Self::Version | Self::Other => ExitCode::Failure,
        }
    }
}

/// An error with all that a person needs to mend it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub struct Error {
    /// What kind.
    pub kind: ErrorKind,
    /// What happened, one sentence without a final stop; names the culprit.
    pub message: String,
    /// What we offered, in the words of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<String>,
    /// What would have been accepted, as far as it is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptable: Vec<String>,
    /// The line to change: a key of the configuration with a value that would work, or a command to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

impl Error {
    /// An error without advice.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), offered: Vec::new(), acceptable: Vec::new(), change: None }
    }

    /// The same with the line to change.
    #[must_use]
    pub fn with_change(mut self, change: impl Into<String>) -> Self {
        self.change = Some(change.into());
        self
    }

    /// The same with what was offered and what would have been accepted.
    #[must_use]
    pub fn with_offer(mut self, offered: Vec<String>, acceptable: Vec<String>) -> Self {
        self.offered = offered;
        self.acceptable = acceptable;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.offered.is_empty() {
            write!(f, "; offered: {}", self.offered.join(", "))?;
        }
        if !self.acceptable.is_empty() {
            write!(f, "; acceptable: {}", self.acceptable.join(", "))?;
        }
        if let Some(change) = &self.change {
            write!(f, "; change: {change}")?;
        }
        Ok(())
    }
}
