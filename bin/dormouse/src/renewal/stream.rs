//! TLS over TCP within a time: whoever is slow is cut off. Owns the deadline of a conversation; both ends use it.

use dormouse_io::clock::BootClock;
use dormouse_sansio::Instant;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A stream that ends at a moment, whatever the other end does.
#[derive(Debug)]
pub(super) struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    /// `patience`: for everything that is read and written from now on.
    pub(super) fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, until: BootClock::now() + patience }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_since(BootClock::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

/// A wait that is over is told as one kind of error, whichever the system has for it.
fn told(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { e }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into).map_err(told)
    }
}

impl Write for Timed {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from).map_err(told)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Reads until `whole` finds something in what has come: `most` bytes at most. `None`: it has ended before.
pub(super) fn read<T, E>(
    from: &mut impl Read,
    most: usize,
    mut whole: impl FnMut(&[u8]) -> Result<Option<T>, E>,
) -> io::Result<Option<Result<T, E>>> {
    let mut all = Vec::new();
    let mut chunk = [0; 4096];
    while all.len() <= most {
        let n = match from.read(&mut chunk) {
            Ok(0) => return Ok(None),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        all.extend_from_slice(chunk.get(..n).unwrap_or_default());
        match whole(&all) {
            Ok(None) => {}
            Ok(Some(found)) => return Ok(Some(Ok(found))),
            Err(why) => return Ok(Some(Err(why))),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "more than is read"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Both ends of a connection, the first of which has so much time.
    fn pair(patience: Duration) -> (Timed, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Timed::new(listener.accept().unwrap().0, patience), far)
    }

    #[test]
    fn who_sends_a_byte_now_and_then_is_cut_off_like_one_who_sends_none() {
        for drips in [false, true] {
            let (mut near, mut far) = pair(Duration::from_millis(300));
            let dripping = std::thread::spawn(move || {
                // Until the other end is gone.
                while drips && far.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                far
            });
            let never = |_: &[u8]| Ok::<Option<()>, ()>(None);
            let e = read(&mut near, 1 << 20, never).expect_err("it ends");
            assert_eq!(e.kind(), io::ErrorKind::TimedOut);
            drop(near);
            dripping.join().unwrap();
        }
    }

    #[test]
    fn no_more_is_read_than_is_allowed_and_an_end_is_told_from_silence() {
        let (mut near, mut far) = pair(Duration::from_secs(20));
        far.write_all(&[7; 9000]).unwrap();
        let e = read(&mut near, 8000, |_| Ok::<Option<()>, ()>(None)).expect_err("too much");
        assert_eq!(e.kind(), io::ErrorKind::InvalidData);
        let (mut near, far) = pair(Duration::from_secs(20));
        drop(far);
        assert!(read(&mut near, 9, |_| Ok::<Option<()>, ()>(None)).unwrap().is_none());
    }
}
