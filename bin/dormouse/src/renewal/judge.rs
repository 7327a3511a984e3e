//! Who gets another certificate: the one decision of renewal at a gateway, and the record of it. Owns the order: the user's record names a certificate before
//! it goes out, so that every certificate that was issued can be denied.
//!
//! A request is a right to nothing. Names come from the certificate that was shown, which must be on the record of a user who is still there; the daemon has
//! said who has the address that the request came from; both must be the same.

use super::http::Refusal;
use crate::book::Book;
use crate::enrol::authority::{Authority, day};
use crate::enrol::names::{self, Domain};
use crate::enrol::users::{Known, User};
use dormouse_control::{Error, Holder};
use dormouse_crypto::cert::{Certificate, Identity, Request};
use dormouse_ike::admission::Denial;
use dormouse_node::config::file::Connection;
use dormouse_sansio::UnixTime;
use std::time::Duration;

/// Most certificates of a user that count at once: each lost answer leaves one.
const MOST_LIVING: usize = 16;
const DAY: Duration = Duration::from_secs(86_400);

/// Who asks for what.
pub(super) struct Asking<'a> {
    /// What was shown in TLS, with the proof of its key.
    pub(super) shown: &'a Certificate,
    /// Who has the address that it came from.
    pub(super) holder: &'a Holder,
    /// PKCS #10, in DER.
    pub(super) request: &'a [u8],
    /// Who is denied, in the daemon's words.
    pub(super) denied: &'a [String],
    pub(super) now: UnixTime,
}

/// What was decided: nothing is on any disk yet.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) certificate: Certificate,
    pub(super) identity: Identity,
    before: User,
    after: User,
}

impl Granted {
    /// Writes down what is given out.
    pub(super) fn write(&self, book: &mut Book<'_>) -> Result<(), Error> {
        book.put(Some(&self.before), &self.after)
    }

    /// It was not given out after all.
    pub(super) fn undo(&self, book: &mut Book<'_>) -> Result<(), Error> {
        book.put(Some(&self.after), &self.before)
    }
}

fn no<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(403, why))
}

/// What is wrong here, and not with who asks.
pub(super) fn broken(error: &Error) -> Refusal {
    Refusal::new(503, format!("the gateway cannot: {}", error.message))
}

/// Decides, under the lock of the place.
///
/// # Errors
/// Why not.
pub(super) fn judge(
    book: &mut Book<'_>,
    (name, c): (&str, &Connection),
    authority: &Authority,
    asking: &Asking<'_>,
) -> Result<Granted, Refusal> {
    let Asking { shown, holder, denied, now, .. } = asking;
    if holder.connection != name || c.renewals.is_none() {
        return no(format!("connection {} renews no certificates", holder.connection));
    }
    let Ok(identity) = holder.identity.parse::<Identity>() else {
        return no(format!("{} has no certificate of this gateway", names::shown(&holder.identity)));
    };
    if shown.require(&identity).is_err() {
        let whose: Vec<String> = shown.identities().iter().map(ToString::to_string).collect();
        let whose = names::shown(&whose.join(", "));
        return no(format!("the certificate is for {whose}, and the address that asks is {identity}'s"));
    }
    if *now > shown.not_after() {
        return no(format!("the certificate has expired on {}", day(shown.not_after())));
    }
    if !authority.has_issued(shown) {
        return no("the certificate is not of this gateway's authority");
    }
    let user = user_of(book, c, &identity)?;
    require_admitted(&user, shown, &identity, denied)?;

    let request = Request::from_der(asking.request).map_err(|e| Refusal::new(400, e.to_string()))?;
    let own = shown.identities();
    if let Some(other) = request.names().iter().find(|name| !own.iter().any(|own| own.is_same_as(name))) {
        return no(format!("the request asks for another name: {}", names::shown(&other.to_string())));
    }
    let hash = hex::encode(request.key_hash());
    if request.key_hash() == shown.key_hash()
        || user.certificates.iter().any(|k| k.key.as_ref() == Some(&hash))
    {
        return no("the key of the request has a certificate already: a new key is needed");
    }
    if user.living(*now).count() >= MOST_LIVING {
        return no(format!("{MOST_LIVING} certificates of this user count already"));
    }
    let lasts = c
        .renewals
        .as_ref()
        .and_then(|renewals| renewals.days)
        .map_or_else(|| shown.not_after().saturating_since(shown.not_before()), |days| DAY * days);
    let certificate = authority.reissue(request.key(), &identity, *now, lasts).map_err(|e| broken(&e))?;
    if certificate.not_after() < shown.not_after() {
        let (has, gets) = (day(shown.not_after()), day(certificate.not_after()));
        return no(format!("the certificate counts until {has}, a new one would until {gets}"));
    }
    let mut after = user.clone();
    after.certificates.retain(|known| known.until >= now.0);
    after.certificates.push(Known::of(&certificate, *now));
    Ok(Granted { certificate, identity, before: user, after })
}

/// The user of an identity, who is still one.
fn user_of(book: &mut Book<'_>, c: &Connection, identity: &Identity) -> Result<User, Refusal> {
    let domain = Domain::of(&c.remote.id, "remote.id").map_err(|e| broken(&e))?;
    let id = identity.to_string();
    let found = match names::of_identity(&domain, &id) {
        Some(name) => book.find(name).map_err(|e| broken(&e))?,
        None => None,
    };
    found
        .filter(|user| user.id == id)
        .ok_or_else(|| Refusal::new(403, format!("{id} is no user of this gateway")))
}

/// Demands that the certificate is on the user's record, and that neither it nor the user is denied.
fn require_admitted(
    user: &User,
    shown: &Certificate,
    identity: &Identity,
    denied: &[String],
) -> Result<(), Refusal> {
    let is_denied = denied.iter().filter_map(|whom| whom.parse().ok()).any(|denial| match denial {
        Denial::Name(name) => name.is_same_as(identity) || shown.matches(&name),
        Denial::Certificate(fingerprint) => fingerprint == shown.fingerprint(),
    });
    if is_denied {
        return no(format!("{identity} is denied"));
    }
    if user.no_renewals {
        return no(format!("{identity} does not renew its certificate itself: ask the administrator"));
    }
    let fingerprint = format!("sha256:{}", hex::encode(shown.fingerprint()));
    if user.certificates.iter().any(|known| known.fingerprint == fingerprint) {
        return Ok(());
    }
    no("the certificate is not on record here")
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
