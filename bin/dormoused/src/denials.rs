//! `dormouse deny`, `allow` and `forget-tickets`: a gateway's operator refuses an identity or a certificate, takes it back, or lets no
//! ticket count any more. A host of HIP refuses a HIT; where both are one daemon's, a name means the client and the peer of that name. Owns the replies to these verbs; [`dormouse_ike::admission`] decides whom a denial means, and the store keeps it.

use crate::daemon::Daemon;
use dormouse_control::{Denied, Error, ErrorKind, Reply};
use dormouse_ike::admission::Denial;
use dormouse_io::clock::unix_now;
use dormouse_io::control::ClientId;
use dormouse_io::store::StoredDenial;
use dormouse_node::Met;
use dormouse_node::audit::What;
use dormouse_node::config::file::Role;
use dormouse_sansio::{Instant, UnixTime};
use dormouse_wire::hip::Hit;

impl Daemon {
    /// Whom `whom` means is not admitted from now on. `client` has ordered it.
    pub(crate) fn deny(&mut self, now: Instant, client: ClientId, whom: &str) -> Result<Reply, Error> {
        let denials = self.meant(whom)?;
        let stored = |denial: &Denial| StoredDenial { whom: denial.to_string(), since: unix_now() };
        if denials.iter().any(|denial| denial.to_string().parse().as_ref() != Ok(denial)) {
            // It would keep the daemon from its next start.
            let message =
                format!("{whom} cannot be written down so that it means the same; deny the certificate");
            return Err(Error::new(ErrorKind::Request, message));
        }
        let (mut sessions, mut known, mut kept) = (0, false, Ok(()));
        let hit = denials.get(1).map(ToString::to_string);
        for denial in denials {
            let stored = stored(&denial);
            // All of them, also if one could not be kept.
            kept = self.store.deny(&stored).map(drop).and(kept);
            self.deny_everywhere(&stored);
            known |= self.is_named(&denial);
            self.record(client, |by_uid| What::Denial { whom: stored.whom.as_str().into(), by_uid });
            // In force whether it could be kept or not.
            let (associations, listed) = self.deny_hit(now, &denial).unwrap_or_default();
            let met: Met = self.host.deny(now, denial);
            let ended = met.sessions + associations;
            (sessions, known) = (sessions + ended, known || met.known || listed || associations > 0);
            tracing::warn!(whom = %stored.whom, sessions = ended, "denied on request");
        }
        kept.map(|()| Reply::Denied { sessions, known, hit }).map_err(|e| {
            let until = match self.helpers.cluster {
                // On its way there already, whether this disk has it or not.
                Some(_) => "here, and everywhere as soon as the gateways' database has it, which this gateway cannot keep until then",
                None => "until the daemon's next start only",
            };
            Error::new(ErrorKind::Other, format!("{whom} is denied {until}: {}", dormouse_io::causes(&*e)))
        })
    }

