//! Activities as columns. Owns the columns, which Parquet and Arrow IPC share.
//!
//! One row for each [`Activity`]; the schema's metadata say the version, the shortest idle period, and whether the traffic is synthetic.
//! A client is its `site`, `client` (its address or name) and `mac` (empty if it has none): two that share one of them stay two. The others
//! are `session`, `mark` (0 none, 1 joins, 2 a connection), `start_ns`, `end_ns`, `packets`, `outgoing`, `lead`, `silence_ns` and
//! `outgoing_silence_ns` (null before a client's first), and for the first and last packet `direction` (0 out, 1 in, 2 unknown),
//! `protocol`, `local_port`, `remote_port`, `size`. Sessions and silences are told for other readers; here they are found anew, by the rule that
//! is asked for. Columns are found by name, further ones are passed over.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use crate::activity::{Activity, LONGEST, Mark};
use crate::clients::Client;
use crate::facts::Named;
use crate::seen::{Mac, time_of_day};
use dormouse_energy::{Direction, PacketInfo};

/// Rows that are held in memory at once.
pub const GROUP: usize = 1 << 16;
/// Clients that one file may name.
const MAX_NAMES: usize = 1 << 22;
/// Version of the columns.
const VERSION: &str = "2";
/// What begins the names of metadata.
const OURS: &str = "dormouse.activities";
const TEXT: [&str; 3] = ["site", "client", "mac"];
const WIDE: [&str; 7] =
    ["start_ns", "end_ns", "packets", "outgoing", "lead", "silence_ns", "outgoing_silence_ns"];
const NARROW: [&str; 2] = ["session", "mark"];
const OF_PACKET: [&str; 5] = ["direction", "protocol", "local_port", "remote_port", "size"];

/// The names that rows have in a file, in the order in which they came.
pub type Clients = indexmap::IndexSet<Named, foldhash::fast::FixedState>;

/// The columns, with what a file says of itself. `synthetic` is the input's own words, if it says that it is.
#[must_use]
pub fn schema(min_idle: u64, synthetic: Option<&str>) -> SchemaRef {
    let mut fields: Vec<Field> = TEXT.map(|name| Field::new(name, DataType::Utf8, false)).into();
    fields.extend(NARROW.map(|name| Field::new(name, DataType::Int32, false)));
    fields.extend(WIDE.map(|name| Field::new(name, DataType::Int64, name.contains("silence"))));
    for which in ["first", "last"] {
        fields.extend(OF_PACKET.map(|name| Field::new(format!("{which}_{name}"), DataType::Int32, false)));
    }
    let mut said =
        vec![(OURS.to_owned(), VERSION.to_owned()), (format!("{OURS}.min_idle_ns"), min_idle.to_string())];
    said.extend(synthetic.map(|words| (format!("{OURS}.synthetic"), words.to_owned())));
    Arc::new(Schema::new_with_metadata(fields, said.into_iter().collect::<BTreeMap<_, _>>()))
}

/// Whether a file has rows of ours; if it says so, the words that its traffic is synthetic.
///
/// # Errors
/// A description of what it has instead.
pub fn check(schema: &Schema) -> Result<Option<String>, String> {
    match schema.metadata().get(OURS).map(String::as_str) {
        Some(VERSION) => Ok(schema.metadata().get(&format!("{OURS}.synthetic")).cloned()),
        Some(other) => Err(format!("activities of version {other}, expected {VERSION}")),
        None => Err("not a table of activities".to_owned()),
    }
}

const fn direction(direction: Direction) -> u32 {
    match direction {
        Direction::Outgoing => 0,
        Direction::Incoming => 1,
        Direction::Unknown => 2,
    }
}

/// Rows as columns. `client` tells who a number is.
///
/// # Errors
/// Never, but for a schema that is not [`schema`].
pub fn columns(
    schema: &SchemaRef,
    rows: &[Activity],
    client: &dyn Fn(u32) -> Option<Client>,
) -> Result<RecordBatch, ArrowError> {
    let mut text = TEXT.map(|_| StringBuilder::new());
    let mut known: Option<(u32, Client)> = None;
    for row in rows {
        if known.as_ref().is_none_or(|(number, _)| *number != row.client) {
            known = Some((row.client, client(row.client).unwrap_or_else(|| Client::named(""))));
        }
        let Some((_, client)) = &known else { continue };
        let mac = client.mac.map_or_else(String::new, |mac| mac.to_string());
        let values = [client.site.as_str(), client.name.as_str(), mac.as_str()];
        text.iter_mut().zip(values).for_each(|(column, value)| column.append_value(value));
    }
    let mut columns: Vec<ArrayRef> = text.into_iter().map(|mut t| Arc::new(t.finish()) as ArrayRef).collect();
    let mut narrow = |value: &dyn Fn(&Activity) -> u32| {
        let values = rows.iter().map(|r| i32::try_from(value(r)).unwrap_or(i32::MAX));
        columns.push(Arc::new(Int32Array::from_iter_values(values)));
    };
    narrow(&|r| r.session);
    narrow(&|r| r.mark as u32);
    let wide: [fn(&Activity) -> Option<u64>; 7] = [
        |r| Some(r.start),
        |r| Some(r.end),
        |r| Some(r.packets),
        |r| Some(r.outgoing),
        |r| Some(r.lead),
        |r| r.silence,
        |r| r.outgoing_silence,
    ];
    for value in wide {
        let values = rows.iter().map(|r| value(r).map(|n| i64::try_from(n).unwrap_or(i64::MAX)));
        columns.push(Arc::new(values.collect::<Int64Array>()));
    }
    let of_packet: [fn(&PacketInfo) -> u32; 5] = [
        |i| direction(i.direction),
        |i| u32::from(i.protocol),
        |i| u32::from(i.local_port),
        |i| u32::from(i.remote_port),
        |i| i.size,
    ];
    for of in [(|r| &r.first) as fn(&Activity) -> &PacketInfo, |r| &r.last] {
        for value in of_packet {
            let values = rows.iter().map(|r| i32::from_ne_bytes(value(of(r)).to_ne_bytes()));
            columns.push(Arc::new(Int32Array::from_iter_values(values)));
        }
    }
    RecordBatch::try_new(schema.clone(), columns)
}

