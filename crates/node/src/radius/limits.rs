//! Bounds on what strangers can have a gateway ask of RADIUS servers. Owns numbers only.

use std::time::Duration;

/// Questions on their way at once, each with a socket of its own.
pub(super) const ASKED_AT_ONCE: usize = 256;
/// Those of one prefix, so that its strangers do not take the turn of all others.
pub(super) const ASKED_AT_ONCE_BY_ONE: usize = ASKED_AT_ONCE / 8;
/// Questions that wait for one of these to end; beyond, a caller is told to come again.
pub(super) const QUESTIONS_WAITING: usize = 4_096;
/// Conversations whose caller has the word. Those that were left longest ago go first.
pub(super) const CONVERSATIONS: usize = 8_192;
/// A caller has this long for each word of it: as long as IKE keeps one that has not come in.
pub(super) const CALLERS_PATIENCE: Duration = Duration::from_secs(30);
/// No other server is asked for a caller after this time: it would not be there any more.
pub(super) const ASK_NO_LONGER: Duration = Duration::from_secs(20);
/// A server that did not answer is asked last for this long.
pub(super) const REST: Duration = Duration::from_secs(60);
/// Reports of sessions on their way at once.
pub(super) const REPORTED_AT_ONCE: usize = 64;
/// Reports that wait. Beyond, the oldest is lost.
pub(super) const REPORTS_WAITING: usize = 16_384;
/// After no server took a report, this long nothing is reported.
pub(super) const REPORT_AGAIN: Duration = Duration::from_secs(30);
/// A report is given up after this time.
pub(super) const REPORT_NO_LONGER: Duration = Duration::from_secs(24 * 3_600);
/// What was granted to users is remembered of so many, for their sessions to come by ticket.
pub(super) const REMEMBERED: usize = 65_536;
/// No session is reported on more often, whatever a server wants: "SHOULD NOT be smaller than 600" and "MUST NOT be smaller than 60" (RFC 2869 section 5.16).
pub(crate) const INTERIM_LEAST: Duration = Duration::from_secs(60);
