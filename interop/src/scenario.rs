//! A device and a gateway that authenticate each other in some way, one of them ours and the other strongSwan.
//!
//! Owns the two configurations of one scenario, so that they cannot drift apart.

use crate::strongswan::StrongSwan;
use anyhow::{Result, bail, ensure};
use dormouse_eap::NtHash;
use dormouse_testbed::{Access, Dormoused, EchoServer, GATEWAY, Key, Pki, Prober, Roaming, SERVER};
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SECRET: &str = "interop-secret-0123456789";
const ECHO_PORT: u16 = 7777;
/// The user of [`Auth::Password`], whose name is the device's, and what the device's first request says instead where it is strongSwan's.
pub const USER: &str = "device.test";
const PHONE: &str = "phone.test";
/// His password. strongSwan takes each byte for a character, so it is ASCII.
pub const PASSWORD: &str = "Correct horse, 17 staples";
/// Long enough for what a peer does by itself.
pub const SOON: Duration = Duration::from_secs(20);

/// How the two ends prove who they are.
#[derive(Clone, Copy, Debug)]
pub enum Auth {
    /// A pre-shared key.
    Psk,
    /// Certificates with keys of this kind.
    Certificates(Key),
    /// The gateway by a certificate with a key of this kind, the device by a user's password (EAP-MSCHAPv2).
    Password(Key),
    /// The same, where our gateway asks RADIUS servers, and strongSwan's method is this; the section `radius` of [`Scenario::ours`] says which servers.
    Radius(Key, &'static str),
    /// The gateway by a certificate with a key of this kind, the device by its own inside EAP (EAP-TLS).
    Tls(Key),
    /// The gateway by a certificate with a key of this kind, the device, which must be strongSwan, by a user's password inside TLS (EAP-TTLS).
    Ttls(Key),
}

/// What a test varies.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Authentication.
    pub auth: Auth,
    /// strongSwan wants the gateway to prove itself inside EAP alone (RFC 5998), or does so.
    pub eap_alone: bool,
    /// Algorithms of the IKE SA, in a notation that both programs read.
    pub ike: &'static str,
    /// What ours offers and takes instead, if it is to differ: proposals in the notation of TOML.
    pub our_ike: Option<&'static str>,
    /// Algorithms of the CHILD SA, likewise.
    pub esp: &'static str,
    /// Lines for our `[connection.peer.<section>]` tables: pairs of section and lines.
    pub ours: Vec<(&'static str, String)>,
    /// Lines for strongSwan's connection.
    pub theirs: String,
    /// Lines for strongSwan's child.
    pub their_child: String,
    /// Lines for strongSwan's `charon` section.
    pub their_settings: String,
    /// Lines for strongSwan's secrets.
    pub their_secrets: String,
    /// Where another strongSwan than the machine's is unpacked.
    pub root: Option<PathBuf>,
    /// Seconds after which the NAT of network B forgets.
    pub nat_timeout: u32,
    /// The gateway's outer address, as the initiator is told it.
    pub outer: &'static str,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            auth: Auth::Psk,
            eap_alone: false,
            ike: "aes128gcm16-prfsha256-x25519",
            our_ike: None,
            esp: "aes128gcm16",
            ours: Vec::new(),
            theirs: String::new(),
            their_child: String::new(),
            their_settings: String::new(),
            their_secrets: String::new(),
            root: None,
            nat_timeout: 60,
            outer: GATEWAY,
        }
    }
}

/// A scenario that runs.
pub struct Running {
    /// Our daemon.
    pub ours: Dormoused,
    /// The peer.
    pub theirs: StrongSwan,
    /// Behind the gateway.
    pub echo: EchoServer,
    prober: Prober,
    /// Where they stand. Last, so that it goes last.
    pub world: Roaming,
}

