//! What a configuration cannot mean, though each value has the right type: numbers that nothing works with, and keys that contradict
//! each other. Owns these bounds; must never read a file or another module's state.

use super::file::{
    Audit, Child, Connection, Daemon, EspInUdp, Forward, Mode, Request, ResumptionMode, Role, Selector,
};
use super::resolve::ConfigError;

/// Smallest MTU of the tunnel interface, in bytes: every IPv4 host takes datagrams of this size (RFC 1122 section 3.3.2).
const MTU_LEAST: u16 = 576;
/// A rung of the ladder that is given less than this cannot hear an answer, in milliseconds.
const RUNG_LEAST: u32 = 100;
/// A request that is sent again sooner than this has had no time for its answer, in milliseconds.
const RETRANSMIT_LEAST: u32 = 50;
/// Zero bits of a puzzle beyond which no client waits for its solution: 64 million calls of a PRF.
pub(super) const PUZZLE_MOST: u8 = 24;
/// The name of a connection's first CHILD SA.
pub(super) const FIRST_CHILD: &str = "net";
/// Keys for fewer bytes than this are changed more often than they are used.
const REKEY_BYTES_LEAST: u64 = 1 << 20;

/// The daemon itself.
///
/// # Errors
/// The first thing that cannot be meant.
pub(super) fn daemon(d: &Daemon) -> Result<(), ConfigError> {
    if !dormouse_sansio::fit_interface(&d.interface) {
        let problem =
            format!("\"{}\" is no name of an interface: 1 to 15 of a-z A-Z 0-9 - _ . @", d.interface);
        return Err(ConfigError::new("daemon.interface", problem));
    }
    if d.mtu != 0 && d.mtu < MTU_LEAST {
        let problem = format!("{} is too small; {MTU_LEAST} is the least, 0 chooses", d.mtu);
        return Err(ConfigError::new("daemon.mtu", problem));
    }
    for (key, port) in [("daemon.ike_port", d.ike_port), ("daemon.nat_t_port", d.nat_t_port)] {
        if port == 0 {
            return Err(ConfigError::new(key, "0 is no port; leave the line out for the usual one"));
        }
    }
    if d.ike_port == d.nat_t_port {
        let problem = format!("{} is daemon.ike_port too; each needs a port of its own", d.nat_t_port);
        return Err(ConfigError::new("daemon.nat_t_port", problem));
    }
    if !(1..=dormouse_ike::MAX_WINDOW).contains(&d.ike_window) {
        let problem = format!("{} is not between 1 and {}", d.ike_window, dormouse_ike::MAX_WINDOW);
        return Err(ConfigError::new("daemon.ike_window", problem));
    }
    if d.listen.is_empty() {
        return Err(ConfigError::new("daemon.listen", "at least one address is needed, such as \"0.0.0.0\""));
    }
    super::metrics::validate(d)?;
    super::half_open::validate(d)
}

/// Where records go.
///
/// # Errors
/// If it is no place.
pub(super) fn audit(a: &Audit) -> Result<(), ConfigError> {
    if a.to.starts_with('/') || ["auto", "journal", "stderr", "off"].contains(&a.to.as_str()) {
        return Ok(());
    }
    let problem =
        format!("\"{}\" is neither auto, journal, stderr or off, nor a path that begins with a '/'", a.to);
    Err(ConfigError::new("audit.to", problem))
}

