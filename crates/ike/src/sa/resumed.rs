//! An SA that was resumed in one round trip, as long as one end does not know it for sure. Owns what it waits for at either end:
//! [`Tentative`] at the gateway, [`Confirming`] at the client. Must never believe a proof ([`crate::handshake::quick`] does).

use core::time::Duration;

use dormouse_sansio::{Deadline, Instant, Path};
use dormouse_wire::ike::Header;
use dormouse_wire::ike::dormancy::Refused;

use super::IkeSa;
use super::stage::{Stage, Standing};
use crate::action::Action;
use crate::claim::Claim;
use crate::credential::Credential;
use crate::error::NegotiationError;
use crate::event::Event;
use crate::exchange::liveness::Liveness;
use crate::limits::{STORE_PATIENCE, WAITING_MAX};
use crate::link::Link;
use crate::shared::Shared;
use crate::ticket::Form;
use crate::ticket::lineage::Outcome;
use crate::timer::HALF_OPEN_SLACK;

/// How long the first data may take to tell the gateway that we are there; without any, an IKE message does.
const FIRST_WORD: Duration = Duration::from_millis(100);
/// How long the answer to that data may take before an IKE message asks for one.
const ANSWER: Duration = Duration::from_secs(1);

/// A session that we resumed at once: the gateway uses it when it has heard from us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Confirming {
    since: Instant,
    pub(crate) at: Instant,
}

impl IkeSa {
    /// The gateway has granted our resumption.
    pub(crate) fn confirm_soon(&mut self, now: Instant) {
        self.upkeep.await_word();
        self.stage = Stage::Live(Standing::Confirming(Confirming { since: now, at: now + FIRST_WORD }));
    }

    /// The gateway must have heard from us by now. What came from it proves that it has: it sends nothing before.
    pub(crate) fn confirm_by_ourselves(&mut self, now: Instant) {
        let Stage::Live(Standing::Confirming(c)) = &mut self.stage else { return };
        if c.at > now {
            return;
        }
        let (spoken, answered) = (self.core.last_out > c.since, self.core.last_in > c.since);
        if spoken && !answered && c.at < c.since + ANSWER {
            c.at = c.since + ANSWER;
            return;
        }
        self.stage = Stage::Live(Standing::Heard);
        if !answered {
            self.enqueue(Liveness::upkeep(), now);
        }
    }
}

/// What an SA has besides until its client has confirmed it.
#[derive(Debug)]
pub(crate) struct Tentative {
    /// The request as it came, and its answer, for repetitions.
    request: Vec<u8>,
    response: Vec<u8>,
    expires: Instant,
    begun: Instant,
    clients: usize,
    asked: Option<Asked>,
}

/// The client is there, and the store is asked whether its ticket counts.
#[derive(Debug)]
struct Asked {
    /// The session is given up without an answer by then.
    by: Instant,
    /// Where the client is.
    path: Path,
    /// IKE datagrams that came meanwhile.
    waiting: Vec<(Path, Vec<u8>)>,
}

impl Tentative {
    pub(crate) fn deadline(&self) -> Deadline {
        match &self.asked {
            Some(asked) => Deadline::strict(asked.by, "store"),
            None => Deadline { at: self.expires, slack: HALF_OPEN_SLACK, why: "half-open" },
        }
    }

    /// It is asked about, and this must wait for the answer; a repetition waits already.
    pub(crate) fn hold(&mut self, path: Path, datagram: Vec<u8>) {
        let Some(Asked { waiting, .. }) = &mut self.asked else { return };
        if waiting.len() < WAITING_MAX && !waiting.iter().any(|(_, before)| *before == datagram) {
            waiting.push((path, datagram));
        }
    }
}

impl IkeSa {
    /// Whether its client has not shown yet that it is there, or its ticket is not known to count.
    pub(crate) fn is_tentative(&self) -> bool {
        matches!(self.stage, Stage::Tentative(_))
    }

    /// Whether it is tentative, and its client has shown that it is there.
    pub(crate) fn is_proven(&self) -> bool {
        matches!(&self.stage, Stage::Tentative(tentative) if tentative.asked.is_some())
    }

    /// As long as it is tentative: the request that it answered and the answer, for repetitions, and the link to send it by.
    pub(crate) fn first_answer(&mut self) -> Option<(&mut Link, &Vec<u8>, &Vec<u8>)> {
        match &self.stage {
            Stage::Tentative(begun) => Some((&mut self.core.link, &begun.request, &begun.response)),
            _ => None,
        }
    }

    /// We have granted a resumption by this request: nothing is sent but the answer until its client is there.
    pub(crate) fn await_confirmation(&mut self, shared: &Shared, now: Instant, request: &[u8]) {
        self.core.claims = false;
        self.stage = Stage::Tentative(Box::new(Tentative {
            request: request.to_vec(),
            response: Vec::new(),
            expires: now + shared.config.half_open.timeout,
            begun: now,
            clients: shared.half_open.len() + 1,
            asked: None,
        }));
    }

