//! Where recordings come from: files, patterns, standard input; plain or compressed. Owns files and temporary spools.
//!
//! Every recording is read twice: once to survey it (who is a client, how late do records come), once to account. Standard
//! input is therefore copied to a temporary file that has no name and vanishes with the process.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::bytes::Bytes;

/// UDP ports on which collectors of exported flows listen: those usual for NetFlow, and IPFIX's (4739).
pub const EXPORT_PORTS: [u16; 3] = [2055, 4739, 9995];

/// How the names of a table's parts begin, in a directory that holds it (as Spark writes them too).
pub const PART: &str = "part-";

/// What stands for the hash of a file that was another one after it was read than before: the figures are of neither.
pub const CHANGED: &str = "changed while it was read";

/// By what it is seen that a file is another one than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    inode: u64,
    bytes: u64,
    /// When it was last written to: seconds since 1970, and nanoseconds.
    written: (i64, i64),
}

/// One recording.
#[derive(Debug)]
pub struct Input {
    name: String,
    label: Option<String>,
    place: Place,
    export_ports: Vec<u16>,
}

#[derive(Debug)]
enum Place {
    Path(PathBuf),
    Spool(File),
}

/// How the bytes are wrapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrapping {
    /// Not at all.
    Plain,
    /// RFC 1952, several members allowed.
    Gzip,
    /// RFC 8878, several frames allowed.
    Zstd,
}

impl Wrapping {
    fn detect(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

impl Input {
    fn new(name: String, place: Place) -> Self {
        Self { name, label: None, place, export_ports: EXPORT_PORTS.to_vec() }
    }

    /// It belongs to the site with this label, as others may.
    #[must_use]
    pub fn with_site(self, label: &str) -> Self {
        Self { label: Some(label.to_owned()), ..self }
    }

    /// The site that it belongs to: its label; or its name, for nothing else is known to have been recorded at the same place. The parts of a table have
    /// the name of their directory.
    #[must_use]
    pub fn site(&self) -> &str {
        let whole = self.name.rsplit_once('/').filter(|(_, file)| is_part(file));
        let name = whole.map_or(self.name.as_str(), |(directory, _)| directory);
        self.label.as_deref().unwrap_or(name)
    }

    /// Exported flows inside a capture are looked for on these UDP ports instead of the usual ones ([`EXPORT_PORTS`]); on none, nowhere.
    #[must_use]
    pub fn with_export_ports(self, ports: &[u16]) -> Self {
        Self { export_ports: ports.to_vec(), ..self }
    }

    /// The ports on which exported flows are looked for.
    #[must_use]
    pub fn export_ports(&self) -> &[u16] {
        &self.export_ports
    }

    /// The file at `path`.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self::new(path.display().to_string(), Place::Path(path.to_owned()))
    }

    /// Copies a stream to a temporary file.
    ///
    /// # Errors
    /// When the temporary file cannot be made or written.
    pub fn spool(name: &str, stream: &mut dyn Read) -> io::Result<Self> {
        let mut spool = anonymous_file()?;
        io::copy(stream, &mut spool)?;
        Ok(Self::new(name.to_owned(), Place::Spool(spool)))
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes on disk, before decompression.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match &self.place {
            Place::Path(path) => path.metadata().ok().map(|m| m.len()),
            Place::Spool(file) => file.metadata().ok().map(|m| m.len()),
        }
    }

    /// How its file is now; `None` if it cannot be opened. Two that differ are of a file that changed in between.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        let of = self.file_handle().ok()?.metadata().ok()?;
        Some(State { inode: of.ino(), bytes: of.len(), written: (of.mtime(), of.mtime_nsec()) })
    }

    /// The file itself, at its beginning.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn file_handle(&self) -> io::Result<File> {
        match &self.place {
            Place::Path(path) => File::open(path),
            Place::Spool(file) => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(0))?;
                Ok(file)
            }
        }
    }

    /// Opens it at the beginning, decompressing. Only one reader of an input may be open at a time.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub fn open(&self) -> io::Result<Bytes> {
        let mut file = self.file_handle()?;
        let mut head = Vec::with_capacity(4);
        file.by_ref().take(4).read_to_end(&mut head)?;
        let wrapping = Wrapping::detect(&head);
        let whole = io::Cursor::new(head).chain(file);
        Ok(Bytes::new(match wrapping {
            Wrapping::Plain => Box::new(whole),
            Wrapping::Gzip => {
                Box::new(flate2::read::MultiGzDecoder::new(io::BufReader::with_capacity(1 << 17, whole)))
            }
            Wrapping::Zstd => Box::new(zstd::stream::read::Decoder::new(whole)?),
        }))
    }
}

