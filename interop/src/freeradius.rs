//! Debian's FreeRADIUS as a server with users of its own. Owns its configuration, which is all in one file, and its process.

use anyhow::{Result, bail};
use dormouse_testbed::{Host, Need, Process};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What the tests with this server need of the machine.
pub const NEEDS: [Need; 4] = [
    Need::Root,
    Need::Program("freeradius"),
    Need::File("/usr/lib/freeradius/rlm_eap_mschapv2.so"),
    Need::File("/dev/net/tun"),
];

/// A running server.
#[derive(Debug)]
pub struct FreeRadius {
    process: Process,
    dir: PathBuf,
}

impl FreeRadius {
    /// Starts one in `host`, with its files in a directory of this name, that listens at this address on ports 1812 and 1813. `users`: lines of its file of users.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start(host: &Host, name: &str, address: &str, secret: &str, users: &str) -> Result<Self> {
        Self::start_with(host, name, address, secret, users, "default_eap_type = mschapv2\n mschapv2 {\n }")
    }

    /// The same for users with certificates (EAP-TLS), or with passwords inside TLS (EAP-TTLS). `files`: certificates of authorities, its own certificate and the key of that.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_tls(
        host: &Host,
        name: &str,
        address: &str,
        secret: &str,
        users: &str,
        files: &[PathBuf; 3],
    ) -> Result<Self> {
        let [ca, certificate, key] = files.each_ref().map(|path| path.display());
        // Small fragments: what it says takes several of its packets, and each of these several attributes.
        let eap = format!(
            "default_eap_type = tls\n tls-config files {{\n ca_file = {ca}\n certificate_file = {certificate}\n private_key_file = {key}\n\
             fragment_size = 500\n tls_min_version = \"1.2\"\n tls_max_version = \"1.2\"\n }}\n tls {{\n tls = files\n }}\n\
             ttls {{\n tls = files\n default_eap_type = mschapv2\n virtual_server = default\n }}\n mschapv2 {{\n }}"
        );
        Self::start_with(host, name, address, secret, users, &eap)
    }

    fn start_with(
        host: &Host,
        name: &str,
        address: &str,
        secret: &str,
        users: &str,
        eap: &str,
    ) -> Result<Self> {
        let dir = host.dir().join(name);
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, Permissions::from_mode(0o700))?;
        let at = dir.display();
        let listen = |kind: &str, port: u16| {
            format!("listen {{\n type = {kind}\n ipaddr = {address}\n port = {port}\n}}\n")
        };
        let conf = format!(
            "prefix = /usr\nconfdir = {at}\nlogdir = {at}\nrun_dir = {at}\nlibdir = /usr/lib/freeradius\nname = radius\n\
             security {{\n allow_vulnerable_openssl = yes\n status_server = yes\n}}\n\
             client gateway {{\n ipaddr = 0.0.0.0/0\n secret = \"{secret}\"\n require_message_authenticator = yes\n}}\n\
             modules {{\n files {{\n filename = {at}/users\n }}\n mschap {{\n use_mppe = yes\n }}\n\
             eap {{\n {eap}\n }}\n detail {{\n filename = {at}/accounting\n }}\n}}\n\
             server default {{\n{auth}{acct}authorize {{\n files\n eap\n}}\n\
             authenticate {{\n Auth-Type MS-CHAP {{\n mschap\n }}\n eap\n}}\naccounting {{\n detail\n}}\n}}\n",
            auth = listen("auth", 1812),
            acct = listen("acct", 1813),
        );
        fs::write(dir.join("radiusd.conf"), conf)?;
        fs::write(dir.join("users"), users)?;
        let path = dir.display().to_string();
        let process = host.spawn(name, "freeradius", &["-f", "-X", "-l", "stdout", "-d", &path])?;
        let mut server = Self { process, dir };
        let until = Instant::now() + Duration::from_secs(15);
        while !server.log().contains("Ready to process requests") {
            if server.process.ended().is_some() || Instant::now() > until {
                bail!("FreeRADIUS did not start: {}", server.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// What it was told of sessions: records with a line for each attribute.
    #[must_use]
    pub fn accounting(&self) -> String {
        fs::read_to_string(self.dir.join("accounting")).unwrap_or_default()
    }

    /// Waits until what it was told fits.
    ///
    /// # Errors
    /// If it never does.
    pub fn wait_accounting(&self, what: &str, fits: impl Fn(&str) -> bool) -> Result<String> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let told = self.accounting();
            if fits(&told) {
                return Ok(told);
            }
            if Instant::now() > until {
                bail!("not in time: {what}\n{told}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
