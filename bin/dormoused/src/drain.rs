//! `dormouse drain`: a gateway that shares its database with others gives them its devices, and ends. Owns no state: what is done is
//! [`dormouse_node::shared::Drain`]'s, and who has asked for it stands beside that.
//!
//! # Timer
//! *drain*: clients that have come, or have not gone yet, are looked at again.

use crate::daemon::Daemon;
use dormouse_control::{Error, ErrorKind, Reply};
use dormouse_ike::ticket::lineage::Name;
use dormouse_io::control::ClientId;
use dormouse_node::handover::Handover;
use dormouse_node::shared::{Drain, DrainEnd, Errand, Other, Parcel};
use dormouse_sansio::{Deadline, Instant};
use std::time::Duration;

impl Daemon {
    /// Begins. The answer comes when it is over.
    ///
    /// # Errors
    /// If this gateway shares nothing, is at it already, or cannot reach the database.
    pub(crate) fn drain(&mut self, now: Instant, client: ClientId, seconds: u32) -> Result<(), Error> {
        let (Some(cluster), Some(keeper)) = (&mut self.helpers.cluster, &self.helpers.keeper) else {
            let message = "this daemon shares its devices with no other gateway: there is no [cluster]";
            return Err(Error::new(ErrorKind::Request, message));
        };
        if cluster.drain.is_some() {
            return Err(Error::new(ErrorKind::Request, "it is being drained already"));
        }
        if cluster.company.share.alone {
            let message = "the database that the gateways share cannot be reached: nothing has changed";
            return Err(Error::new(ErrorKind::Other, message));
        }
        cluster.counts.drain(true);
        // Who logs in meanwhile goes too, if it follows.
        cluster.balance.lock().leave(true);
        let drain = Drain::new(now, Duration::from_secs(seconds.into()));
        cluster.drain = Some((client, drain));
        keeper.run(Errand::Others);
        Ok(())
    }

    fn draining(&mut self) -> Option<&mut Drain> {
        Some(&mut self.helpers.cluster.as_mut()?.drain.as_mut()?.1)
    }

    pub(crate) fn drain_timer(&self) -> Option<Deadline> {
        Some(self.helpers.cluster.as_ref()?.drain.as_ref()?.1.due())
    }

    /// These gateways are there.
    pub(crate) fn others_are(&mut self, now: Instant, others: Vec<Other>) {
        let Some(cluster) = &mut self.helpers.cluster else { return };
        let end = cluster.drain.as_mut().and_then(|(_, drain)| drain.others(now, &others));
        cluster.balance.lock().heard(others);
        self.drain_ends(end);
    }

    /// It stays as it was, or ends.
    fn drain_ends(&mut self, end: Option<DrainEnd>) {
        let (Some(end), Some(cluster)) = (end, &mut self.helpers.cluster) else { return };
        let Some((client, _)) = cluster.drain.take() else { return };
        let answer = match end {
            DrainEnd::Drained { gone, left, handed_over, kept } => {
                Ok(Reply::Drained { gone, left, handed_over, kept })
            }
            DrainEnd::NoOther => {
                let message = "no other gateway was heard lately: nothing has changed";
                Err(Error::new(ErrorKind::NotConnected, message))
            }
            DrainEnd::NoAnswer => {
                let message = "the database that the gateways share does not answer: nothing has changed";
                Err(Error::new(ErrorKind::Other, message))
            }
        };
        // The others see what a gateway that ends said last.
        cluster.counts.drain(answer.is_ok());
        cluster.balance.lock().leave(answer.is_ok());
        self.stopping |= answer.is_ok();
        self.verbs.reply(client, answer);
    }

    /// Does what is due.
    pub(crate) fn drain_on(&mut self, now: Instant) {
        let Some(cluster) = &mut self.helpers.cluster else { return };
        let Some((_, drain)) = &mut cluster.drain else { return };
        let alone = cluster.company.share.alone;
        let (parcels, end) = drain.go_on(now, &mut self.host, &cluster.balance, alone);
        if let Some(keeper) = &self.helpers.keeper {
            parcels.into_iter().for_each(|parcel| keeper.run(Errand::HandOver(Box::new(parcel))));
        }
        self.drain_ends(end);
    }

    /// What waits here for a device that another gateway has follows it there.
    pub(crate) fn send_after(&self, handover: Handover) {
        if let (Some(keeper), Some(_)) = (&self.helpers.keeper, &self.helpers.cluster) {
            keeper.run(Errand::HandOver(Box::new(Parcel { handover, to: None })));
        }
    }

    /// What became of one that was to go to a gateway.
    pub(crate) fn handed_over(&mut self, now: Instant, lineage: Name, done: bool) {
        if let Some(drain) = self.draining() {
            drain.handed_over(now, lineage, done);
        }
    }
}
