//! What a command's exit code says. Owns the numbers, which scripts rely on: they never change.

/// Exit code of `dormouse`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum ExitCode {
    /// Done.
    Ok = 0,
    /// Failed in a way that no other code describes.
    Failure = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Not connected: no daemon, no network, or the session is down.
    NotConnected = 3,
    /// One end could not prove who it is.
    Authentication = 4,
    /// The two ends have no algorithms or traffic in common.
    NoProposal = 5,
    /// Not in time.
    Timeout = 6,
    /// Not allowed.
    Permission = 7,
    /// A message is too big for the path and was not sent.
    TooBig = 8,
    /// The gateway answered, and then no more.
    AnswersLost = 9,
}

impl ExitCode {
    /// All of them with what they mean, for the manual.
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::Ok, "done"),
        (Self::Failure, "failed"),
        (Self::Usage, "the command line is wrong"),
        (Self::NotConnected, "not connected: no daemon, no network, or the session is down"),
        (Self::Authentication, "one end could not prove who it is"),
        (Self::NoProposal, "the two ends have no algorithms or traffic in common"),
        (Self::Timeout, "not in time"),
        (Self::Permission, "not allowed"),
        (Self::TooBig, "a message is too big for the path and was not sent"),
        (Self::AnswersLost, "the gateway answered, and then no more: messages are lost on the way"),
    ];

    /// The number.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.code())
    }
}
