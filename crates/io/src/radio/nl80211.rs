//! Asks the kernel whether an 802.11 interface has joined a network, and switches its power saving (nl80211 over generic netlink).
//! The kernel answers before `sendmsg` returns, so nothing waits, and never longer than [`PATIENCE`]. The few messages that this needs are put together here: numbers are those of
//! `linux/genetlink.h` and `linux/nl80211.h`.

use crate::clock::BootClock;
use crate::netlink::socket::descriptor;
use dormouse_sansio::Instant;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::time::Duration;

/// What asks waits in the daemon's loop.
const PATIENCE: Duration = Duration::from_millis(250);

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const CMD_GET_INTERFACE: u8 = 5;
const CMD_GET_STATION: u8 = 17;
const CMD_GET_SCAN: u8 = 32;
const CMD_SET_POWER_SAVE: u8 = 61;
const CMD_GET_POWER_SAVE: u8 = 62;
const ATTR_IFINDEX: u16 = 3;
const ATTR_MAC: u16 = 6;
const ATTR_STA_INFO: u16 = 21;
const ATTR_BSS: u16 = 47;
const ATTR_SSID: u16 = 52;
const ATTR_PS_STATE: u16 = 93;
const BSS_INFORMATION_ELEMENTS: u16 = 6;
const BSS_STATUS: u16 = 9;
/// `NL80211_BSS_STATUS_ASSOCIATED`.
const ASSOCIATED: u32 = 1;
/// Element id of the SSID (IEEE 802.11, 9.4.2.2).
const ELEMENT_SSID: u8 = 0;
const STA_INFO_SIGNAL: u16 = 7;
const STA_INFO_STA_FLAGS: u16 = 17;
/// Bit of `NL80211_STA_FLAG_AUTHORIZED` in the mask and the set of `struct nl80211_sta_flag_update`.
const AUTHORIZED: u32 = 1 << 1;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
/// Netlink header, then command, version and two bytes reserved.
const HEADER: usize = 16;
const GENERIC: usize = 4;
/// Type bits of an attribute that are flags.
const FLAGS: u16 = 0xc000;
const BUFFER: usize = 32 << 10;

/// The access point that an interface has joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Association {
    /// Its address.
    pub bssid: [u8; 6],
    /// Name of its network, as far as it is text.
    pub network: Option<String>,
    /// Keys are in place: packets can go. Before that only the handshake's can.
    pub authorized: bool,
    /// Strength of its signal, in dBm.
    pub signal: Option<i8>,
}

/// The request socket. Everybody may ask; changes need `CAP_NET_ADMIN`.
#[derive(Debug)]
pub struct Nl80211 {
    socket: Socket,
    family: u16,
    sequence: u32,
}

