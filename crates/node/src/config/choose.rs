//! Which of several CHILD SAs with the same selectors carries a packet (dynamic MML-IPsec, `docs/wire/mml-ipsec.md`): what may be written, and what
//! it is to the data plane. Owns these keys; the choice is [`dormouse_esp::Sad::among`]'s.

use super::file::Role;
use super::resolve::ConfigError;
use super::validate::FIRST_CHILD;
use dormouse_ike::config as ike;
use dormouse_keying::{Marks, Share, Weak};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// What this end sends on a CHILD SA where another of the connection has the same `mode`, `local` and `remote` and no `choose`: that one carries the rest.
/// So a flow goes partly in zones and partly whole, by policy. Each end chooses for what it sends, and takes what comes by any of them. One of
/// `every`, `dscp`, `signal_below` and `as_peer` is said, or none. An observer sees by the SPI which packets were chosen. Counts for CHILD SAs that are
/// made from then on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Choose {
    /// One packet in so many. 0: not by number.
    pub every: u32,
    /// Packets that an application has marked with one of these code points (DSCP, 0 to 63), such as 46 for `ping -Q 0xb8`.
    pub dscp: Vec<u8>,
    /// Client: all packets, while the signal of its WiFi (`sleep.interface`, or the only one) is below so many dBm, from -120 to -1, such as -75. It
    /// is read while packets are sent, once a second at most. Where it cannot be read, none. 0: not by the signal.
    pub signal_below: i8,
    /// So many dB above `signal_below` the signal must come again before packets go elsewhere, from 0 to 60. More than it varies by itself.
    pub hysteresis: u8,
    /// All packets, while the peer's come by it: how a gateway follows a client that chooses by its signal. Where the peer chooses packet by packet,
    /// each answer goes as the packet before it came.
    pub as_peer: bool,
}

impl Default for Choose {
    fn default() -> Self {
        Self { every: 0, dscp: Vec::new(), signal_below: 0, hysteresis: 6, as_peer: false }
    }
}

/// What counts as a weak signal.
///
/// # Errors
/// If a radio never has such a signal, or there is no radio.
fn weak(key: &str, role: Role, choose: &Choose) -> Result<Weak, ConfigError> {
    let wrong = |k: &str, problem: &str| Err(ConfigError::new(format!("{key}.{k}"), problem));
    if role == Role::Gateway {
        return wrong("signal_below", "is a client's, whose radio it is; a gateway says as_peer");
    }
    if !(-120..=-1).contains(&choose.signal_below) {
        return wrong("signal_below", "a signal is from -120 to -1 dBm");
    }
    match choose.signal_below.checked_add_unsigned(choose.hysteresis) {
        Some(until) if choose.hysteresis <= 60 => Ok(Weak { below: choose.signal_below, until }),
        _ => wrong("hysteresis", "is from 0 to 60 dB"),
    }
}

/// What it means.
///
/// # Errors
/// If it means nothing.
pub(super) fn share(key: &str, role: Role, choose: &Choose) -> Result<Share, ConfigError> {
    let Choose { every, dscp, signal_below, hysteresis, as_peer } = choose;
    let said = [*every > 0, !dscp.is_empty(), *signal_below != 0, *as_peer];
    if said.iter().filter(|said| **said).count() > 1 {
        let problem = "has several of every, dscp, signal_below and as_peer; keep one of them";
        return Err(ConfigError::new(key, problem));
    }
    if *signal_below != 0 {
        return weak(key, role, choose).map(Share::Signal);
    }
    if *hysteresis != Choose::default().hysteresis {
        return Err(ConfigError::new(format!("{key}.hysteresis"), "means nothing without signal_below"));
    }
    match (NonZeroU32::new(*every), dscp.as_slice()) {
        _ if *as_peer => Ok(Share::AsPeer),
        (Some(every), _) => Ok(Share::Every(every)),
        (None, []) => Ok(Share::Rest),
        (None, marks) => Marks::new(marks)
            .map(Share::Marked)
            .ok_or_else(|| ConfigError::new(format!("{key}.dscp"), "a code point is a number from 0 to 63")),
    }
}

