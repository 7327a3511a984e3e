//! What gateways share besides lineages, leases and keys: denials, and devices that go from one to another. Owns nothing; see
//! [`super::Courier`].

use super::courier::Error;
use super::{Courier, Errand, News, Office, Parcel, Report, Store};

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
        let mut others = others.into_iter();
        while let Some(errand) = others.next() {
            if let Err(e) = self.run_errand(store, &errand).await {
                not_told(&mut self.office, &parcels);
                let left = std::iter::once(errand).chain(others).collect();
                self.office.queue(|q| q.put_back_errands(lasting(left)));
                return Err(e);
            }
        }
        let mut chunks = parcels.chunks(TOGETHER);
        while let Some(chunk) = chunks.next() {
            match store.hand_over(chunk).await {
                Ok(told) => {
                    for (parcel, told) in chunk.iter().zip(told).filter(|(parcel, _)| parcel.to.is_some()) {
                        self.tell(News::HandedOver(parcel.handover.lineage, told));
                    }
                }
                Err(e) => {
                    std::iter::once(chunk).chain(chunks).for_each(|chunk| not_told(&mut self.office, chunk));
                    return Err(e);
                }
            }
        }
        Ok(())
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
            Errand::HandOver(_) => return Ok(()),
            Errand::KeepLoad(history) => return store.keep_load(history).await,
        }
        // Others are told by the database, this gateway is not.
        let all = store.denials().await?;
        self.tell(News::Denials(all));
        Ok(())
    }

    /// What other gateways tell this one of devices.
    pub(super) async fn receive(&mut self, store: &mut O::Store) -> Result<(), Error<O>> {
        loop {
            let arrived = store.handovers().await?;
            if arrived.is_empty() {
                return Ok(());
            }
            let (numbers, handovers): (Vec<i64>, Vec<_>) =
                arrived.into_iter().map(|one| (one.number, one.handover)).unzip();
            self.tell(News::Arrived(handovers.into_iter().flatten().collect()));
            store.taken(&numbers).await?;
        }
    }
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
