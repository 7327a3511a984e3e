//! The CHILD SA that comes with IKE_AUTH. Owns its choice and its installation; must never answer.

use dormouse_sansio::Instant;
use dormouse_wire::ike::{NotifyType, Payload};

use super::identify::Refusal;
use crate::child::Agreed;
use crate::child::choose::{Asked, choose};
use crate::config::Connection;
use crate::event::Event;
use crate::keys::Nonces;
use crate::payloads::{View, notify};
use crate::proposal::KeyExchange;
use crate::sa::IkeSa;
use crate::sa::install::Origin;
use crate::shared::Shared;
use dormouse_wire::ike::mlike;

/// Chooses the first CHILD SA and adds its payloads to the answer.
pub(super) fn first_child(
    shared: &mut Shared,
    sa: &IkeSa,
    conn: &Connection,
    view: View<'_>,
    list: &mut Vec<Payload>,
) -> Result<Agreed, Refusal> {
    let dynamic = sa.dynamic();
    let told = mlike::opened(view.0).filter(|_| sa.mlike).map(|opened| opened.rest);
    let zones = told.as_deref().filter(|zones| !zones.is_empty());
    let asked = Asked { view, zones, beside: None };
    let chosen =
        choose(shared, conn, None, asked, &dynamic, sa.ends(), KeyExchange::Never).map_err(|refused| {
            let kind = match &refused.notify {
                Payload::Notify(n) => n.kind,
                _ => NotifyType::NoProposalChosen,
            };
            Refusal { kind, error: *refused.error }
        })?;
    if let Err(error) = sa.check_hosts(shared, &chosen.agreed) {
        shared.free_esp_spi(chosen.agreed.spi_in);
        return Err(Refusal { kind: NotifyType::TsUnacceptable, error });
    }
    list.push(chosen.sa);
    list.extend(chosen.rest);
    Ok(chosen.agreed)
}

/// Installs the first CHILD SA; the notification that there is none.
pub(super) fn install_first(
    sa: &mut IkeSa,
    shared: &mut Shared,
    now: Instant,
    agreed: Result<Option<Agreed>, Refusal>,
    nonces: Nonces<'_>,
) -> Option<Payload> {
    // The client knows the keys when it has the answer.
    let receives_only = shared.out.withholds(sa.core.id());
    let origin = Origin { nonces, secrets: &[], we_began: false, replaces: None, receives_only };
    let installed = agreed.and_then(|agreed| {
        let installed = agreed.map(|agreed| sa.install(shared, now, agreed, &origin));
        installed.transpose().map_err(|error| Refusal { kind: NotifyType::NoAdditionalSas, error })
    });
    let Err(Refusal { kind, error }) = installed else { return None };
    tracing::debug!(sa = %sa.core.id(), %error, "no CHILD SA");
    shared.event(Event::ChildFailed { sa: sa.core.id(), error });
    Some(notify(kind, []))
}
