//! Idle periods as Parquet: the hand-over point for populations that outgrow one machine. Owns the columns.
//!
//! One row for each [`Period`]; the file's metadata say the format's version, the shortest idle period, and whether the
//! traffic is synthetic. Columns: `client` (text), `at_ns`, `idle_ns`, `span_ns`, `packets`, `outgoing`, `lead`, and for the burst's
//! first and last packet `direction` (0 out, 1 in, 2 unknown), `protocol`, `local_port`, `remote_port`, `size`.
//!
//! The library that unpacks Parquet panics on some damaged files. What it panics over is a loss like any other here: see
//! [`guarded`].

use std::fs::File;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::index::Names;
use crate::periods::Period;
use dormouse_energy::{Direction, PacketInfo};

/// Rows of one row group: what is held in memory.
const GROUP: usize = 1 << 16;
/// Version of the columns.
const VERSION: &str = "1";
const NUMBERS: [&str; 6] = ["at_ns", "idle_ns", "span_ns", "packets", "outgoing", "lead"];
const OF_PACKET: [&str; 5] = ["direction", "protocol", "local_port", "remote_port", "size"];

fn schema() -> String {
    let mut text = String::from("message periods { REQUIRED BYTE_ARRAY client (UTF8);");
    for name in NUMBERS {
        let kind = if name.ends_with("_ns") { "INT64" } else { "INT32" };
        text += &format!(" REQUIRED {kind} {name};");
    }
    for which in ["first", "last"] {
        for name in OF_PACKET {
            text += &format!(" REQUIRED INT32 {which}_{name};");
        }
    }
    text + " }"
}

/// Writes idle periods.
pub struct PeriodWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Vec<Period>,
}

impl<W: Write + Send> PeriodWriter<W> {
    /// Begins a file. `synthetic` is the input's own words, if it says that it is.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn new(output: W, min_idle: u64, synthetic: Option<&str>) -> Result<Self, ParquetError> {
        let mut facts = vec![
            KeyValue::new("dormouse.periods".to_owned(), VERSION.to_owned()),
            KeyValue::new("dormouse.min_idle_ns".to_owned(), min_idle.to_string()),
        ];
        facts.extend(synthetic.map(|words| KeyValue::new("dormouse.synthetic".to_owned(), words.to_owned())));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_key_value_metadata(Some(facts))
            .build();
        let schema = Arc::new(parse_message_type(&schema())?);
        Ok(Self {
            writer: SerializedFileWriter::new(output, schema, Arc::new(properties))?,
            rows: Vec::new(),
        })
    }

    /// Adds a row; `name` tells a client's name when a group is full.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn push(&mut self, period: &Period, name: &dyn Fn(u32) -> String) -> Result<(), ParquetError> {
        self.rows.push(*period);
        if self.rows.len() >= GROUP { self.flush(name) } else { Ok(()) }
    }

    /// Writes what is left and the end of the file.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn finish(mut self, name: &dyn Fn(u32) -> String) -> Result<(), ParquetError> {
        self.flush(name)?;
        self.writer.close().map(|_| ())
    }

    fn flush(&mut self, name: &dyn Fn(u32) -> String) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        let names: Vec<ByteArray> = rows.iter().map(|p| ByteArray::from(name(p.client).as_str())).collect();
        write::<ByteArrayType, _>(&mut group, &names)?;
        let wide: [fn(&Period) -> u64; 3] = [|p| p.at, |p| p.idle, |p| p.span];
        for value in wide {
            let values: Vec<i64> = rows.iter().map(|p| i64::try_from(value(p)).unwrap_or(i64::MAX)).collect();
            write::<Int64Type, _>(&mut group, &values)?;
        }
        let counts: [fn(&Period) -> u32; 3] = [|p| p.packets, |p| p.outgoing, |p| p.lead];
        let of_packet: [fn(&PacketInfo) -> u32; 5] = [
            |i| direction(i.direction),
            |i| u32::from(i.protocol),
            |i| u32::from(i.local_port),
            |i| u32::from(i.remote_port),
            |i| i.size,
        ];
        let mut narrow = |value: &dyn Fn(&Period) -> u32| {
            let int = |p| i32::try_from(value(p)).unwrap_or(i32::MAX);
            write::<Int32Type, _>(&mut group, &rows.iter().map(int).collect::<Vec<_>>())
        };
        counts.iter().try_for_each(|value| narrow(value))?;
        of_packet.iter().try_for_each(|value| narrow(&|p| value(&p.first)))?;
        of_packet.iter().try_for_each(|value| narrow(&|p| value(&p.last)))?;
        group.close().map(|_| ())
    }
}

/// Writes the next column.
fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the writer has fewer columns than the schema".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

const fn direction(direction: Direction) -> u32 {
    match direction {
        Direction::Outgoing => 0,
        Direction::Incoming => 1,
        Direction::Unknown => 2,
    }
}

/// Reads idle periods, one row group at a time.
pub struct PeriodReader {
    reader: SerializedFileReader<File>,
    group: usize,
    rows: std::vec::IntoIter<Period>,
    names: Names,
    synthetic: Option<String>,
    done: u64,
}

