//! A device's DHCP lease, where it has one from beyond the tunnel. Owns when it is renewed while the device sleeps.
//!
//! A renewal is sent in the device's name only if the lease would end during the sleep: the device holds the address and will come
//! back to it, so the request is true, and without it the server would give the address away. A lease that outlives the sleep
//! is the device's own business. A refusal (DHCPNAK) ends it and waits for the device.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use dormouse_sansio::Instant;
use dormouse_wire::dhcp::{self, Dhcp, kind};

use crate::limits::RENEWAL_PAUSE;

/// A lease.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) address: Ipv4Addr,
    pub(crate) server: Ipv4Addr,
    client: dhcp::Client,
    /// When it may be renewed ("T1"), and when it ends.
    renew: Instant,
    ends: Instant,
    /// Of the renewal that was sent in the device's name.
    transaction: Option<u32>,
}

/// The lease of one device.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// The device's last request: transaction and who it is.
    asked: Option<(u32, dhcp::Client)>,
    lease: Option<Lease>,
}

impl Client {
    pub(crate) fn observe_inbound(&mut self, payload: &[u8]) {
        let Ok(message) = Dhcp::parse(payload) else { return };
        match message.kind {
            kind::REQUEST if message.request => self.asked = Some((message.transaction, message.client)),
            kind::RELEASE if message.request => *self = Self::default(),
            _ => {}
        }
    }

    /// A message to the device, which receives it.
    pub(crate) fn observe_outbound(&mut self, now: Instant, from: IpAddr, payload: &[u8]) {
        let Ok(message) = Dhcp::parse(payload) else { return };
        let Some((transaction, client)) = &self.asked else { return };
        if message.request || message.transaction != *transaction {
            return;
        }
        match message.kind {
            kind::ACK => {
                let client = client.clone();
                self.lease = lease(now, from, &message, client);
            }
            kind::NAK => self.lease = None,
            _ => {}
        }
    }

    /// Whether `server` gave the device its lease.
    pub(crate) fn is_server(&self, server: IpAddr) -> bool {
        self.lease.as_ref().is_some_and(|l| server == IpAddr::V4(l.server))
    }

    /// Whether the device, or its stand-in, asked for this message.
    pub(crate) fn asked_for(&self, message: &Dhcp) -> bool {
        let ours = self.lease.as_ref().and_then(|l| l.transaction);
        let own = self.asked.as_ref().map(|(transaction, _)| *transaction);
        !message.request && [ours, own].contains(&Some(message.transaction))
    }

    /// When a renewal in the device's name is due, if it sleeps until `until`.
    pub(crate) fn due(&self, until: Instant) -> Option<Instant> {
        self.lease.as_ref().filter(|l| l.ends < until && l.renew < l.ends).map(|l| l.renew)
    }

    /// The renewal that is due now, and when the next attempt is: after half of what is left, if the server does not answer.
    pub(crate) fn renew(&mut self, now: Instant) -> Option<(Lease, Vec<u8>)> {
        let lease = self.lease.as_mut().filter(|l| l.renew <= now)?;
        if lease.ends <= now {
            self.lease = None;
            return None;
        }
        let last = lease.transaction.or(self.asked.as_ref().map(|(transaction, _)| *transaction));
        let transaction = last.unwrap_or(0).wrapping_add(1);
        lease.transaction = Some(transaction);
        lease.renew = now + ((lease.ends - now) / 2).max(RENEWAL_PAUSE);
        Some((lease.clone(), dhcp::renewal(&lease.client, lease.address, transaction)))
    }

    /// A message to the device, which sleeps: whether it is the server's consent to a renewal in the device's name. Then the
    /// device has nothing to learn from it.
    pub(crate) fn consents(&mut self, now: Instant, from: IpAddr, payload: &[u8]) -> bool {
        let Ok(message) = Dhcp::parse(payload) else { return false };
        let Some(old) = &self.lease else { return false };
        let ours = !message.request && old.transaction == Some(message.transaction);
        if !ours || message.your_address != old.address {
            return false;
        }
        let renewed =
            (message.kind == kind::ACK).then(|| lease(now, from, &message, old.client.clone())).flatten();
        // Refused, or an ACK that grants nothing: the device must see it, and nothing is asked again for it.
        let consent = renewed.is_some();
        let transaction = old.transaction;
        self.lease = renewed.map(|new| Lease { transaction, ..new });
        consent
    }
}

/// What an ACK grants.
fn lease(now: Instant, from: IpAddr, ack: &Dhcp, client: dhcp::Client) -> Option<Lease> {
    let IpAddr::V4(from) = from else { return None };
    // All ones: for ever.
    let seconds = ack.lease_seconds.filter(|s| *s != u32::MAX)?;
    let renewal = ack.renewal_seconds.unwrap_or(seconds / 2).min(seconds);
    (!ack.your_address.is_unspecified()).then(|| Lease {
        address: ack.your_address,
        server: ack.server.unwrap_or(from),
        client,
        renew: now + Duration::from_secs(renewal.into()),
        ends: now + Duration::from_secs(seconds.into()),
        transaction: None,
    })
}
