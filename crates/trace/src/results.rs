//! Results of clients as a file: several machines account the clients of their own inputs, and from what each has written comes the analysis that one
//! machine would have made of all of it. Owns the format, of which the same version writes and reads; must never round: each number is read back to
//! its last bit.
//!
//! Lines of JSON: the first has what holds for all, then comes one for each client, and the last says how many these were, by which half a file is
//! noticed.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::analyse::{Analysis, ClientResult, Options};
use crate::clients::{Client, Handed, label, rules};
use crate::report::json::{Accounting, Provenance};
use crate::seen::Addr;
use crate::survey::FileSurvey;
use dormouse_energy::account::{CLAIRVOYANT, ClientReport, Totals};

/// The version of the format.
const VERSION: u32 = 2;
/// The longest line, in bytes: a client with a million sessions.
const LONGEST: u64 = 1 << 30;

/// What holds for all clients of a file.
#[derive(PartialEq, Debug, Serialize, Deserialize)]
struct Head {
    dormouse_results: u32,
    /// How costs were counted, whole: results of other settings are not added to these.
    settings: String,
    accounting: Accounting,
    policies: Vec<String>,
    rule: String,
    files: Vec<FileSurvey>,
    packets: u64,
    unattributed: u64,
    late: u64,
    handed: Vec<(Addr, Vec<String>)>,
    /// Where all of it comes from.
    provenance: Provenance,
}

/// A session, or the sum of several, without the names of its policies.
#[derive(Serialize, Deserialize)]
struct Report {
    packets: u64,
    idle_periods: u64,
    idle_seconds: f64,
    idle_cost: f64,
    policies: Vec<Totals>,
}

/// One client.
#[derive(Serialize, Deserialize)]
struct Line {
    client: Client,
    first: u64,
    last: u64,
    sessions: Vec<Report>,
    days: Report,
}

#[derive(Serialize, Deserialize)]
struct End {
    clients: u64,
}

impl Report {
    fn of(report: &ClientReport) -> Self {
        let ClientReport { packets, idle_periods, idle_seconds, idle_cost, ref policies } = *report;
        let policies = policies.iter().map(|(_, totals)| *totals).collect();
        Self { packets, idle_periods, idle_seconds, idle_cost, policies }
    }

    fn named(self, names: &[&'static str]) -> Result<ClientReport, String> {
        let Self { packets, idle_periods, idle_seconds, idle_cost, policies } = self;
        // One without any packet has no policies either.
        if !policies.is_empty() && policies.len() != names.len() {
            return Err(format!("{} policies, expected {}", policies.len(), names.len()));
        }
        let policies = names.iter().copied().zip(policies).collect();
        Ok(ClientReport { packets, idle_periods, idle_seconds, idle_cost, policies })
    }
}

/// The names of what is accounted, in their order.
fn names(options: &Options) -> Vec<&'static str> {
    options.policies.iter().map(|p| p.name()).chain([CLAIRVOYANT]).collect()
}