/// One connection, by its name.
///
/// # Errors
/// The first thing that cannot be meant.
pub(super) fn connection(name: &str, c: &Connection) -> Result<(), ConfigError> {
    let wrong =
        |key: &str, problem: String| Err(ConfigError::new(format!("connection.{name}.{key}"), problem));
    super::hip::validate(name, c)?;
    if c.role == Role::Hip {
        return Ok(());
    }
    match (c.role, &c.gateway) {
        (Role::Client, None) => {
            return wrong("gateway", "a client needs the gateway's name or address".into());
        }
        (Role::Client, Some(g)) if g.trim().is_empty() => {
            return wrong("gateway", "is empty; a client needs the gateway's name or address".into());
        }
        (Role::Gateway, Some(g)) => {
            return wrong(
                "gateway",
                format!("a gateway has no gateway; remove \"{g}\" or set role = \"client\""),
            );
        }
        _ => {}
    }
    if c.role == Role::Gateway && c.auto {
        return wrong("auto", "a gateway waits for its clients; remove it or set role = \"client\"".into());
    }
    super::block::validate(name, c)?;
    super::zones::validate(c).or_else(|(key, problem)| wrong(key, problem.into()))?;
    super::renewals::validate(name, c)?;
    let pool = &c.pool;
    let given = pool.addresses.is_empty() && pool.dns.is_empty() && pool.routes.is_empty();
    if c.role == Role::Client && !(given && pool.forward == Forward::Off) {
        return wrong("pool", "a client gives no addresses; remove it or set role = \"gateway\"".into());
    }
    if pool.forward != Forward::Off && pool.addresses.is_empty() {
        return wrong(
            "pool.forward",
            "is for clients with addresses of pool.addresses, which has none".into(),
        );
    }
    let named = c.children.iter().map(|(name, child)| (format!("children.{name}"), child));
    for (key, ch) in std::iter::once(("child".to_owned(), &c.child)).chain(named) {
        child(c, &key, ch).or_else(|(k, problem)| wrong(&format!("{key}.{k}"), problem))?;
    }
    if let Some(name) = c.children.get_key_value(FIRST_CHILD).map(|(name, _)| name) {
        return wrong(
            &format!("children.{name}"),
            format!("\"{name}\" is the name of `child`; choose another"),
        );
    }
    if c.ike.no_nats_allowed && c.ike.esp_in_udp == EspInUdp::Always {
        let problem = "contradicts ike.esp_in_udp = \"always\", which pretends that there is a NAT";
        return wrong("ike.no_nats_allowed", problem.into());
    }
    if c.role == Role::Gateway && !c.ike.redirects.is_empty() {
        let problem = "a gateway is sent nowhere; ike.redirect_to is where it sends its clients";
        return wrong("ike.redirects", problem.into());
    }
    if c.role == Role::Client && c.ike.redirect_to.is_some() {
        let problem = "a client sends nobody elsewhere; ike.redirects says where it may be sent";
        return wrong("ike.redirect_to", problem.into());
    }
    if c.ike.retransmit_ms < RETRANSMIT_LEAST {
        let problem =
            format!("{} ms is too short for an answer; {RETRANSMIT_LEAST} is the least", c.ike.retransmit_ms);
        return wrong("ike.retransmit_ms", problem);
    }
    if c.ike.retransmit_tries == 0 {
        return wrong(
            "ike.retransmit_tries",
            "a request that is never sent has no answer; 1 is the least".into(),
        );
    }
    if c.ike.hardest_puzzle > PUZZLE_MOST {
        let problem = format!("{} zero bits take minutes; {PUZZLE_MOST} is the most", c.ike.hardest_puzzle);
        return wrong("ike.hardest_puzzle", problem);
    }
    if c.ike.liveness_timeout.0 == 0 {
        return wrong("ike.liveness_timeout", "0 s would give up every peer at once; 1 is the least".into());
    }
    for (key, ms) in [
        ("wake.probe_ms", c.wake.probe_ms),
        ("wake.ticket_ms", c.wake.ticket_ms),
        ("wake.full_ms", c.wake.full_ms),
    ] {
        if ms < RUNG_LEAST {
            return wrong(key, format!("{ms} ms is too short for an answer; {RUNG_LEAST} is the least"));
        }
    }
    if c.resumption.ticket_lifetime.0 == 0 && c.resumption.mode != ResumptionMode::Off {
        return wrong(
            "resumption.ticket_lifetime",
            "no ticket is good for 0 s; mode = \"off\" grants none".into(),
        );
    }
    Ok(())
}

