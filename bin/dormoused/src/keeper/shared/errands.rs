//! What gateways share besides lineages, leases and keys: denials, and devices that go from one to another. Owns nothing; see [`super`].

use super::{Errand, News, Worker, denials};
use dormouse_cluster as cluster;
use dormouse_cluster::{Database, Parcel};
use dormouse_io::clock::unix_now;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::store::StoredDenial;

/// Devices that are handed over with one statement.
const TOGETHER: usize = 64;

impl Worker<'_> {
    /// Those that must not be forgotten are tried again.
    pub(super) fn not_run(&self, errands: Vec<Errand>) {
        let (parcels, others) = parcels(errands);
        self.queue.put_back_errands(others);
        self.not_told(&parcels);
    }

    fn not_told(&self, parcels: &[Parcel]) {
        let given = parcels.iter().filter(|parcel| parcel.to.is_some());
        given.for_each(|parcel| self.tell(News::HandedOver(parcel.lineage, false)));
    }

    pub(super) async fn run_errands(
        &mut self,
        database: &mut Database,
        errands: Vec<Errand>,
    ) -> Result<(), cluster::Error> {
        let (parcels, others) = parcels(errands);
        let mut others = others.into_iter();
        while let Some(errand) = others.next() {
            if let Err(e) = self.run_errand(database, &errand).await {
                self.not_told(&parcels);
                self.queue.put_back_errands(std::iter::once(errand).chain(others).collect());
                return Err(e);
            }
        }
        let mut chunks = parcels.chunks(TOGETHER);
        while let Some(chunk) = chunks.next() {
            if let Err(e) = self.hand_over(database, chunk).await {
                chunks.for_each(|chunk| self.not_told(chunk));
                return Err(e);
            }
        }
        Ok(())
    }

    async fn run_errand(&mut self, database: &mut Database, errand: &Errand) -> Result<(), cluster::Error> {
        match errand {
            Errand::Deny(StoredDenial { whom, since }) => {
                match database.deny(&cluster::Denial { whom: whom.clone(), since: *since }).await {
                    Ok(_new) => self.tell(News::Denied(whom.clone())),
                    // It would fail again.
                    Err(e @ cluster::Error::Settings(_)) => {
                        tracing::error!(%whom, "denied at this gateway only: {e}");
                    }
                    Err(e) => return Err(e),
                }
            }
            Errand::Allow(whom) => _ = database.allow(whom).await?,
            Errand::Others => {
                // The others learn at once whether we go ourselves.
                self.beat(database).await?;
                self.tell(News::Others(database.others().await?));
                return Ok(());
            }
            Errand::HandOver(parcel) => return self.hand_over(database, std::slice::from_ref(parcel)).await,
        }
        // Others are told by the database, this gateway is not.
        self.tell(News::Denials(denials(database).await?));
        Ok(())
    }

    async fn hand_over(&self, database: &mut Database, parcels: &[Parcel]) -> Result<(), cluster::Error> {
        let told = match database.hand_over(unix_now(), parcels, &mut OsEntropy).await {
            Ok(told) => told,
            Err(e) => {
                self.not_told(parcels);
                return match e {
                    // The connection is as good as before.
                    cluster::Error::Settings(why) => {
                        tracing::warn!("{why}");
                        Ok(())
                    }
                    e => Err(e),
                };
            }
        };
        for (parcel, told) in parcels.iter().zip(told) {
            if parcel.to.is_some() {
                self.tell(News::HandedOver(parcel.lineage, told));
            }
        }
        Ok(())
    }

    /// What other gateways tell this one of devices.
    pub(super) async fn receive(&self, database: &mut Database) -> Result<(), cluster::Error> {
        loop {
            let arrived = database.handovers().await?;
            if arrived.is_empty() {
                return Ok(());
            }
            let readable: Vec<Vec<u8>> = arrived.iter().filter_map(|one| one.content.clone()).collect();
            if readable.len() < arrived.len() {
                tracing::warn!("what another gateway tells of a device is not sealed with our cluster key");
            }
            self.tell(News::Arrived(readable));
            database.taken(&arrived).await?;
        }
    }
}

fn parcels(errands: Vec<Errand>) -> (Vec<Parcel>, Vec<Errand>) {
    let (mut parcels, mut others) = (Vec::new(), Vec::new());
    for errand in errands {
        match errand {
            Errand::HandOver(parcel) => parcels.push(parcel),
            errand => others.push(errand),
        }
    }
    (parcels, others)
}