/// What a child whose packets are not encrypted must be: not the first one, so that none of the others' packets waits for an encrypted one that is yet to
/// come; and with a share that neither a peer nor someone on the way can make larger, by dropping packets or by noise on the radio.
fn readable(child: &ike::ChildConfig, key: &str) -> Result<(), ConfigError> {
    if child.name == FIRST_CHILD {
        let problem = "not encrypted, it stands in children.NAME, beside a `child` that is encrypted";
        return Err(ConfigError::new(format!("{key}.protection"), problem));
    }
    match child.share {
        Share::Every(n) if n.get() < 2 => {
            let problem = "is every packet, all of which would go in clear; every is 2 at least where nothing is encrypted";
            Err(ConfigError::new(format!("{key}.choose"), problem))
        }
        Share::Every(_) | Share::Marked(_) => Ok(()),
        Share::Rest | Share::Signal(_) | Share::AsPeer => {
            let problem =
                "is every or dscp where nothing is encrypted, so that it is said which packets go in clear";
            Err(ConfigError::new(format!("{key}.choose"), problem))
        }
    }
}

/// Whether each child with a share has another that takes the rest, and those that are not encrypted are what they must be. `key`: of a child, by its name.
///
/// # Errors
/// The first one that is wrong.
pub(super) fn validate(
    children: &[ike::ChildConfig],
    key: impl Fn(&str) -> String,
) -> Result<(), ConfigError> {
    children.iter().filter(|c| c.is_readable()).try_for_each(|child| readable(child, &key(&child.name)))?;
    let alike = |a: &ike::ChildConfig, b: &ike::ChildConfig| {
        (a.mode, &a.ts_local, &a.ts_remote) == (b.mode, &b.ts_local, &b.ts_remote)
    };
    let alone = |child: &&ike::ChildConfig| {
        !child.share.is_rest() && !children.iter().any(|other| other.share.is_rest() && alike(child, other))
    };
    let Some(child) = children.iter().find(alone) else { return Ok(()) };
    let problem =
        "needs another CHILD SA with the same mode, local and remote, and without choose, for the rest";
    Err(ConfigError::new(format!("{}.choose", key(&child.name)), problem))
}

#[cfg(test)]
mod tests {
    use super::super::{parse, resolve};
    use super::*;

    const CLIENT: &str = "[connection.a]\nrole = \"client\"\ngateway = \"192.0.2.1\"\nremote.id = \"gw\"\n\
        local = { id = \"d\", secret = \"long enough\" }\n";

    const GATEWAY: &str = "[connection.a]\nrole = \"gateway\"\nremote.id = \"d\"\n\
        local = { id = \"gw\", secret = \"long enough\" }\n";

    fn shares(children: &str) -> Result<Vec<Share>, ConfigError> {
        shares_of(CLIENT, children)
    }

    fn shares_of(end: &str, children: &str) -> Result<Vec<Share>, ConfigError> {
        let file = parse(&format!("{end}{children}")).expect("it parses");
        let resolved = resolve(&file, &mut |_, _| Err("no files".into()))?;
        Ok(resolved[0].ike.children.iter().map(|child| child.share).collect())
    }

    #[test]
    fn one_child_takes_its_share_and_another_the_rest() {
        let every = Share::Every(NonZeroU32::new(5).expect("five"));
        let marked = Share::Marked(Marks::new(&[46, 34]).expect("marks"));
        let more = "[connection.a.children.z]\nprotection = \"zoned\"\n";
        let weak = |below, until| Share::Signal(Weak { below, until });
        for (of_more, share) in [
            ("every = 5", every),
            ("dscp = [34, 46]", marked),
            ("signal_below = -75", weak(-75, -69)),
            ("signal_below = -70, hysteresis = 0", weak(-70, -70)),
            ("as_peer = true", Share::AsPeer),
        ] {
            assert_eq!(shares(&format!("{more}choose = {{ {of_more} }}\n")), Ok(vec![Share::Rest, share]));
        }
        let first = format!("[connection.a.child]\nchoose.every = 5\n{more}");
        assert_eq!(shares(&first), Ok(vec![every, Share::Rest]), "whichever stands first");
        assert_eq!(shares(more), Ok(vec![Share::Rest; 2]), "the one that came up last, as ever");
    }

