//! Socket options that no crate has a function for. Owns nothing.

use std::io;
use std::os::fd::AsRawFd;

use nix::libc;

/// Sets an option of a socket whose value is a number, or a structure that the kernel copies.
pub(crate) fn set_option<T>(socket: &impl AsRawFd, level: i32, option: i32, value: T) -> io::Result<()> {
    let (pointer, len) = ((&raw const value).cast(), size_of_val(&value) as libc::socklen_t);
    #[expect(unsafe_code, reason = "no safe wrapper has this option")]
    // SAFETY: `pointer` is valid for reads of `len` bytes during the call; the descriptor is open.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
