//! A tunnel in zones between two hosts at the ends of a radio, under keys that are no secret. Owns both ends and their threads, which end with it.

use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use anyhow::Result;
use dormouse_keying::HeaderOrder;
use dormouse_sansio::Carrier;
use dormouse_snoop::tcp;

use crate::forward::{Forwarder, Lost, Protection, Settings, header_grant};
use crate::host::Host;
use crate::radio::ADDRESSES;

/// The tunnel's interface at either end.
const INTERFACE: &str = "zones0";
/// The MTU that daemons give theirs.
const MTU: u16 = 1_400;
/// Addresses inside of the tunnel, that of the fixed host first.
pub const INNER: [&str; 2] = ["10.99.0.1", "10.99.0.2"];

/// Both ends of the tunnel.
#[derive(Debug)]
pub struct Zones {
    _ends: [End; 2],
}

impl Zones {
    /// Starts both ends; the radio between them is there.
    ///
    /// # Errors
    /// Without root or `/dev/net/tun`.
    pub fn start(fixed: &Host, device: &Host) -> Result<Self> {
        Ok(Self { _ends: [End::start(fixed, 0)?, End::start(device, 1)?] })
    }

    /// SNOOP for the router between them: it can read the headers.
    ///
    /// # Errors
    /// If it does not take the keys.
    pub fn snoop() -> Result<tcp::Agent> {
        let mut agent = tcp::Agent::default();
        agent.reader().zones().apply(&HeaderOrder::Grant(Box::new(header_grant())))?;
        Ok(agent)
    }
}

#[derive(Debug)]
struct End {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Result<Lost>>>,
}

impl End {
    fn start(host: &Host, own: usize) -> Result<Self> {
        let peer = 1 - own;
        let outer = |of: usize| format!("{}:4500", ADDRESSES[of][0]).parse();
        let settings = Settings {
            tun: INTERFACE.to_owned(),
            protection: Protection::Zoned,
            carrier: Carrier::NatT,
            local: outer(own)?,
            remote: outer(peer)?,
            inner: (INNER[own].parse()?, INNER[peer].parse()?),
            first: own == 0,
            run: None,
        };
        let mut forwarder = host.run(move || Forwarder::open(&settings))??;
        host.ip(&format!("addr add {} peer {} dev {INTERFACE}", INNER[own], INNER[peer]))?;
        host.ip(&format!("link set {INTERFACE} mtu {MTU} up"))?;
        let (stop, stopped) = UnixStream::pair()?;
        let thread = std::thread::Builder::new().name("zones".into());
        let thread = thread.spawn(move || forwarder.run(&stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.stop = None;
        // What an end that failed did not carry is missing at the other end.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
