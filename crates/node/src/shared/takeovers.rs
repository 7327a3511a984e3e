//! IKE SAs that outlive their gateway, between a gateway and the store: what it leaves, what others have left that are silent now, and which it is
//! given. Owns when the store is asked for lists: once for each gateway that becomes silent. See [`super::Courier`].

use super::courier::Error;
use super::{Courier, Errand, News, Office, Store};
use dormouse_ike::takeover::{Record, Takeover};
use dormouse_ike::ticket::lineage::Name;
use std::collections::{BTreeMap, BTreeSet};

/// Records that are written with one statement.
const TOGETHER: usize = 64;

/// What is to be written of each session, the last of it: how it is now, or that it is over.
pub(super) type Leaving = BTreeMap<Name, Option<Box<Record>>>;

/// Records that wait at most; and twice as many sessions, whose ends have the other half to themselves. Beyond it an end is not written: the record goes
/// by itself when its time is over, and who takes the SA over before gets no answer from its peer.
const RECORDS_MOST: usize = 65_536;

/// The last of a session is `word`: how it is now, or that it is over.
pub(super) fn note(leaving: &mut Leaving, lineage: Name, word: Option<Box<Record>>) {
    let most = if word.is_some() { RECORDS_MOST } else { 2 * RECORDS_MOST };
    if leaving.len() < most || leaving.contains_key(&lineage) {
        leaving.insert(lineage, word);
    }
}

/// What is about records goes to those that are to be written; where there is a later word of the same session, that stays.
pub(super) fn put_back(leaving: &mut Leaving, errands: Vec<Errand>) -> Vec<Errand> {
    let mut others = Vec::new();
    for errand in errands {
        match errand {
            Errand::Takeover(Takeover::Keep(record)) => {
                if !leaving.contains_key(&record.left.lineage) {
                    note(leaving, record.left.lineage, Some(record));
                }
            }
            Errand::Takeover(Takeover::Forget(lineage)) => {
                if !leaving.contains_key(&lineage) {
                    note(leaving, lineage, None);
                }
            }
            // Its peer goes on sending, and that asks again.
            Errand::Takeover(Takeover::Claim(_)) => {}
            errand => others.push(errand),
        }
    }
    others
}

/// The errands that [`put_back`] takes.
pub(super) fn errands(leaving: Leaving) -> impl Iterator<Item = Errand> {
    leaving
        .into_iter()
        .map(|(lineage, record)| Errand::Takeover(record.map_or(Takeover::Forget(lineage), Takeover::Keep)))
}

impl<O: Office> Courier<O> {
    /// What gateways have left that have become silent is told; what those have that are heard again is theirs. `first`: so is what this gateway
    /// itself had, before its process began.
    pub(super) async fn look_for_left(&mut self, store: &mut O::Store, first: bool) -> Result<(), Error<O>> {
        if first {
            let own = store.left_by(None).await?;
            if !own.is_empty() {
                self.tell(News::Left(String::new(), own));
            }
        }
        let silent: BTreeSet<String> = store.silent().await?.into_iter().collect();
        for gateway in &silent {
            if !self.silent.contains(gateway) {
                let left = store.left_by(Some(gateway)).await?;
                self.tell(News::Left(gateway.clone(), left));
            }
        }
        let before = std::mem::replace(&mut self.silent, silent);
        for gateway in before {
            if !self.silent.contains(&gateway) {
                self.tell(News::Left(gateway, Vec::new()));
            }
        }
        Ok(())
    }

    /// Writes what this gateway leaves, as much as one statement takes at a time. What is left when it fails.
    pub(super) async fn leave(
        &mut self,
        store: &mut O::Store,
        leaving: Leaving,
    ) -> Result<(), (Leaving, Error<O>)> {
        let mut all: Vec<(Name, Option<Box<Record>>)> = leaving.into_iter().collect();
        while !all.is_empty() {
            let some = all.get(..TOGETHER).unwrap_or(&all);
            let records: Vec<&Record> = some.iter().filter_map(|(_, record)| record.as_deref()).collect();
            let over = some.iter().filter(|(_, record)| record.is_none()).map(|(lineage, _)| *lineage);
            let over: Vec<Name> = over.collect();
            if let Err(e) = store.leave(&records, &over).await {
                return Err((all.into_iter().collect(), e));
            }
            all.drain(..some.len());
        }
        Ok(())
    }

    /// Asks for an SA that another gateway has left.
    pub(super) async fn claim(&mut self, store: &mut O::Store, lineage: Name) -> Result<(), Error<O>> {
        let given = store.claim(lineage).await?;
        self.tell(News::Given(lineage, given));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::{Batch, Denied, Waiting};
    use dormouse_crypto::Secret;
    use dormouse_ike::takeover::Left;
    use dormouse_sansio::UnixTime;

    fn keep(n: u8, owners: u16) -> Errand {
        let left =
            Left { lineage: Name([n; 16]), spi: n.into(), esp: vec![300], local: [192, 0, 2, 1].into() };
        let content = Secret::from([n; 4]);
        Errand::Takeover(Takeover::Keep(Box::new(Record { left, owners, ends: UnixTime(9), content })))
    }

    fn forget(n: u8) -> Errand {
        Errand::Takeover(Takeover::Forget(Name([n; 16])))
    }

    fn taken(waiting: &mut Waiting) -> Vec<Errand> {
        let Batch { errands, .. } = waiting.take();
        errands
    }

    #[test]
    fn what_waits_for_a_store_that_fails_has_a_bound_and_ends_more_room_than_records() {
        let name = |n: usize| Name(u128::try_from(n).unwrap().to_be_bytes());
        let Errand::Takeover(Takeover::Keep(record)) = keep(0, 0) else { unreachable!() };
        let mut leaving = Leaving::new();
        (0..RECORDS_MOST + 9).for_each(|n| note(&mut leaving, name(n), Some(record.clone())));
        assert_eq!(leaving.len(), RECORDS_MOST);
        (0..3 * RECORDS_MOST).for_each(|n| note(&mut leaving, name(n), None));
        assert_eq!(leaving.len(), 2 * RECORDS_MOST);
        assert!(leaving.values().all(Option::is_none), "an end takes the place of what it ends");
        put_back(&mut leaving, vec![Errand::Takeover(Takeover::Forget(name(4 * RECORDS_MOST)))]);
        assert_eq!(leaving.len(), 2 * RECORDS_MOST);
    }

    #[test]
    fn of_each_session_the_last_word_is_written_also_after_a_failure() {
        let mut waiting = Waiting::default();
        [keep(1, 0), keep(2, 0), keep(1, 1), forget(2), keep(3, 0)].into_iter().for_each(|e| waiting.run(e));
        let first = taken(&mut waiting);
        assert_eq!(first, [keep(1, 1), forget(2), keep(3, 0)]);
        // Meanwhile there is another word of two of them. Who was asked for is asked for again by its peer.
        [forget(1), keep(2, 5)].into_iter().for_each(|e| waiting.run(e));
        let claim = Errand::Takeover(Takeover::Claim(Name([4; 16])));
        let denial = Errand::Deny(Denied { whom: "eve".into(), since: UnixTime(1) });
        waiting.put_back_errands(first.into_iter().chain([claim.clone(), denial.clone()]).collect());
        assert_eq!(taken(&mut waiting), [denial, forget(1), keep(2, 5), keep(3, 0)]);
        waiting.run(claim.clone());
        assert_eq!(taken(&mut waiting), [claim]);
        assert!(waiting.take().is_empty());
    }
}
