//! A tunnel without key exchange: the data path alone, for measurements.
//!
//! `forward (--plain | --esp | --raw) SIDE TUN LOCAL REMOTE`: SIDE is `a` or `b`, the addresses are UDP, for example
//! `forward --esp a tun0 10.77.0.1:4500 10.77.0.2:4500`. `--plain` sends the inner packets as they are, through the same
//! path: what it costs to be in user space at all. `--esp` protects them with AES-128-GCM under keys that are no secret;
//! `--raw` does too, but sends IP protocol 50 instead of UDP (the ports do not matter then). The two ends must run in
//! different network namespaces or machines. The loop itself is `dormouse_testbed::forward`.

use std::error::Error;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use dormouse_keying::Mode;
use dormouse_sansio::Carrier;
use dormouse_testbed::forward::{Forwarder, Protection, Settings};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, side, tun, local, remote] = &args[..] else {
        return Err("usage: forward (--plain | --esp | --raw) (a | b) TUN LOCAL REMOTE".into());
    };
    let (local, remote): (SocketAddr, SocketAddr) = (local.parse()?, remote.parse()?);
    let esp = Protection::Esp { suite: "aes128gcm16".parse()?, mode: Mode::Tunnel };
    let settings = Settings {
        tun: tun.clone(),
        protection: if kind == "--plain" { Protection::Plain } else { esp },
        carrier: if kind == "--raw" { Carrier::RawEsp } else { Carrier::NatT },
        local,
        remote,
        // Transport mode alone asks for them.
        inner: (local.ip(), remote.ip()),
        first: side == "a",
        run: None,
    };
    let mut forwarder = Forwarder::open(&settings)?;
    eprintln!("{tun}: inner MTU {}", settings.inner_mtu()?);
    // The other end is never closed: it runs until it is killed.
    let (stop, _open) = UnixStream::pair()?;
    let lost = forwarder.run_telling(&stop, |full| eprintln!("{tun}: socket full: {full}"))?;
    eprintln!("{lost:?}");
    Ok(())
}
