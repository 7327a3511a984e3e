//! How sessions begin, and with which gateway: from what is written to what IKE takes. Owns the meaning of these keys.

use super::file::{Childless, Ike};
use super::resolve::ConfigError;
use dormouse_ike::config as ike;

/// `ike.childless`, `ike.redirects` and `ike.redirect_to`.
pub(super) fn opening(
    conn: &mut ike::Connection,
    i: &Ike,
    key: &dyn Fn(&str) -> String,
) -> Result<(), ConfigError> {
    conn.opening.childless = match i.childless {
        Childless::Never => ike::Childless::Never,
        Childless::Allow => ike::Childless::Allow,
        Childless::Prefer => ike::Childless::Prefer,
        Childless::Force => ike::Childless::Force,
    };
    let redirects = i.redirects.iter().enumerate().map(|(n, to)| {
        let wrong = |e| {
            ConfigError::new(key(&format!("ike.redirects[{n}]")), format!("\"{to}\" is {e}, nor a prefix"))
        };
        to.parse().map_err(|e: dormouse_ike::NoGateway| wrong(e))
    });
    conn.opening.redirects = redirects.collect::<Result<_, _>>()?;
    let to = i.redirect_to.as_ref().map(|to| {
        let wrong = |e| ConfigError::new(key("ike.redirect_to"), format!("\"{to}\" is {e}"));
        to.parse().map_err(|e: dormouse_ike::NoGateway| wrong(e))
    });
    conn.answering.redirect_to = to.transpose()?;
    Ok(())
}
