//! Responses: what the daemon answers.

use crate::{Check, Error, ErrorKind, Event, Portal, Sessions, SleepMode, Stats, Status, VERSION};
use serde::{Deserialize, Serialize};

/// One line from the daemon.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Response {
    /// [`VERSION`] of the daemon.
    pub version: u32,
    /// How it went.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How it went.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Outcome {
    /// Well.
    Ok {
        /// The answer.
        result: Reply,
    },
    /// Badly.
    Error {
        /// The error.
        error: Error,
    },
}

/// The answer itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Done; there is nothing to say.
    Done,
    /// To `status`.
    Status(Box<Status>),
    /// To `sessions`.
    Sessions(Sessions),
    /// To `stats`.
    Stats(Box<Stats>),
    /// To `watch`, again and again.
    Event(Box<Event>),
    /// What `dormouse hip` shows: a part of a `status`.
    Hip(Box<crate::HipStatus>),
    /// What `dormouse hip keygen` has made.
    HipKey {
        /// The file with the private key.
        file: String,
        /// The host identity tag.
        hit: String,
        /// That in version 1 of the protocol, which keys of RSA have too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hit_v1: Option<String>,
    },
    /// To `doctor`.
    Doctor(Vec<Check>),
    /// To `mode` without a mode.
    Mode(SleepMode),
    /// To `portal`: what is open now.
    Portal(Portal),
    /// To `reload`.
    Reloaded {
        /// What has changed and is not in force before the next start, by key.
        restart: Vec<String>,
    },
    /// To `deny` with a name: it is in force, and durable.
    Denied {
        /// Sessions that ended.
        sessions: usize,
        /// Whether the gateway has met the one who is denied (a session, a device that sleeps, a lease), or its configuration names it. If
        /// not, the name may be misspelt.
        known: bool,
        /// The HIT of the HIP peer of this name, which is denied besides the gateway's client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hit: Option<String>,
    },
    /// To `redirect`.
    Redirected {
        /// Sessions that were told.
        told: usize,
        /// Sessions whose clients have not said that they go where they are sent: they stay.
        deaf: usize,
    },
    /// To `drain`: the daemon ends now.
    Drained {
        /// Sessions whose clients have gone to other gateways.
        gone: usize,
        /// Sessions whose clients go when this gateway is silent: they do not know redirects, or had too little time.
        left: usize,
        /// Devices that sleep and are other gateways' now.
        handed_over: usize,
        /// Devices that sleep and could not be handed over: what waits for them is lost.
        kept: usize,
    },
    /// To `deny` without a name.
    Denials(Vec<Denied>),
    /// To `holder`; `None`: nobody has a session with it.
    Holder(Option<Holder>),
}

/// Who has an inner address of a gateway.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// By which connection.
    pub connection: String,
    /// The identity that it proved, as it is displayed.
    pub identity: String,
}

/// What came of a request for another certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Renewal {
    /// There is one.
    Issued {
        /// `sha256:` and its fingerprint.
        fingerprint: String,
        /// Until when it counts, in Unix time.
        until_unix: u64,
    },
    /// It was refused, and why.
    Refused {
        /// In words.
        why: String,
    },
}

/// Who is denied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Denied {
    /// An identity, or `sha256:` and the fingerprint of a certificate.
    pub whom: String,
    /// Since when, in seconds since 1970.
    pub since_unix: u64,
}

impl Response {
    /// A good answer.
    #[must_use]
    pub const fn ok(result: Reply) -> Self {
        Self { version: VERSION, outcome: Outcome::Ok { result } }
    }

    /// A bad one.
    #[must_use]
    pub const fn error(error: Error) -> Self {
        Self { version: VERSION, outcome: Outcome::Error { error } }
    }

    /// Reads one line into the reply.
    ///
    /// # Errors
    /// What the daemon reports; [`ErrorKind::Other`] if the line is not understood.
    pub fn parse(line: &[u8]) -> Result<Reply, Error> {
        let response: Self = serde_json::from_slice(line).map_err(|e| {
            Error::new(ErrorKind::Other, format!("the daemon's answer is not understood: {e}"))
        })?;
        match response.outcome {
            Outcome::Ok { result } => Ok(result),
            Outcome::Error { error } => Err(error),
        }
    }
}

impl From<Result<Reply, Error>> for Response {
    fn from(result: Result<Reply, Error>) -> Self {
        match result {
            Ok(reply) => Self::ok(reply),
            Err(error) => Self::error(error),
        }
    }
}
