//! Any bytes in any file: an error or a finite figure, never a panic.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::tree::{Tree, at};
use dormouse_energy::meter::csv::Columns;
use dormouse_io::meter::{Choice, Meter, analyse, open, survey};
use dormouse_sansio::{Entropy, Seeded};

const FILES: [&str; 17] = [
    "sys/class/power_supply/BAT0/type",
    "sys/class/power_supply/BAT0/status",
    "sys/class/power_supply/BAT0/present",
    "sys/class/power_supply/BAT0/scope",
    "sys/class/power_supply/BAT0/energy_now",
    "sys/class/power_supply/BAT0/charge_now",
    "sys/class/power_supply/BAT0/voltage_now",
    "sys/class/power_supply/BAT0/current_now",
    "sys/class/power_supply/BAT0/power_now",
    "sys/class/power_supply/AC/type",
    "sys/class/power_supply/AC/online",
    "sys/class/powercap/intel-rapl:0/name",
    "sys/class/powercap/intel-rapl:0/energy_uj",
    "sys/class/powercap/intel-rapl:0/max_energy_range_uj",
    "sys/class/powercap/intel-rapl:1/name",
    "sys/class/powercap/intel-rapl:1/energy_uj",
    "sys/class/powercap/intel-rapl:1/max_energy_range_uj",
];

const WORDS: [&str; 18] = [
    "",
    "Battery",
    "Discharging",
    "Charging",
    "Mains",
    "0",
    "1",
    "-1",
    "18446744073709551615",
    "-9223372036854775808",
    "9223372036854775807",
    "package-0",
    "psys",
    "nan",
    "1e999",
    " 7 \n",
    "50000000",
    "99999999999999999999999",
];

fn draw(entropy: &mut Seeded) -> u64 {
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

fn content(entropy: &mut Seeded) -> Vec<u8> {
    match draw(entropy) % 8 {
        0 => {
            let mut bytes = vec![0; usize::try_from(draw(entropy) % 64).unwrap()];
            entropy.fill(&mut bytes);
            bytes
        }
        1 => draw(entropy).to_string().into_bytes(),
        2 => vec![b'9'; 5000],
        _ => WORDS[usize::try_from(draw(entropy)).unwrap_or_default() % WORDS.len()].as_bytes().to_vec(),
    }
}

fn spoil(tree: &Tree, entropy: &mut Seeded, share: u64) {
    for file in FILES {
        match draw(entropy) % share {
            0 => drop(tree.write(file, content(entropy))),
            1 if tree.root().join(file).exists() => tree.remove(file),
            _ => {}
        }
    }
}

#[test]
fn of_sysfs() {
    for seed in 0..100 {
        println!("seed {seed}");
        let mut entropy = Seeded::new(seed);
        let tree = Tree::new();
        tree.supply("AC", &[("type", "Mains"), ("online", "0")]);
        let files = [
            ("type", "Battery"),
            ("status", "Discharging"),
            ("energy_now", "50000000"),
            ("power_now", "8000000"),
        ];
        tree.supply("BAT0", &files);
        tree.domain("intel-rapl:0", "package-0", 5, 1000);
        tree.domain("intel-rapl:1", "psys", 5, 1000);
        spoil(&tree, &mut entropy, 12);
        let mut meters: Vec<Box<dyn Meter>> =
            survey(tree.root(), at(0)).into_iter().filter_map(|(_, found)| found.ok()).collect();
        for t in 1..12 {
            spoil(&tree, &mut entropy, 6);
            for meter in &mut meters {
                if let Ok(reading) = meter.read(at(t)) {
                    assert!(
                        reading.joules.is_finite() && reading.uncertainty.is_finite(),
                        "seed {seed}: {reading:?}"
                    );
                }
                assert!(meter.grain().step.is_finite() && !meter.read_within().is_zero(), "seed {seed}");
                assert!(meter.notes().iter().all(|n| n.len() < 1000), "seed {seed}");
            }
        }
    }
}

#[test]
fn of_an_instrument() {
    let tree = Tree::new();
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let all = [("1,2", "s,W"), ("t,u,i", "ms,V,uA"), ("2,1", "unix,mW")]
        .map(|(names, units)| Columns::new(&list(names), &list(units)).unwrap());
    for seed in 0..100 {
        println!("seed {seed}");
        let mut entropy = Seeded::new(seed);
        let mut text = b"t,u,i\n".to_vec();
        for _ in 0..draw(&mut entropy) % 40 {
            for _ in 0..draw(&mut entropy) % 4 {
                text.extend(content(&mut entropy));
                text.push(b",;\t \n"[usize::try_from(draw(&mut entropy) % 5).unwrap()]);
            }
            text.push(b'\n');
        }
        let path = tree.write("log.csv", &text);
        for columns in &all {
            let found = analyse(&path, columns.clone()).unwrap();
            assert!(found.joules.is_finite() && found.seconds.is_finite(), "seed {seed}: {found:?}");
            let choice = Choice::External { path: path.clone(), columns: columns.clone() };
            let mut meter = open(tree.root(), &choice, at(0)).unwrap().meter;
            let reading = meter.read(at(5)).unwrap();
            assert!(reading.joules.is_finite() && reading.at <= at(5), "seed {seed}: {reading:?}");
        }
    }
}
