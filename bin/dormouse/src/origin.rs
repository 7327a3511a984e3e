//! Where results come from: which program made them, by which command, of which files. Owns how it is found out.

use anyhow::Context as _;
use dormouse_lab::campaign::versions;
use dormouse_lab::results::format::Input as Read;
use dormouse_trace::input::{CHANGED, Input, State};
use dormouse_trace::report::json::{Hashed, Provenance};

/// Files that are about to be read.
pub(crate) struct Inputs<'a> {
    inputs: &'a [Input],
    before: Vec<Option<State>>,
}

impl<'a> Inputs<'a> {
    /// Must be made before any of them is read.
    pub(crate) fn new(inputs: &'a [Input]) -> Self {
        Self { inputs, before: inputs.iter().map(Input::state).collect() }
    }

    /// Where figures come from that were made of them. Reads each once more, for its hash.
    ///
    /// # Errors
    /// If one cannot be read.
    pub(crate) fn provenance(&self) -> anyhow::Result<Provenance> {
        let hashed = |(input, before): (&Input, &Option<State>)| {
            let file = input.file_handle().and_then(|file| Read::named(input.name(), file));
            let Read { file, bytes, sha256, .. } = file.with_context(|| input.name().to_owned())?;
            let same = before.is_some() && *before == input.state();
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