/// Writes an analysis that was made with these options, with where it comes from.
///
/// # Errors
/// If the output cannot be written.
pub fn write<X>(
    mut out: impl Write,
    analysis: &Analysis<X>,
    options: &Options,
    provenance: &Provenance,
) -> io::Result<()> {
    let head = Head {
        dormouse_results: VERSION,
        settings: format!(
            "{:?} {:?} {:?} {:?}",
            options.settings, options.spread, options.policies, options.wanted
        ),
        accounting: Accounting::of(options),
        policies: names(options).into_iter().map(str::to_owned).collect(),
        rule: analysis.rule.clone(),
        files: analysis.files.clone(),
        packets: analysis.packets,
        unattributed: analysis.unattributed,
        late: analysis.late,
        handed: analysis.handed.iter().map(|h| (h.address, h.clients.clone())).collect(),
        provenance: provenance.clone(),
    };
    line(&mut out, &head)?;
    for of in &analysis.clients {
        let sessions = of.sessions.iter().map(Report::of).collect();
        let (client, days) = (of.client.clone(), Report::of(&of.days));
        line(&mut out, &Line { client, first: of.first, last: of.last, sessions, days })?;
    }
    line(&mut out, &End { clients: analysis.clients.len() as u64 })?;
    out.flush()
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// What was accounted in several places, as one analysis.
pub struct Merged {
    all: Analysis<()>,
    first: Option<(String, Head)>,
    rules: Vec<String>,
    origins: Vec<Provenance>,
    /// How many clients, and addresses that several of them had, there were when each file was begun.
    begins: Vec<(usize, usize)>,
}

impl Default for Merged {
    fn default() -> Self {
        let (clients, files, handed) = (Vec::new(), Vec::new(), Vec::new());
        let all =
            Analysis { clients, rule: String::new(), files, packets: 0, unattributed: 0, late: 0, handed };
        Self { all, first: None, rules: Vec::new(), origins: Vec::new(), begins: Vec::new() }
    }
}

impl Merged {
    /// Adds what the file called `name` holds.
    ///
    /// # Errors
    /// In words, with the line: it cannot be read, it is cut off, or it is of other settings or another version.
    pub fn add(&mut self, name: &str, mut file: impl BufRead) -> Result<(), String> {
        let mut number = 0;
        let mut next = || -> Result<Option<Vec<u8>>, String> {
            number += 1;
            let mut text = Vec::new();
            let read = io::Read::take(&mut file, LONGEST).read_until(b'\n', &mut text);
            let read = read.map_err(|e| format!("{name}: line {number}: {e}"))?;
            Ok((read > 0).then_some(text))
        };
        let head = next()?.ok_or_else(|| format!("{name}: empty"))?;
        let head: Head = serde_json::from_slice(&head)
            .map_err(|e| format!("{name}: no results of clients, or of another version: {e}"))?;
        let before = self.all.clients.len();
        self.begins.push((before, self.all.handed.len()));
        let names = self.take_head(name, head)?;
        let mut ended = None;
        while let Some(text) = next()? {
            if ended.is_some() {
                return Err(format!("{name}: goes on behind its end"));
            }
            if let Ok(end) = serde_json::from_slice::<End>(&text) {
                ended = Some(end.clients);
                continue;
            }
            let number = self.all.clients.len() - before + 1;
            let wrong = |e: String| format!("{name}: client {number}: {e}");
            let Line { client, first, last, sessions, days } =
                serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))?;
            let sessions = sessions.into_iter().map(|s| s.named(&names)).collect::<Result<_, _>>();
            let (sessions, days) = (sessions.map_err(wrong)?, days.named(&names).map_err(wrong)?);
            self.all.clients.push(ClientResult { client, first, last, sessions, days, extra: () });
        }
        if ended != Some((self.all.clients.len() - before) as u64) {
            return Err(format!("{name}: cut off: its end is missing, or some of its clients"));
        }
        Ok(())
    }

    fn take_head(&mut self, name: &str, mut head: Head) -> Result<Vec<&'static str>, String> {
        if head.dormouse_results != VERSION {
            return Err(format!("{name}: version {}, expected {VERSION}", head.dormouse_results));
        }
        let known = Options::policies(0.0).iter().map(|p| p.name()).chain([CLAIRVOYANT]).collect::<Vec<_>>();
        let named = |policy: &String| known.iter().copied().find(|name| name == policy);
        let names: Option<Vec<_>> = head.policies.iter().map(named).collect();
        let names = names.ok_or_else(|| format!("{name}: policies that are not known here"))?;
        if let Some((other, of)) = &self.first
            && (&of.settings, &of.accounting, &of.policies)
                != (&head.settings, &head.accounting, &head.policies)
        {
            return Err(format!("{name}: accounted by other settings than {other}"));
        }
        let all = &mut self.all;
        all.files.append(&mut head.files);
        all.packets = all.packets.saturating_add(head.packets);
        all.unattributed = all.unattributed.saturating_add(head.unattributed);
        all.late = all.late.saturating_add(head.late);
        all.handed.extend(
            core::mem::take(&mut head.handed)
                .into_iter()
                .map(|(address, clients)| Handed { address, clients }),
        );
        self.rules.push(core::mem::take(&mut head.rule));
        self.origins.push(core::mem::take(&mut head.provenance));
        self.first.get_or_insert((name.to_owned(), head));
        Ok(names)
    }

    /// All of it, and where each file that was added comes from.
    ///
    /// # Errors
    /// In words, if nothing was added, or a client's results come from two places: its sessions may be divided between them.
    pub fn finish(self) -> Result<(Analysis<()>, Accounting, Vec<Provenance>), String> {
        let Self { mut all, first, rules: words, origins, begins } = self;
        let (_, head) = first.ok_or("nothing to merge")?;
        all.rule = rules(&words);
        let before: Vec<String> = all.clients.iter().map(|c| c.client.label.clone()).collect();
        label(&mut all.clients.iter_mut().map(|c| &mut c.client).collect::<Vec<_>>());
        let ends = begins.iter().skip(1).copied().chain([(all.clients.len(), all.handed.len())]);
        for ((clients, handed), (behind, handed_behind)) in begins.iter().copied().zip(ends) {
            // A file calls its clients so that they are told apart in it.
            let labels = before.iter().zip(&all.clients).take(behind).skip(clients);
            let now: BTreeMap<&String, &String> = labels.map(|(old, c)| (old, &c.client.label)).collect();
            let of_file = all.handed.iter_mut().take(handed_behind).skip(handed);
            for label in of_file.flat_map(|h| &mut h.clients) {
                if let Some(new) = now.get(label) {
                    label.clone_from(new);
                }
            }
        }
        all.clients.sort_by(|a, b| a.client.cmp(&b.client));
        all.files.sort_by(|a, b| a.name.cmp(&b.name));
        all.handed.sort_by(|a, b| (a.address, &a.clients).cmp(&(b.address, &b.clients)));
        let twice = all.clients.windows(2).find(|two| matches!(two, [a, b] if a.client == b.client));
        if let Some([client, _]) = twice {
            return Err(format!("two results of {} in {}", client.client.name, client.client.site));
        }
        Ok((all, head.accounting, origins))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Format;
    use crate::flow::Spread;
    use crate::fold::Sessions;
    use crate::seen::Mac;
    use dormouse_energy::account::Settings;
    use dormouse_energy::cost::SleepCost;

    fn options() -> Options {
        Options {
            wanted: Vec::new(),
            format: Some(Format::Csv),
            spread: Spread::default(),
            settings: Settings::new(SleepCost::constant(0.1 + 0.2)),
            sessions: Sessions::default(),
            limits: crate::facts::Limits::default(),
            policies: Options::policies(60.0),
            threads: 1,
        }
    }

    /// Two devices of a site had one address, one after the other.
    fn of_site(site: &str) -> Analysis<()> {
        let names = names(&options());
        let report = |n: u64| ClientReport {
            packets: n,
            idle_seconds: n as f64 / 3.0,
            policies: names
                .iter()
                .map(|name| (*name, Totals { cost: n as f64 / 7.0, ..Totals::default() }))
                .collect(),
            ..ClientReport::default()
        };
        let client =
            |n: u64| Client { site: site.to_owned(), mac: Some(Mac(n)), ..Client::named("10.0.0.1") };
        let result = |n: u64| ClientResult {
            client: client(n),
            first: n,
            last: u64::MAX - n,
            sessions: vec![report(n), ClientReport::default()],
            days: report(n + 1),
            extra: (),
        };
        let mut clients = vec![result(1), result(2)];
        label(&mut clients.iter_mut().map(|c| &mut c.client).collect::<Vec<_>>());
        let had = clients.iter().map(|c| c.client.label.clone()).collect();
        let handed = vec![Handed { address: Addr { hi: 0, lo: 7 }, clients: had }];
        let rule = "found: wireless stations".to_owned();
        Analysis { clients, rule, files: Vec::new(), packets: 6, unattributed: 1, late: 2, handed }
    }

    #[test]
    fn clients_of_all_places_are_told_apart_where_their_addresses_changed_hands_too() {
        let mut merged = Merged::default();
        for site in ["b", "a"] {
            let mut file = Vec::new();
            let origin = Provenance { command: vec![site.to_owned()], ..Provenance::default() };
            write(&mut file, &of_site(site), &options(), &origin).unwrap();
            merged.add(site, file.as_slice()).unwrap();
        }
        let (all, accounting, origins) = merged.finish().unwrap();
        assert_eq!(origins.iter().map(|o| o.command.join(" ")).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(accounting, Accounting::of(&options()));
        assert_eq!((all.packets, all.unattributed, all.late), (12, 2, 4));
        assert_eq!(all.rule, "found: wireless stations");
        let labels: Vec<&str> = all.clients.iter().map(|c| c.client.label.as_str()).collect();
        let expected = ["a", "b"].map(|site| [1, 2].map(|n| format!("10.0.0.1 ({}) in {site}", Mac(n))));
        assert_eq!(labels, expected.concat());
        let handed: Vec<&[String]> = all.handed.iter().map(|h| h.clients.as_slice()).collect();
        assert_eq!(handed, expected.each_ref().map(|of| of.as_slice()));
        for (merged, one) in all.clients.iter().zip(of_site("a").clients.iter().chain(&of_site("b").clients))
        {
            assert_eq!((&merged.sessions, &merged.days), (&one.sessions, &one.days), "to the last bit");
            assert_eq!((merged.first, merged.last), (one.first, one.last));
        }
    }
}
