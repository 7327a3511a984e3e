//! A device and its gateway, joined by a cable, and what lies between them by one [`Way`]. Owns the namespaces and the programs in them, which go
//! with it; must never let a figure count that was not protected as its way says.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use dormouse_testbed::{Dormoused, EchoServer, Host, Need, Process, Testbed, binary};
use nix::sys::signal::Signal;

use super::Way;
use crate::bench::traffic::{self, Pace};
use crate::campaign::cpu;
use crate::judge::stats;
use crate::results::Figures;

/// What protects all packets.
pub(super) const SUITE: &str = "aes128gcm16";
const DEVICE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// The gateway inside IKEv2's tunnel, and inside L2TP's.
const IN_TUNNEL: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const IN_L2TP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const CABLE: &str = "cable";
const ECHO: u16 = 7;
const PPP: &str = "/dev/ppp";
/// What does not come up within so long never will; an emulated processor takes its time.
const STUCK: Duration = Duration::from_secs(60);
/// An answer takes less, also there.
const ANSWER: Duration = Duration::from_secs(10);
/// Between two packets that look whether the way is there.
const ASKS: Duration = Duration::from_millis(10);
/// Of so many datagrams the bytes on the cable are the median: IKE and ARP speak at times too.
const COUNTED: usize = 9;
/// What must not be seen on the cable, over and over.
const CLEAR: &[u8] = b"dormouse";
/// So many packets are sent to be looked at.
const LOOKED_AT: usize = 5;

/// What this machine lacks; `None` if nothing.
pub(super) fn missing() -> Option<String> {
    let programs = ["ip", "xl2tpd", "pppd"].map(Need::Program);
    let needs = [Need::Root, Need::File("/dev/net/tun")];
    // The device is there without its driver too.
    let ppp = || fs::File::open(PPP).err().map(|error| format!("PPP in the kernel ({PPP}: {error})"));
    needs.into_iter().chain(programs).find_map(Need::missing).or_else(ppp).or_else(crate::needs::missing)
}

/// See the module.
pub(super) struct World {
    way: Way,
    up: bool,
    _echo: EchoServer,
    /// Of device and gateway, where there is L2TP.
    l2tp: Vec<Process>,
    /// Of device and gateway, where there is IPsec.
    daemons: Vec<Dormoused>,
    device: Host,
    gateway: Host,
    // Last: namespaces are removed after the processes in them.
    _bed: Testbed,
}

impl World {
    /// Both hosts with their programs; no session yet.
    ///
    /// # Errors
    /// If a host cannot be made or a program does not come up.
    pub(super) fn start(way: Way) -> Result<Self> {
        let mut bed = Testbed::new()?;
        let (device, gateway) = (bed.host("device")?, bed.host("gateway")?);
        for host in [&device, &gateway] {
            // Nothing else shall be sent on the cable while bytes are counted there.
            for which in ["all", "default"] {
                host.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")?;
            }
        }
        let [a, b] = [DEVICE, GATEWAY].map(|address| format!("{address}/24"));
        bed.link((&device, CABLE, &[&a]), (&gateway, CABLE, &[&b]))?;
        let echo = match way {
            Way::Plain => GATEWAY,
            Way::Ikev2 => {
                gateway.ip(&format!("addr add {IN_TUNNEL}/32 dev lo"))?;
                IN_TUNNEL
            }
            // Its address comes with PPP.
            Way::L2tp => Ipv4Addr::UNSPECIFIED,
        };
        let echo = EchoServer::start(&gateway, (echo, ECHO).into())?;
        let (mut daemons, mut l2tp) = (Vec::new(), Vec::new());
        if way != Way::Plain {
            // The gateway first: whom the device calls must be there.
            let at_gateway = Dormoused::start(&gateway, "dns = \"off\"", &daemon(way, false))?;
            daemons = vec![Dormoused::start(&device, "dns = \"off\"", &daemon(way, true))?, at_gateway];
        }
        if way == Way::L2tp {
            l2tp = vec![xl2tpd(&device, &caller())?, xl2tpd(&gateway, &answerer())?];
        }
        Ok(Self { way, up: way == Way::Plain, _echo: echo, l2tp, daemons, device, gateway, _bed: bed })
    }

    /// Whether packets pass as the way says.
    pub(super) const fn is_up(&self) -> bool {
        self.up
    }

    /// The gateway's address that the way leads to.
    const fn inner(&self) -> Ipv4Addr {
        match self.way {
            Way::Plain => GATEWAY,
            Way::Ikev2 => IN_TUNNEL,
            Way::L2tp => IN_L2TP,
        }
    }