    #[test]
    fn what_is_not_encrypted_is_said_exactly() {
        let other = "[connection.a.children.z]\nprotection = \"authenticated\"\n";
        for share in ["every = 2", "dscp = [10]"] {
            let file = parse(&format!("{CLIENT}{other}choose = {{ {share} }}\n")).expect("it parses");
            let resolved = resolve(&file, &mut |_, _| Err("no files".into())).expect(share);
            let readable: Vec<_> =
                resolved[0].ike.children.iter().map(ike::ChildConfig::is_readable).collect();
            assert_eq!(readable, [false, true]);
        }
        for (children, key) in [
            (other.to_owned(), "children.z.choose"),
            (format!("{other}choose = {{ as_peer = true }}\n"), "children.z.choose"),
            (format!("{other}choose = {{ every = 1 }}\n"), "children.z.choose"),
            (format!("{other}choose = {{ signal_below = -70 }}\n"), "children.z.choose"),
            (format!("{other}choose = {{ every = 2 }}\nproposals = [\"aes128gcm16\"]\n"), "children.z.proposals"),
            (format!("{other}choose = {{ every = 2 }}\nzones.ends = [\"40\"]\n"), "children.z.zones"),
            (
                "[connection.a.child]\nprotection = \"authenticated\"\nchoose.every = 2\n[connection.a.children.z]\n"
                    .to_owned(),
                "child.protection",
            ),
            ("[connection.a.child]\nproposals = [\"aes128gmac\"]\n".to_owned(), "child.proposals[0]"),
        ] {
            assert_eq!(shares(&children).expect_err(&children).key, format!("connection.a.{key}"));
        }
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        let other = "[connection.a.children.z]\nchoose = ";
        for (children, key) in [
            ("[connection.a.child]\nchoose.every = 5\n".to_owned(), "child.choose"),
            (format!("[connection.a.child]\nchoose.every = 5\n{other}{{ dscp = [1] }}\n"), "child.choose"),
            (format!("{other}{{ every = 2 }}\nremote = [\"10.0.0.0/8\"]\n"), "children.z.choose"),
            (format!("{other}{{ every = 2 }}\nmode = \"transport\"\n"), "children.z.choose"),
            (format!("{other}{{ every = 2, dscp = [1] }}\n"), "children.z.choose"),
            (format!("{other}{{ dscp = [64] }}\n"), "children.z.choose.dscp"),
            (format!("{other}{{ signal_below = -70, as_peer = true }}\n"), "children.z.choose"),
            (format!("{other}{{ signal_below = -121 }}\n"), "children.z.choose.signal_below"),
            (format!("{other}{{ signal_below = 1 }}\n"), "children.z.choose.signal_below"),
            (format!("{other}{{ signal_below = -70, hysteresis = 61 }}\n"), "children.z.choose.hysteresis"),
            (format!("{other}{{ hysteresis = 3 }}\n"), "children.z.choose.hysteresis"),
        ] {
            assert_eq!(shares(&children).expect_err(&children).key, format!("connection.a.{key}"));
        }
        // The radio is the client's.
        let follows = "[connection.a.child]\nlocal = [\"10.0.0.0/8\"]\n[connection.a.children.z]\nlocal = [\"10.0.0.0/8\"]\nchoose = ";
        assert_eq!(
            shares_of(GATEWAY, &format!("{follows}{{ as_peer = true }}\n")),
            Ok(vec![Share::Rest, Share::AsPeer])
        );
        let reads = shares_of(GATEWAY, &format!("{follows}{{ signal_below = -70 }}\n"));
        assert_eq!(reads.expect_err("no radio").key, "connection.a.children.z.choose.signal_below");
    }
}
