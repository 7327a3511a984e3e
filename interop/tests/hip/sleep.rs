//! A device with nothing but HIP whose radio sleeps: its peer hears of it, keeps what comes for it, and hands it over when the device is back,
//! at another address if it must be; the packet that wakes the radio is not lost, and one association is enough for all of it.

use super::{NEEDS, Pair, end, keygen, of, start};
use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::PATIENCE;
use dormouse_testbed::{Access, Dormoused, GATEWAY, Roaming, require};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const PORT: u16 = 9999;

/// A device whose radio goes off after half a second of silence, and a server that knows it.
fn pair() -> Result<Pair> {
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let hits = [keygen(&world.device, "ecdsa-p256")?, keygen(&world.gateway, "ecdsa-p256")?];
    let server = start(&world.gateway, &end(&world.gateway, "", &[(&hits[0], "device", &[])]))?;
    let sleep = "[sleep]\nmode = \"energy\"\npolicy = 0.5\nradio = \"link\"\ninterface = \"wlan0\"\n";
    let device = end(&world.device, "", &[(&hits[1], "server", &[GATEWAY])]);
    let device = start(&world.device, &(sleep.to_owned() + &device))?;
    Ok(Pair { device, server, hits, world })
}

impl Pair {
    /// Waits until the status of a daemon has this value there.
    fn until(&self, daemon: &Dormoused, pointer: &str, wanted: impl Into<Value>) -> Result<()> {
        let (end, wanted) = (Instant::now() + PATIENCE, wanted.into());
        loop {
            let found = of(daemon, pointer)?;
            if found == wanted {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{pointer}: {found}, not {wanted}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn asleep(&self) -> Result<()> {
        self.until(&self.device, "sleep/state", "asleep")?;
        ensure!(
            self.world.device.sh("ip -o link show wlan0 | grep -q '[<,]UP[,>]'").is_err(),
            "the radio is on"
        );
        self.until(&self.server, "hip/peers/0/asleep", true)
    }
}

/// A socket of UDP in a host, at its HIT.
fn socket(host: &dormouse_testbed::Host, hit: &str, port: u16) -> Result<UdpSocket> {
    let address = SocketAddr::new(hit.parse::<IpAddr>()?, port);
    let socket = host.run(move || UdpSocket::bind(address))??;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

#[test]
fn a_device_sleeps_and_what_came_for_it_is_there_when_it_wakes() -> Result<()> {
    if !require("HIP and a radio that sleeps", &NEEDS) {
        return Ok(());
    }
    let pair = pair()?;
    let [of_device, of_server] = [0, 1].map(|n| pair.hits[n].clone());
    let device = &pair.world.device;
    let (inbox, outbox) = (socket(device, &of_device, PORT)?, socket(&pair.world.gateway, &of_server, PORT)?);
    let to_device = SocketAddr::new(of_device.parse()?, PORT);
    device.sh(&format!("ping -c 1 -W 5 {of_server}")).with_context(|| pair.logs())?;
    for (address, rung) in [("10.1.0.2", "held"), ("10.1.0.3", "mobike")] {
        pair.asleep()?;
        assert_eq!(of(&pair.device, "deadlines")?, Value::Array(vec![]), "nothing wakes it but a packet");
        for n in 0..3_u8 {
            outbox.send_to(&[n], to_device)?;
        }
        pair.until(&pair.server, "hip/peers/0/stand_in/asleep/packets", 3)?;
        assert!(pair.server.ok(&["hip", "status"])?.text.contains("3 packets wait"));
        if rung == "mobike" {
            device.ip("addr del 10.1.0.2/24 dev wlan0")?;
            device.ip(&format!("addr add {address}/24 dev wlan0"))?;
        }
        let said = device.sh(&format!("ping -c 1 -W 20 {of_server}")).with_context(|| pair.logs())?;
        assert!(said.contains("1 received"), "{said}");
        let mut byte = [0];
        let came: Vec<u8> =
            (0..3).map(|_| inbox.recv(&mut byte).map(|_| byte[0])).collect::<Result<_, _>>()?;
        assert_eq!(came, [0, 1, 2], "{}", pair.logs());
        let last = of(&pair.device, "sleep/wakes/0")?;
        assert_eq!((&last["cause"], &last["rung"]), (&"traffic".into(), &rung.into()), "{last}");
        assert!(pair.peer()?.to_string().contains(address));
    }
    let stats = pair.server.ok(&["stats", "--json"])?.json;
    assert_eq!(stats.pointer("/result/stats/counters/hip.established"), Some(&1.into()));
    Ok(())
}

/// The server has started again while the device slept: the packet that wakes the radio goes through another association.
#[test]
fn a_peer_that_forgot_a_sleeping_device_gets_its_packet_all_the_same() -> Result<()> {
    if !require("HIP, a radio that sleeps, and a crash", &NEEDS) {
        return Ok(());
    }
    let mut pair = pair()?;
    let server = pair.hits[1].clone();
    pair.world.device.sh(&format!("ping -c 1 -W 5 {server}")).with_context(|| pair.logs())?;
    pair.asleep()?;
    pair.server.process().kill();
    pair.server.restart()?;
    let said = pair.world.device.sh(&format!("ping -c 1 -W 30 {server}")).with_context(|| pair.logs())?;
    assert!(said.contains("1 received"), "{said}\n{}", pair.logs());
    // A user puts the machine to sleep, and takes it back.
    pair.device.ok(&["suspend"])?;
    pair.until(&pair.server, "hip/peers/0/asleep", true)?;
    pair.device.ok(&["resume"])?;
    pair.until(&pair.server, "hip/peers/0/asleep", false)?;
    let status = pair.device.ok(&["status"])?.text;
    assert!(status.contains("energy"), "{status}");
    Ok(())
}
