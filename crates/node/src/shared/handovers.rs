//! What gateways share besides lineages, leases and keys: denials, and devices that go from one to another. Owns nothing; see
//! [`super::Courier`].

use super::courier::Error;
use super::takeovers::{self, Leaving};
use super::{ArrivedParcel, BATCH, Courier, Errand, News, Office, Parcel, Report, Store};
use crate::handover::Handover;
use dormouse_ike::takeover::Takeover;
use dormouse_ike::ticket::lineage::{Operation, Row};
use dormouse_sansio::UnixTime;

/// Devices that are handed over with one statement.
const TOGETHER: usize = 64;

/// Those that must not be forgotten are tried again.
pub(super) fn not_run(office: &mut impl Office, errands: Vec<Errand>) {
    let (parcels, others) = parcels(errands);
    office.queue(|q| q.put_back_errands(lasting(others)));
    not_told(office, &parcels);
}

/// What waits for these devices gets old meanwhile: it is not tried again.
fn not_told(office: &mut impl Office, parcels: &[Parcel]) {
    for parcel in parcels.iter().filter(|parcel| parcel.to.is_some()) {
        office.report(Report::News(Box::new(News::HandedOver(parcel.handover.lineage, false))));
    }
}

impl<O: Office> Courier<O> {
    pub(super) async fn run_errands(
        &mut self,
        store: &mut O::Store,
        errands: Vec<Errand>,
    ) -> Result<(), Error<O>> {
        let (parcels, others) = parcels(errands);
        let mut leaving = Leaving::new();
        let (claims, others) = others.into_iter().partition(is_claim);
        let mut others = takeovers::put_back(&mut leaving, others).into_iter().chain::<Vec<Errand>>(claims);
        while let Some(errand) = others.next() {
            if let Err(e) = self.run_errand(store, &errand).await {
                not_told(&mut self.office, &parcels);
                let left = std::iter::once(errand).chain(others).chain(takeovers::errands(leaving)).collect();
                self.office.queue(|q| q.put_back_errands(lasting(left)));
                return Err(e);
            }
        }
        if let Err((left, e)) = self.leave(store, leaving).await {
            not_told(&mut self.office, &parcels);
            self.office.queue(|q| q.put_back_errands(takeovers::errands(left).collect()));
            return Err(e);
        }
        let mut chunks = parcels.chunks(TOGETHER);
        while let Some(chunk) = chunks.next() {
            match store.hand_over(chunk).await {
                Ok(told) => chunk.iter().zip(told).for_each(|(parcel, told)| self.handed_over(parcel, told)),
                Err(e) => {
                    std::iter::once(chunk).chain(chunks).for_each(|chunk| not_told(&mut self.office, chunk));
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// What became of a parcel. What no other gateway gets comes back: its device may have come here again before this gateway heard that it was
    /// elsewhere, or is here still.
    fn handed_over(&mut self, Parcel { handover, to }: &Parcel, told: bool) {
        if !told && !handover.waiting.is_empty() {
            self.tell(News::Arrived(vec![Handover { sleeper: None, ..handover.clone() }]));
        }
        if to.is_some() {
            self.tell(News::HandedOver(handover.lineage, told));
        }
    }

    async fn run_errand(&mut self, store: &mut O::Store, errand: &Errand) -> Result<(), Error<O>> {
        match errand {
            Errand::Deny(denial) => match store.deny(denial).await? {
                None => self.tell(News::OnRecord(denial.clone())),
                // It would fail again.
                Some(why) => tracing::error!(whom = %denial.whom, "denied at this gateway only: {why}"),
            },
            Errand::Allow(whom) => store.allow(whom).await?,
            Errand::Others => {
                // The others learn at once whether we go ourselves.
                self.beat(store).await?;
                let others = store.others().await?;
                self.tell(News::Others(others));
                return Ok(());
            }
            Errand::Again(sessions) => return self.record_again(store, sessions).await,
            Errand::Takeover(Takeover::Claim(lineage)) => return self.claim(store, *lineage).await,
            Errand::HandOver(_) | Errand::Takeover(_) => return Ok(()),
            Errand::KeepLoad(history) => return store.keep_load(history).await,
        }
        // Others are told by the database, this gateway is not.
        let all = store.denials().await?;
        self.tell(News::Denials(all));
        Ok(())
    }

    /// The store hears of sessions that it has forgotten, so that another gateway to which their clients come can end them; those that one has
    /// already are over.
    async fn record_again(&mut self, store: &mut O::Store, sessions: &[(Row, bool)]) -> Result<(), Error<O>> {
        // Of two in one second the other one is the later: it began after the store had forgotten this one.
        let earlier = |row: &Row| Row { ends: UnixTime(row.ends.0.saturating_sub(1)), ..*row };
        let alone: Vec<Row> =
            sessions.iter().filter(|(_, alone)| *alone).map(|(row, _)| earlier(row)).collect();
        let over = store.overtaken(&alone, &[]).await?;
        if !over.is_empty() {
            self.tell(News::Gone(over.clone()));
        }
        let here: Vec<&(Row, bool)> = sessions.iter().filter(|(row, _)| !over.contains(&row.id)).collect();
        for some in here.chunks(BATCH / 2) {
            let begins = |(row, alone): &&(Row, bool)| {
                let others = alone.then_some(Operation::EndAll { holder: row.holder });
                others.into_iter().chain([Operation::Insert(*row)])
            };
            let operations: Vec<Operation> = some.iter().flat_map(begins).collect();
            store.run(&operations).await?;
        }
        Ok(())
    }

    /// What other gateways tell this one of devices. A gateway that ends would lose what it took: it stays where it is until the gateway is back,
    /// which sends it on if its device is elsewhere by then.
    pub(super) async fn receive(&mut self, store: &mut O::Store) -> Result<(), Error<O>> {
        while !self.office.queue(|q| q.is_closed()) {
            let arrived = store.handovers().await?;
            if arrived.is_empty() {
                break;
            }
            let numbers: Vec<i64> = arrived.iter().map(|one| one.number).collect();
            let (over, here): (Vec<_>, Vec<_>) = arrived.into_iter().partition(|one| one.over);
            self.send_on(store, over).await?;
            self.tell(News::Arrived(here.into_iter().filter_map(said).collect()));
            store.taken(&numbers).await?;
        }
        Ok(())
    }

    /// What is for devices whose sessions have ended meanwhile goes where they have logged in since, or stays here.
    async fn send_on(&mut self, store: &mut O::Store, over: Vec<ArrivedParcel>) -> Result<(), Error<O>> {
        let parcel = |handover| Parcel { handover: Handover { sleeper: None, ..handover }, to: None };
        let parcels: Vec<Parcel> = over.into_iter().filter_map(|one| one.handover).map(parcel).collect();
        if !parcels.is_empty() {
            let told = store.hand_over(&parcels).await?;
            parcels.iter().zip(told).for_each(|(parcel, told)| self.handed_over(parcel, told));
        }
        Ok(())
    }
}

/// What a parcel says. If it was sent for an earlier session, the device has logged in here since, so the sleep that the parcel describes has ended: its packets alone are taken.
fn said(ArrivedParcel { lineage, handover, .. }: ArrivedParcel) -> Option<Handover> {
    let mut handover = handover?;
    handover.sleeper.take_if(|_| handover.lineage != lineage);
    Some(handover)
}

fn is_claim(errand: &Errand) -> bool {
    matches!(errand, Errand::Takeover(Takeover::Claim(_)))
}

/// Without those that are not tried again.
fn lasting(mut errands: Vec<Errand>) -> Vec<Errand> {
    errands.retain(|errand| !matches!(errand, Errand::KeepLoad(_)));
    errands
}

fn parcels(errands: Vec<Errand>) -> (Vec<Parcel>, Vec<Errand>) {
    let (mut parcels, mut others) = (Vec::new(), Vec::new());
    for errand in errands {
        match errand {
            Errand::HandOver(parcel) => parcels.push(*parcel),
            errand => others.push(errand),
        }
    }
    (parcels, others)
}
