//! The artefact appendix and the experiments: its table of durations is what `lab list` prints, and every experiment is claimed by its command.

use dormouse_lab::EXPERIMENTS;
use dormouse_report::duration;

const APPENDIX: &str = include_str!("../../../ARTIFACT.md");

#[test]
fn durations_and_commands_are_those_of_the_experiments() {
    for experiment in EXPERIMENTS {
        let [quick, full] = experiment.takes.map(|t| t.words());
        let row = format!("| `{}` | {quick} | {full} |\n", experiment.name);
        assert!(APPENDIX.contains(&row), "{row}");
        let command = format!("| `lab run {}` |", experiment.name);
        assert!(APPENDIX.contains(&command), "{command}");
    }
    let [quick, full] = [0, 1]
        .map(|plan: usize| duration(EXPERIMENTS.iter().map(|e| f64::from(e.takes[plan].seconds)).sum()));
    for stated in [format!("| all | {quick} | {full} |"), format!("quick plan {quick}, full plan {full}")] {
        assert!(APPENDIX.contains(&stated), "{stated}");
    }
    // The commands that time what was not timed are of all that it takes less than ten minutes for.
    for (n, plan) in ["quick", "full"].into_iter().enumerate() {
        let short = EXPERIMENTS.iter().filter(|e| !e.takes[n].measured && e.takes[n].seconds < 600);
        let names: Vec<&str> = short.map(|e| e.name).collect();
        let command = format!("lab reproduce {} --{plan} --out ../timed-{plan}\n", names.join(" "));
        assert!(names.is_empty() || APPENDIX.contains(&command), "{command}");
    }
    for (plan, takes) in [("quick", &quick), ("full", &full)] {
        let line = APPENDIX.lines().find(|l| l.contains(&format!("--all --{plan}"))).expect("its command");
        assert!(line.ends_with(&format!("# {takes}")) && !line.contains("--out target"), "{line}");
    }
}
