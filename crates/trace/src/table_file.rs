//! Activities as files of Parquet or Arrow IPC: what is handed to other programs and read back. Owns the files.
//!
//! The libraries that unpack them panic on some damaged files. What they panic over is a loss like any other here: see [`guarded`].

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, Write};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_ipc::writer::FileWriter;
use arrow_schema::SchemaRef;
use dormouse_report::Unfinished;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::activity::Activity;
use crate::clients::Client;
use crate::index::mix;
use crate::input::{PART, is_part};
use crate::table::{Clients, GROUP, check, columns, rows, schema};

/// How a file is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Parquet, in groups of [`GROUP`] rows, compressed.
    Parquet,
    /// Arrow's IPC file, in batches of as many.
    Arrow,
}

impl Layout {
    /// By the end of a file's name: `.arrow`, or anything else.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        if name.ends_with(".arrow") { Self::Arrow } else { Self::Parquet }
    }
}

/// The name of the metadata that say in JSON where a file comes from ([`crate::report::json::Provenance`]).
pub const PROVENANCE: &str = "dormouse.provenance";

/// Who a number is.
pub type WhoIs<'a> = &'a dyn Fn(u32) -> Option<Client>;

/// Writes activities.
pub struct ActivityWriter<W: Write + Send> {
    file: Writer<W>,
    schema: SchemaRef,
    rows: Vec<Activity>,
}

enum Writer<W: Write + Send> {
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<FileWriter<W>>),
}

fn other(error: impl ToString) -> std::io::Error {
    std::io::Error::other(error.to_string())
}

impl<W: Write + Send> ActivityWriter<W> {
    /// Begins a file. `synthetic` is the input's own words, if it says that it is.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn new(output: W, layout: Layout, min_idle: u64, synthetic: Option<&str>) -> std::io::Result<Self> {
        let schema = schema(min_idle, synthetic);
        let file = match layout {
            Layout::Parquet => {
                let level = ZstdLevel::try_new(1).map_err(other)?;
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(level))
                    .set_max_row_group_row_count(Some(GROUP))
                    .build();
                let writer = ArrowWriter::try_new(output, schema.clone(), Some(properties)).map_err(other)?;
                Writer::Parquet(Box::new(writer))
            }
            Layout::Arrow => Writer::Arrow(Box::new(FileWriter::try_new(output, &schema).map_err(other)?)),
        };
        Ok(Self { file, schema, rows: Vec::new() })
    }

    /// Adds a row; `who` is asked when a group is full.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn push(&mut self, activity: &Activity, who: WhoIs<'_>) -> std::io::Result<()> {
        self.rows.push(*activity);
        if self.rows.len() >= GROUP { self.flush(who) } else { Ok(()) }
    }

    /// Puts words of this name into the file's metadata.
    pub fn note(&mut self, name: &str, words: &str) {
        match &mut self.file {
            Writer::Parquet(writer) => {
                writer.append_key_value_metadata(KeyValue::new(name.to_owned(), words.to_owned()));
            }
            Writer::Arrow(writer) => writer.write_metadata(name, words),
        }
    }

    /// Writes what is left and the end of the file, and gives it back.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn finish(mut self, who: WhoIs<'_>) -> std::io::Result<W> {
        self.flush(who)?;
        match self.file {
            Writer::Parquet(writer) => writer.into_inner().map_err(other),
            Writer::Arrow(writer) => writer.into_inner().map_err(other),
        }
    }

    fn flush(&mut self, who: WhoIs<'_>) -> std::io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let batch = columns(&self.schema, &self.rows, who).map_err(other)?;
        self.rows.clear();
        match &mut self.file {
            Writer::Parquet(writer) => writer.write(&batch).map_err(other),
            Writer::Arrow(writer) => writer.write(&batch).map_err(other),
        }
    }
}

/// Parts of a table that is written into a directory.
pub const PARTS: usize = 8;

/// Writes activities to a file, or into a directory as [`PARTS`] files of Parquet, by a hash of who the client is: each client is in one
/// part, whole, so that parts can be folded on machines of their own.
///
/// A file takes its name when it is whole: before that, what was there is there still.
pub struct TableWriter {
    parts: Vec<ActivityWriter<Unfinished>>,
    /// The client that was written last, and its part.
    last: Option<(u32, usize)>,
}

