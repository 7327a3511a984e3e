//! Where recordings come from: files, patterns, standard input; plain or compressed. Owns files and temporary spools.
//!
//! Every recording is read twice: once to survey it (who is a client, how late do records come), once to account. Standard
//! input is therefore copied to a temporary file that has no name and vanishes with the process.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::bytes::Bytes;

/// UDP ports on which collectors of exported flows listen: those usual for NetFlow, and IPFIX's (4739).
pub const EXPORT_PORTS: [u16; 3] = [2055, 4739, 9995];

/// One recording.
#[derive(Debug)]
pub struct Input {
    name: String,
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
        Self { name, place, export_ports: EXPORT_PORTS.to_vec() }
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

/// Files by name or pattern (`*`, `?`, `[...]`, `**`), sorted, each once. A name that exists is taken as it is.
///
/// # Errors
/// Says which argument matches nothing or is no pattern.
pub fn expand(arguments: &[String]) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for argument in arguments {
        let path = PathBuf::from(argument);
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
    paths.sort();
    paths.dedup();
    Ok(paths)
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
