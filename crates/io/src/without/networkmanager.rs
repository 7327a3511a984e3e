//! In the place of NetworkManager, in a program without the feature `dbus`: it counts as not there.

use super::interface::Interface;
use super::{Attempt, Options, Purpose};

pub(super) const NAME: &str = "networkmanager";

pub(super) fn find(_: &Options, _: &Interface, _: Purpose) -> Attempt {
    Err("this program was built without the feature \"dbus\"".to_owned())
}
