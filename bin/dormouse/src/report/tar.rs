//! A small archive: files of one directory, as `tar` reads them, compressed. Owns the format (POSIX.1-1988, ustar); knows nothing of what is in it.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write as _};

const BLOCK: usize = 512;

/// `files`: name and content. Names are short and plain, and what is longer than a name may be there is an error.
pub(super) fn archive(directory: &str, files: &[(String, Vec<u8>)], unix_now: u64) -> io::Result<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    for (name, content) in files {
        out.write_all(&header(&format!("{directory}/{name}"), content.len(), unix_now)?)?;
        out.write_all(content)?;
        out.write_all(&[0; BLOCK][..content.len().next_multiple_of(BLOCK) - content.len()])?;
    }
    // "At the end of the archive there shall be two 512-byte logical records filled with binary zeros" (POSIX, pax, ustar)
    out.write_all(&[0; 2 * BLOCK])?;
    out.finish()
}

fn header(name: &str, length: usize, unix_now: u64) -> io::Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    if name.len() > 99 {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(field) = block.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{length:011o}\0").as_bytes());
    put(136, format!("{unix_now:011o}\0").as_bytes());
    // The sum counts its own field as blanks.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    if let Some(field) = block.get_mut(148..156) {
        field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    Ok(block)
}