    /// Sets the way up, and says how long it took until a packet inside was answered, and until the session was there. Looks afterwards at
    /// what leaves the device.
    ///
    /// # Errors
    /// If it does not come up, or is not what it should be.
    pub(super) fn set_up(&mut self) -> Result<Figures> {
        let daemon = self.daemons.first().context("there is nothing to set up")?;
        let to = SocketAddr::from((self.inner(), ECHO));
        let begun = cpu::wall();
        daemon.ok(&["up", "peer", "--timeout", "60"])?;
        let session = begun.elapsed();
        if self.way == Way::L2tp {
            fs::write(control(&self.device), "c gateway\n").context("xl2tpd does not listen")?;
        }
        self.device.run(move || answered(to))?.map_err(|error| error.context(self.logs()))?;
        let set_up = begun.elapsed();
        self.verify()?;
        self.up = true;
        Ok(Figures::default().with("set_up", set_up.as_secs_f64()).with("session", session.as_secs_f64()))
    }

    /// What those who have no voice here said last.
    fn logs(&self) -> String {
        let ppp = [&self.device, &self.gateway].map(|host| host.dir().join("ppp.log"));
        let ppp = ppp.iter().map(|path| fs::read_to_string(path).unwrap_or_default());
        let all = self.l2tp.iter().map(Process::log).chain(ppp);
        let last = |text: String| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(10)..].join("\n")
        };
        format!("nothing passes: {}", all.map(last).collect::<Vec<_>>().join("\n--\n"))
    }

    /// Whether the session is of its mode, L2TP's packets are the kernel's, and what the device sends leaves as ESP.
    fn verify(&self) -> Result<()> {
        let mode = if self.way == Way::L2tp { "transport" } else { "tunnel" };
        let daemon = self.daemons.first().context("no session")?;
        let status = daemon.ok(&["status", "--json"])?.json.to_string();
        ensure!(status.contains(&format!("\"mode\":\"{mode}\"")), "the session is not in {mode} mode");
        for process in &self.l2tp {
            let log = process.log();
            ensure!(
                log.contains("Using l2tp kernel support"),
                "xl2tpd does without the kernel's L2TP: {log}"
            );
        }
        let seen = self.device.dir().join("seen.pcap");
        let file = seen.to_str().context("a path without words")?;
        // Every packet: a recording of an earlier session must not stand for this one.
        let _ = fs::remove_file(&seen);
        let mut recorder = self.device.spawn(
            "record",
            binary("dormouse"),
            &["trace", "record", CABLE, file, "--snap", "1500"],
        )?;
        let begun = cpu::wall();
        while fs::metadata(&seen).map_or(0, |m| m.len()) == 0 {
            ensure!(
                begun.elapsed() < STUCK && recorder.ended().is_none(),
                "no recording: {}",
                recorder.log()
            );
            std::thread::sleep(ASKS);
        }
        let to = SocketAddr::from((self.inner(), ECHO));
        let asked = self.device.run(move || -> Result<()> {
            let socket = connected(to)?;
            (0..LOOKED_AT).try_for_each(|_| ask(&socket, &CLEAR.repeat(32)))
        })?;
        recorder.signal(Signal::SIGINT);
        ensure!(recorder.wait(STUCK).is_some(), "the recording does not end");
        asked?;
        let seen = fs::read(&seen)?;
        let esp = esp_packets(&seen);
        ensure!(esp >= LOOKED_AT, "{esp} packets of ESP were recorded, for {LOOKED_AT} that were sent");
        let clear = CLEAR.repeat(2);
        ensure!(!seen.windows(clear.len()).any(|bytes| bytes == clear), "packets leave the device in clear");
        Ok(())
    }

    /// Bytes that the device puts on the cable for a datagram with so many bytes of payload.
    ///
    /// # Errors
    /// If one is lost.
    pub(super) fn packet(&self, bytes: u32) -> Result<Figures> {
        let to = SocketAddr::from((self.inner(), ECHO));
        let payload = vec![0x5a; usize::try_from(bytes)?];
        let counted = self.device.run(move || -> Result<Vec<f64>> {
            let socket = connected(to)?;
            let one = |_| -> Result<f64> {
                let before = sent_bytes()?;
                ask(&socket, &payload)?;
                Ok((sent_bytes()? - before) as f64)
            };
            (0..COUNTED).map(one).collect()
        })??;
        Ok(Figures::default().with("on_cable", stats::median(&counted)))
    }

    /// Datagrams from the gateway to the device, without any restraint as in the paper; what arrives counts, over the time of the whole.
    ///
    /// # Errors
    /// If nothing can be sent.
    pub(super) fn stream(&self, bytes: u32, time: Duration) -> Result<Figures> {
        let (len, inner) = (usize::try_from(bytes)?, self.inner());
        let (into, to) = self.device.run(move || -> Result<_> {
            // The address that the device has on this way.
            let own = connected((inner, ECHO).into())?.local_addr()?.ip();
            let into = UdpSocket::bind((own, traffic::PORT)).with_context(|| format!("UDP of {own}"))?;
            Ok((into, SocketAddr::new(own, traffic::PORT)))
        })??;
        traffic::room(&into)?;
        into.set_read_timeout(Some(traffic::LOOK))?;
        let out = self.gateway.run(move || -> Result<_> {
            let out = UdpSocket::bind((inner, 0)).with_context(|| format!("UDP of {inner}"))?;
            out.connect(to)?;
            Ok(out)
        })??;
        let (run, stop) = (traffic::next_run(), Arc::new(AtomicBool::new(false)));
        let arrived = Arc::new(AtomicU64::new(0));
        let receiver = {
            let (stop, arrived) = (stop.clone(), arrived.clone());
            std::thread::spawn(move || traffic::receive(&into, len, run, &stop, &arrived, &mut |_| ()))
        };
        let (_, told) = sync_channel(1);
        let begun = cpu::wall();
        let sent = traffic::send(&out, len, run, time, &Pace::Free, &told, &AtomicBool::new(false));
        let sending = begun.elapsed();
        if let Ok(sent) = &sent {
            traffic::drain(*sent, &arrived);
        }
        stop.store(true, Ordering::Relaxed);
        let received = receiver.join().map_err(|_| anyhow!("the receiver panicked"))??;
        let took = received.last.map_or(sending, |last| sending.max(last - begun)).as_secs_f64();
        ensure!(received.packets > 0, "of {} packets none arrived", sent?);
        // L2TP gives a call up whose questions are lost in a long stream: what arrived until then is no rate of it.
        let alive = self.device.run(move || ask(&connected((inner, ECHO).into())?, &[0; 8]))?;
        alive.context("the way is gone after the stream")?;
        let bits = received.packets as f64 * f64::from(bytes) * 8.0;
        Ok(Figures::default()
            .with("rate", bits / took)
            .with("sent", sent? as f64)
            .with("received", received.packets as f64))
    }
}

