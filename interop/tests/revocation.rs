//! Revoked certificates, with `openssl` as the authority and its OCSP responder: who gets in, and which session ends.

use anyhow::Result;
use dormouse_interop::ends::PATIENCE;
use dormouse_testbed::{Access, Dormoused, GATEWAY, Host, Key, Need, Pki, Process, Roaming, SERVER, require};
use nix::sys::signal::Signal;
use std::path::Path;

const NEEDS: [Need; 4] =
    [Need::Root, Need::File("/dev/net/tun"), Need::Program("openssl"), Need::Program("python3")];
const AUTHENTICATION: i32 = 4;

/// The configuration of an end: `remote` has more about the peer, `rest` what is tunnelled.
fn end(pki: &Pki, role: &str, own: &str, peer: &str, remote: &str, rest: &str) -> String {
    let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
    format!(
        "[connection.peer]\nrole = \"{role}\"\n{gateway}\n[connection.peer.local]\nid = \"{own}\"\ncertificate = {:?}\nkey = {:?}\n\
         [connection.peer.remote]\nid = \"{peer}\"\nca = [{:?}]\n{remote}\n[connection.peer.child]\n{rest}\n",
        pki.path(&format!("{own}.pem")),
        pki.path(&format!("{own}.key")),
        pki.path("ca.pem"),
    )
}

struct Ends {
    pki: Pki,
    gateway: Dormoused,
    device: Dormoused,
}

impl Ends {
    /// Both ends, with certificates that say where their status is found (`place`); `remote`: what the gateway makes of it.
    fn start(world: &Roaming, place: &str, remote: &str) -> Result<Self> {
        let pki = Pki::new(&world.bed.dir().join("ca"), Key::P256)?;
        let extensions = format!("keyUsage=critical,digitalSignature\n{place}");
        pki.issue("gateway.test", Key::P256)?;
        pki.issue_with("device.test", Key::P256, &extensions)?;
        pki.issue_with("responder.test", Key::P256, "extendedKeyUsage=OCSPSigning")?;
        pki.revoke(&[])?;
        let remote = remote.replace("CRL", &pki.path("ca.crl").display().to_string());
        let local = "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]";
        let gateway = end(&pki, "gateway", "gateway.test", "*.test", &remote, local);
        let device = end(&pki, "client", "device.test", "gateway.test", "", "remote = [\"10.99.0.0/24\"]");
        let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
        let device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
        Ok(Self { pki, gateway, device })
    }

    fn up(&self) -> Result<()> {
        self.device.ok(&["up", "peer"]).map(|_| ()).map_err(|e| e.context(self.gateway.log()))
    }

    fn down(&self) -> Result<()> {
        self.device.ok(&["down", "peer"]).map(|_| ())
    }

    /// The device is refused, and the gateway's log says why.
    fn refused(&mut self, why: &str) -> Result<()> {
        let answer = self.device.cli(&["up", "peer"])?;
        assert_eq!(answer.code, AUTHENTICATION, "{}", self.gateway.log());
        self.gateway.process().wait_for(why, PATIENCE)?;
        self.down()
    }
}

fn web(host: &Host, dir: &Path) -> Result<Process> {
    let dir = dir.display().to_string();
    let args = ["-u", "-m", "http.server", "--bind", SERVER, "--directory", &dir, "8080"];
    let mut server = host.spawn("web", "python3", &args)?;
    server.wait_for("Serving HTTP", PATIENCE)?;
    Ok(server)
}

#[test]
fn by_a_distribution_point_strict_wants_a_list_and_what_it_said_outlives_the_daemon() -> Result<()> {
    if !require("revocation by HTTP", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let place = format!("crlDistributionPoints=URI:http://{SERVER}:8080/ca.crl");
    let mut ends = Ends::start(&world, &place, "revocation = \"strict\"")?;
    ends.refused("is not known")?;
    // A daemon that begins anew asks anew.
    ends.gateway.restart()?;
    let server = web(&world.server, &ends.pki.path(""))?;
    ends.up()?;
    ends.down()?;
    drop(server);
    ends.gateway.restart()?;
    ends.up()?;
    assert!(ends.gateway.ok(&["status", "--json"])?.json.is_object());
    Ok(())
}

#[test]
fn a_list_that_is_read_again_ends_the_session_of_who_stands_in_it() -> Result<()> {
    if !require("revocation by a file", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let mut ends = Ends::start(&world, "", "revocation = \"soft\"\ncrl = [\"CRL\"]")?;
    ends.up()?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    ends.pki.revoke(&["device.test"])?;
    ends.gateway.process().signal(Signal::SIGHUP);
    ends.gateway.process().wait_for("its peer is no longer admitted", PATIENCE)?;
    ends.refused("is revoked")
}

#[test]
fn by_an_ocsp_responder_that_the_authority_has_appointed() -> Result<()> {
    if !require("revocation by OCSP", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let place = format!("authorityInfoAccess=OCSP;URI:http://{SERVER}:2560/");
    let mut ends = Ends::start(&world, &place, "revocation = \"strict\"")?;
    let responder = |ends: &Ends| -> Result<Process> {
        let line = format!(
            "cd {} && exec openssl ocsp -port 2560 -index index.txt -CA ca.pem -rsigner responder.test.pem -rkey responder.test.key -ndays 1",
            ends.pki.path("").display()
        );
        let mut process = world.server.spawn("ocsp", "sh", &["-c", &line])?;
        process.wait_for("waiting for OCSP client connections", PATIENCE)?;
        Ok(process)
    };
    let good = responder(&ends)?;
    ends.up()?;
    ends.down()?;
    drop(good);
    ends.pki.revoke(&["device.test"])?;
    ends.gateway.restart()?;
    let _bad = responder(&ends)?;
    ends.refused("is revoked")
}
