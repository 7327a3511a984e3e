//! The verbs that measure and repeat experiments, where this program has them (feature `lab`). [`crate::lab_elsewhere`] has the same names
//! where it does not.

use crate::{advise, bench, calibrate, demo, lab, trace};
use clap::Subcommand;
use std::path::Path;
use std::process::ExitCode;

/// Verbs that measure
#[derive(Debug, Subcommand)]
pub(crate) enum LabVerb {
    Trace(Box<trace::TraceArgs>),
    Advise(advise::AdviseArgs),
    Calibrate(Box<calibrate::CalibrateArgs>),
    Bench(Box<bench::BenchArgs>),
    Lab(lab::LabArgs),
    Demo(demo::DemoArgs),
}

impl LabVerb {
    /// Runs it.
    ///
    /// # Errors
    /// As each verb.
    pub(crate) fn run(self, socket: &Path, json: bool) -> anyhow::Result<ExitCode> {
        match self {
            Self::Trace(args) => trace::run(&args, json),
            Self::Advise(args) => advise::run(&args, json),
            Self::Calibrate(args) => calibrate::run(&args, socket, json),
            Self::Bench(args) => bench::run(&args, json),
            Self::Lab(args) => lab::run(&args, json),
            Self::Demo(args) => demo::run(&args, json),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LabVerb;
    use crate::lab_elsewhere;
    use clap::{Command, Subcommand};

    /// What a list of commands shows of each.
    fn listed(verbs: &Command) -> Vec<(String, String)> {
        let about = |c: &Command| c.get_about().map(ToString::to_string).unwrap_or_default();
        verbs.get_subcommands().map(|c| (c.get_name().to_owned(), about(c))).collect()
    }

    #[test]
    fn a_program_without_them_names_the_same_verbs() {
        let here = listed(&LabVerb::augment_subcommands(Command::new("dormouse")));
        let there = listed(&lab_elsewhere::LabVerb::augment_subcommands(Command::new("dormouse")));
        assert!(here.len() > 5, "{here:?}");
        assert_eq!(here, there);
    }
}
