//! The meters on trees of files that look like sysfs, and on files of instruments.

#[path = "battery.rs"]
mod battery;
#[path = "choice.rs"]
mod choice;
#[path = "external.rs"]
mod external;
#[path = "garbage.rs"]
mod garbage;
#[path = "rapl.rs"]
mod rapl;
#[path = "tree.rs"]
mod tree;
