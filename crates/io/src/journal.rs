//! The journal's own socket: fields instead of a line of text. Owns the form of a message (systemd's JOURNAL_NATIVE_PROTOCOL); must never
//! wait for a journal that does not read.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

const SOCKET: &str = "/run/systemd/journal/socket";

/// The journal, open.
#[derive(Debug)]
pub struct Journal(UnixDatagram);

impl Journal {
    /// Opens the machine's journal.
    ///
    /// # Errors
    /// If there is none.
    pub fn open() -> io::Result<Self> {
        Self::open_at(Path::new(SOCKET))
    }

    fn open_at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Sends one entry. Names are in capitals, digits and underscores; a value may hold anything: its length goes before it, so that none
    /// can be taken for another field or entry.
    ///
    /// # Errors
    /// If the journal is gone, or takes no more at the moment; the entry is lost then.
    pub fn send<'a>(&self, fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
        let mut message = Vec::new();
        for (name, value) in fields {
            message.extend(name.as_bytes());
            message.push(b'\n');
            message.extend((value.len() as u64).to_le_bytes());
            message.extend(value.as_bytes());
            message.push(b'\n');
        }
        self.0.send(&message).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_line_breaks_is_one_field_and_a_journal_that_hangs_does_not_hold_us_up() {
        let path = std::env::temp_dir().join(format!("dormouse-journal-{}", std::process::id()));
        let journal = UnixDatagram::bind(&path).unwrap();
        let ours = Journal::open_at(&path).unwrap();
        ours.send([("MESSAGE", "a\nPRIORITY=0"), ("PRIORITY", "6")]).unwrap();
        let mut buffer = [0; 256];
        let len = journal.recv(&mut buffer).unwrap();
        let expected = b"MESSAGE\n\x0c\0\0\0\0\0\0\0a\nPRIORITY=0\nPRIORITY\n\x01\0\0\0\0\0\0\x006\n";
        assert_eq!(buffer[..len], expected[..]);
        let refused =
            (0..100_000).find_map(|_| ours.send([("MESSAGE", "x")]).err()).expect("it is never read");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        std::fs::remove_file(&path).unwrap();
    }
}
