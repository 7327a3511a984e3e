//! Whether an IKE_AUTH request is one. Owns no state; must never answer.

use dormouse_wire::ike::{NotifyType, Payload, unsupported_critical};

use crate::payloads::{View, notify};

/// Whether an IKE_AUTH request asks for no CHILD SA (RFC 6023).
pub(super) fn is_childless(view: View<'_>) -> bool {
    view.sa().is_none() && view.ts_i().is_none() && view.ts_r().is_none()
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
