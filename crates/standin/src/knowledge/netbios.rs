//! NetBIOS names that a device registered (RFC 1002). Owns the names; those that another node contested successfully are gone.

use core::net::{IpAddr, Ipv4Addr};

use dormouse_wire::dns::{IN, Message, Section};
use dormouse_wire::netbios::{NB, NetbiosName, opcode};

use crate::limits::NETBIOS_NAMES;

/// A registered name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Registered {
    pub(crate) name: NetbiosName,
    /// The NB flags: group bit and node type.
    pub(crate) flags: u16,
    pub(crate) address: Ipv4Addr,
}

/// All names of a device.
#[derive(Debug, Default)]
pub(crate) struct Names(Vec<Registered>);

/// The NB record of a registration: name, flags, address.
pub(crate) fn registration(message: &Message) -> Option<Registered> {
    let record = message.section(Section::Additional).find(|r| r.kind == NB && r.class == IN)?;
    let &[f0, f1, a0, a1, a2, a3] = record.data.as_slice() else { return None };
    let name = NetbiosName::from_dns(&record.name)?;
    Some(Registered { name, flags: u16::from_be_bytes([f0, f1]), address: Ipv4Addr::new(a0, a1, a2, a3) })
}

impl Names {
    /// A message of the device. It registers for its own address only.
    pub(crate) fn observe_inbound(&mut self, src: IpAddr, message: &Message) {
        if message.header.is_response() {
            return;
        }
        match message.header.opcode() {
            opcode::REGISTRATION | opcode::REFRESH | opcode::REFRESH_ALT => {
                let Some(registered) = registration(message).filter(|r| src == IpAddr::V4(r.address)) else {
                    return;
                };
                self.0.retain(|r| r.name != registered.name);
                if self.0.len() < NETBIOS_NAMES {
                    self.0.push(registered);
                }
            }
            opcode::RELEASE => {
                if let Some(released) = registration(message) {
                    self.0.retain(|r| r.name != released.name);
                }
            }
            _ => {}
        }
    }

    /// A message to the device: a refusal of its registration takes the name away.
    pub(crate) fn observe_outbound(&mut self, message: &Message) {
        let header = message.header;
        let refused = header.is_response() && header.opcode() == opcode::REGISTRATION && header.rcode() != 0;
        if refused {
            let names = message.section(Section::Answer).filter_map(|r| NetbiosName::from_dns(&r.name));
            for name in names {
                self.0.retain(|r| r.name != name);
            }
        }
    }

    pub(crate) fn get(&self, name: NetbiosName) -> Option<&Registered> {
        self.0.iter().find(|r| r.name == name)
    }

    pub(crate) fn all(&self) -> &[Registered] {
        &self.0
    }
}