/// One CHILD SA: what is wrong, and with which of its keys.
fn child(c: &Connection, section: &str, ch: &Child) -> Result<(), (&'static str, String)> {
    if c.role == Role::Gateway && !c.pool.addresses.is_empty() && ch.mode == Mode::Tunnel {
        // Its clients would be connected, and reach nothing.
        if !ch.local.iter().any(|s| matches!(s, Selector::Net(_))) {
            let problem = "say what clients reach behind this gateway, such as [\"0.0.0.0/0\", \"::/0\"]";
            return Err(("local", problem.into()));
        }
    }
    if (1..REKEY_BYTES_LEAST).contains(&ch.rekey_bytes) {
        let problem = format!(
            "{} bytes are too few; {REKEY_BYTES_LEAST} is the least, 0 sets no bound",
            ch.rekey_bytes
        );
        return Err(("rekey_bytes", problem));
    }
    if section != "child" && ch.request_address != Request::Auto {
        return Err(("request_address", "one address serves all CHILD SAs; say it in `child`".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{file::File, parse};
    use super::*;

    const CLIENT: &str = "[connection.a]\nrole = \"client\"\ngateway = \"192.0.2.1\"\n\
                          [connection.a.local]\nid = \"a\"\n[connection.a.remote]\nid = \"b\"\n";

    fn gateway() -> String {
        CLIENT.replace("\"client\"", "\"gateway\"").replace("gateway = \"192.0.2.1\"\n", "")
    }

    fn check(text: &str) -> Result<(), ConfigError> {
        let file: File = parse(text).expect("it parses");
        daemon(&file.daemon)?;
        audit(&file.audit)?;
        file.connection.iter().try_for_each(|(name, c)| connection(name, c))
    }

    #[test]
    fn what_is_usual_is_sound() {
        assert_eq!(check(CLIENT), Ok(()));
        assert_eq!(check(&gateway()), Ok(()));
    }

    #[test]
    fn each_thing_that_cannot_be_meant_is_named() {
        let of_daemon = |lines: &str| format!("[daemon]\n{lines}\n{CLIENT}");
        let more = |section: &str, lines: &str| format!("{CLIENT}[connection.a.{section}]\n{lines}\n");
        let role =
            |lines: &str| gateway().replace("role = \"gateway\"", &format!("role = \"gateway\"\n{lines}"));
        let of_long = format!("connection.{}.block", "a".repeat(41));
        for (text, key) in [
            (of_daemon("interface = \"a-very-long-name0\""), "daemon.interface"),
            (of_daemon("interface = \"\""), "daemon.interface"),
            (of_daemon("interface = \"a/b\""), "daemon.interface"),
            (of_daemon("interface = \"eth*\""), "daemon.interface"),
            (of_daemon("interface = \"vpn+0\""), "daemon.interface"),
            (of_daemon("interface = \"büro0\""), "daemon.interface"),
            (of_daemon("mtu = 10"), "daemon.mtu"),
            (of_daemon("ike_port = 0"), "daemon.ike_port"),
            (of_daemon("ike_port = 4500"), "daemon.nat_t_port"),
            (of_daemon("ike_window = 0"), "daemon.ike_window"),
            (of_daemon("ike_window = 9"), "daemon.ike_window"),
            (of_daemon("listen = []"), "daemon.listen"),
            (of_daemon("[audit]\nto = \"syslog\""), "audit.to"),
            (
                of_daemon("half_open = { cookie_threshold = 9, limit = 9 }"),
                "daemon.half_open.cookie_threshold",
            ),
            (of_daemon("half_open.puzzle_difficulty = 25"), "daemon.half_open.puzzle_difficulty"),
            (more("ike", "hardest_puzzle = 25"), "connection.a.ike.hardest_puzzle"),
            (CLIENT.replace("192.0.2.1", " "), "connection.a.gateway"),
            (CLIENT.replace("gateway = \"192.0.2.1\"\n", ""), "connection.a.gateway"),
            (role("gateway = \"192.0.2.1\""), "connection.a.gateway"),
            (role("auto = true"), "connection.a.auto"),
            (role("block = \"always\""), "connection.a.block"),
            (CLIENT.replace("connection.a", &format!("connection.{}", "a".repeat(41))), of_long.as_str()),
            (
                more("child", "remote = [\"dynamic\"]").replace("role", "block = \"always\"\nrole"),
                "connection.a.block",
            ),
            (more("pool", "addresses = [\"10.0.0.0/24\"]"), "connection.a.pool"),
            (more("pool", "forward = \"route\""), "connection.a.pool"),
            (gateway() + "[connection.a.pool]\nforward = \"translate\"\n", "connection.a.pool.forward"),
            (gateway() + "[connection.a.pool]\naddresses = [\"10.0.0.0/24\"]\n", "connection.a.child.local"),
            (more("ike", "liveness_timeout = 0"), "connection.a.ike.liveness_timeout"),
            (more("wake", "full_ms = 0"), "connection.a.wake.full_ms"),
            (more("wake", "ticket_ms = 99"), "connection.a.wake.ticket_ms"),
            (more("resumption", "ticket_lifetime = 0"), "connection.a.resumption.ticket_lifetime"),
            (more("child", "rekey_bytes = 1"), "connection.a.child.rekey_bytes"),
            (more("children.x", "rekey_bytes = 1"), "connection.a.children.x.rekey_bytes"),
            (more("children.x", "request_address = \"none\""), "connection.a.children.x.request_address"),
            (more("children.net", ""), "connection.a.children.net"),
            (more("ike", "retransmit_ms = 0"), "connection.a.ike.retransmit_ms"),
            (more("ike", "retransmit_tries = 0"), "connection.a.ike.retransmit_tries"),
            (more("ike", "redirect_to = \"192.0.2.7\""), "connection.a.ike.redirect_to"),
            (gateway() + "[connection.a.ike]\nredirects = [\"192.0.2.7\"]\n", "connection.a.ike.redirects"),
            (
                more("ike", "no_nats_allowed = true\nesp_in_udp = \"always\""),
                "connection.a.ike.no_nats_allowed",
            ),
        ] {
            assert_eq!(check(&text).expect_err(key).key, key, "{text}");
        }
    }
}
