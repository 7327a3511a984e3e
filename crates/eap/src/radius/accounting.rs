//! What a server is told of a session (RFC 2866). Owns one session's reports; must never lose count of bytes beyond four gigabytes (RFC 2869 section 5.1).

use core::net::Ipv4Addr;
use core::time::Duration;

use super::Connection;
use super::attribute::{
    ACCT_CAUSE, ACCT_DELAY, ACCT_INPUT, ACCT_INPUT_GIGA, ACCT_INPUT_PACKETS, ACCT_OUTPUT, ACCT_OUTPUT_GIGA,
    ACCT_OUTPUT_PACKETS, ACCT_SESSION, ACCT_STATUS, ACCT_TIME, Attributes, CLASS, FRAMED_ADDRESS, USER_NAME,
};
use super::sealed::{Discard, Pending, accounting_request};
use crate::error::Error;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The user is in.
    Start,
    /// The user is still in.
    Interim(Usage),
    /// The user is gone, with the reason's number (RFC 2866 section 5.10: 1 by the user, 4 idle, 5 too long, 6 by the administrator).
    Stop(Usage, u32),
}

/// How much the user has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Since the start.
    pub time: Duration,
    /// Bytes from the user.
    pub received: u64,
    /// Bytes to the user.
    pub sent: u64,
    /// Packets from the user.
    pub packets_received: u32,
    /// Packets to the user.
    pub packets_sent: u32,
}

/// One session.
#[derive(Debug)]
pub struct Account {
    connection: Connection,
    user: String,
    session: String,
    address: Option<Ipv4Addr>,
    class: Vec<Vec<u8>>,
    pending: Option<Pending>,
}

impl Account {
    /// `session` is a name of its own; `class` what the server said when it let the user in ([`super::Grants::class`]).
    #[must_use]
    pub const fn new(
        connection: Connection,
        user: String,
        session: String,
        address: Option<Ipv4Addr>,
        class: Vec<Vec<u8>>,
    ) -> Self {
        Self { connection, user, session, address, class, pending: None }
    }

    /// The Accounting-Request that reports `event`, which happened `ago` (Acct-Delay-Time, RFC 2866 section 5.2).
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub fn report(&mut self, identifier: u8, event: Event, ago: Duration) -> Result<Vec<u8>, Error> {
        let mut attributes = Attributes::default();
        let (status, usage) = match event {
            Event::Start => (1, None),
            Event::Stop(usage, _) => (2, Some(usage)),
            Event::Interim(usage) => (3_u32, Some(usage)),
        };
        attributes.push(ACCT_STATUS, &status.to_be_bytes())?;
        attributes.push(ACCT_SESSION, self.session.as_bytes())?;
        attributes.push(USER_NAME, self.user.as_bytes())?;
        self.connection.describe(&mut attributes)?;
        if let Some(ip) = self.address {
            attributes.push(FRAMED_ADDRESS, &ip.octets())?;
        }
        for class in &self.class {
            attributes.push(CLASS, class)?;
        }
        if let Some(usage) = usage {
            count(&mut attributes, &usage)?;
        }
        if let Event::Stop(_, cause) = event {
            attributes.push(ACCT_CAUSE, &cause.to_be_bytes())?;
        }
        if ago.as_secs() > 0 {
            let ago = u32::try_from(ago.as_secs()).unwrap_or(u32::MAX);
            attributes.push(ACCT_DELAY, &ago.to_be_bytes())?;
        }
        let (pending, packet) = accounting_request(identifier, attributes, &self.connection.client.secret)?;
        self.pending = Some(pending);
        Ok(packet)
    }

    /// Takes a datagram of the server: after `Ok` the report has arrived.
    ///
    /// # Errors
    /// [`Discard`]: the report waits on.
    pub fn answer(&mut self, datagram: &[u8]) -> Result<(), Discard> {
        let pending = self.pending.as_ref().ok_or(Discard::Unexpected)?;
        pending.open(&self.connection.client.secret, datagram)?;
        self.pending = None;
        Ok(())
    }
}

fn count(attributes: &mut Attributes, usage: &Usage) -> Result<(), Error> {
    let time = u32::try_from(usage.time.as_secs()).unwrap_or(u32::MAX);
    attributes.push(ACCT_TIME, &time.to_be_bytes())?;
    for (low, giga, bytes) in
        [(ACCT_INPUT, ACCT_INPUT_GIGA, usage.received), (ACCT_OUTPUT, ACCT_OUTPUT_GIGA, usage.sent)]
    {
        let bytes = bytes.to_be_bytes();
        attributes.push(low, &bytes[4..])?;
        attributes.push(giga, &bytes[..4])?;
    }
    attributes.push(ACCT_INPUT_PACKETS, &usage.packets_received.to_be_bytes())?;
    attributes.push(ACCT_OUTPUT_PACKETS, &usage.packets_sent.to_be_bytes())
}