impl Nl80211 {
    /// Opens it. The network namespace is that of the calling thread.
    ///
    /// # Errors
    /// `NotFound` if this kernel has no 802.11 (the module cfg80211 is not loaded).
    pub fn new() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        let mut new = Self { socket, family: GENL_ID_CTRL, sequence: 0 };
        let answers = match new.ask(CTRL_CMD_GETFAMILY, 0, &[(CTRL_ATTR_FAMILY_NAME, b"nl80211\0")]) {
            Ok(answers) => answers,
            Err(e) if e.raw_os_error() == Some(Errno::ENOENT as i32) => {
                return Err(io::Error::new(io::ErrorKind::NotFound, "this kernel has no 802.11 (cfg80211)"));
            }
            Err(e) => return Err(e),
        };
        let id = answers.first().and_then(|a| find(a, CTRL_ATTR_FAMILY_ID)?.first_chunk().copied());
        new.family = u16::from_ne_bytes(id.ok_or_else(|| io::Error::other("nl80211 has no number"))?);
        Ok(new)
    }

    /// What `interface` has joined; `None` if nothing.
    ///
    /// # Errors
    /// The kernel's: `ENODEV` if there is no such 802.11 interface.
    pub fn association(&mut self, interface: &str) -> io::Result<Option<Association>> {
        let index = nix::net::if_::if_nametoindex(interface)?.to_ne_bytes();
        let which = [(ATTR_IFINDEX, index.as_slice())];
        let stations = self.ask(CMD_GET_STATION, NLM_F_DUMP, &which)?;
        let Some(found) = stations.iter().find_map(|answer| station(answer)) else { return Ok(None) };
        // The interface knows the name if the driver joins networks; else the list of what was heard does.
        let interface = self.ask(CMD_GET_INTERFACE, 0, &which)?;
        let mut ssid = interface.first().and_then(|a| find(a, ATTR_SSID)).map(<[u8]>::to_vec);
        if ssid.is_none() {
            let heard = self.ask(CMD_GET_SCAN, NLM_F_DUMP, &which)?;
            ssid = heard.iter().find_map(|answer| joined(answer));
        }
        let network = ssid.filter(|s| !s.is_empty()).map(|s| String::from_utf8_lossy(&s).into_owned());
        Ok(Some(Association { network, ..found }))
    }

    /// The signal of the access point that `interface` has joined, in dBm; `None` if it has joined nothing, or its driver does not say.
    ///
    /// # Errors
    /// As [`Nl80211::association`].
    pub fn signal(&mut self, interface: &str) -> io::Result<Option<i8>> {
        let index = nix::net::if_::if_nametoindex(interface)?.to_ne_bytes();
        let stations = self.ask(CMD_GET_STATION, NLM_F_DUMP, &[(ATTR_IFINDEX, index.as_slice())])?;
        Ok(stations.iter().find_map(|answer| station(answer)).and_then(|found| found.signal))
    }

    /// Whether `interface` sleeps between the access point's beacons (802.11 power saving).
    ///
    /// # Errors
    /// The kernel's: `EOPNOTSUPP` if the driver knows no power saving.
    pub fn power_save(&mut self, interface: &str) -> io::Result<bool> {
        let index = nix::net::if_::if_nametoindex(interface)?.to_ne_bytes();
        let answers = self.ask(CMD_GET_POWER_SAVE, 0, &[(ATTR_IFINDEX, index.as_slice())])?;
        let state = answers.first().and_then(|a| find(a, ATTR_PS_STATE)?.first_chunk().copied());
        let state = state.ok_or_else(|| io::Error::other("no state of power saving"))?;
        Ok(u32::from_ne_bytes(state) != 0)
    }

    /// Switches that on or off.
    ///
    /// # Errors
    /// As [`Nl80211::power_save`]; `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_power_save(&mut self, interface: &str, on: bool) -> io::Result<()> {
        let index = nix::net::if_::if_nametoindex(interface)?.to_ne_bytes();
        let state = u32::from(on).to_ne_bytes();
        let which = [(ATTR_IFINDEX, index.as_slice()), (ATTR_PS_STATE, state.as_slice())];
        self.ask(CMD_SET_POWER_SAVE, 0, &which).map(drop)
    }

    /// Waits for an answer, until then at most.
    fn wait(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_since(BootClock::now());
        let ms = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(descriptor(&self.socket), PollFlags::POLLIN)], ms) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the kernel did not answer within {PATIENCE:?}"),
            )),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Sends a request and returns the attributes of each answer.
    fn ask(&mut self, command: u8, flags: u16, attributes: &[(u16, &[u8])]) -> io::Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        // A dump ends by itself; anything else is to be acknowledged.
        let flags = NLM_F_REQUEST | if flags == 0 { NLM_F_ACK } else { flags };
        let request = message(self.family, flags, self.sequence, command, attributes);
        self.socket.send_to(&request, &SocketAddr::new(0, 0), 0)?;
        let until = BootClock::now() + PATIENCE;
        let mut answers = Vec::new();
        let mut buffer = Vec::with_capacity(BUFFER);
        loop {
            buffer.clear();
            self.wait(until)?;
            self.socket.recv(&mut buffer, 0)?;
            let mut rest = buffer.as_slice();
            while let Some((kind, sequence, payload, after)) = split(rest) {
                rest = after;
                if sequence != self.sequence {
                    continue;
                }
                match kind {
                    NLMSG_DONE => return Ok(answers),
                    NLMSG_ERROR => match payload.first_chunk().map(|e| i32::from_ne_bytes(*e)) {
                        Some(0) => return Ok(answers),
                        Some(error) => return Err(io::Error::from_raw_os_error(error.saturating_neg())),
                        None => return Err(io::ErrorKind::InvalidData.into()),
                    },
                    _ => answers.push(payload.get(GENERIC..).unwrap_or_default().to_vec()),
                }
            }
        }
    }
}

/// A station entry: to a client, the access point.
fn station(answer: &[u8]) -> Option<Association> {
    let info = find(answer, ATTR_STA_INFO)?;
    let flags = find(info, STA_INFO_STA_FLAGS).and_then(|f| f.first_chunk::<8>());
    let authorized = flags.is_some_and(|f| {
        let [a, b, c, d, e, f, g, h] = *f;
        let (mask, set) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
        mask & set & AUTHORIZED != 0
    });
    Some(Association {
        bssid: *find(answer, ATTR_MAC)?.first_chunk()?,
        network: None,
        authorized,
        signal: find(info, STA_INFO_SIGNAL).and_then(|s| s.first().map(|b| b.cast_signed())),
    })
}