pub(crate) fn anonymous_file() -> io::Result<File> {
    let directory = std::env::temp_dir();
    for attempt in 0..100 {
        let path = directory.join(format!("dormouse-spool-{}-{attempt}", std::process::id()));
        match File::options().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other(format!("no free name for a temporary file in {}", directory.display())))
}

/// Files by name or pattern (`*`, `?`, `[...]`, `**`), sorted, each once however it is called. A name that exists is taken as it is; of a
/// directory, the parts of the table that it holds.
///
/// # Errors
/// Says which argument matches nothing, is no pattern, or is a directory without a table.
pub fn expand(arguments: &[String]) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for argument in arguments {
        let path = PathBuf::from(argument);
        if path.is_dir() {
            paths.extend(parts(&path)?);
            continue;
        }
        if path.exists() {
            paths.push(path);
            continue;
        }
        let matches =
            glob::glob(argument).map_err(|e| format!("{argument}: no such file, and no pattern: {e}"))?;
        let before = paths.len();
        for found in matches {
            paths.push(found.map_err(|e| format!("{argument}: {e}"))?);
        }
        if paths.len() == before {
            return Err(format!("{argument}: no such file"));
        }
    }
    let mut seen = BTreeSet::new();
    // By another name, through a link or a second directory entry it is the same file: it keeps the name that it was called by first.
    paths.retain(|path| match path.metadata() {
        Ok(of) => seen.insert((of.dev(), of.ino())),
        Err(_) => true,
    });
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Whether a file of this name is a part of a table in a directory.
#[must_use]
pub fn is_part(file: &str) -> bool {
    file.starts_with(PART) && [".parquet", ".arrow"].iter().any(|end| file.ends_with(end))
}

/// The parts of a table in a directory.
fn parts(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e: io::Error| format!("{}: {e}", directory.display());
    let mut parts = Vec::new();
    for entry in directory.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let part = entry.file_name().to_str().is_some_and(is_part);
        parts.extend(part.then(|| directory.join(entry.file_name())));
    }
    if parts.is_empty() {
        return Err(format!("{}: a directory without {PART}*.parquet or {PART}*.arrow", directory.display()));
    }
    Ok(parts)
}

/// Gives inputs the labels of `FILE=LABEL` arguments; FILE is a name or a pattern, as for [`expand`]. The last that fits counts.
///
/// # Errors
/// Says which argument has no label or fits no input.
pub fn label(inputs: Vec<Input>, sites: &[String]) -> Result<Vec<Input>, String> {
    let mut rules = Vec::new();
    for site in sites {
        // A file's name may have one of these, and so may the label of standard input.
        let parts = site.strip_prefix("-=").map(|label| ("-", label)).or_else(|| site.rsplit_once('='));
        let parts = parts.filter(|(file, label)| !file.is_empty() && !label.is_empty());
        let (file, label) = parts.ok_or_else(|| format!("{site:?}: expected FILE=LABEL"))?;
        let pattern = glob::Pattern::new(file).map_err(|e| format!("{file}: {e}"))?;
        let same = Path::new(file).metadata().ok().map(|of| (of.dev(), of.ino()));
        let fits = move |input: &Input| {
            let of = match &input.place {
                Place::Path(path) => path.metadata().ok().map(|of| (of.dev(), of.ino())),
                Place::Spool(_) => None,
            };
            input.name == file || pattern.matches(&input.name) || (same.is_some() && of == same)
        };
        if !inputs.iter().any(&fits) {
            return Err(format!("{site:?}: {file} is none of the inputs"));
        }
        rules.push((fits, label));
    }
    let labelled = |input: Input| match rules.iter().rev().find(|(fits, _)| fits(&input)) {
        Some((_, label)) => input.with_site(label),
        None => input,
    };
    Ok(inputs.into_iter().map(labelled).collect())
}

/// Writes through the compressor that `name` ends in (`.gz`, `.zst`, or none).
///
/// # Errors
/// When the output cannot be written.
pub fn compress<W: io::Write>(
    name: &str,
    out: W,
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<u64>,
) -> io::Result<u64> {
    if name.ends_with(".gz") {
        let mut out = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
        let written = write(&mut out)?;
        out.finish()?.flush()?;
        Ok(written)
    } else if name.ends_with(".zst") {
        let mut out = zstd::stream::write::Encoder::new(out, 1)?;
        let written = write(&mut out)?;
        out.finish()?.flush()?;
        Ok(written)
    } else {
        let mut out = out;
        let written = write(&mut out)?;
        out.flush()?;
        Ok(written)
    }
}
