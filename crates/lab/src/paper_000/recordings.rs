//! The recordings as files: which they are, whether they stayed the same while they were read, and how much of them was lost. Owns what the
//! raw data say of them; must never look into one.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use dormouse_trace::input::{self, CHANGED, State};
use dormouse_trace::survey::FileSurvey;

use crate::results::format::Input;

/// Files that are about to be read.
pub(super) struct Recordings(Vec<(PathBuf, Option<State>)>);

impl Recordings {
    /// Must be made before any of them is read.
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let with_state = |path: &PathBuf| (path.clone(), input::Input::file(path).state());
        Self(paths.iter().map(with_state).collect())
    }

    /// What the raw data say of them, once they were read and this was found in them. Reads each once more, for its hash.
    ///
    /// # Errors
    /// If one cannot be read any more.
    pub(super) fn were_read(&self, found: &[FileSurvey]) -> Result<Vec<Input>> {
        let one = |(path, before): &(PathBuf, Option<State>)| {
            let read = input::Input::file(path);
            let mut input = Input::of(path).with_context(|| path.display().to_string())?;
            // Behind the hash: what changes while it is computed is noticed too.
            if before.is_none() || *before != read.state() {
                CHANGED.clone_into(&mut input.sha256);
            }
            input.lost = found.iter().filter(|f| f.name == read.name()).map(|f| f.losses.total()).sum();
            Ok(input)
        };
        self.0.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_changes_while_it_is_read_has_no_hash_and_says_why() {
        let path = std::env::temp_dir().join(format!("dormouse-recordings-{}.csv", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).expect("written");
        write("client,time,bytes\n");
        let recordings = Recordings::new(std::slice::from_ref(&path));
        let read = || recordings.were_read(&[]).expect("it is there").remove(0);
        let (same, whole) = (read(), Input::of(&path).expect("it is there"));
        assert_eq!((&same, same.unlike()), (&whole, None));
        write("client,time,bytes\nphone,1,1\n");
        assert_eq!((read().sha256.as_str(), read().unlike()), (CHANGED, Some(CHANGED.to_owned())));
        std::fs::remove_file(&path).expect("removed");
        assert!(recordings.were_read(&[]).is_err());
    }
}