impl TableWriter {
    /// Begins the file at `path`; the directory, if there is one or `path` ends in `/`. Parts of the same names are replaced.
    ///
    /// # Errors
    /// When it cannot be made or written, or the directory holds parts of other names, which would be read back with ours.
    pub fn create(path: &Path, min_idle: u64, synthetic: Option<&str>) -> std::io::Result<Self> {
        let name = path.to_string_lossy();
        let begin =
            |path: &Path, layout| ActivityWriter::new(Unfinished::create(path)?, layout, min_idle, synthetic);
        let parts = if name.ends_with('/') || path.is_dir() {
            std::fs::create_dir_all(path)?;
            let names: Vec<String> = (0..PARTS).map(|n| format!("{PART}{n:05}.parquet")).collect();
            for entry in path.read_dir()? {
                let file = entry?.file_name();
                if file.to_str().is_some_and(|file| is_part(file) && !names.iter().any(|name| name == file)) {
                    return Err(other(format!("it holds another table's {}", file.display())));
                }
            }
            let part = |name: &String| begin(&path.join(name), Layout::Parquet);
            names.iter().map(part).collect::<std::io::Result<_>>()?
        } else {
            vec![begin(path, Layout::of_name(&name))?]
        };
        Ok(Self { parts, last: None })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn push(&mut self, activity: &Activity, who: WhoIs<'_>) -> std::io::Result<()> {
        let part = match self.last {
            Some((client, part)) if client == activity.client => part,
            _ => who(activity.client).map_or(0, |client| part(&client, self.parts.len())),
        };
        self.last = Some((activity.client, part));
        self.parts.get_mut(part).map_or(Ok(()), |writer| writer.push(activity, who))
    }

    /// Puts words of this name into the metadata of each file.
    pub fn note(&mut self, name: &str, words: &str) {
        self.parts.iter_mut().for_each(|part| part.note(name, words));
    }

    /// Writes what is left and the end of each file.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn finish(self, who: WhoIs<'_>) -> std::io::Result<()> {
        let finish = |writer: ActivityWriter<Unfinished>| writer.finish(who);
        let whole: Vec<Unfinished> = self.parts.into_iter().map(finish).collect::<std::io::Result<_>>()?;
        whole.into_iter().try_for_each(Unfinished::place)
    }
}

/// The part of `parts` in which a client is: the same in every run.
fn part(client: &Client, parts: usize) -> usize {
    let mac = client.mac.map_or(0, |mac| mac.0);
    let bytes = client.site.bytes().chain([0]).chain(client.name.bytes());
    let hash = bytes.fold(mix(mac), |hash, byte| mix(hash ^ u64::from(byte)));
    usize::try_from(hash % parts.max(1) as u64).unwrap_or(0)
}

/// Reads activities, one group of rows at a time.
pub struct ActivityReader {
    source: Batches,
    group: usize,
    rows: std::vec::IntoIter<Activity>,
    clients: Clients,
    synthetic: Option<String>,
    done: u64,
}

enum Batches {
    Parquet(File, ArrowReaderMetadata),
    Arrow(Box<FileReader<BufReader<File>>>),
    Stream(Box<StreamReader<BufReader<File>>>),
}

/// How Arrow's IPC file begins.
pub const ARROW: &[u8] = b"ARROW1";
/// How Parquet begins.
pub const PARQUET: &[u8] = b"PAR1";

/// Whether this is the beginning of Arrow's IPC stream: a continuation mark and the length of a schema.
#[must_use]
pub fn is_stream(head: &[u8]) -> bool {
    matches!(head, [0xff, 0xff, 0xff, 0xff, a, b, 0, 0, ..] if u16::from_le_bytes([*a, *b]) >= 16)
}

