//! Revoked certificates, with `openssl` as the authority and its OCSP responder: who gets in, and which session ends.

use anyhow::Result;
use dormouse_interop::ends::{PATIENCE, rung};
use dormouse_testbed::{Access, Dormoused, GATEWAY, Host, Need, Process, Roaming, SERVER, require};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// An authority whose every word is written by `openssl`, in one directory: `ca.pem`, `NAME.pem`, `NAME.key`, `ca.crl`.
struct Pki(PathBuf);

impl Pki {
    fn new(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let pki = Self(dir.into());
        pki.key("ca")?;
        let extensions =
            "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign";
        pki.openssl(&format!("req -x509 -new -key ca.key -subj /CN=CA -days 30 -out ca.pem {extensions}"))?;
        Ok(pki)
    }

    fn key(&self, name: &str) -> Result<()> {
        self.openssl(&format!("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out {name}.key"))?;
        let owner = PermissionsExt::from_mode(0o600);
        Ok(std::fs::set_permissions(self.path(&format!("{name}.key")), owner)?)
    }

    /// Issues a certificate for a DNS name, with these extensions.
    fn issue(&self, name: &str, extensions: &str) -> Result<()> {
        self.key(name)?;
        let lines = format!("subjectAltName=DNS:{name}\n{extensions}\n");
        std::fs::write(self.path(&format!("{name}.ext")), lines)?;
        self.openssl(&format!("req -new -key {name}.key -subj /CN={name} -out {name}.csr"))?;
        let by = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 30";
        self.openssl(&format!("x509 -req -in {name}.csr {by} -extfile {name}.ext -out {name}.pem"))?;
        Ok(())
    }

    /// Writes `ca.crl`, good for a day, and `index.txt` for an OCSP responder, which know all that was issued and these as revoked.
    fn revoke(&self, revoked: &[&str]) -> Result<()> {
        let mut index = String::new();
        for entry in std::fs::read_dir(&self.0)?.flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let Some(name) = file.strip_suffix(".csr") else { continue };
            let serial = self.openssl(&format!("x509 -noout -serial -in {name}.pem"))?;
            let serial = serial.trim().trim_start_matches("serial=");
            let is_revoked = revoked.contains(&name);
            let state = if is_revoked { "R\t400101000000Z\t250101000000Z" } else { "V\t400101000000Z\t" };
            index.push_str(&format!("{state}\t{serial}\tunknown\t/CN={name}\n"));
        }
        std::fs::write(self.path("index.txt"), index)?;
        let config =
            "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\ndefault_md=sha256\ndefault_crl_days=1\n";
        std::fs::write(self.path("ca.cnf"), config)?;
        self.openssl("ca -config ca.cnf -gencrl -keyfile ca.key -cert ca.pem -out new.pem")?;
        self.openssl("crl -in new.pem -outform DER -out new.crl")?;
        // In one step: a server may be reading it.
        Ok(std::fs::rename(self.path("new.crl"), self.path("ca.crl"))?)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    fn openssl(&self, line: &str) -> Result<String> {
        let out = Command::new("openssl").args(line.split(' ')).current_dir(&self.0).output()?;
        anyhow::ensure!(out.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

struct Ends {
    pki: Pki,
    gateway: Dormoused,
    device: Dormoused,
}

impl Ends {
    /// Both ends, with certificates that say where their status is found (`place`); `remote`: what the gateway makes of it.
    fn start(world: &Roaming, place: &str, remote: &str) -> Result<Self> {
        let pki = Pki::new(&world.bed.dir().join("ca"))?;
        pki.issue("gateway.test", "keyUsage=critical,digitalSignature")?;
        pki.issue("device.test", &format!("keyUsage=critical,digitalSignature\n{place}"))?;
        pki.issue("responder.test", "extendedKeyUsage=OCSPSigning")?;
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

    fn crash(&mut self) {
        self.device.process().kill();
        self.gateway.process().kill();
    }

    fn restart(&mut self) -> Result<()> {
        self.gateway.restart()?;
        self.device.restart()
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
    ends.gateway.process().wait_for("a certificate was revoked", PATIENCE)?;
    ends.refused("is revoked")
}

/// The gateway has no session of it any more, and the store has the ticket's lineage: only what is known of certificates stands against it.
#[test]
fn a_ticket_of_a_revoked_certificate_is_refused() -> Result<()> {
    if !require("revocation of a ticket", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let mut ends = Ends::start(&world, "", "revocation = \"soft\"\ncrl = [\"CRL\"]")?;
    ends.up()?;
    ends.crash();
    ends.restart()?;
    ends.up()?;
    assert_eq!(rung(&ends.device)?, "ticket", "{}\n{}", ends.device.log(), ends.gateway.log());
    ends.crash();
    ends.pki.revoke(&["device.test"])?;
    ends.restart()?;
    ends.refused("ticket not accepted: the peer's certificate, or one of its issuers', is revoked")
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