/// The SSID of an entry of what was heard, if it is the one that was joined.
fn joined(answer: &[u8]) -> Option<Vec<u8>> {
    let bss = find(answer, ATTR_BSS)?;
    let status = find(bss, BSS_STATUS)?.first_chunk()?;
    if u32::from_ne_bytes(*status) != ASSOCIATED {
        return None;
    }
    let mut elements = find(bss, BSS_INFORMATION_ELEMENTS)?;
    loop {
        let [id, length, rest @ ..] = elements else { return None };
        let value = rest.get(..usize::from(*length))?;
        if *id == ELEMENT_SSID {
            return Some(value.to_vec());
        }
        elements = rest.get(value.len()..)?;
    }
}

fn message(family: u16, flags: u16, sequence: u32, command: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(family.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 4]);
    out.extend([command, 1, 0, 0]);
    for (kind, value) in attributes {
        // Ours are a few bytes long.
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        out.extend(length.to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend_from_slice(value);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(out.len()).unwrap_or(u32::MAX);
    if let Some(first) = out.first_chunk_mut() {
        *first = length.to_ne_bytes();
    }
    out
}

/// The first message of a buffer: kind, sequence number, payload, and what follows. `None` if there is no whole one.
fn split(buffer: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let [a, b, c, d, e, f, _, _, g, h, i, j, ..] = *buffer.first_chunk::<HEADER>()?;
    let length = usize::try_from(u32::from_ne_bytes([a, b, c, d])).ok()?;
    let payload = buffer.get(HEADER..length)?;
    let rest = buffer.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((u16::from_ne_bytes([e, f]), u32::from_ne_bytes([g, h, i, j]), payload, rest))
}

/// The value of the first attribute of this kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let [a, b, c, d] = *attributes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes([c, d]) & !FLAGS == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let whole = message(0, 0, 0, 0, &[(kind, value)]);
        whole[HEADER + GENERIC..].to_vec()
    }

    #[test]
    fn an_access_point_is_read_from_its_station_entry() {
        let flags = [AUTHORIZED.to_ne_bytes(), AUTHORIZED.to_ne_bytes()].concat();
        let info = [attribute(STA_INFO_SIGNAL, &[0xd8]), attribute(STA_INFO_STA_FLAGS, &flags)].concat();
        // Nested attributes carry a flag in their type.
        let answer =
            [attribute(ATTR_MAC, &[2, 0, 0, 0, 0, 1]), attribute(ATTR_STA_INFO | 0x8000, &info)].concat();
        let found = station(&answer).unwrap();
        assert_eq!((found.bssid, found.authorized, found.signal), ([2, 0, 0, 0, 0, 1], true, Some(-40)));

        let before = [AUTHORIZED.to_ne_bytes(), [0; 4]].concat();
        let answer = [
            attribute(ATTR_MAC, &[2, 0, 0, 0, 0, 1]),
            attribute(ATTR_STA_INFO, &attribute(STA_INFO_STA_FLAGS, &before)),
        ]
        .concat();
        assert!(!station(&answer).unwrap().authorized, "associated, and the keys are still missing");
        for cut in 0..answer.len() {
            let _ = station(&answer[..cut]);
        }
    }

    #[test]
    fn the_name_of_a_network_is_that_of_the_one_that_was_joined() {
        let heard = |status: Option<u32>| {
            let status = status.map(|s| attribute(BSS_STATUS, &s.to_ne_bytes())).unwrap_or_default();
            let elements = attribute(BSS_INFORMATION_ELEMENTS, b"\x01\x02xx\x00\x06burrow\x03\x01\x01");
            attribute(ATTR_BSS, &[elements, status].concat())
        };
        assert_eq!(joined(&heard(Some(ASSOCIATED))).as_deref(), Some(b"burrow".as_slice()));
        assert_eq!(joined(&heard(Some(0))), None, "authenticated only");
        assert_eq!(joined(&heard(None)), None, "only heard");
        let whole = heard(Some(ASSOCIATED));
        for cut in 0..whole.len() {
            let _ = joined(&whole[..cut]);
        }
    }

    #[test]
    fn a_message_is_whole_and_a_cut_one_is_none() {
        let whole = message(7, NLM_F_REQUEST, 9, CMD_GET_INTERFACE, &[(ATTR_SSID, b"abc")]);
        let (kind, sequence, payload, rest) = split(&whole).unwrap();
        assert_eq!((kind, sequence, rest.len()), (7, 9, 0));
        assert_eq!(find(&payload[GENERIC..], ATTR_SSID), Some(b"abc".as_slice()));
        assert_eq!(find(&payload[GENERIC..], ATTR_MAC), None);
        for cut in 0..whole.len() {
            assert!(split(&whole[..cut]).is_none());
        }
        let mut short = whole.clone();
        short[..4].copy_from_slice(&3u32.to_ne_bytes());
        assert!(split(&short).is_none(), "a length below that of the header");
    }
}