    /// The answer to the request, for its repetitions.
    pub(crate) fn keep_first_answer(&mut self, answer: Vec<u8>) {
        if let Stage::Tentative(tentative) = &mut self.stage {
            tentative.response = answer;
        }
    }

    /// Something authentic came under the new keys, over `path`: only the owner of the ticket, here and now, can have
    /// made it. Whether the ticket counts is asked now, once. True if there is nothing to wait for.
    pub(crate) fn confirm(&mut self, shared: &mut Shared, now: Instant, path: Path) -> bool {
        let Stage::Tentative(tentative) = &mut self.stage else { return true };
        if let (None, Some(descent)) = (&tentative.asked, &self.core.descent) {
            tentative.asked = Some(Asked { by: now + STORE_PATIENCE, path, waiting: Vec::new() });
            let core = &self.core;
            match shared.callers.wait(core.id(), &core.link.conn, &core.peer, true) {
                Ok(()) => {
                    let (link, lineage) = (&core.link, descent.lineage);
                    if shared.counted(now, &link.conn, &core.peer, path.remote.ip(), lineage).is_some() {
                        shared.callers.counting.ask_ticket(core.id(), lineage);
                    }
                    shared.event(Event::Store(descent.confirm(core.id())));
                }
                Err(why) => self.conclude(shared, now, Some((None, why.to_string()))),
            }
        }
        false
    }

    /// What the resumption of this SA rests on.
    fn claim(&self) -> Option<Claim<'_>> {
        let core = &self.core;
        Some(Claim {
            connection: &core.link.conn.name,
            suite: &core.channel.suite,
            form: Form::Dormouse,
            peer: &core.peer,
            credential: core.session.credential.as_ref()?,
            lineage: core.descent.as_ref()?.lineage,
        })
    }

    /// The same, once the store is asked about it.
    pub(crate) fn asked(&self) -> Option<Claim<'_>> {
        self.claim().filter(|_| self.is_proven())
    }

    /// What the store says of the ticket, or `Failed` if it has not said anything in time.
    pub(crate) fn ticket_judged(&mut self, shared: &mut Shared, now: Instant, outcome: Outcome) {
        if !self.is_proven() {
            return;
        }
        let refused = match outcome {
            Outcome::Done => self.begins(shared, now).err().map(|why| (None, why)),
            Outcome::Superseded | Outcome::Full => {
                Some((Some(Refused::Superseded), Refused::Superseded.to_string()))
            }
            Outcome::Failed => Some((Some(Refused::Store), Refused::Store.to_string())),
        };
        self.conclude(shared, now, refused);
    }

    /// The session begins: it has its addresses from now on, and is reached at its hosts.
    ///
    /// # Errors
    /// Why it cannot.
    fn begins(&mut self, shared: &mut Shared, now: Instant) -> Result<(), String> {
        let claim = self.claim().ok_or_else(|| "it rests on nothing".to_owned())?;
        let conn = claim.begins(shared, now)?;
        let core = &mut self.core;
        shared.rests_on(now, &conn, core.session.credential.as_ref().map_or(&[][..], Credential::chain));
        core.link.conn = conn;
        let hosts = self.core.assigned.addresses().into_iter().chain(self.hosts());
        if let Some(host) = self.held_by_another(shared, hosts) {
            return Err(NegotiationError::AddressHeld(host).to_string());
        }
        if !shared.lease_again(&self.core.link.conn, &self.core.peer, &self.core.assigned) {
            return Err("its addresses are another's by now".to_owned());
        }
        self.claim_hosts(shared);
        Ok(())
    }

    /// Ends the tentative state: the session goes on, or it is `refused` with this notification to the client, if any, and this reason.
    fn conclude(&mut self, shared: &mut Shared, now: Instant, refused: Option<(Option<Refused>, String)>) {
        let live = Stage::Live(Standing::Heard);
        let Stage::Tentative(tentative) = core::mem::replace(&mut self.stage, live) else { return };
        let Tentative { begun, clients, asked: Some(Asked { path, waiting, .. }), .. } = *tentative else {
            return;
        };
        self.core.last_in = now;
        let here = self.core.link.path;
        if path.carrier == here.carrier && path != here {
            // The client has moved since it asked, or its NAT has.
            self.follow(shared, now, path, self.mobility.nat());
        }
        if let Some((told, why)) = refused {
            let error = NegotiationError::TicketRejected(why);
            shared.event(Event::PeerFailed { path, claimed: Some(self.core.peer.clone()), error });
            return shared.actions.push_back(Action::Refuse { sa: self.core.id(), told });
        }
        shared.load.record(shared.unix(now), clients, now - begun);
        tracing::info!(sa = %self.core.id(), peer = %self.core.peer, %path, resumed = true, "IKE SA established");
        shared.event(Event::Confirmed { sa: self.core.id() });
        shared.actions.push_back(Action::Resumed { by: self.core.id() });
        for (path, mut datagram) in waiting {
            let Ok(header) = Header::parse(&datagram) else { continue };
            let _discard = self.handle(shared, now, path, &header, &mut datagram);
        }
    }
}
