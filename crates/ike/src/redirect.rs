//! Redirection (RFC 5685): whom a peer may send where. Owns the rules for both ends; must never follow a redirect: the driver does, with
//! the same rules about who the gateway must prove to be.
//!
//! "When the client gets redirected, it MUST use the same Peer Authorization Database (PAD) and Security Policy Database (SPD) entries as it
//! would have used with the original gateway." (RFC 5685 section 3): it is the same connection.

use core::net::IpAddr;

use dormouse_wire::ike::{Gateway, NotifyType, Payload};

use crate::config::Connection;
use crate::error::NegotiationError;
use crate::payloads::{View, notify};
use crate::shared::Shared;

/// Whether the caller whose first message this is goes where it is sent.
/// "If the IKE_SA_INIT request did not indicate support for the redirect mechanism, the responder MUST NOT send the REDIRECT payload to the
/// VPN client." (RFC 5685 section 3)
pub(crate) fn follows(first: View<'_>) -> bool {
    first.has(NotifyType::RedirectSupported) || first.has(NotifyType::RedirectedFrom)
}

/// Whether the caller whose first message this is may be sent on by load: one that another gateway has sent stays where it is.
pub(crate) fn may_be_spread(first: View<'_>) -> bool {
    first.has(NotifyType::RedirectSupported) && !first.has(NotifyType::RedirectedFrom)
}

/// What our own first message says of it.
/// "In the IKE_SA_INIT exchange with the new VPN gateway, the client MUST include the REDIRECTED_FROM payload" (RFC 5685 section 3)
pub(crate) fn offered(shared: &Shared, conn: &Connection) -> Option<Payload> {
    match shared.former.redirected_from.get(&conn.name) {
        Some(from) => Some(Payload::Notify(Gateway::redirected_from(*from))),
        None => {
            let follows = !conn.opening.redirects.is_empty() || !same_name(shared, conn).is_empty();
            follows.then(|| notify(NotifyType::RedirectSupported, []))
        }
    }
}

/// Where the gateway may send us when we log in, besides to what is configured: our own gateway's name leads there too, so that we would go
/// there without a word if this address were silent.
pub(crate) fn same_name<'a>(shared: &'a Shared, conn: &Connection) -> &'a [IpAddr] {
    shared.former.same_name.get(&conn.name).map_or(&[], Vec::as_slice)
}

/// The answer to our first message sends us away; `Err`: it is not the gateway's, as our nonce is not in it.
/// "When the client receives the IKE_SA_INIT response, it MUST verify that the nonce data matches the value sent in the IKE_SA_INIT request. If
/// the values do not match, the client MUST silently discard the response (and keep waiting for another response)." (RFC 5685 section 3)
pub(crate) fn first(
    view: View<'_>,
    nonce: &[u8],
    conn: &Connection,
    same_name: &[IpAddr],
) -> Result<Option<NegotiationError>, ()> {
    let Some(redirect) = view.notify(NotifyType::Redirect) else { return Ok(None) };
    match Gateway::of(&redirect.data) {
        Some((to, repeated)) if repeated == nonce => Ok(Some(permitted(conn, to, same_name))),
        _ => Err(()),
    }
}

/// An authentic message sends us away. `same_name`: empty in the middle of a session, which ends only for what is configured.
/// "[...] the client MUST verify the gateway's AUTH payload before acting on the REDIRECT payload." (RFC 5685 section 6)
pub(crate) fn later(view: View<'_>, conn: &Connection, same_name: &[IpAddr]) -> Option<NegotiationError> {
    let (to, _) = Gateway::of(&view.notify(NotifyType::Redirect)?.data)?;
    Some(permitted(conn, to, same_name))
}

fn permitted(conn: &Connection, to: Gateway, same_name: &[IpAddr]) -> NegotiationError {
    let same = matches!(&to, Gateway::Address(address) if same_name.contains(address));
    match same || conn.opening.redirects.iter().any(|target| target.means(&to)) {
        true => NegotiationError::Redirected(to),
        false => NegotiationError::RedirectRefused(to),
    }
}
