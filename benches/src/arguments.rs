//! What the benchmarks' command lines say. Owns how they answer what is wrong there: by one line and exit code 2, and help by exit code 0.

use std::fmt::Display;
use std::process::exit;

use clap::Parser;
use clap::error::ErrorKind;

/// The arguments of this program. Where they are wrong or ask for help, the program says so and ends.
#[must_use]
pub fn arguments<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| match help(&error) {
        Some(text) => {
            print!("{text}");
            exit(0)
        }
        None => wrong(line(&error)),
    })
}

/// Ends the program, because its arguments cannot be followed here: a line on standard error, exit code 2.
pub fn wrong(why: impl Display) -> ! {
    eprintln!("error: {why}");
    exit(2)
}

/// What was asked for, if it was help.
fn help(error: &clap::Error) -> Option<String> {
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion).then(|| error.to_string())
}

/// What is wrong, in one line: clap's first paragraph, without the usage behind it.
fn line(error: &clap::Error) -> String {
    let text = error.to_string();
    let words = text.lines().take_while(|line| !line.trim().is_empty()).flat_map(str::split_whitespace);
    let words: Vec<&str> = words.collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures something.
    #[derive(Parser, Debug)]
    struct Wanted {
        /// How often.
        #[arg(long, value_name = "N", requires = "row")]
        starts: Option<u32>,
        /// Of what.
        #[arg(value_name = "ROW", value_parser = ["one", "two"])]
        row: Vec<String>,
    }

    #[test]
    fn help_is_the_usage_and_what_is_wrong_is_one_line() {
        let parsed = |args: &[&str]| Wanted::try_parse_from([&["bench"], args].concat());
        let read = parsed(&["--starts", "3", "two", "one"]).unwrap();
        assert_eq!((read.starts, read.row), (Some(3), vec!["two".to_owned(), "one".to_owned()]));
        let refused = |args: &[&str]| parsed(args).unwrap_err();
        let asked = help(&refused(&["--help"])).unwrap();
        assert!(asked.contains("Usage: bench") && asked.contains("--starts <N>"), "{asked}");
        for (args, said) in [
            (&["--other"][..], "unexpected argument '--other' found"),
            (&["--starts", "many", "one"], "invalid value 'many' for '--starts <N>'"),
            (&["--starts"], "a value is required for '--starts <N>'"),
            (&["--starts", "3"], "the following required arguments were not provided: <ROW>"),
            (&["three"], "invalid value 'three' for '[ROW]...' [possible values: one, two]"),
        ] {
            let error = refused(args);
            assert_eq!(help(&error), None);
            let line = line(&error);
            assert!(line.starts_with(said) && !line.contains('\n'), "{args:?}: {line}");
        }
    }
}
