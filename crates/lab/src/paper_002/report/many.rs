//! Many associations at one responder, beside the paper's conclusion that unmodified HIP is too heavy for them. Owns what "too heavy" is
//! taken to mean: the paper gives no figure for it, so the limits are made of its others, and stated before anything is measured.

use dormouse_report::{Table, digits};

use super::{STANDBY, TABLETS, Writer, judged, shown};
use crate::experiment::Exhibit;
use crate::judge::{Claim, Expect, ends};
use crate::paper_002::campaign::Point;
use crate::paper_002::pair::Key;

/// Seconds of an exchange with a server that the paper finds usable at most: of its phone in standby.
const USABLE: f64 = super::EXCHANGES[0].1[STANDBY].0;
/// Seconds that it finds too long at least: of its tablet with another.
const TOO_LONG: f64 = TABLETS[1];
/// Seconds of one in which its phone is the responder, with HIPL in standby.
const ACTING: f64 = super::EXCHANGES[1].1[2].0;
const MINUTE: f64 = 60.0;
/// In minutes.
const HOUR: f64 = 60.0;
/// Memory of its phone in bytes, and the associations that are asked for.
const MEMORY: f64 = 96e6;
const ASKED: f64 = 10_000.0;
/// What grows with the number of associations is more than this times what it is with few.
const GROWS: f64 = super::ALIKE;
const PLACE: &str = "Conclusions";

