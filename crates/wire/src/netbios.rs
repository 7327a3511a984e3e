//! NetBIOS over TCP/IP (RFC 1002): names of the name service, and the keep-alives of its sessions and of SMB above them.
//!
//! Owns the formats. The messages of the name service are DNS messages ([`crate::dns`]). Must never decide what to answer.

use core::fmt;

use crate::dns::Name as DnsName;

/// UDP port of the name service.
pub const NAME_PORT: u16 = 137;
/// TCP port of the session service.
pub const SESSION_PORT: u16 = 139;
/// TCP port of SMB without NetBIOS ("microsoft-ds"), with the same four bytes before each message.
pub const SMB_PORT: u16 = 445;

/// Record type NB: flags and an address for each owner.
pub const NB: u16 = 0x20;
/// Record type NBSTAT: the status of a node.
pub const NBSTAT: u16 = 0x21;

/// Operations of the name service (RFC 1002 section 4.2.1.1).
pub mod opcode {
    /// Query.
    pub const QUERY: u16 = 0;
    /// Registration.
    pub const REGISTRATION: u16 = 5;
    /// Release.
    pub const RELEASE: u16 = 6;
    /// Refresh.
    pub const REFRESH: u16 = 8;
    /// Refresh, as some implementations number it.
    pub const REFRESH_ALT: u16 = 9;
}

/// Response code "active error: the name is owned by another node" (section 4.2.6).
pub const ACTIVE_ERROR: u16 = 6;
/// Bit of the NB flags: a group name, which many nodes have.
pub const GROUP: u16 = 0x8000;
/// Bit of the name flags in a node status: the name is active.
pub const ACTIVE: u16 = 0x0400;
/// Bytes of statistics behind the names of a node status (section 4.2.18).
pub const STATISTICS_LEN: usize = 46;

/// A NetBIOS name: 15 characters and a suffix that says what it names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetbiosName(pub [u8; 16]);

impl NetbiosName {
    /// The name that stands for "any", in a node status query.
    pub const ANY: Self = Self(*b"*\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");

    /// From its form in the name service: 32 letters, two for each byte (RFC 1001 section 14.1). `None` for another form, and
    /// for a name with a scope.
    #[must_use]
    pub fn from_dns(name: &DnsName) -> Option<Self> {
        let (pairs, []) = name.first_label().as_chunks::<2>() else { return None };
        if pairs.len() != 16 || !name.is_single() {
            return None;
        }
        let nibble = |c: u8| c.to_ascii_uppercase().checked_sub(b'A').filter(|n| *n < 16);
        let mut bytes = [0; 16];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Some(Self(bytes))
    }

    /// To that form.
    #[must_use]
    pub fn to_dns(self) -> DnsName {
        let mut label = [0; 32];
        let (pairs, _) = label.as_chunks_mut::<2>();
        for (pair, byte) in pairs.iter_mut().zip(self.0) {
            *pair = [b'A' + (byte >> 4), b'A' + (byte & 15)];
        }
        DnsName::single(label)
    }
}

impl fmt::Debug for NetbiosName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name @ .., suffix] = &self.0;
        write!(f, "{}<{suffix:02x}>", name.trim_ascii_end().escape_ascii())
    }
}

/// Something in a TCP stream that only asks whether the other end is alive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum KeepAlive {
    /// A NetBIOS session keep-alive (RFC 1002 section 4.3.7): not answered by the protocol above TCP.
    Session,
    /// An SMB echo request, which the other end answers in the stream.
    SmbEcho,
}

/// Whether a segment on one of the two ports is nothing but one keep-alive.
#[must_use]
pub fn keep_alive(payload: &[u8]) -> Option<KeepAlive> {
    const SMB1_ECHO: u8 = 0x2b;
    const SMB2_ECHO: [u8; 2] = [0x0d, 0];
    match payload {
        [0x85, 0, 0, 0] => Some(KeepAlive::Session),
        [0, l0, l1, l2, message @ ..] if u32::from_be_bytes([0, *l0, *l1, *l2]) as usize == message.len() => {
            let echo = match message {
                // The command, and a flags byte whose top bit says "reply".
                [0xff, b'S', b'M', b'B', command, _, _, _, _, flags, ..] => {
                    *command == SMB1_ECHO && flags & 0x80 == 0
                }
                // 12 bytes in: the command, little-endian; 16 bytes in: flags, bit 0 says "reply"; then the next command.
                [
                    0xfe,
                    b'S',
                    b'M',
                    b'B',
                    _,
                    _,
                    _,
                    _,
                    _,
                    _,
                    _,
                    _,
                    c0,
                    c1,
                    _,
                    _,
                    flags,
                    _,
                    _,
                    _,
                    n0,
                    n1,
                    n2,
                    n3,
                    ..,
                ] => [*c0, *c1] == SMB2_ECHO && flags & 1 == 0 && [*n0, *n1, *n2, *n3] == [0; 4],
                _ => false,
            };
            echo.then_some(KeepAlive::SmbEcho)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1001() {
        // Section 14.1: "The NetBIOS name" in its first-level encoding.
        let name = NetbiosName(*b"The NetBIOS name");
        assert_eq!(name.to_dns().first_label(), b"FEGIGFCAEOGFHEECEJEPFDCAGOGBGNGF");
        assert_eq!(NetbiosName::from_dns(&name.to_dns()), Some(name));
        assert_eq!(format!("{name:?}"), "The NetBIOS nam<65>");
    }

    #[test]
    fn other_names_are_none() {
        let long = DnsName::from_labels(["FEGIGFCAEOGFHEECEJEPFDCAGOGBGNGF", "scope"]).expect("a name");
        let letters = DnsName::from_labels(["ZZGIGFCAEOGFHEECEJEPFDCAGOGBGNGF"]).expect("a name");
        let short = DnsName::from_labels(["host"]).expect("a name");
        for name in [long, letters, short] {
            assert_eq!(NetbiosName::from_dns(&name), None, "{name:?}");
        }
    }

    #[test]
    fn keep_alives_are_told_from_data() {
        let smb2 = |command: u8, flags: u8| {
            let mut m =
                vec![0, 0, 0, 68, 0xfe, b'S', b'M', b'B', 64, 0, 0, 0, 0, 0, 0, 0, command, 0, 1, 0, flags];
            m.resize(72, 0);
            m
        };
        assert_eq!(keep_alive(&[0x85, 0, 0, 0]), Some(KeepAlive::Session));
        assert_eq!(keep_alive(&smb2(13, 0)), Some(KeepAlive::SmbEcho));
        assert_eq!(keep_alive(&smb2(13, 1)), None, "a reply");
        assert_eq!(keep_alive(&smb2(8, 0)), None, "a read");
        assert_eq!(keep_alive(&smb2(13, 0)[..60]), None, "cut short");
        assert_eq!(
            keep_alive(b"\0\0\0\x20\xffSMB\x2b\0\0\0\0\x18........................"),
            None,
            "wrong length"
        );
        assert_eq!(keep_alive(&[]), None);
    }
}
