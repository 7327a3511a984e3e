//! `kill -9` at every step of a resumption: of the gateway that a device leaves, of the one that it comes to, of PostgreSQL and of the device's own
//! daemon; just before and just after each datagram and each question to the database and its answer. Each time the device is served again with
//! its address, all books agree, its next ticket counts, and the one that it had shown is worth nothing to who has copied it.
//!
//! `DORMOUSE_FAULTS=N`: so many of the list, drawn by `DORMOUSE_SEED=S`; `all` of it before a release. `DORMOUSE_FAULT=N` is one.

use crate::relay::{self, Leg, Party, Trap, Watch};
use crate::thief::{Thief, ticket};
use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{DEVICE, Ground, NEEDS, Scene};
use dormouse_interop::ends::rung;
use dormouse_sansio::{Entropy, Seeded};
use dormouse_testbed::{Extra, SERVER, require};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Where the relays stand for the gateways.
const RELAYS: [&str; 2] = ["203.0.113.101", "203.0.113.102"];
/// How many of the list are played unless it is said.
const PART: usize = 8;
/// A trap that has not closed so long after the device began is not on its way this time.
const REACHED: Duration = Duration::from_secs(3);

/// Who has a part in a resumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Old,
    New,
    Database,
    Device,
}

/// One fault.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Between whom.
    leg: (Role, Role),
    step: usize,
    victim: Role,
    after: bool,
}

/// The ways of a resumption, and how many messages on each are its own: what is said afterwards is traffic, and heartbeats.
const AIR: (Role, Role) = (Role::Device, Role::New);
const CLAIM: (Role, Role) = (Role::New, Role::Database);
const LETTING_GO: (Role, Role) = (Role::Old, Role::Database);
const STEPS: [((Role, Role), usize); 3] = [(AIR, 6), (CLAIM, 2), (LETTING_GO, 7)];

struct Stage {
    scene: Scene,
    watch: Watch,
    thief: Thief,
    address: Vec<IpAddr>,
    /// Where the device is.
    at: usize,
    /// What was said on the device's last way to another gateway.
    messages: Vec<(Leg, String)>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.watch.end();
    }
}

impl Stage {
    fn new() -> Result<Self> {
        let mut ground = Ground::new(2)?;
        let watch = Watch::default();
        let mut gateways = Vec::new();
        for (n, address) in RELAYS.iter().enumerate() {
            relay::air(&watch, &ground.world.core, n, address)?;
            let port = relay::database(&watch, &ground.hosts[n], n, &ground.database.socket())?;
            // The relay reads what is said.
            let url = format!("postgresql://{}@127.0.0.1:{port}/postgres?sslmode=disable", ground.role(n));
            gateways.push(ground.start_gateway(n, &url, "", Extra::default())?);
        }
        ground.behind_the_name(&RELAYS)?;
        let device = ground.start_client(&ground.world.device, DEVICE)?;
        let thief = Thief::new(&mut ground)?;
        let scene = Scene { gateways, device, ground };
        let address = scene.connect()?;
        let at = scene.balances(&address)?;
        Ok(Self { scene, watch, thief, address, at, messages: Vec::new() })
    }

    fn party(&self, role: Role) -> Party {
        match role {
            Role::Old => Party::Gateway(self.at),
            Role::New => Party::Gateway(1 - self.at),
            Role::Database => Party::Database,
            Role::Device => Party::Device,
        }
    }

    fn trap(&self, case: Case) -> Trap {
        let leg = match case.leg {
            AIR => Leg::Air(1 - self.at),
            CLAIM => Leg::Database(1 - self.at),
            _ => Leg::Database(self.at),
        };
        Trap { leg, step: case.step, victim: self.party(case.victim), after: case.after }
    }

    fn pid(&mut self, party: Party) -> Result<u32> {
        Ok(match party {
            Party::Gateway(n) => self.scene.gateways[n].process().pid(),
            Party::Device => self.scene.device.process().pid(),
            Party::Database => self.scene.ground.database.pid().context("no server")?,
        })
    }

    /// The device's daemon begins anew, and finds its ticket on its disk; the common name leads to `gateway` alone, as it would come back to the one
    /// that had its session.
    fn device_begins(&mut self, gateway: usize) -> Result<()> {
        self.scene.device.process().kill();
        self.scene.ground.behind_the_name(&[RELAYS[gateway]])?;
        self.scene.device.restart()
    }

    fn up(&self) -> Result<()> {
        // While its daemon is killed it may fail.
        self.scene.device.cli(&["up", "peer", "--no-wait"]).map(drop)
    }

    fn restart(&mut self, party: Party) -> Result<()> {
        self.watch.revive();
        match party {
            Party::Gateway(n) => self.scene.gateways[n].restart(),
            Party::Database => {
                self.scene.ground.database.kill();
                self.scene.ground.database.go()
            }
            Party::Device => {
                self.scene.device.restart()?;
                self.up()
            }
        }
    }