    /// Takes a denial back. `client` has ordered it.
    pub(crate) fn allow(&mut self, now: Instant, client: ClientId, whom: &str) -> Result<(), Error> {
        self.may_allow()?;
        let (denials, error) = match self.meant(whom) {
            Ok(denials) => (denials, None),
            // One of an earlier release may have been kept that is not understood any more.
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut names: Vec<String> = denials.iter().map(ToString::to_string).collect();
        if error.is_some() {
            names.push(whom.to_owned());
        }
        let mut taken_back = false;
        for (i, name) in names.into_iter().enumerate() {
            let stored = self.store.allow(&name).map_err(|e| {
                Error::new(ErrorKind::Other, format!("{name} is still denied: {}", dormouse_io::causes(&*e)))
            })?;
            let everywhere = self.allow_everywhere(&name);
            let was = denials
                .get(i)
                .is_some_and(|denial| self.allow_hit(now, denial) | self.host.node_mut().allow(denial));
            if was || stored || everywhere {
                taken_back = true;
                self.record(client, |by_uid| What::Allowance { whom: name.as_str().into(), by_uid });
                tracing::warn!(whom = %name, "no longer denied, on request");
            }
        }
        if taken_back {
            return Ok(());
        }
        let none = Error::new(ErrorKind::NotConnected, format!("'{whom}' is not denied"));
        Err(error.unwrap_or_else(|| none.with_change("dormouse deny --list")))
    }

    fn record(&mut self, client: ClientId, what: impl FnOnce(Option<u32>) -> What) {
        let by_uid = self.verbs.server.peer(client).map(|peer| peer.uid);
        self.host.node_mut().record(what(by_uid));
    }

    /// Whether the configuration names an identity itself, and not only a pattern that holds it.
    fn is_named(&self, denial: &Denial) -> bool {
        let Denial::Name(identity) = denial else { return false };
        let mut gateways = self.connections.iter().filter(|c| c.role == Role::Gateway);
        gateways.any(|c| c.ike.named(identity).is_some())
    }

    /// No ticket counts any more that was given until now.
    pub(crate) fn forget_tickets(&mut self, now: Instant) -> Result<(), Error> {
        self.is_for_clients()?;
        self.host.node_mut().forget_tickets(now);
        tracing::warn!("all tickets are forgotten, on request");
        Ok(())
    }

    /// Who is denied.
    pub(crate) fn denials(&self) -> Result<Reply, Error> {
        let stored =
            self.store.denials().map_err(|e| Error::new(ErrorKind::Other, dormouse_io::causes(&*e)))?;
        let shared = self.shared_denials().iter().map(|d| (d.whom.clone(), d.since));
        let all: Vec<(String, UnixTime)> = shared.collect();
        let unsent = stored.into_iter().filter(|own| all.iter().all(|(whom, _)| *whom != own.whom));
        let unsent: Vec<(String, UnixTime)> = unsent.map(|own| (own.whom, own.since)).collect();
        let denied = |(whom, since): (String, UnixTime)| Denied { whom, since_unix: since.0 };
        Ok(Reply::Denials(all.into_iter().chain(unsent).map(denied).collect()))
    }

    fn is_for_clients(&self) -> Result<(), Error> {
        if self.connections.iter().any(|c| c.role == Role::Gateway) {
            return Ok(());
        }
        let message = "this daemon has no gateway connection, so it has no clients to decide about";
        Err(Error::new(ErrorKind::Request, message))
    }

    /// Whom a word means, one or two: where there are clients of a gateway and peers of HIP, a name may be one of both.
    fn meant(&self, whom: &str) -> Result<Vec<Denial>, Error> {
        let hit = match (&self.hip, self.is_for_clients()) {
            (None, Err(refused)) => return Err(refused),
            (None, Ok(())) => None,
            (Some(hip), Ok(())) => hip.named(whom),
            (Some(hip), Err(_)) => return denials(&hip.meant(whom)?.to_string(), None),
        };
        denials(whom, hit)
    }
}

/// A word as an identity or a fingerprint, and the peer that is called by it.
fn denials(whom: &str, hit: Option<Hit>) -> Result<Vec<Denial>, Error> {
    let wrong = |e| Error::new(ErrorKind::Request, format!("{e}"));
    let first = whom.parse::<Denial>().map_err(wrong)?;
    let second = hit.map(|hit| hit.to_string().parse().map_err(wrong)).transpose()?;
    Ok([Some(first), second].into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_also_a_peers_means_both() {
        let hit = Hit("2001:22::7".parse().unwrap());
        let of =
            |whom, hit| denials(whom, hit).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of("laptop", Some(hit)).unwrap(), ["laptop", "2001:22::7"]);
        assert_eq!(of("laptop", None).unwrap(), ["laptop"]);
        assert_eq!(of("2001:22::7", None).unwrap(), ["2001:22::7"]);
        assert!(of("sha256:zz", Some(hit)).is_err());
    }
}
