//! Flows from the cells of a Zeek, nfdump or Argus line, and from the JSON of Zeek and Suricata. Owns what a column means for a flow.

use serde_json::{Map, Value};

use super::super::record::{Format, Next};
use super::column::Column;
use super::value::{address, calendar, number, port, protocol, seconds};
use crate::flow::Flow;
use crate::seen::Mac;

/// A flow whose cells are read one by one, in any order.
#[derive(Default)]
pub(super) struct FlowBuilder {
    flow: Flow,
    start: Option<u64>,
    end: Option<u64>,
    duration: u64,
    /// Packets and bytes of both directions, where they are told together.
    together: (u64, u64),
    argus: bool,
    /// No traffic between hosts of IP: Argus' management records, and frames that it names by link-layer addresses.
    upkeep: bool,
}

impl FlowBuilder {
    pub(super) fn new(format: Format) -> Self {
        Self { argus: format == Format::Argus, ..Self::default() }
    }

    /// Reads one cell.
    pub(super) fn set(&mut self, column: Column, cell: &str) -> Result<(), String> {
        if cell == "-" || cell.is_empty() || cell == "(empty)" {
            return Ok(());
        }
        let time = |cell: &str| {
            seconds(cell).or_else(|| calendar(cell)).ok_or_else(|| format!("{cell:?} is no time"))
        };
        match column {
            Column::Time => self.start = Some(time(cell)?),
            Column::End => self.end = Some(time(cell)?),
            Column::Duration => {
                self.duration = seconds(cell).ok_or_else(|| format!("{cell:?} is no duration"))?
            }
            Column::SourceAddress if self.is_frame(cell) => self.upkeep = true,
            Column::DestinationAddress if self.is_frame(cell) => self.upkeep = true,
            Column::Protocol if self.argus && cell == "man" => self.upkeep = true,
            // Argus writes ICMP's numbers in hexadecimal and, asked to, services by name: neither is a port.
            Column::SourcePort | Column::DestinationPort if self.argus && port(cell).is_err() => {}
            Column::Packets => self.together.0 = number(cell, "packet count")?,
            Column::AllBytes => self.together.1 = number(cell, "byte count")?,
            Column::Connection => self.flow.named = true,
            _ => self.of_flow(column, cell)?,
        }
        Ok(())
    }

    fn is_frame(&self, cell: &str) -> bool {
        self.argus && Mac::parse(cell).is_some()
    }

    fn of_flow(&mut self, column: Column, cell: &str) -> Result<(), String> {
        let f = &mut self.flow;
        match column {
            Column::SourceAddress if !self.upkeep => f.first.src.ip = address(cell)?,
            Column::DestinationAddress if !self.upkeep => f.first.dst.ip = address(cell)?,
            Column::SourcePort => f.first.src_port = port(cell)?,
            Column::DestinationPort => f.first.dst_port = port(cell)?,
            Column::Protocol => f.first.protocol = protocol(cell),
            Column::ForwardPackets => f.forward = number(cell, "packet count")?,
            Column::BackPackets => f.back = number(cell, "packet count")?,
            Column::ForwardBytes => f.forward_bytes = number(cell, "byte count")?,
            Column::BackBytes => f.back_bytes = number(cell, "byte count")?,
            _ => {}
        }
        Ok(())
    }

    /// Packets that are told together go to both directions as the bytes do, at least one to each that has bytes.
    fn divide(&mut self) {
        let ((packets, bytes), f) = (self.together, &mut self.flow);
        if packets == 0 || f.forward > 0 || f.back > 0 {
            return;
        }
        if bytes == 0 {
            f.forward = packets;
            return;
        }
        let forward_bytes = f.forward_bytes.min(bytes);
        f.back_bytes = bytes - forward_bytes;
        let share = u128::from(packets) * u128::from(forward_bytes) / u128::from(bytes);
        let share = u64::try_from(share).unwrap_or(packets);
        let most = packets - u64::from(f.back_bytes > 0 && packets > 1);
        f.forward = share.max(u64::from(forward_bytes > 0)).min(most);
        f.back = packets - f.forward;
    }

    /// The flow, if it has a time and an address.
    pub(super) fn finish(mut self) -> Result<Next, String> {
        if self.upkeep {
            return Ok(Next::Upkeep);
        }
        let start = self.start.ok_or("no start time")?;
        if self.flow.first.src.ip.is_none() && self.flow.first.dst.ip.is_none() {
            return Err("no addresses".to_owned());
        }
        self.divide();
        self.flow.first.at = start;
        self.flow.end = self.end.unwrap_or_else(|| start.saturating_add(self.duration)).max(start);
        // Who a flow belongs to is said by its addresses; a link-layer address may be the router's.
        (self.flow.first.src.mac, self.flow.first.dst.mac) = (Mac::NONE, Mac::NONE);
        Ok(Next::Flow(Box::new(self.flow)))
    }
}

fn object(line: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(line).map_err(|e| format!("no JSON object: {e}"))
}

/// A line of a Zeek log in JSON.
pub(super) fn zeek(line: &str) -> Result<Next, String> {
    let mut builder = FlowBuilder::new(Format::Zeek);
    for (name, value) in &object(line)? {
        let column = Column::named(Format::Zeek, name);
        match value {
            Value::String(text) => builder.set(column, text)?,
            Value::Number(n) => builder.set(column, &n.to_string())?,
            _ => {}
        }
    }
    builder.finish()
}

/// A line of Suricata's EVE log: events of other types are passed over.
pub(super) fn suricata(line: &str) -> Result<Next, String> {
    let event = object(line)?;
    if event.get("event_type").and_then(Value::as_str) != Some("flow") {
        return Ok(Next::Upkeep);
    }
    let mut builder = FlowBuilder::new(Format::Suricata);
    let mut set = |within: &Map<String, Value>, name: &str, column: Column| match within.get(name) {
        Some(Value::String(text)) => builder.set(column, text),
        Some(Value::Number(n)) => builder.set(column, &n.to_string()),
        _ => Ok(()),
    };
    let of_event = [
        ("src_ip", Column::SourceAddress),
        ("dest_ip", Column::DestinationAddress),
        ("src_port", Column::SourcePort),
        ("dest_port", Column::DestinationPort),
        ("proto", Column::Protocol),
        ("flow_id", Column::Connection),
    ];
    of_event.into_iter().try_for_each(|(name, column)| set(&event, name, column))?;
    let flow = event.get("flow").and_then(Value::as_object).ok_or("a flow event without its flow")?;
    let of_flow = [
        ("start", Column::Time),
        ("end", Column::End),
        ("pkts_toserver", Column::ForwardPackets),
        ("pkts_toclient", Column::BackPackets),
        ("bytes_toserver", Column::ForwardBytes),
        ("bytes_toclient", Column::BackBytes),
    ];
    of_flow.into_iter().try_for_each(|(name, column)| set(flow, name, column))?;
    builder.finish()
}
