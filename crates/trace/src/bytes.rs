//! A large read buffer that hands out slices of the input. Owns offsets and refilling; must never interpret a byte.

use std::io::{self, Read};

/// Size of one read: large enough that system calls vanish beside parsing, small enough to stay in the second-level cache.
const CHUNK: usize = 256 * 1024;
/// The longest record that any format may ask for at once.
pub const MAX_RECORD: usize = 16 * 1024 * 1024;

/// A buffered input that remembers where it is.
pub struct Bytes {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of `buffer[start]` in the input.
    offset: u64,
    ended: bool,
    error: Option<io::Error>,
}

impl Bytes {
    /// Reads from `input`.
    #[must_use]
    pub fn new(input: Box<dyn Read + Send>) -> Self {
        Self { input, buffer: vec![0; CHUNK], start: 0, end: 0, offset: 0, ended: false, error: None }
    }

    /// Offset of the next byte.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The error that ended the input early (a damaged compressed file, a failing disk), once.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// At least `n` bytes from here without consuming them, or as many as are left. `n` is capped at [`MAX_RECORD`].
    #[inline]
    pub fn peek(&mut self, n: usize) -> &[u8] {
        if self.end - self.start < n {
            self.fill(n.min(MAX_RECORD));
        }
        &self.buffer[self.start..self.end]
    }

    /// Whether no byte is left.
    pub fn is_empty(&mut self) -> bool {
        self.peek(1).is_empty()
    }

    /// Moves on by `n` bytes of what was peeked.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        let n = n.min(self.end - self.start);
        self.start += n;
        self.offset += n as u64;
    }

    /// Moves on by `n` bytes, peeked or not; returns how many there were.
    pub fn skip(&mut self, mut n: u64) -> u64 {
        let mut skipped = 0;
        while n > 0 {
            let here = self.peek(1).len() as u64;
            if here == 0 {
                break;
            }
            let step = here.min(n);
            self.consume(usize::try_from(step).unwrap_or(usize::MAX));
            skipped += step;
            n -= step;
        }
        skipped
    }

    /// Skips to the end; returns how many bytes that were.
    pub fn drain(&mut self) -> u64 {
        self.skip(u64::MAX)
    }

    /// The length of the next line with its end, growing the window as far as [`MAX_RECORD`]; 0 at the end of the input.
    pub fn line_length(&mut self) -> usize {
        let mut searched = 0;
        loop {
            let window = self.peek(searched + 1);
            if window.len() <= searched {
                return window.len();
            }
            if let Some(at) = memchr::memchr(b'\n', &window[searched..]) {
                return searched + at + 1;
            }
            searched = window.len();
            if searched >= MAX_RECORD {
                return searched;
            }
        }
    }

    #[cold]
    fn fill(&mut self, n: usize) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < n {
            self.buffer.resize(n.next_power_of_two(), 0);
        }
        while self.end < n && !self.ended {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(got) => self.end += got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.ended = true;
                    self.error = Some(e);
                }
            }
        }
    }
}
