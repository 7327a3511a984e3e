//! Where a gateway's records go, as it is written. The comments are the manual, as in [`super::file`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Records of logins, refusals, changes of address, resumptions, denials and ends.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// `journal`, as fields; `stderr`, or the absolute path of a file that `daemon.user` may write, as a line of JSON each; `off`; or
    /// `auto`: the journal if systemd has started the daemon, otherwise off. A file is opened again on reload.
    pub to: String,
}

impl Default for Audit {
    fn default() -> Self {
        Self { to: "auto".into() }
    }
}