    /// The device moves to the other gateway, and something happens on its way. What was said when it happened, if it did.
    fn play(&mut self, case: Option<Case>) -> Result<Option<String>> {
        let shown = ticket(&self.scene.ground.world.device)?;
        self.device_begins(1 - self.at)?;
        let trap = case.map(|case| self.trap(case));
        let set = trap.map(|trap| Ok::<_, anyhow::Error>((trap, self.pid(trap.victim)?))).transpose()?;
        self.watch.set(set);
        self.up()?;
        let sending = self.scene.ground.world.device.spawn("sending", "ping", &["-i", "0.1", SERVER])?;
        if let Some(trap) = trap {
            let end = Instant::now() + REACHED;
            while self.watch.closed().is_none() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            self.watch.clear();
            if self.watch.closed().is_some() {
                self.restart(trap.victim)?;
            }
        }
        let closed = self.watch.closed();
        self.is_served()?;
        self.messages = self.watch.said();
        drop(sending);
        self.watch.set(None);

        // What the device has now is a ticket that counts, and it is the only one.
        self.device_begins(self.at)?;
        self.up()?;
        self.is_served()?;
        let by = rung(&self.scene.device)?;
        ensure!(by == "ticket", "the next time by {by}: {}", self.scene.logs());
        self.thief.shows(&self.scene, self.at, &self.address, &shown)?;
        Ok(closed)
    }

    fn is_served(&mut self) -> Result<()> {
        let up = self.scene.device.cli(&["up", "peer"])?;
        ensure!(up.code == 0, "{}\n{}", up.text, self.scene.device.log());
        self.at = self.scene.balances(&self.address)?;
        Ok(())
    }
}

/// All faults of resumptions with so many messages on each of their ways.
fn all(steps: &[((Role, Role), usize)]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &(leg, count) in steps {
        for step in 1..=count {
            for victim in [Role::Old, Role::New, Role::Database, Role::Device] {
                for after in [false, true] {
                    // For who has no part in a message the time after it is that before the next one.
                    let part = [leg.0, leg.1].contains(&victim);
                    if part || !after || step == count {
                        cases.push(Case { leg, step, victim, after });
                    }
                }
            }
        }
    }
    cases
}

/// So many of `cases`, in an order that `seed` gives.
fn draw(mut cases: Vec<(usize, Case)>, count: usize, seed: u64) -> Vec<(usize, Case)> {
    let mut random = Seeded::new(seed);
    let mut drawn = Vec::new();
    while drawn.len() < count && !cases.is_empty() {
        let mut bytes = [0; 8];
        random.fill(&mut bytes);
        let at = usize::try_from(u64::from_le_bytes(bytes) % cases.len() as u64).unwrap_or(0);
        drawn.push(cases.swap_remove(at));
    }
    drawn
}

#[test]
fn whoever_is_killed_at_whichever_step_of_a_resumption_no_ticket_and_no_address_counts_twice() -> Result<()> {
    if !require("kills at the steps of a resumption", &NEEDS) {
        return Ok(());
    }
    let said = |name: &str| std::env::var(name).ok();
    let seed = said("DORMOUSE_SEED").map_or(Ok(1), |s| s.parse())?;
    let mut stage = Stage::new()?;
    // One without a fault counts the steps.
    let [old, new] = [stage.at, 1 - stage.at];
    stage.play(None)?;
    ensure!(stage.at == new, "it has not moved\n{}", stage.scene.logs());
    let count = |leg| stage.messages.iter().filter(|(l, _)| *l == leg).count();
    let counted = [Leg::Air(new), Leg::Database(new), Leg::Database(old)].map(count);
    let whole = STEPS.iter().zip(counted).all(|((_, steps), counted)| counted >= *steps);
    ensure!(whole, "a resumption has {counted:?} steps: {:?}", stage.messages);
    let list: Vec<(usize, Case)> = all(&STEPS).into_iter().enumerate().collect();
    let total = list.len();
    let one: Option<usize> = said("DORMOUSE_FAULT").map(|n| n.parse()).transpose()?;
    let list = match (one, said("DORMOUSE_FAULTS").as_deref()) {
        (Some(one), _) => vec![*list.get(one).context("no such fault")?],
        (None, Some("all")) => list,
        (None, Some(n)) => draw(list, n.parse()?, seed),
        (None, None) => draw(list, PART, seed),
    };
    let (played, mut reached) = (list.len(), 0);
    for (n, case) in list {
        let began = Instant::now();
        let closed =
            stage.play(Some(case)).with_context(|| format!("fault {n} of {total}, {case:?}, seed {seed}"))?;
        reached += usize::from(closed.is_some());
        let took = began.elapsed();
        eprintln!("fault {n} of {total}: {case:?} at {closed:?}, {:.1} s", took.as_secs_f32());
    }
    eprintln!("{reached} of {played} faults were reached, seed {seed}; {} thefts", stage.thief.thefts);
    ensure!(reached * 4 >= played * 3, "{reached} of {played} faults were reached");
    Ok(())
}
