//! A gateway's name asked for outside of the tunnel, while what other programs ask is held. Owns one question of two types; the answer is
//! only where to look for the gateway, which proves who it is.
//!
//! The system's resolver cannot be used for it: its packets are those of every other program. These carry the daemon's mark, and go to the
//! name servers that the machine has without the tunnel.

use dormouse_io::entropy::OsEntropy;
use dormouse_io::netlink::{MARK, set_mark};
use dormouse_io::resolver::file::ResolvConf;
use dormouse_sansio::Entropy as _;
use dormouse_wire::dns::{A, AAAA, Header, IN, Message, Name, Question, RECURSION_DESIRED, Section};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

/// The system's list, and the one in which systemd-resolved keeps the servers behind its own address.
const LISTS: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];
/// A server that does not answer within this time is asked again, then the next one.
const PATIENCE: Duration = Duration::from_secs(2);
const ROUNDS: usize = 2;
/// Longest answer over UDP without EDNS (RFC 1035 section 4.2.1), with room for servers that do not care.
const ANSWER: usize = 4096;

/// The addresses of `name`, IPv6 first, as the system's resolver prefers them. Blocks for some seconds.
///
/// # Errors
/// In words: no server, or what the last one said.
pub(crate) fn look_up(name: &str) -> Result<Vec<IpAddr>, String> {
    let name = Name::from_labels(name.trim_end_matches('.').split('.')).map_err(|e| e.to_string())?;
    let lists = LISTS.iter().filter_map(|l| ResolvConf::new(Path::new(l)).servers_outside().ok()).flatten();
    let mut servers: Vec<IpAddr> = lists.filter(|s| !s.is_loopback()).collect();
    servers.dedup();
    let mut why = "no name server is known outside of the tunnel".to_owned();
    for server in servers.iter().flat_map(|s| [*s; ROUNDS]) {
        match ask(&name, SocketAddr::new(server, 53)) {
            Ok(addresses) if !addresses.is_empty() => return Ok(addresses),
            Ok(_) => why = format!("{server}: the name has no address"),
            Err(e) => why = format!("{server}: {e}"),
        }
    }
    Err(why)
}

fn ask(name: &Name, server: SocketAddr) -> std::io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for kind in [AAAA, A] {
        let any: IpAddr =
            if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        // A port of its own for each question: with the number, that is what a stranger has to guess.
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        set_mark(&socket, MARK)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect(server)?;
        let mut id = [0; 2];
        OsEntropy.fill(&mut id);
        let id = u16::from_be_bytes(id);
        let question = Question { name: name.clone(), kind, class: IN };
        let mut bytes = Vec::new();
        Header { id, flags: RECURSION_DESIRED, questions: 1, ..Header::default() }.emit(&mut bytes);
        question.emit(&mut bytes);
        socket.send(&bytes)?;
        let mut buffer = [0; ANSWER];
        let length = socket.recv(&mut buffer)?;
        let fits = |m: &Message| {
            let same = |q: &Question| q.name.matches(name) && q.kind == kind;
            m.header.id == id && m.header.is_response() && m.questions.iter().all(same)
        };
        let answer = Message::parse(buffer.get(..length).unwrap_or_default()).ok().filter(fits);
        addresses.extend(answer.iter().flat_map(|m| found(m, kind)));
    }
    Ok(addresses)
}

/// The addresses in an answer, also those of a name that this one is another name of.
fn found(message: &Message, kind: u16) -> Vec<IpAddr> {
    let records = message.section(Section::Answer).filter(|r| r.kind == kind && r.class == IN);
    let address = |data: &[u8]| match kind {
        A => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
    };
    records.filter_map(|r| address(&r.data)).collect()
}