impl Scenario {
    /// Our daemon on the device, strongSwan as the gateway; nothing is connected yet.
    ///
    /// # Errors
    /// If one of them does not come up.
    pub fn device(&self, network: Access) -> Result<Running> {
        let world = Roaming::new(self.nat_timeout)?;
        world.attach(network)?;
        let pki = self.pki(&world)?;
        let local = self.their_auth("local", "gateway.test");
        let remote = self.their_auth("remote", "device.test");
        let conf = format!(
            "connections {{ peer {{\n version = 2\n proposals = {ike}\n pools = inner\n mobike = yes\n fragmentation = yes\n {extra}\n \
             {local}\n {remote}\n children {{ net {{\n local_ts = 10.99.0.0/24\n esp_proposals = {esp}\n {child}\n }} }}\n}} }}\n\
             pools {{ inner {{ addrs = 10.55.0.0/24\n dns = {SERVER} }} }}\nsecrets {{ ike-1 {{ secret = {SECRET} }} eap-1 {{ id = {USER}\n secret = \"{PASSWORD}\" }} {secrets} }}\n",
            secrets = self.their_secrets,
            ike = self.ike,
            esp = self.esp,
            extra = self.theirs,
            child = self.their_child,
        );
        let theirs = StrongSwan::start(
            &world.gateway,
            self.root.as_deref(),
            &conf,
            &self.their_files(pki.as_ref(), "gateway.test"),
            &self.their_settings,
        )?;
        let toml =
            self.toml("client", "device.test", "gateway.test", pki.as_ref(), "remote = [\"10.99.0.0/24\"]");
        let ours = Dormoused::start(&world.device, "dns = \"off\"", &toml)?;
        Self::running(world, ours, theirs)
    }

    /// strongSwan on the device, our daemon as the gateway; nothing is connected yet.
    ///
    /// # Errors
    /// If one of them does not come up.
    pub fn gateway(&self, network: Access) -> Result<Running> {
        let world = Roaming::new(self.nat_timeout)?;
        world.attach(network)?;
        let pki = self.pki(&world)?;
        let local = self.their_auth("local", "device.test");
        let remote = self.their_auth("remote", "gateway.test");
        let conf = format!(
            "connections {{ peer {{\n version = 2\n proposals = {ike}\n remote_addrs = {outer}\n vips = 0.0.0.0\n mobike = yes\n \
             fragmentation = yes\n {extra}\n {local}\n {remote}\n children {{ net {{\n remote_ts = 10.99.0.0/24\n esp_proposals = {esp}\n \
             {child}\n }} }}\n}} }}\nsecrets {{ ike-1 {{ secret = {SECRET} }} eap-1 {{ id = {USER}\n secret = \"{PASSWORD}\" }} {secrets} }}\n",
            outer = self.outer,
            secrets = self.their_secrets,
            ike = self.ike,
            esp = self.esp,
            extra = self.theirs,
            child = self.their_child,
        );
        let toml =
            self.toml(
                "gateway",
                "gateway.test",
                "device.test",
                pki.as_ref(),
                "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]",
            ) + &format!("[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]\ndns = [\"{SERVER}\"]\n");
        let ours = Dormoused::start(&world.gateway, "dns = \"off\"", &toml)?;
        let theirs = StrongSwan::start(
            &world.device,
            self.root.as_deref(),
            &conf,
            &self.their_files(pki.as_ref(), "device.test"),
            &self.their_settings,
        )?;
        Self::running(world, ours, theirs)
    }

    fn running(world: Roaming, ours: Dormoused, theirs: StrongSwan) -> Result<Running> {
        let server = SocketAddr::new(SERVER.parse()?, ECHO_PORT);
        let echo = EchoServer::start(&world.server, server)?;
        let prober = Prober::new(&world.device, server)?;
        Ok(Running { ours, theirs, echo, prober, world })
    }