impl Writer<'_> {
    /// The points of a responder with keys of this kind in one process, by their associations.
    fn responders(&self, key: Key) -> Vec<(Point, u32)> {
        self.counted(|point| match point {
            Point::Responder { key: of, associations } if of == key => Some(associations),
            _ => None,
        })
    }

    /// Those of the shipped daemon.
    fn servers(&self) -> Vec<(Point, u32)> {
        self.counted(|point| match point {
            Point::Server { associations } => Some(associations),
            _ => None,
        })
    }

    fn counted(&self, count: impl Fn(Point) -> Option<u32>) -> Vec<(Point, u32)> {
        let mut all: Vec<_> =
            self.results.samples.iter().filter_map(|s| Some((s.point, count(s.point)?))).collect();
        all.sort_unstable_by_key(|(_, count)| *count);
        all
    }

    /// A figure for each association.
    fn each(&self, (point, count): (Point, u32), name: &str) -> f64 {
        self.value(point, name) / f64::from(count)
    }

    /// Of the responder's processor for an association: with the most there are, over that with the fewest.
    fn growth(&self, all: &[(Point, u32)]) -> f64 {
        match (all, ends(all.iter().map(|(_, count)| *count))) {
            ([few, .., many], Some(_)) => self.each(*many, "responder") / self.each(*few, "responder"),
            _ => f64::NAN,
        }
    }

    /// Associations that the paper's phone would set up as a responder within what the paper finds too long.
    fn within_too_long(&self, all: &[(Point, u32)]) -> f64 {
        let each = all.last().map_or(f64::NAN, |most| self.each(*most, "responder"));
        TOO_LONG * 1e3 / (each * self.slowness())
    }

    pub(super) fn associations(&self) -> Exhibit<Table> {
        let row = |at: &str, of: (Point, u32)| {
            let each = self.each(of, "responder");
            let elapsed = self.each(of, "associated");
            vec![
                at.to_owned(),
                of.1.to_string(),
                shown(each),
                shown(1e3 / each),
                shown(1e3 / elapsed),
                shown(self.each(of, "held_memory") / 1e3),
                shown(each * self.slowness() / 1e3),
            ]
        };
        let in_process = [Key::Rsa1024V1, Key::P256].into_iter().flat_map(|key| {
            let all = self.responders(key);
            all.into_iter().map(move |of| row(&format!("one process, {}", key.words()), of))
        });
        let shipped = self.servers().into_iter().map(|of| row("shipped daemon, ECDSA P-256", of));
        let head = [
            "responder",
            "associations",
            "its CPU each, ms",
            "a second and core",
            "a second, elapsed",
            "its memory each, kB",
            "its CPU each scaled, s",
        ];
        let title = format!(
            "Many associations at one responder; elapsed: with the initiators on the same machine; scaled: times {}",
            shown(self.slowness())
        );
        Exhibit::new("Beyond the paper", Table::titled(&title, head, in_process.chain(shipped)))
    }

    /// What the paper concludes, and what follows for many associations.
    pub(super) fn conclusions(&self) -> Vec<Claim> {
        let (papers, todays, servers) =
            (self.responders(Key::Rsa1024V1), self.responders(Key::P256), self.servers());
        let most =
            |all: &[(Point, u32)]| all.last().map_or_else(|| "no".to_owned(), |(_, count)| count.to_string());
        let of_key = |all: &[(Point, u32)]| all.last().map_or(f64::NAN, |most| self.each(*most, "responder"));
        let keys = format!(
            "an exchange takes {} ms of a responder here with the paper's keys and group, {} ms with P-256 and group 8",
            shown(of_key(&papers)),
            shown(of_key(&todays))
        );
        let parallel = |words: &str, all: &[(Point, u32)]| {
            judged(
                PLACE,
                &format!(
                    "too heavy for several associations at a phone, {words}: not two within {TOO_LONG} s"
                ),
                format!("{:.1} (tablet)", TOO_LONG / TABLETS[0]),
                &format!("associations within {TOO_LONG} s scaled; {} measured", most(all)),
                Expect::below(2.0),
                self.by_round(|r| r.within_too_long(all)),
            )
            .because(keys.clone())
        };
        let minutes = |r: &Self, name, slow| {
            servers.last().map_or(f64::NAN, |of| r.each(*of, name) * slow * ASKED / 1e3 / MINUTE)
        };
        let each = digits(MEMORY / ASKED / 1e3);
        vec![
            judged(
                PLACE,
                &format!("too heavy between two phones: longer than the {USABLE} s that a server may take"),
                "1.4 to 3.2 s with a server, 2.6 to 6.4 s between two".to_owned(),
                "s scaled",
                Expect::above(USABLE),
                self.by_round(|r| r.scenarios()[2]),
            )
            .because(keys.clone()),
            parallel("with the paper's keys", &papers),
            parallel("with ECDSA P-256", &todays),
            judged(
                PLACE,
                "too heavy for many associations at one responder: each costs the more, the more there are",
                "no figure".to_owned(),
                &format!("times the CPU of one among the fewest; {} in one process", most(&todays)),
                Expect::above(GROWS),
                self.by_round(|r| r.growth(&todays)),
            ),
            judged(
                PLACE,
                "the same of the shipped daemon",
                "no figure".to_owned(),
                &format!("times the CPU of one among the fewest; {} at one daemon", most(&servers)),
                Expect::above(GROWS),
                self.by_round(|r| r.growth(&servers)),
            ),
            judged(
                PLACE,
                "too heavy in memory: 10,000 associations do not fit into the phone's 96 MB",
                format!("above {each} kB each; 3 MB for the first"),
                &format!("kB each; {} at one daemon", most(&servers)),
                Expect::above(MEMORY / ASKED / 1e3),
                self.by_round(|r| servers.last().map_or(f64::NAN, |of| r.each(*of, "held_memory") / 1e3)),
            ),
            judged(
                PLACE,
                "too heavy in time: one responder takes more than an hour for 10,000 associations",
                format!("{:.0} min at {ACTING} s each (derived)", ACTING * ASKED / MINUTE),
                &format!("min, elapsed, initiators on the same machine; {} at one daemon", most(&servers)),
                Expect::above(HOUR),
                self.by_round(|r| minutes(r, "associated", 1.0)),
            )
            .because(format!(
                "this machine is no phone: of the daemon's processor time alone, {} times slower, it would be {} min",
                shown(self.slowness()),
                shown(minutes(self, "responder", self.slowness()))
            )),
        ]
    }
}
