//! Flows from the cells of a Zeek or nfdump line. Owns what a column means for a flow.

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
}

impl FlowBuilder {
    /// Reads one cell.
    pub(super) fn set(&mut self, column: Column, cell: &str) -> Result<(), String> {
        if cell == "-" || cell.is_empty() || cell == "(empty)" {
            return Ok(());
        }
        let time = |cell: &str| {
            seconds(cell).or_else(|| calendar(cell)).ok_or_else(|| format!("{cell:?} is no time"))
        };
        let f = &mut self.flow;
        match column {
            Column::Time => self.start = Some(time(cell)?),
            Column::End => self.end = Some(time(cell)?),
            Column::Duration => {
                self.duration = seconds(cell).ok_or_else(|| format!("{cell:?} is no duration"))?
            }
            Column::SourceAddress => f.first.src.ip = address(cell)?,
            Column::DestinationAddress => f.first.dst.ip = address(cell)?,
            Column::SourcePort => f.first.src_port = port(cell)?,
            Column::DestinationPort => f.first.dst_port = port(cell)?,
            Column::SourceMac => f.first.src.mac = Mac::parse(cell).unwrap_or_default(),
            Column::DestinationMac => f.first.dst.mac = Mac::parse(cell).unwrap_or_default(),
            Column::Protocol => f.first.protocol = protocol(cell),
            Column::ForwardPackets => f.forward = number(cell, "packet count")?,
            Column::BackPackets => f.back = number(cell, "packet count")?,
            Column::ForwardBytes => f.forward_bytes = number(cell, "byte count")?,
            Column::BackBytes => f.back_bytes = number(cell, "byte count")?,
            _ => {}
        }
        Ok(())
    }

    /// The flow, if it has a time and an address.
    pub(super) fn finish(mut self) -> Result<Next, String> {
        let start = self.start.ok_or("no start time")?;
        if self.flow.first.src.ip.is_none() && self.flow.first.dst.ip.is_none() {
            return Err("no addresses".to_owned());
        }
        self.flow.first.at = start;
        self.flow.end = self.end.unwrap_or_else(|| start.saturating_add(self.duration)).max(start);
        // Who a flow belongs to is said by its addresses; a link-layer address may be the router's.
        (self.flow.first.src.mac, self.flow.first.dst.mac) = (Mac::NONE, Mac::NONE);
        Ok(Next::Flow(Box::new(self.flow)))
    }
}

/// A line of a Zeek log in JSON.
pub(super) fn json_flow(line: &str) -> Result<Next, String> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(line).map_err(|e| format!("no JSON object: {e}"))?;
    let mut builder = FlowBuilder::default();
    for (name, value) in &object {
        let column = Column::named(Format::Zeek, name);
        match value {
            serde_json::Value::String(text) => builder.set(column, text)?,
            serde_json::Value::Number(n) => builder.set(column, &n.to_string())?,
            _ => {}
        }
    }
    builder.finish()
}
