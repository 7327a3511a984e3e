//! Redirection (RFC 5685): what the driver of either end says.

use core::net::IpAddr;

use dormouse_keying::SaId;
use dormouse_sansio::{Instant, Path};
use dormouse_wire::ike::Gateway;

use super::Endpoint;
use crate::exchange::redirect::Redirect;

impl Endpoint {
    /// Gateway: sends the peer of an established SA to another gateway. `false`, and nothing done, if it has not said that it follows, or is not
    /// one that called us.
    pub fn redirect(&mut self, now: Instant, sa: SaId, to: &Gateway) -> bool {
        let follows = self.established(sa).is_some_and(|ike| ike.core.link.redirects && !ike.core.client);
        follows && self.tell(now, sa, Redirect::To(to.clone()))
    }

    /// Gateway: sends the peer of an established SA to another gateway that shares the tickets of this one: one of ours goes there by its ticket, and
    /// keeps its session here until then. `to` is an address, or a name for peers that go by RFC 5685. `false`, and nothing done, if it goes by neither.
    pub fn send_away(&mut self, now: Instant, sa: SaId, to: &Gateway) -> bool {
        let established = self.established(sa).filter(|ike| !ike.core.client);
        if established.is_some_and(|ike| ike.dormancy.is_open() && ike.upkeep.had_ticket()) {
            let address = matches!(to, Gateway::Address(_)).then(|| to.clone());
            return self.tell(now, sa, Redirect::WithTicket(address));
        }
        self.redirect(now, sa, to)
    }

    fn tell(&mut self, now: Instant, sa: SaId, what: Redirect) -> bool {
        self.with_sa(now, sa, |ike, shared| {
            ike.enqueue(what, now);
            ike.pump(shared, now);
        })
    }

    /// Where a caller is served instead of here.
    pub(crate) fn spread(&mut self, path: &Path) -> Option<Gateway> {
        let under_way = self.shared.half_open.len();
        self.shared.config.spread.as_mut()?.elsewhere(path, under_way)
    }

    /// Client: other addresses to which the name of this connection's gateway leads. Who logs in next says that it follows, and goes there if it is
    /// sent; with none, as it is before the first call, only where [`OpeningConfig::redirects`](crate::config::OpeningConfig::redirects) says.
    pub fn set_same_name(&mut self, connection: &str, addresses: Vec<IpAddr>) {
        if addresses.is_empty() {
            self.shared.former.same_name.remove(connection);
        } else {
            self.shared.former.same_name.insert(connection.to_owned(), addresses);
        }
    }

    /// Client: the next sessions of this connection go to another gateway, to which the one at this address has sent it; `None`: to its own
    /// again.
    pub fn set_redirected_from(&mut self, connection: &str, from: Option<IpAddr>) {
        match from {
            Some(from) => self.shared.former.redirected_from.insert(connection.to_owned(), from),
            None => self.shared.former.redirected_from.remove(connection),
        };
    }
}
