//! What a machine is, as far as the set-up of a gateway asks: its name, its networks, its name servers, and whether these answer. Owns the
//! looking; decides nothing.

use dormouse_io::netlink::{MAIN, Netlink};
use ipnet::IpNet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

/// How long a name server may take, twice.
const PATIENCE: Duration = Duration::from_millis(1500);

/// What is there.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    /// The host's name, if it is a whole one.
    pub(super) name: Option<String>,
    /// The addresses by which it is in the world, one a family.
    pub(super) outer: Vec<IpAddr>,
    /// Networks that it is in or has routes to, but for default routes.
    pub(super) networks: Vec<IpNet>,
    /// Name servers that others can ask too.
    pub(super) name_servers: Vec<IpAddr>,
}

impl Surroundings {
    /// Looks around. What cannot be seen is left out.
    pub(super) fn look() -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = Some(name.trim().to_ascii_lowercase()).filter(|name| name.contains('.'));
        let (mut outer, mut networks) = (Vec::new(), Vec::new());
        if let Ok(mut netlink) = Netlink::new() {
            // No datagram is sent: where one would leave from.
            for far in [IpAddr::from([192, 0, 2, 1]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])] {
                outer.extend(netlink.route_to(far, 0).ok().flatten().map(|found| found.source));
            }
            let routes = netlink.routes().unwrap_or_default().into_iter().filter(|r| r.table == MAIN);
            networks.extend(routes.map(|r| r.destination).filter(|net| net.prefix_len() > 0));
            networks.extend(netlink.addresses().unwrap_or_default().iter().map(|a| a.net.trunc()));
        }
        Self { name, outer, networks, name_servers: name_servers(Path::new("/")) }
    }

    /// Whether the machine is in the world by this family.
    pub(super) fn has(&self, v4: bool) -> bool {
        self.outer.iter().any(|a| a.is_ipv4() == v4)
    }
}

/// The name servers of this machine that are not itself: of systemd-resolved, where `/etc/resolv.conf` only names that.
fn name_servers(root: &Path) -> Vec<IpAddr> {
    let of = |file: &str| {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
        let all = lines.filter_map(|word| word.trim().parse::<IpAddr>().ok());
        // An address with a scope means one link of this machine, and is not read above.
        let far = |a: &IpAddr| {
            let link_local = matches!(a, IpAddr::V6(a) if a.is_unicast_link_local());
            !a.is_loopback() && !a.is_unspecified() && !link_local
        };
        all.filter(far).collect::<Vec<_>>()
    };
    let mut found = of("etc/resolv.conf");
    if found.is_empty() {
        found = of("run/systemd/resolve/resolv.conf");
    }
    let mut seen = Vec::new();
    found.retain(|a| {
        !seen.contains(a) && {
            seen.push(*a);
            true
        }
    });
    found
}

/// Asks a name server for the addresses of `name`, twice at most.
///
/// # Errors
/// Why it is of no use, in words.
pub(super) fn ask(server: IpAddr, name: &str) -> Result<(), String> {
    ask_at(SocketAddr::new(server, 53), name)
}

fn ask_at(server: SocketAddr, name: &str) -> Result<(), String> {
    let query = question(name);
    let once = || -> io::Result<u8> {
        let any: IpAddr = if server.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        // Only the server's own answers come through.
        socket.connect(server)?;
        socket.send(&query)?;
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer)?;
        match answer.get(..length) {
            Some([a, b, c, d, ..]) if query.starts_with(&[*a, *b]) && c & 0x80 != 0 => Ok(d & 0x0f),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    };
    match once().or_else(|_| once()) {
        // No error, or no such name.
        Ok(0 | 3) => Ok(()),
        Ok(code) => Err(format!("answers with error {code}")),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Err("does not answer".into())
        }
        Err(e) => Err(format!("does not answer ({e})")),
    }
}

/// A question for the IPv4 addresses of a name (RFC 1035, section 4.1).
fn question(name: &str) -> Vec<u8> {
    let id = std::process::id().to_be_bytes();
    let mut out = vec![id[2], id[3], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| (1..=63).contains(&label.len())) {
        out.push(u8::try_from(label.len()).unwrap_or(0));
        out.extend_from_slice(label.as_bytes());
    }
    out.extend_from_slice(&[0, 0, 1, 0, 1]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_only_this_machine_reaches_are_left_out() {
        let root = std::env::temp_dir().join(format!("dormouse-resolv-{}", std::process::id()));
        for (file, text) in [
            ("etc/resolv.conf", "# stub\nnameserver 127.0.0.53\noptions edns0\n"),
            (
                "run/systemd/resolve/resolv.conf",
                "nameserver 192.0.2.53\nnameserver fe80::1%eth0\nnameserver fe80::1\nnameserver 192.0.2.53\nnameserver 2001:db8::53\n",
            ),
        ] {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), text).unwrap();
        }
        let expected: Vec<IpAddr> = vec!["192.0.2.53".parse().unwrap(), "2001:db8::53".parse().unwrap()];
        assert_eq!(name_servers(&root), expected);
        std::fs::write(root.join("etc/resolv.conf"), "nameserver 198.51.100.53\n").unwrap();
        assert_eq!(name_servers(&root), ["198.51.100.53".parse::<IpAddr>().unwrap()]);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(name_servers(&root), Vec::<IpAddr>::new());
    }

    #[test]
    fn a_name_server_that_answers_is_told_from_one_that_refuses_or_is_silent() {
        for (code, expected) in [
            (Some(0), Ok(())),
            (Some(3), Ok(())),
            (Some(5), Err("answers with error 5")),
            (None, Err("does not answer")),
        ] {
            let server = UdpSocket::bind("127.0.0.1:0").unwrap();
            let address = server.local_addr().unwrap();
            let serving = std::thread::spawn(move || {
                let mut asked = [0; 512];
                for _ in 0..1 + usize::from(code.is_none()) {
                    let (length, from) = server.recv_from(&mut asked).unwrap();
                    assert!(asked[..length].ends_with(b"\x03vpn\x07example\x03org\0\0\x01\0\x01"));
                    let Some(code) = code else { continue };
                    (asked[2], asked[3]) = (0x81, code);
                    server.send_to(&asked[..length], from).unwrap();
                }
            });
            assert_eq!(ask_at(address, "vpn.example.org"), expected.map_err(str::to_owned));
            serving.join().unwrap();
        }
    }
}
