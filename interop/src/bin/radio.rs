//! Switches a radio by hand, as the daemon does: through a guard process, from a loop that never blocks.
//!
//! ```text
//! radio [--driver auto|networkmanager|rfkill|link] [--interface NAME] [--mark FILE] [--power-save on|off]
//! ```
//! Reads `off`, `on` and `state`, one a line, and prints an answer to each; ends with its input. However it ends, the radio
//! comes back on. Needs root. With `--power-save` it only switches that, until its input ends.

use dormouse_io::poller::{Interest, Poller};
use dormouse_io::radio::{Driver, Guard, Options, Order, PowerSave, Reply, serve};
use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;

const GUARD: &str = "radio-guard";
const INPUT: u64 = 0;
const RADIO: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some(GUARD) {
        return Ok(serve()?);
    }
    let (options, power_save) = options()?;
    if let Some(on) = power_save {
        let mut switch = PowerSave::find(&options)?;
        switch.set(on)?;
        println!("power save: {on}, found {}", switch.found());
        io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(());
    }
    let mut guard = Guard::spawn(&std::env::current_exe()?, &[GUARD], &options)?;
    match guard.wait()? {
        Reply::Selected(Ok(choice)) => println!("radio: {}: {}", choice.driver, choice.why),
        Reply::Selected(Err(why)) => return Err(why.into()),
        Reply::Done(..) => return Err("an answer to no order".into()),
    }
    println!("guard: {}", guard.pid());
    let poller = Poller::new()?;
    // An ordinary file cannot be waited for: commands come from a terminal, a pipe or a socket.
    let mut input = BufReader::new(File::from(io::stdin().as_fd().try_clone_to_owned()?));
    poller.add(input.get_ref(), INPUT, Interest::READ)?;
    poller.add(&guard, RADIO, Interest::READ)?;
    let (mut ready, mut pending, mut open) = (Vec::new(), 0, true);
    while open || pending > 0 {
        poller.wait(&mut ready, None)?;
        while let Some(reply) = guard.next()? {
            pending -= 1;
            print(&reply);
        }
        if !ready.iter().any(|r| r.token == INPUT) {
            continue;
        }
        loop {
            let mut line = String::new();
            open = input.read_line(&mut line)? > 0;
            if let Some(order) = order(line.trim())? {
                guard.order(order)?;
                pending += 1;
            }
            if input.buffer().is_empty() {
                break;
            }
        }
        if !open {
            // The end of the input stays readable for ever.
            poller.remove(input.get_ref())?;
        }
    }
    Ok(())
}

fn order(line: &str) -> Result<Option<Order>, String> {
    match line {
        "off" => Ok(Some(Order::Off)),
        "on" => Ok(Some(Order::On)),
        "state" => Ok(Some(Order::State)),
        "" => Ok(None),
        other => Err(format!("'{other}' is neither off, on nor state")),
    }
}

fn print(reply: &Reply) {
    match reply {
        Reply::Done(order, Ok(state)) => {
            let attached = match (state.attached, &state.network) {
                (Some(true), Some(network)) => format!("attached to {network}"),
                (Some(true), None) => "attached".into(),
                (Some(false), _) => "not attached".into(),
                (None, _) => "attached or not".into(),
            };
            println!("{order:?}: {:?}, {attached}", state.power);
        }
        Reply::Done(order, Err(why)) => println!("{order:?}: failed: {why}"),
        Reply::Selected(_) => {}
    }
}

fn options() -> Result<(Options, Option<bool>), Box<dyn Error>> {
    let (mut options, mut power_save) = (Options::default(), None);
    let mut arguments = std::env::args().skip(1);
    while let Some(key) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{key} needs a value"))?;
        match key.as_str() {
            "--driver" => {
                let all =
                    [Driver::Auto, Driver::NetworkManager, Driver::Rfkill, Driver::Link, Driver::Command];
                let found = all.into_iter().find(|d| d.name() == value);
                options.driver = found.ok_or_else(|| format!("there is no driver '{value}'"))?;
            }
            "--interface" => options.interface = Some(value),
            "--mark" => options.mark = Some(value.into()),
            "--power-save" => power_save = Some(value == "on"),
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok((options, power_save))
}
