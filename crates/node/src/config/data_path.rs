//! Which engine carries ESP. Owns the choice as it is written; what the kernel cannot carry stands in `docs/how-it-works.md`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which engine carries ESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DataPath {
    /// The daemon.
    #[default]
    User,
    /// The kernel under load, or the daemon does not start.
    Kernel,
    /// The kernel under load where it can, else the daemon.
    Auto,
}