impl PeriodReader {
    /// Opens a file.
    ///
    /// # Errors
    /// A description of what is wrong: no Parquet, other columns, another version.
    pub fn open(file: File) -> Result<Self, String> {
        let reader = guarded(|| SerializedFileReader::new(file))
            .map_err(|e| format!("no readable Parquet file: {e}"))?;
        let facts = reader.metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
        let fact = |key: &str| facts.iter().find(|f| f.key == key).and_then(|f| f.value.clone());
        match fact("dormouse.periods").as_deref() {
            Some(VERSION) => {}
            Some(other) => return Err(format!("idle periods of version {other}, expected {VERSION}")),
            None => return Err("a Parquet file, but not of idle periods".to_owned()),
        }
        let columns = reader.metadata().file_metadata().schema_descr().num_columns();
        let expected = 1 + NUMBERS.len() + 2 * OF_PACKET.len();
        if columns != expected {
            return Err(format!("{columns} columns, expected {expected}"));
        }
        Ok(Self {
            reader,
            group: 0,
            rows: Vec::new().into_iter(),
            names: Names::default(),
            synthetic: fact("dormouse.synthetic"),
            done: 0,
        })
    }

    /// The words that say that the traffic is synthetic.
    #[must_use]
    pub fn synthetic(&self) -> Option<&str> {
        self.synthetic.as_deref()
    }

    /// The clients seen so far; [`Period::client`] is the index.
    #[must_use]
    pub const fn names(&self) -> &Names {
        &self.names
    }

    /// Rows read so far.
    #[must_use]
    pub const fn done(&self) -> u64 {
        self.done
    }

    /// The next row.
    ///
    /// # Errors
    /// A description of what is wrong with the row group; later calls go on with the next group.
    pub fn row(&mut self) -> Option<Result<Period, String>> {
        loop {
            if let Some(period) = self.rows.next() {
                self.done += 1;
                return Some(Ok(period));
            }
            if self.group >= self.reader.num_row_groups() {
                return None;
            }
            let group = self.group;
            self.group += 1;
            match guarded(|| self.load(group)) {
                Ok(rows) => self.rows = rows.into_iter(),
                Err(e) => return Some(Err(format!("row group {group}: {e}"))),
            }
        }
    }

    fn load(&mut self, group: usize) -> Result<Vec<Period>, ParquetError> {
        let group = self.reader.get_row_group(group)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        if rows > GROUP * 16 {
            return Err(ParquetError::General(format!("{rows} rows, at most {} are expected", GROUP * 16)));
        }
        let names = column::<ByteArrayType>(&*group, 0, rows)?;
        let names = names.iter().map(|v| v.as_utf8().map(str::to_owned)).collect::<Result<Vec<_>, _>>()?;
        let wide = (1..4).map(|c| column::<Int64Type>(&*group, c, rows)).collect::<Result<Vec<_>, _>>()?;
        let narrow = (4..17).map(|c| column::<Int32Type>(&*group, c, rows)).collect::<Result<Vec<_>, _>>()?;
        drop(group);
        let lengths =
            [names.len()].into_iter().chain(wide.iter().map(Vec::len)).chain(narrow.iter().map(Vec::len));
        if let Some(length) = lengths.into_iter().find(|length| *length != rows) {
            return Err(ParquetError::General(format!(
                "a column of {length} values in a group of {rows} rows"
            )));
        }
        let w = |c: usize, r: usize| {
            wide.get(c).and_then(|v| v.get(r)).and_then(|v| u64::try_from(*v).ok()).unwrap_or(0)
        };
        let n = |c: usize, r: usize| {
            narrow.get(c).and_then(|v| v.get(r)).and_then(|v| u32::try_from(*v).ok()).unwrap_or(0)
        };
        let packet = |from: usize, r: usize| {
            let short = |c: usize| u16::try_from(n(from + c, r)).unwrap_or(0);
            let direction = match n(from, r) {
                0 => Direction::Outgoing,
                1 => Direction::Incoming,
                _ => Direction::Unknown,
            };
            let (protocol, local_port, remote_port, size) = (short(1), short(2), short(3), n(from + 4, r));
            PacketInfo { direction, protocol, local_port, remote_port, size, time_of_day: None }
        };
        let mut out = Vec::with_capacity(rows);
        for (r, name) in names.into_iter().enumerate() {
            let client = self.client(name);
            let packets = n(0, r).max(1);
            let (first, last) = (packet(3, r), packet(8, r));
            let (outgoing, lead) = (n(1, r).min(packets), n(2, r).min(packets));
            out.push(Period {
                client,
                at: w(0, r),
                idle: w(1, r),
                span: w(2, r),
                packets,
                outgoing,
                lead,
                first,
                last,
            });
        }
        Ok(out)
    }

    fn client(&mut self, name: String) -> u32 {
        u32::try_from(self.names.insert_full(name).0).unwrap_or(u32::MAX)
    }
}

/// Runs the library on bytes that it may not be prepared for: a panic becomes an error that quotes it.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    // What was half read is dropped with the panic: no state of ours is seen again.
    let outcome = panic::catch_unwind(AssertUnwindSafe(read));
    outcome.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Err(ParquetError::General(format!("damaged so that it cannot be unpacked ({words})")))
    })
}

/// The values of a column, which must be of the expected type: the typed readers panic on any other.
fn column<T: DataType>(
    group: &dyn RowGroupReader,
    column: usize,
    rows: usize,
) -> Result<Vec<T::T>, ParquetError> {
    let (found, expected) = (group.metadata().column(column).column_type(), T::get_physical_type());
    if found != expected {
        return Err(ParquetError::General(format!("column {column} is {found}, expected {expected}")));
    }
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(column)?);
    let mut values = Vec::with_capacity(rows);
    reader.read_records(rows, None, None, &mut values)?;
    Ok(values)
}
