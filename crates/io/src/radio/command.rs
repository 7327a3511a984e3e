//! The radio by the user's own programs, within the time-out of the configuration. Owns what their exit codes mean.

use super::{Attempt, Commands, Options, Power, RadioError, RadioState, Switch};
use crate::program::{self, Outcome};
use std::time::Duration;

pub(super) const NAME: &str = "command";

#[derive(Debug)]
pub(super) struct Programs {
    commands: Commands,
    holds: bool,
}

pub(super) fn find(options: &Options) -> Attempt {
    let Some(commands) = &options.commands else { return Err("none is configured".into()) };
    for (key, list) in [("off", &commands.off), ("on", &commands.on)] {
        if list.is_empty() {
            return Err(format!("the command for '{key}' is empty"));
        }
    }
    let why = format!("{} is configured", commands.off.first().map_or("", String::as_str));
    Ok((Box::new(Programs { commands: commands.clone(), holds: false }), why))
}

fn run(list: &[String], limit: Duration) -> Result<Outcome, RadioError> {
    let shown = || list.join(" ");
    let (program, arguments) = list.split_first().ok_or_else(|| RadioError::step(NAME, "", "empty"))?;
    match program::run(program, arguments, &[], limit) {
        Ok(Some(outcome)) => Ok(outcome),
        Ok(None) => Err(RadioError::Timeout { driver: NAME, what: shown(), limit }),
        Err(e) => Err(RadioError::step(NAME, shown(), e)),
    }
}

fn must_succeed(list: &[String], timeout: Duration) -> Result<(), RadioError> {
    let outcome = run(list, timeout)?;
    if outcome.status.success() {
        return Ok(());
    }
    Err(RadioError::step(NAME, list.join(" "), outcome.describe()))
}

impl Switch for Programs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn off(&mut self) -> Result<(), RadioError> {
        // Before the result is known: a program that failed half way through may have switched it off.
        self.holds = true;
        let result = must_succeed(&self.commands.off, self.commands.timeout);
        if result.is_err()
            && let Err(e) = self.on()
        {
            tracing::warn!(%e, "rolling back a failed switch-off failed");
        }
        result
    }

    fn on(&mut self) -> Result<(), RadioError> {
        if self.holds {
            must_succeed(&self.commands.on, self.commands.timeout)?;
            self.holds = false;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<RadioState, RadioError> {
        let list = &self.commands.state;
        if list.is_empty() {
            return Ok(RadioState { power: Power::Unknown, attached: None, network: None });
        }
        let outcome = run(list, self.commands.timeout)?;
        let power = match outcome.status.code() {
            Some(0) => Power::On,
            Some(1) if self.holds => Power::Off,
            Some(1) => Power::Blocked,
            _ => return Err(RadioError::step(NAME, list.join(" "), outcome.describe())),
        };
        Ok(RadioState { power, attached: None, network: None })
    }

    fn holds(&self) -> bool {
        self.holds
    }

    fn adopt(&mut self, _: Option<String>) {
        self.holds = true;
    }
}
