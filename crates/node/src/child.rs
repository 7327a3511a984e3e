//! From negotiated keys to a pair of ESP SAs. Owns the translation between the vocabularies of `ike` and `esp`, which never
//! import each other.

use dormouse_crypto::{Encr, Error as CryptoError, Integ};
use dormouse_esp::transport::Original;
use dormouse_esp::{
    Child, Inbound, Limits, Mode, Outbound, Overhead, PathMtu, SaParams, Selectors, Tfc, Volume,
};
use dormouse_keying::Install;
use dormouse_sansio::{Entropy, Instant, Path};
use dormouse_wire::ike::{TrafficSelector, TsRange};
use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use std::net::IpAddr;

/// What the configuration says of a child, beyond what is negotiated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    /// MTU of the outer link.
    pub(crate) link_mtu: u16,
}

/// Builds the pair that `install` describes.
///
/// # Errors
/// If cipher, integrity algorithm and keying material do not fit each other.
pub(crate) fn build(
    install: &Install,
    local: Local,
    entropy: &mut dyn Entropy,
) -> Result<Child, CryptoError> {
    let mode = mode(install);
    let soft = Volume { packets: install.soft_packets, bytes: install.soft_bytes };
    let params = |spi, keymat: &dormouse_crypto::Secret| SaParams {
        spi,
        encr: install.encr,
        integ: install.integ,
        keymat: keymat.clone(),
        esn: install.esn,
        mode,
        replay_window: install.replay_window,
        tfc: if install.pad_to > 0 { Tfc::Multiple(install.pad_to) } else { Tfc::Off },
        limits: Limits { soft, hard: Volume::UNLIMITED },
    };
    let overhead = Overhead::new(install.encr, install.integ, mode, &install.path);
    let mut child = Child {
        id: install.child.spi().into(),
        inbound: Inbound::new(&params(install.child.spi(), &install.keymat_in))?,
        outbound: Outbound::new(&params(install.spi_out, &install.keymat_out), entropy)?,
        selectors: Selectors::new(&as_selectors(&install.ts_local), &as_selectors(&install.ts_remote)),
        original: install.original.map(|o| Original { source: o.remote, destination: o.local }),
        path: install.path,
        overhead,
        pmtu: PathMtu::new(&install.path, local.link_mtu),
    };
    child.outbound.set_inner_mtu(child.overhead.inner_mtu(local.link_mtu.into()));
    Ok(child)
}

fn as_selectors(ranges: &[TsRange]) -> Vec<TrafficSelector> {
    ranges.iter().copied().map(TrafficSelector::from).collect()
}

/// The algorithms of a CHILD SA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suite {
    encr: Encr,
    integ: Option<Integ>,
    mode: Mode,
}

impl Suite {
    pub(crate) fn of(install: &Install) -> Self {
        Self { encr: install.encr, integ: install.integ, mode: mode(install) }
    }
}

impl std::fmt::Display for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.encr.name())?;
        self.integ.map_or(Ok(()), |integ| write!(f, "-{}", integ.name()))
    }
}

fn mode(install: &Install) -> Mode {
    match install.mode {
        dormouse_keying::Mode::Tunnel | dormouse_keying::Mode::Beet(_) => Mode::Tunnel,
        dormouse_keying::Mode::Transport => Mode::Transport,
    }
}

/// Whole prefixes that cover the ranges: routes for them.
pub(crate) fn prefixes(ranges: &[TsRange]) -> Vec<IpNet> {
    let mut nets = Vec::new();
    for range in ranges {
        match (range.start, range.end) {
            (IpAddr::V4(a), IpAddr::V4(b)) => nets.extend(Ipv4Subnets::new(a, b, 0).map(IpNet::V4)),
            (IpAddr::V6(a), IpAddr::V6(b)) => nets.extend(Ipv6Subnets::new(a, b, 0).map(IpNet::V6)),
            _ => {}
        }
    }
    nets.sort_unstable();
    nets.dedup();
    nets
}

/// Sends a child over another path from now on.
pub(crate) fn remap(child: &mut Child, suite: Suite, path: Path, link_mtu: u16) {
    child.overhead = Overhead::new(suite.encr, suite.integ, suite.mode, &path);
    child.path = path;
    child.pmtu = PathMtu::new(&path, link_mtu);
    let inner = child.overhead.inner_mtu(child.pmtu.get(Instant::ZERO).into());
    child.outbound.set_inner_mtu(inner);
}