/// The configuration of the device's daemon, or of the gateway's.
fn daemon(way: Way, device: bool) -> String {
    let (role, own, peer) = if device {
        // Nothing but the way is here that a packet could take, and no packet filter in a small machine.
        let role = format!("role = \"client\"\ngateway = \"{GATEWAY}\"\nblock = \"off\"");
        (role, "device.test", "gateway.test")
    } else {
        ("role = \"gateway\"".to_owned(), "gateway.test", "*.test")
    };
    let secret = "secret = \"a shared secret of the laboratory\"";
    let child = match (way, device) {
        (Way::Ikev2, true) => "remote = [\"10.99.0.0/24\"]",
        (Way::Ikev2, false) => {
            "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]"
        }
        _ => "mode = \"transport\"",
    };
    // ESP itself, as in the paper; in UDP it would have 8 bytes more by either way.
    format!(
        "[connection.peer]\n{role}\n[connection.peer.local]\nid = \"{own}\"\n{secret}\n[connection.peer.remote]\nid = \"{peer}\"\n{secret}\n\
         [connection.peer.ike]\nesp_in_udp = \"nat\"\n[connection.peer.child]\nproposals = [\"{SUITE}\"]\n{child}\n"
    )
}

/// How xl2tpd begins a call, behind its `[global]` section.
fn caller() -> String {
    format!("[lac gateway]\nlns = {GATEWAY}\nrequire authentication = no\nlength bit = yes\n")
}

/// How it takes one.
fn answerer() -> String {
    format!(
        "[lns default]\nip range = 10.77.0.10-10.77.0.20\nlocal ip = {IN_L2TP}\nrequire authentication = no\nrefuse chap = yes\n\
         refuse pap = yes\nlength bit = yes\n"
    )
}

/// Where xl2tpd in a host takes orders.
fn control(host: &Host) -> PathBuf {
    host.dir().join("xl2tpd.control")
}