fn column<'a, T: 'static>(batch: &'a RecordBatch, name: &str, kind: &str) -> Result<&'a T, String> {
    let column = batch.column_by_name(name).ok_or_else(|| format!("no column {name}"))?;
    column
        .as_any()
        .downcast_ref::<T>()
        .ok_or_else(|| format!("column {name} is {}, expected {kind}", column.data_type()))
}

/// The numbers of a column; a null, or one below zero, is none.
struct Numbers<'a>(&'a Int64Array);

impl Numbers<'_> {
    fn at(&self, row: usize) -> Option<u64> {
        if self.0.is_null(row) { None } else { u64::try_from(self.0.value(row)).ok() }
    }
}

/// A packet's columns.
struct Packets<'a>([&'a Int32Array; 5]);

impl<'a> Packets<'a> {
    fn of(batch: &'a RecordBatch, which: &str) -> Result<Self, String> {
        let mut columns = Vec::with_capacity(OF_PACKET.len());
        for name in OF_PACKET {
            columns.push(column::<Int32Array>(batch, &format!("{which}_{name}"), "Int32")?);
        }
        columns.try_into().map(Self).map_err(|_| "packets of other columns".to_owned())
    }

    fn at(&self, row: usize, time: u64) -> PacketInfo {
        let [direction, protocol, local, remote, size] =
            self.0.map(|column| u32::from_ne_bytes(column.value(row).to_ne_bytes()));
        let short = |n: u32| u16::try_from(n).unwrap_or(0);
        PacketInfo {
            direction: match direction {
                0 => Direction::Outgoing,
                1 => Direction::Incoming,
                _ => Direction::Unknown,
            },
            protocol: short(protocol),
            local_port: short(local),
            remote_port: short(remote),
            size,
            time_of_day: time_of_day(time),
        }
    }
}

/// Columns as rows. Their clients are added to `clients`; [`Activity::client`] is the index.
///
/// # Errors
/// A description of what is wrong with them.
pub fn rows(batch: &RecordBatch, clients: &mut Clients) -> Result<Vec<Activity>, String> {
    let mut text = Vec::with_capacity(TEXT.len());
    for name in TEXT {
        text.push(column::<StringArray>(batch, name, "Utf8")?);
    }
    let mut wide = Vec::with_capacity(WIDE.len());
    for name in WIDE {
        wide.push(Numbers(column::<Int64Array>(batch, name, "Int64")?));
    }
    let marks = column::<Int32Array>(batch, "mark", "Int32")?;
    let (first, last) = (Packets::of(batch, "first")?, Packets::of(batch, "last")?);
    let number = |which: usize, row: usize| wide.get(which).and_then(|column| column.at(row));
    let mut out = Vec::with_capacity(batch.num_rows());
    let mut known: Option<([&str; 3], u32)> = None;
    for row in 0..batch.num_rows() {
        let of = |which: usize| text.get(which).map_or("", |column| column.value(row));
        let name = [of(0), of(1), of(2)];
        let client = match known {
            Some((same, client)) if same == name => client,
            _ => self::client(clients, name)?,
        };
        known = Some((name, client));
        let start = number(0, row).unwrap_or(0);
        let end = number(1, row).unwrap_or(0).max(start);
        if end - start > LONGEST {
            return Err(format!("a row of {} days", (end - start) / 86_400_000_000_000));
        }
        let mark = match marks.value(row) {
            1 => Mark::Joins,
            2 => Mark::Connection,
            _ => Mark::None,
        };
        out.push(
            Activity {
                client,
                start,
                end,
                packets: number(2, row).unwrap_or(0),
                outgoing: number(3, row).unwrap_or(0),
                lead: number(4, row).unwrap_or(0),
                mark,
                first: first.at(row, start),
                last: last.at(row, end),
                ..Activity::default()
            }
            .consistent(),
        );
    }
    Ok(out)
}

fn client(clients: &mut Clients, [site, name, mac]: [&str; 3]) -> Result<u32, String> {
    let mac = match mac {
        "" => None,
        text => Some(Mac::parse(text).ok_or_else(|| format!("{text:?} is no link-layer address"))?),
    };
    let named = Named { site: site.to_owned(), name: name.to_owned(), mac };
    if clients.len() >= MAX_NAMES && !clients.contains(&named) {
        return Err(format!("more than {MAX_NAMES} clients"));
    }
    Ok(u32::try_from(clients.insert_full(named).0).unwrap_or(u32::MAX))
}