impl ActivityReader {
    /// Opens a file.
    ///
    /// # Errors
    /// A description of what is wrong: neither Parquet nor Arrow, other columns, another version.
    pub fn open(mut file: File) -> Result<Self, String> {
        let mut head = Vec::new();
        (&file).take(8).read_to_end(&mut head).and_then(|_| file.rewind()).map_err(|e| e.to_string())?;
        let (source, schema) = if head.starts_with(ARROW) {
            let reader = guarded(|| FileReader::try_new_buffered(file, None))
                .map_err(|e| format!("no readable Arrow file: {e}"))?;
            let schema = reader.schema();
            (Batches::Arrow(Box::new(reader)), schema)
        } else if is_stream(&head) {
            let reader = guarded(|| StreamReader::try_new_buffered(file, None))
                .map_err(|e| format!("no readable Arrow stream: {e}"))?;
            let schema = reader.schema();
            (Batches::Stream(Box::new(reader)), schema)
        } else {
            let metadata = guarded(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))
                .map_err(|e| format!("no readable Parquet file: {e}"))?;
            let schema = metadata.schema().clone();
            (Batches::Parquet(file, metadata), schema)
        };
        let synthetic = check(&schema)?;
        let rows = Vec::new().into_iter();
        Ok(Self { source, group: 0, rows, clients: Clients::default(), synthetic, done: 0 })
    }

    /// The words that say that the traffic is synthetic.
    #[must_use]
    pub fn synthetic(&self) -> Option<&str> {
        self.synthetic.as_deref()
    }

    /// The clients seen so far; [`Activity::client`] is the index.
    #[must_use]
    pub const fn names(&self) -> &Clients {
        &self.clients
    }

    /// Rows read so far.
    #[must_use]
    pub const fn done(&self) -> u64 {
        self.done
    }

    /// The next row.
    ///
    /// # Errors
    /// A description of what is wrong with the group of rows; later calls go on with the next group, where the layout tells where it is.
    pub fn row(&mut self) -> Option<Result<Activity, String>> {
        loop {
            if let Some(activity) = self.rows.next() {
                self.done += 1;
                return Some(Ok(activity));
            }
            let group = self.group;
            self.group += 1;
            let Self { source, clients, .. } = self;
            match guarded(|| source.load(group).and_then(|b| b.map(|b| rows(&b, clients)).transpose())) {
                Ok(None) => return None,
                Ok(Some(rows)) => self.rows = rows.into_iter(),
                Err(e) => {
                    self.group =
                        if matches!(self.source, Batches::Parquet(..)) { self.group } else { usize::MAX };
                    return Some(Err(format!("row group {group}: {e}")));
                }
            }
        }
    }
}

impl Batches {
    /// The rows of a group; nothing behind the last.
    fn load(&mut self, group: usize) -> Result<Option<RecordBatch>, String> {
        if group == usize::MAX {
            return Ok(None);
        }
        match self {
            Self::Arrow(reader) => reader.next().transpose().map_err(|e| e.to_string()),
            Self::Stream(reader) => reader.next().transpose().map_err(|e| e.to_string()),
            Self::Parquet(file, metadata) => {
                let groups = metadata.metadata().num_row_groups();
                if group >= groups {
                    return Ok(None);
                }
                let claimed = metadata.metadata().row_group(group).num_rows();
                let most = GROUP * 16;
                let rows = usize::try_from(claimed).ok().filter(|rows| *rows <= most);
                let rows = rows.ok_or_else(|| format!("{claimed} rows, at most {most} are expected"))?;
                let file = file.try_clone().map_err(|e| e.to_string())?;
                let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone())
                    .with_row_groups(vec![group])
                    .with_batch_size(rows.max(1))
                    .build();
                let batch =
                    reader.map_err(|e| e.to_string())?.next().transpose().map_err(|e| e.to_string())?;
                match batch {
                    Some(batch) if batch.num_rows() == rows => Ok(Some(batch)),
                    None if rows == 0 => Ok(Some(RecordBatch::new_empty(metadata.schema().clone()))),
                    found => {
                        let found = found.map_or(0, |b| b.num_rows());
                        Err(format!("{found} rows in a group of {rows}"))
                    }
                }
            }
        }
    }
}

/// Runs a library on bytes that it may not be prepared for: a panic becomes an error that quotes it.
fn guarded<T, E: ToString>(read: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    // What was half read is dropped with the panic: no state of ours is seen again.
    let outcome = panic::catch_unwind(AssertUnwindSafe(read));
    outcome.map_or_else(
        |panic| {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(format!("damaged so that it cannot be unpacked ({words})"))
        },
        |read| read.map_err(|e| e.to_string()),
    )
}
