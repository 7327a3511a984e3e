//! In the place of systemd-resolved, in a program without the feature `dbus`: it counts as not there.

use super::{Error, Options, Settings};

const WHY: &str = "this program was built without the feature \"dbus\"";

pub(super) fn usable(_: &Options) -> Result<String, String> {
    Err(WHY.to_owned())
}

pub(super) fn set(_: Option<&str>, _: &Settings) -> Result<(), Error> {
    Err(Error::Resolved(WHY.to_owned()))
}

pub(super) fn revert(_: Option<&str>, _: u32) -> Result<(), Error> {
    Err(Error::Resolved(WHY.to_owned()))
}
