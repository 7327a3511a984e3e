//! The lineages in the gateway's own database. Owns which step of it an operation is.

use dormouse_ike::limits::LINEAGES_PER_HOLDER;
use dormouse_ike::ticket::lineage::{Operation, Outcome, Store};
use dormouse_io::store::Error;
use dormouse_io::store::lineage::{Lineages, Step};
use dormouse_sansio::UnixTime;
use std::path::Path;

/// A connection to the database that [`dormouse_io::store::Database::open`] has made.
///
/// # Errors
/// Naming the file.
pub(crate) fn open(path: &Path) -> Result<Own, Error> {
    Lineages::open(path).map(Own)
}

/// The lineages in the gateway's database.
#[derive(Debug)]
pub(crate) struct Own(Lineages);

impl Store for Own {
    type Error = Error;

    fn run(&mut self, now: UnixTime, operations: &[Operation]) -> Result<Vec<Outcome>, Self::Error> {
        let steps: Vec<Option<Step>> = operations.iter().map(|operation| step(now, operation)).collect();
        let asked: Vec<bool> = steps.iter().map(Option::is_some).collect();
        let mut found = self.0.run(&steps.into_iter().flatten().collect::<Vec<_>>())?.into_iter();
        let outcome = |(operation, asked): (&Operation, bool)| match operation {
            _ if !asked => Outcome::Done,
            Operation::Confirm { .. } if found.next() != Some(true) => Outcome::Superseded,
            Operation::Confirm { .. } => Outcome::Done,
            _ => {
                found.next();
                Outcome::Done
            }
        };
        Ok(operations.iter().zip(asked).map(outcome).collect())
    }
}

fn step(now: UnixTime, operation: &Operation) -> Option<Step> {
    Some(match *operation {
        Operation::Insert(row) => Step::Insert {
            id: row.id.0,
            holder: row.holder.0,
            tip: row.tip.0,
            ends: row.ends,
            now,
            most: LINEAGES_PER_HOLDER,
        },
        Operation::Confirm { lineage, own, before, next, ends, .. } => {
            Step::Move { id: lineage.0, from: [own.0, before.0], to: next.0, ends }
        }
        Operation::Advance { lineage, from, to, ends } => {
            Step::Move { id: lineage.0, from: [from.0; 2], to: to.0, ends }
        }
        Operation::End { lineage, holder, .. } | Operation::EndFormer { lineage, holder } => {
            Step::End { id: lineage.0, holder: holder.0 }
        }
        Operation::EndAll { holder } => Step::EndAll { holder: holder.0 },
        Operation::EndEvery => Step::EndEvery,
        // One gateway counts its sessions itself.
        Operation::Enter { .. } | Operation::Leave { .. } => return None,
    })
}