/// Starts xl2tpd, and waits until it takes orders.
fn xl2tpd(host: &Host, section: &str) -> Result<Process> {
    let file = |name: &str| host.dir().join(name).display().to_string();
    let [config, options, orders] =
        [file("xl2tpd.conf"), file("ppp.options"), control(host).display().to_string()];
    // Neither end proves who it is by PPP: IKE has done that.
    let ppp = [
        "noauth",
        "nodefaultroute",
        "mtu 1300",
        "mru 1300",
        "nodeflate",
        "nobsdcomp",
        "noccp",
        "noipv6",
        "debug",
    ];
    fs::write(&options, format!("{}\nlogfile {}\n", ppp.join("\n"), file("ppp.log")))?;
    let address = if host.name() == "device" { DEVICE } else { GATEWAY };
    // A long stream without restraint takes the place of L2TP's own questions: five lost ones, xl2tpd's default, must not end the call.
    let global = format!("listen-addr = {address}\nmax retries = 30");
    fs::write(&config, format!("[global]\n{global}\n{section}pppoptfile = {options}\n"))?;
    let arguments = ["-D", "-c", &config, "-s", "/dev/null", "-p", &file("xl2tpd.pid"), "-C", &orders];
    let mut process = host.spawn("xl2tpd", "xl2tpd", &arguments)?;
    let begun = cpu::wall();
    while !Path::new(&orders).exists() {
        let alive = begun.elapsed() < STUCK && process.ended().is_none();
        ensure!(alive, "xl2tpd does not come up: {}", process.log());
        std::thread::sleep(ASKS);
    }
    Ok(process)
}

/// A socket whose address follows from the way that leads to `to`.
fn connected(to: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to).with_context(|| format!("no way to {to}"))?;
    socket.set_read_timeout(Some(ANSWER))?;
    Ok(socket)
}

/// Sends a datagram, and waits for its echo.
fn ask(socket: &UdpSocket, payload: &[u8]) -> Result<()> {
    socket.send(payload)?;
    let mut answer = vec![0; payload.len() + 1];
    let n = socket.recv(&mut answer).context("a packet is lost")?;
    ensure!(answer.get(..n) == Some(payload), "another packet came back");
    Ok(())
}

/// Asks until an answer comes.
fn answered(to: SocketAddr) -> Result<()> {
    // Without a way there is no address to bind to: each packet takes what it finds.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(ASKS))?;
    let begun = cpu::wall();
    while begun.elapsed() < STUCK {
        if socket.send_to(&[0; 8], to).is_err() {
            std::thread::sleep(ASKS);
            continue;
        }
        let mut answer = [0; 16];
        if socket.recv_from(&mut answer).is_ok_and(|(n, from)| n == 8 && from.ip() == to.ip()) {
            return Ok(());
        }
    }
    bail!("no packet to {to} is answered")
}

/// Bytes that left by the cable of the host in which this thread is.
fn sent_bytes() -> Result<u64> {
    let all = fs::read_to_string("/proc/thread-self/net/dev")?;
    let counted = all.lines().find_map(|line| line.trim().strip_prefix(CABLE)?.strip_prefix(':'));
    // Eight columns are of what was received.
    let sent = counted.and_then(|line| line.split_whitespace().nth(8)?.parse().ok());
    sent.context("the kernel does not count what leaves by the cable")
}

/// Packets of IP's protocol 50 in a recording of Ethernet. Behind the file's 24 bytes a record has 16, the third four of which are its length, and
/// a frame: 14 bytes, then IP's header, whose tenth byte is the protocol.
fn esp_packets(pcap: &[u8]) -> usize {
    let (mut rest, mut found) = (pcap.get(24..).unwrap_or_default(), 0);
    while let Some((head, after)) = rest.split_first_chunk::<16>() {
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let Some((frame, next)) = after.split_at_checked(usize::try_from(length).unwrap_or(usize::MAX))
        else {
            break;
        };
        found += usize::from(frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&50));
        rest = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_esp_are_found_in_a_recording() {
        let record = |kind: [u8; 2], protocol: u8| {
            let mut frame = vec![0; 60];
            frame[12..14].copy_from_slice(&kind);
            frame[23] = protocol;
            let mut record = vec![0; 16];
            record[8..12].copy_from_slice(&60u32.to_le_bytes());
            [record, frame].concat()
        };
        let all = [record([8, 0], 50), record([8, 0], 17), record([8, 6], 50), record([8, 0], 50)].concat();
        let file = [vec![0; 24], all].concat();
        assert_eq!(esp_packets(&file), 2);
        assert_eq!(esp_packets(&file[..file.len() - 1]), 1, "the last one is cut off");
        assert_eq!(esp_packets(&[]), 0);
    }
}