    fn pki(&self, world: &Roaming) -> Result<Option<Pki>> {
        let (Auth::Certificates(key)
        | Auth::Password(key)
        | Auth::Radius(key, _)
        | Auth::Tls(key)
        | Auth::Ttls(key)) = self.auth
        else {
            return Ok(None);
        };
        let pki = Pki::new(&world.bed.dir().join("pki"), key)?;
        let hash = NtHash::of_password(PASSWORD).map(|hash| hash.to_hex()).unwrap_or_default();
        let users =
            format!("[\"ann@example.org\"]\nnt_hash = \"{:032x}\"\n[\"{USER}\"]\nnt_hash = \"{hash}\"\n", 7);
        for (name, content) in [("users.toml", users), ("password", format!("{PASSWORD}\n"))] {
            let path = pki.path(name);
            fs::write(&path, content)?;
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        }
        pki.issue("gateway.test", key)?;
        pki.issue("device.test", key)?;
        Ok(Some(pki))
    }

    fn toml(&self, role: &str, own: &str, peer: &str, pki: Option<&Pki>, child: &str) -> String {
        let mut toml = format!("[connection.peer]\nrole = \"{role}\"\n");
        if role == "client" {
            let _ = writeln!(toml, "gateway = \"{}\"", self.outer);
        }
        let by_password = matches!(self.auth, Auth::Password(_) | Auth::Radius(..));
        let (local, remote) = match pki {
            Some(pki) if by_password && role == "client" => (
                format!(
                    "auth = \"eap-mschapv2\"\nuser = \"{USER}\"\npassword_file = {:?}",
                    pki.path("password")
                ),
                format!("ca = [{:?}]", pki.path("ca.pem")),
            ),
            None => (format!("secret = \"{SECRET}\""), format!("secret = \"{SECRET}\"")),
            Some(pki) => (
                format!(
                    "certificate = {:?}\nkey = {:?}",
                    pki.path(&format!("{own}.pem")),
                    pki.path(&format!("{own}.key"))
                ),
                match self.auth {
                    Auth::Radius(..) => "auth = \"radius\"".to_owned(),
                    Auth::Password(_) => {
                        format!("auth = \"eap-mschapv2\"\nusers = {:?}", pki.path("users.toml"))
                    }
                    Auth::Ttls(_) => {
                        format!("auth = [\"eap-ttls\"]\nusers = {:?}", pki.path("users.toml"))
                    }
                    Auth::Tls(_) if role == "gateway" => {
                        format!(
                            "auth = [\"eap-mschapv2\", \"eap-tls\"]\nusers = {:?}\nca = [{:?}]",
                            pki.path("users.toml"),
                            pki.path("ca.pem")
                        )
                    }
                    _ => format!("ca = [{:?}]", pki.path("ca.pem")),
                },
            ),
        };
        let by_tls = matches!(self.auth, Auth::Tls(_)) && role == "client";
        let local = if by_tls { format!("auth = \"eap-tls\"\n{local}") } else { local };
        let section = |name: &str| -> String {
            self.ours.iter().filter(|(s, _)| *s == name).map(|(_, lines)| format!("{lines}\n")).collect()
        };
        let _ = write!(
            toml,
            "{}[connection.peer.local]\nid = \"{own}\"\n{local}\n{}[connection.peer.remote]\nid = \"{peer}\"\n{remote}\n{}\
             [connection.peer.ike]\nproposals = [{}]\n{}[connection.peer.child]\nproposals = [\"{}\"]\n{child}\n{}\
             [connection.peer.wake]\n{}\
             [connection.peer.ppk]\n{}",
            section("radius"),
            section("local"),
            section("remote"),
            self.our_ike.map_or_else(|| format!("{:?}", self.ike), str::to_owned),
            section("ike"),
            self.esp,
            section("child"),
            section("wake"),
            section("ppk"),
        );
        toml
    }

