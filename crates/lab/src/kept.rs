//! Raw data and what stands beside them: the report as JSON, text and page, and a directory with its tables and figures. Owns their names;
//! must never let one of them be that of the raw data.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use dormouse_report::write_whole;
use serde_json::Value;

use crate::experiment::{Exhibit, REPORT, Report};
use crate::results::file::MAX_BYTES;

/// What the name of raw data ends with.
const ENDS: &str = ".json";

/// The place of raw data.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Raw {
    path: PathBuf,
    /// The same without its end: the directory of tables and figures.
    folder: PathBuf,
}

impl Raw {
    /// At this path, `X.json`.
    ///
    /// # Errors
    /// If its name does not end in `.json`, so that what stands beside it might take its place, or ends as a report's does.
    pub fn new(path: &Path) -> Result<Self> {
        let shown = path.display();
        let name = path.file_name().unwrap_or_default().as_bytes();
        let stem = name.strip_suffix(ENDS.as_bytes()).filter(|stem| !stem.is_empty());
        let stem = stem.with_context(|| format!("{shown}: raw data need a name that ends in {ENDS}"))?;
        ensure!(
            !name.ends_with(format!(".{REPORT}").as_bytes()),
            "{shown}: raw data need another name: .{REPORT} is the end of a report's"
        );
        Ok(Self { path: path.to_owned(), folder: path.with_file_name(OsStr::from_bytes(stem)) })
    }

    /// The same, for raw data that will be made or gone on with.
    ///
    /// # Errors
    /// As [`Raw::new`], and if the directory of tables and figures cannot be one.
    pub fn to_be_made(path: &Path) -> Result<Self> {
        let raw = Self::new(path)?;
        let folder = raw.folder.display();
        ensure!(
            raw.folder.is_dir() || !raw.folder.exists(),
            "{folder}: no directory: tables and figures of {} are to be put there",
            path.display()
        );
        Ok(raw)
    }

    /// The raw data.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What has this end instead: `txt`, `html`, `report.json`.
    #[must_use]
    pub fn beside(&self, end: &str) -> PathBuf {
        let mut name: OsString = self.folder.clone().into_os_string();
        name.push(".");
        name.push(end);
        name.into()
    }

    /// All that is printed of a report, each with its place; the report itself last: where it is, all is.
    ///
    /// # Errors
    /// When a chart cannot be drawn, which would be a defect.
    pub fn files(&self, report: &Report) -> Result<Vec<(PathBuf, String)>> {
        let mut files = Vec::new();
        for (n, Exhibit { place, shown }) in report.tables.iter().enumerate() {
            files.push((self.folder.join(stem("tables", n, place) + ".csv"), shown.csv()));
        }
        for (n, Exhibit { place, shown }) in report.figures.iter().enumerate() {
            let name = stem("figures", n, place);
            files.push((self.folder.join(name.clone() + ".csv"), shown.csv()));
            files.push((self.folder.join(name + ".svg"), shown.svg().map_err(anyhow::Error::msg)?));
        }
        let [first, others @ ..] = report.files()?;
        files.extend(others.into_iter().chain([first]).map(|(end, text)| (self.beside(end), text)));
        Ok(files)
    }

    /// Writes a report beside its raw data.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, report: &Report) -> Result<()> {
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        let files = self.files(report)?;
        for (path, text) in &files {
            write_whole(path, text.as_bytes()).with_context(|| path.display().to_string())?;
        }
        // Of an earlier report on other raw data.
        for old in self.others(&files)? {
            fs::remove_file(&old).with_context(|| old.display().to_string())?;
        }
        Ok(())
    }

    /// Tables and figures that are there and belong to no report with these files.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn others(&self, files: &[(PathBuf, String)]) -> Result<Vec<PathBuf>> {
        let shown = || self.folder.display().to_string();
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(shown)?.collect::<io::Result<Vec<_>>>().with_context(shown)?,
        };
        let ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().as_bytes();
            let begins = name.starts_with(b"table-") || name.starts_with(b"figure-");
            begins && (name.ends_with(b".csv") || name.ends_with(b".svg"))
        };
        let wanted: BTreeSet<&PathBuf> = files.iter().map(|(path, _)| path).collect();
        let mut others: Vec<PathBuf> = entries.into_iter().map(|e| e.path()).filter(ours).collect();
        others.retain(|path| !wanted.contains(path));
        others.sort();
        Ok(others)
    }
}

/// The raw data in a directory that have a report beside them, by name.
///
/// # Errors
/// If it cannot be read.
pub fn in_directory(dir: &Path) -> Result<Vec<Raw>> {
    let shown = || dir.display().to_string();
    let entries =
        fs::read_dir(dir).with_context(shown)?.collect::<io::Result<Vec<_>>>().with_context(shown)?;
    let of = |name: OsString| {
        let mut stem = name.as_bytes().strip_suffix(format!(".{REPORT}").as_bytes())?.to_vec();
        stem.extend(ENDS.as_bytes());
        Raw::new(&dir.join(OsString::from_vec(stem))).ok().filter(|raw| raw.path().exists())
    };
    let mut files: Vec<Raw> = entries.into_iter().filter_map(|e| of(e.file_name())).collect();
    files.sort();
    Ok(files)
}

/// The JSON of a file.
///
/// # Errors
/// If it cannot be read, is none, or larger than any of ours.
pub(crate) fn json(path: &Path) -> Result<Value> {
    let shown = || path.display().to_string();
    let bytes = fs::metadata(path).with_context(shown)?.len();
    ensure!(bytes <= MAX_BYTES, "{}: {bytes} bytes, expected at most {MAX_BYTES}", shown());
    serde_json::from_slice(&fs::read(path).with_context(shown)?).with_context(shown)
}

/// The name of an exhibit's file: its kind, number and place.
pub(crate) fn stem(kind: &str, n: usize, place: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let words: String = place.chars().map(letter).collect();
    let words = words.split('-').filter(|w| !w.is_empty()).collect::<Vec<_>>().join("-");
    format!("{}-{:02}-{words}", kind.trim_end_matches('s'), n + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_beside_raw_data_can_take_their_place() {
        for name in
            ["run.txt", "run.html", "run", "run.report.json", ".json", "/", "run.json.txt", "run.JSON"]
        {
            assert!(Raw::new(Path::new(name)).is_err(), "{name}");
        }
        let raw = Raw::new(Path::new("dir.v1/run.2026.json")).unwrap();
        assert_eq!(raw.beside("txt"), Path::new("dir.v1/run.2026.txt"));
        assert_eq!(raw.beside(REPORT), Path::new("dir.v1/run.2026.report.json"));
        assert_eq!(raw.folder, Path::new("dir.v1/run.2026"));
        assert_eq!(raw.path(), Path::new("dir.v1/run.2026.json"));
    }

    #[test]
    fn a_directory_of_tables_that_is_a_file_is_known_before_the_work() {
        let dir = std::env::temp_dir().join(format!("dormouse-kept-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("run"), "notes").unwrap();
        let refused = Raw::to_be_made(&dir.join("run.json")).unwrap_err().to_string();
        fs::remove_dir_all(&dir).unwrap();
        assert!(refused.contains("no directory"), "{refused}");
    }

    #[test]
    fn a_name_with_dots_is_found_again() {
        let dir = std::env::temp_dir().join(format!("dormouse-dots-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for name in ["run.2026.json", "run.2026.report.json", "lost.report.json", "other.json"] {
            fs::write(dir.join(name), "{}").unwrap();
        }
        let found = in_directory(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found.iter().map(Raw::path).collect::<Vec<_>>(), [dir.join("run.2026.json")]);
    }
}
