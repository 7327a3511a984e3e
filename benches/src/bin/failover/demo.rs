//! The same once, told in plain words. Owns what is printed; a book that does not balance is said, and is the exit code.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use dormouse_report::{Table, thousands};

use crate::books::{self, Books};
use crate::promoted::{self, Promotion};
use crate::pulled::{self, GONE, Plan, Story};
use crate::stage::{NAMES, Stage};

/// Lets it happen with so many devices, and prints the books. `followed`: the database has standbys, of which one is killed on the way; and at the end it
/// is killed itself, and one of them takes its place.
///
/// # Errors
/// If it cannot be set up here, or a device does not come back as it should.
pub(crate) fn run(devices: usize, followed: bool, interrupted: &Arc<AtomicBool>) -> Result<ExitCode> {
    let cores = std::thread::available_parallelism()?.get();
    println!(
        "{} devices sleep in their VPN, at three gateways behind one name that share one PostgreSQL. {} is pulled out.\n\
         Real: the dormoused processes, PostgreSQL with TLS and its commits on the disk, sockets and tunnels, between network namespaces\n\
         of this machine ({cores} cores). Emulated: the devices, by one thread that speaks the product's own IKEv2 and ESP from an address for each.\n",
        thousands(devices as u64),
        NAMES[GONE]
    );
    let plan = Plan { devices, all_there: false, all_asleep: true, followed, one_dies: followed };
    let (story, mut stage) = pulled::tell(plan, interrupted)?;
    told(&story, devices);
    let promotion = if followed { Some(promoted::tell(&mut stage, &story)?) } else { None };
    let again = plugged_in(&mut stage, &story)?;
    drop(stage);
    if let Some(promotion) = &promotion {
        lost(promotion, devices);
    }
    print!("{}", table(&story, &again).text(""));
    figures(&story, cores);
    let promoted = promotion.iter().flat_map(|promotion| &promotion.after).flat_map(|books| &books.faults);
    let faults: Vec<&String> = story.after.faults.iter().chain(promoted).chain(&again.faults).collect();
    faults.iter().for_each(|fault| println!("NOT BALANCED: {fault}"));
    println!(
        "{} All that was made is removed.",
        if faults.is_empty() { "The books balance." } else { "The books do not balance." }
    );
    Ok(ExitCode::from(u8::from(!faults.is_empty())))
}

fn told(story: &Story, devices: usize) {
    let (moved, count) = (story.back.len(), |n: usize| thousands(n as u64));
    println!(
        "{} logged in by certificate in {:.1} s, each with an address and a ticket, and announced that they sleep.",
        count(devices),
        story.logins.as_secs_f64()
    );
    println!(
        "{} is killed. {:.2} s after its {} devices sent their tickets to the other two, all at once, the last one is back: by ticket ({} in one\n\
         round trip, the others asked for a cookie first), with its address, and its ping was answered through the tunnel. A device that has not\n\
         slept for long waits for {} for a second before, and asks it for three (wake.held_ms, wake.probe_ms): that is not in the figure.",
        NAMES[GONE],
        story.took().as_secs_f64(),
        count(moved),
        count(story.back.iter().filter(|done| done.round_trips == 1).count()),
        NAMES[GONE],
    );
    println!(
        "{} of the used tickets were used again, at the gateway that had taken them or at the other one: {} refused.",
        count(story.tried),
        count(story.tried)
    );
    println!(
        "All {} woke and sent a packet: each was answered, {} without an exchange.\n",
        count(devices),
        count(devices - moved)
    );
}

fn lost(promotion: &Promotion, devices: usize) {
    let count = |n: usize| thousands(n as u64);
    println!(
        "One standby of two was killed while they came back. Then it was started again, the database's server was killed, and the standby that had\n\
         most of its log was promoted: all tickets were made worthless ({} time), {} that had not been used were shown and none was taken,\n\
         {} devices logged in, each came back by its new ticket, and none of the used ones was taken again.\n",
        promotion.emptied,
        count(promotion.refused),
        count(devices)
    );
}

/// The gateway that was pulled out comes back: it lets go of what it had.
fn plugged_in(stage: &mut Stage, story: &Story) -> Result<Books> {
    stage.gateways.get_mut(GONE).context("no gateway")?.daemon.restart()?;
    books::settle(stage, &story.at)
}

fn table(story: &Story, again: &Books) -> Table {
    let head = ["the books", NAMES[0], NAMES[1], NAMES[2], "all"];
    let mut table = Table::new(head);
    let number = |n: usize| thousands(n as u64);
    let mut row = |what: &str, cells: [Option<usize>; NAMES.len()]| {
        let cell = |n: Option<usize>| n.map_or_else(|| "gone".to_owned(), number);
        let all = number(cells.iter().flatten().sum());
        table.row([what.to_owned()].into_iter().chain(cells.map(cell)).chain([all]));
    };
    row("sessions before, all asleep", story.before.sessions);
    row("sessions after", story.after.sessions);
    row("tickets that count, one of each device", story.after.lineages.map(Some));
    row("sessions to let go of, once it is back", story.after.orders.map(Some));
    row("the same after it came back", again.orders.map(Some));
    row("sessions then", again.sessions);
    let none = || String::new();
    table.row(["addresses, one holder each".to_owned(), none(), none(), none(), number(again.leases)]);
    table
}

fn figures(story: &Story, cores: usize) {
    let seconds = story.took().as_secs_f64();
    let less = seconds - story.crowd.as_secs_f64() / cores as f64;
    let moved = story.back.len() as f64;
    let at = |n: usize| {
        let (took, count) = story.took_at(n);
        format!("{} {:.0}", NAMES[n], count as f64 / took.as_secs_f64())
    };
    let others: Vec<String> = (0..NAMES.len()).filter(|n| *n != GONE).map(at).collect();
    println!(
        "\nResumptions a second, each on the disk before it counts: {:.0} ({}); {:.0} with the emulated devices' part of the processor taken off.",
        moved / seconds,
        others.join(", "),
        moved / less
    );
    let ms = |time: std::time::Duration| format!("{:.0}", time.as_secs_f64() * 1e3);
    let gateways: Vec<String> = (0..NAMES.len())
        .filter(|n| *n != GONE)
        .map(|n| format!("{} {}", NAMES[n], ms(story.gateways[n])))
        .collect();
    println!(
        "Processor ms meanwhile: {}, PostgreSQL {}, the emulated devices {}. By device: {:.2} transactions that wrote, {:.0} bytes of WAL.",
        gateways.join(", "),
        ms(story.database),
        ms(story.crowd),
        story.load.transactions / moved,
        story.load.bytes / moved
    );
}
