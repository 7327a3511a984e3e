//! Whether an IKE_AUTH request is one. Owns no state; must never answer.

use dormouse_wire::ike::{NotifyType, Payload, unsupported_critical};

use super::How;
use crate::config::Connection;
use crate::payloads::{View, notify};

/// Whether an IKE_AUTH request asks for no CHILD SA (RFC 6023).
pub(super) fn is_childless(view: View<'_>) -> bool {
    view.sa().is_none() && view.ts_i().is_none() && view.ts_r().is_none()
}

/// What is wrong with a request that asks for a CHILD SA, or is `childless`, by the rules of the caller's connection. A ticket brings the first one
/// back at once, if there is one.
pub(super) fn wrong_form(conn: &Connection, how: &How, childless: bool) -> Option<&'static str> {
    let resumed = matches!(how, How::Resume { .. });
    match childless {
        true if !conn.suits(true) => Some("no CHILD SA, where ike.childless = \"never\" wants one at once"),
        false if conn.is_childless() => Some("a CHILD SA where there is none"),
        false if conn.requires_childless() && !resumed => {
            Some("a CHILD SA at once, where ike.childless = \"force\" wants it afterwards")
        }
        _ => None,
    }
}

/// Whether an IKE_AUTH request is one; else the refusal, and what is wrong with it.
pub(super) fn check_form(payloads: &[Payload], childless: bool) -> Result<(), (Payload, &'static str)> {
    if let Some(kind) = unsupported_critical(payloads) {
        let refusal = notify(NotifyType::UnsupportedCriticalPayload, [kind.code()]);
        return Err((refusal, "a critical payload that is not supported"));
    }
    let view = View(payloads);
    let incomplete = view.sa().is_none() || view.ts_i().is_none() || view.ts_r().is_none();
    if incomplete && !(childless && is_childless(view)) {
        // "[...] MUST be rejected in their entirety, and MUST only lead to an UNSUPPORTED_CRITICAL_PAYLOAD or INVALID_SYNTAX
        // Notification sent as a response" (RFC 7296 section 2.21.2): with that answer there is no IKE SA at either end.
        return Err((notify(NotifyType::InvalidSyntax, []), "no offer of a CHILD SA"));
    }
    Ok(())
}
