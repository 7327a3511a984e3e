//! A small archive: files of one directory, for their reader alone. Owns how they are packed; knows nothing of what is in them.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io;
use tar::{Builder, Header};

/// `files`: name and content, which have this time.
pub(super) fn archive(directory: &str, files: &[(String, Vec<u8>)], unix_now: u64) -> io::Result<Vec<u8>> {
    let mut out = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, content) in files {
        let mut header = Header::new_ustar();
        header.set_mode(0o600);
        header.set_mtime(unix_now);
        header.set_size(content.len() as u64);
        out.append_data(&mut header, format!("{directory}/{name}"), content.as_slice())?;
    }
    out.into_inner()?.finish()
}
