//! Where results come from: which program made them, by which command, of which files. Owns how it is found out.

use std::os::unix::fs::MetadataExt as _;

use anyhow::Context as _;
use dormouse_lab::campaign::versions;
use dormouse_lab::results::format::Input as Read;
use dormouse_trace::input::Input;
use dormouse_trace::report::json::{Hashed, Provenance};

/// By what it is seen that a file is another one than before: its inode, its length, and when it was last written to.
type State = (u64, u64, i64, i64);

/// None if it cannot be opened.
fn state(input: &Input) -> Option<State> {
    let of = input.file_handle().ok()?.metadata().ok()?;
    Some((of.ino(), of.len(), of.mtime(), of.mtime_nsec()))
}

/// What stands for the hash of a file that did: the figures are not of what would be hashed.
const CHANGED: &str = "changed while it was read";

/// Files that are about to be read.
pub(crate) struct Inputs<'a> {
    inputs: &'a [Input],
    before: Vec<Option<State>>,
}

impl<'a> Inputs<'a> {
    /// Must be made before any of them is read.
    pub(crate) fn new(inputs: &'a [Input]) -> Self {
        Self { inputs, before: inputs.iter().map(state).collect() }
    }

    /// Where figures come from that were made of them. Reads each once more, for its hash.
    ///
    /// # Errors
    /// If one cannot be read.
    pub(crate) fn provenance(&self) -> anyhow::Result<Provenance> {
        let hashed = |(input, before): (&Input, &Option<State>)| {
            let file = input.file_handle().and_then(|file| Read::named(input.name(), file));
            let Read { file, bytes, sha256 } = file.with_context(|| input.name().to_owned())?;
            let same = before.is_some() && *before == state(input);
            Ok(Hashed { file, bytes, sha256: if same { sha256 } else { CHANGED.to_owned() } })
        };
        let inputs = self.inputs.iter().zip(&self.before).map(hashed).collect::<anyhow::Result<_>>()?;
        Ok(Provenance { inputs, ..command() })
    }
}

/// Where figures come from that were made of nothing.
pub(crate) fn command() -> Provenance {
    let command = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    Provenance { versions: versions(), command, ..Provenance::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_grew_while_it_was_read_has_no_hash() {
        let path = std::env::temp_dir().join(format!("dormouse-grew-{}.csv", std::process::id()));
        std::fs::write(&path, "client,time,bytes\n").expect("written");
        let inputs = [Input::file(&path)];
        let known = Inputs::new(&inputs);
        let hash = || known.provenance().expect("it is there").inputs[0].sha256.clone();
        assert_eq!(hash().len(), 64);
        std::fs::write(&path, "client,time,bytes\nphone,1,1\n").expect("written");
        assert_eq!(hash(), CHANGED);
        std::fs::remove_file(&path).expect("removed");
    }
}
