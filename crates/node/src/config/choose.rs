//! Which of several CHILD SAs with the same selectors carries a packet (dynamic MML-IPsec, `docs/wire/mml-ipsec.md`): what may be written, and what
//! it is to the data plane. Owns these keys; the choice is [`dormouse_esp::Sad::among`]'s.

use super::resolve::ConfigError;
use dormouse_ike::config as ike;
use dormouse_keying::{Marks, Share};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// What this end sends on a CHILD SA where another of the connection has the same `mode`, `local` and `remote` and no `choose`: that one carries the rest.
/// So a flow goes partly in zones and partly whole, by policy. Each end chooses for what it sends, and takes what comes by any of them. One of the
/// keys is said, or none. An observer sees by the SPI which packets were chosen. Counts for CHILD SAs that are made from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Choose {
    /// One packet in so many. 0: not by number.
    pub every: u32,
    /// Packets that an application has marked with one of these code points (DSCP, 0 to 63), such as 46 for `ping -Q 0xb8`.
    pub dscp: Vec<u8>,
}

/// What it means.
///
/// # Errors
/// If it means nothing.
pub(super) fn share(key: &str, choose: &Choose) -> Result<Share, ConfigError> {
    let wrong = |key: String, problem: &str| Err(ConfigError::new(key, problem));
    match (NonZeroU32::new(choose.every), choose.dscp.as_slice()) {
        (None, []) => Ok(Share::Rest),
        (Some(every), []) => Ok(Share::Every(every)),
        (None, marks) => match Marks::new(marks) {
            Some(marks) => Ok(Share::Marked(marks)),
            None => wrong(format!("{key}.dscp"), "a code point is a number from 0 to 63"),
        },
        (Some(_), _) => wrong(key.to_owned(), "has both every and dscp; keep one of them"),
    }
}

/// Whether each child with a share has another that takes the rest. `key`: of a child, by its name.
///
/// # Errors
/// The first one that has none.
pub(super) fn validate(
    children: &[ike::ChildConfig],
    key: impl Fn(&str) -> String,
) -> Result<(), ConfigError> {
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

    fn shares(children: &str) -> Result<Vec<Share>, ConfigError> {
        let file = parse(&format!("{CLIENT}{children}")).expect("it parses");
        let resolved = resolve(&file, &mut |_, _| Err("no files".into()))?;
        Ok(resolved[0].ike.children.iter().map(|child| child.share).collect())
    }

    #[test]
    fn one_child_takes_its_share_and_another_the_rest() {
        let every = Share::Every(NonZeroU32::new(5).expect("five"));
        let marked = Share::Marked(Marks::new(&[46, 34]).expect("marks"));
        let more = "[connection.a.children.z]\nprotection = \"zoned\"\n";
        for (of_more, share) in [("every = 5", every), ("dscp = [34, 46]", marked)] {
            assert_eq!(shares(&format!("{more}choose = {{ {of_more} }}\n")), Ok(vec![Share::Rest, share]));
        }
        let first = format!("[connection.a.child]\nchoose.every = 5\n{more}");
        assert_eq!(shares(&first), Ok(vec![every, Share::Rest]), "whichever stands first");
        assert_eq!(shares(more), Ok(vec![Share::Rest; 2]), "the one that came up last, as ever");
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
        ] {
            assert_eq!(shares(&children).expect_err(&children).key, format!("connection.a.{key}"));
        }
    }
}
