//! The virtual machine of `interop/vm`, which boots Debian's kernel under QEMU's emulator: what its script `boot` needs of this machine, and
//! whether what its other scripts fetch is there. Owns these questions.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::require::Need;

/// What `boot` needs beside the kernel.
pub const NEEDS: [Need; 6] = [
    Need::Program("qemu-system-x86_64"),
    Need::Program("busybox"),
    Need::Program("dash"),
    Need::Program("modprobe"),
    Need::Program("cpio"),
    Need::Program("ip"),
];

/// What a script in `place` fetches, as something that is needed: `script`, its name and arguments, finds out whether it is there; `words` say
/// what it is.
#[must_use]
pub fn fetched(place: &Path, script: &[&str], words: &'static str) -> Need {
    let there = script.split_first().is_some_and(|(name, arguments)| {
        let mut command = Command::new(place.join(name));
        command.args(arguments).stdin(Stdio::null());
        command.output().is_ok_and(|out| out.status.success())
    });
    Need::File(if there { "/" } else { words })
}