    fn their_auth(&self, side: &str, id: &str) -> String {
        let by_eap = match self.auth {
            Auth::Tls(_) => "eap-tls",
            Auth::Ttls(_) => "eap-ttls",
            Auth::Radius(_, method) => method,
            Auth::Psk | Auth::Certificates(_) | Auth::Password(_) => "eap-mschapv2",
        };
        match self.auth {
            Auth::Psk => format!("{side} {{ auth = psk\n id = {id} }}"),
            Auth::Certificates(_) if side == "local" => {
                format!("{side} {{ auth = pubkey\n id = {id}\n certs = {id}.pem }}")
            }
            Auth::Certificates(_) => format!("{side} {{ auth = pubkey\n id = {id} }}"),
            _ if id == "gateway.test" && side == "local" => {
                let auth = if self.eap_alone { by_eap } else { "pubkey" };
                format!("local {{ auth = {auth}\n id = {id}\n certs = {id}.pem }}")
            }
            _ if id == "gateway.test" => {
                let auth = if self.eap_alone { by_eap } else { "pubkey" };
                format!("remote {{ auth = {auth}\n id = {id} }}")
            }
            // The device goes by a name in its certificate.
            Auth::Tls(_) if side == "local" => {
                format!("local {{ auth = {by_eap}\n id = {id}\n certs = {id}.pem }}")
            }
            _ if side == "local" => format!("local {{ auth = {by_eap}\n id = {PHONE}\n eap_id = {USER} }}"),
            _ => format!("remote {{ auth = {by_eap}\n id = %any\n eap_id = %any }}"),
        }
    }

    fn their_files(&self, pki: Option<&Pki>, id: &str) -> Vec<(&'static str, PathBuf)> {
        pki.map(|pki| {
            vec![
                ("x509ca", pki.path("ca.pem")),
                ("x509", pki.path(&format!("{id}.pem"))),
                ("private", pki.path(&format!("{id}.key"))),
            ]
        })
        .unwrap_or_default()
    }
}

impl Running {
    /// Our device comes as this user, goes on with new keys and on another network, and leaves. It begins on network B.
    ///
    /// # Errors
    /// What does not hold, with the logs.
    pub fn joins_and_roams_as(&mut self, user: &str) -> Result<()> {
        self.up()?;
        self.data_flows()?;
        let sas = self.theirs.sas()?;
        ensure!(sas.contains(user), "{sas}");
        self.ours.ok(&["rekey", "peer"])?;
        self.theirs.wait_log("rekeyed between", SOON)?;
        self.world.attach(Access::A)?;
        self.world.detach(Access::B)?;
        self.data_flows()?;
        self.ours.ok(&["down", "peer"]).map(drop)
    }

    /// Connects from our side.
    ///
    /// # Errors
    /// With both logs.
    pub fn up(&self) -> Result<()> {
        self.ours.ok(&["up", "peer"]).map(drop).map_err(|e| e.context(self.theirs.log_tail()))
    }

    /// Connects from strongSwan's side.
    ///
    /// # Errors
    /// With both logs.
    pub fn initiate(&self) -> Result<()> {
        self.theirs.ctl(&["--initiate", "--child", "net"]).map(drop).map_err(|e| e.context(self.ours.log()))
    }

    /// Data flows both ways now: a burst of probes from the device to the server behind the gateway, none of them lost once
    /// the first has passed.
    ///
    /// # Errors
    /// With both logs, if nothing passes within ten seconds or probes are lost.
    pub fn data_flows(&mut self) -> Result<()> {
        let mut burst = |count, limit| {
            self.prober.burst(
                &self.echo,
                Instant::now(),
                Duration::from_millis(10),
                count,
                Duration::from_secs(limit),
            )
        };
        if burst(1, 10)?.first_echo.is_none() {
            bail!("no packet passes; ours:\n{}\ntheirs:\n{}", self.ours.log(), self.theirs.log_tail());
        }
        let steady = burst(20, 10)?;
        if steady.lost > 0 {
            bail!(
                "{} of {} packets were lost; ours:\n{}\ntheirs:\n{}",
                steady.lost,
                steady.sent,
                self.ours.log(),
                self.theirs.log_tail()
            );
        }
        Ok(())
    }

    /// Nothing passes.
    ///
    /// # Errors
    /// If something does.
    pub fn data_stops(&mut self) -> Result<()> {
        let burst = self.prober.burst(
            &self.echo,
            Instant::now(),
            Duration::from_millis(20),
            1,
            Duration::from_millis(500),
        )?;
        if burst.first_echo.is_some() {
            bail!("data still flows");
        }
        Ok(())
    }
}
