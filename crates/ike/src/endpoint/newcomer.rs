//! What a newcomer must bring under load before anything is kept for it: a cookie, and the solution of a puzzle (RFC 8019). Owns these
//! decisions, and takes down who gives way; the counts are [`crate::half_opens`]'.
//!
//! # In order
//! 1. From `cookie_threshold` half-open SAs on, a cookie: the newcomer receives where it sends from.
//! 2. From `per_prefix` of its own prefix on, or `puzzle_threshold` in all, a puzzle comes with the cookie, the harder the more there
//!    are. A newcomer that does not solve it takes part in a lottery with each repetition of its request: the chance is that of a place among
//!    `per_prefix`, and one in [`UNSOLVED_ONE_IN`] at least.
//!    "The Responder SHOULD accept an incoming request if its priority is high" (RFC 8019 section 7.1.5): that is, if it is solved.
//! 3. At `max` another half-open SA gives way, as [`crate::half_opens`] says, or the newcomer is dropped.
//!
//! Before the third, the driver may let newcomers wait who have brought their cookies, while as many are on their way as can be
//! ([`Endpoint::crowded_until`]): what has begun ends before more begins, and a crowd of honest clients is asked for no puzzles.
//!
//! "Since all countermeasures may cause delays and additional work for the Initiators, they SHOULD NOT be deployed unless an attack is
//! likely to be in progress." (RFC 8019 section 6) Hence the thresholds, and the low difficulty above them.
//! "The Responder SHOULD take this possibility into consideration while choosing the puzzle difficulty and while selecting which
//! percentage of Initiators are allowed to reject solving puzzles." (RFC 8019 section 10): batteries.
//!
//! Resumptions need a cookie, and no puzzle: a ticket is worth one, and cheap to open; `per_prefix` of a prefix at once.
//!
//! Puzzles in IKE_AUTH (RFC 8019 section 7.2) are not given: a half-open SA costs one key agreement at most, because its keys are
//! kept, and has cost a puzzle in IKE_SA_INIT.

use dormouse_crypto::suites::Prf;
use dormouse_sansio::{Entropy, Instant, Path};
use dormouse_wire::ike::{ExchangeType, Header, Message, NotifyType, Payload, PayloadType, TransformType};
use ipnet::IpNet;

use super::Endpoint;
use crate::cookie::Asked;
use crate::error::Discard;
use crate::event::CloseReason;
use crate::half_opens::{Effort, above};
use crate::handshake::Slot;
use crate::limits::{PUZZLE_EASIEST, UNSOLVED_ONE_IN};
use crate::payloads::{View, notify};
use crate::prefix::prefix_of;
use crate::puzzle::{Puzzle, worth};
use crate::shared::Shared;
use dormouse_keying::SaId;

/// The PRFs of puzzles, the one that costs the least to verify first.
const PRFS: [Prf; 4] = [Prf::HmacSha256, Prf::HmacSha1, Prf::HmacSha512, Prf::HmacSha384];

/// A place among the half-open SAs.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) effort: Effort,
    /// The SA that gives it up.
    gives_way: Option<SaId>,
    /// The cookie whose puzzle was solved for it.
    solved: Option<Vec<u8>>,
}

impl Shared {
    /// Whether `again` is the first message `request` with a cookie that we have given for it, and perhaps the solution of its puzzle.
    pub(super) fn has_our_cookie(
        &self,
        now: Instant,
        path: Path,
        header: &Header,
        request: &[u8],
        again: &[u8],
    ) -> bool {
        let (Ok(request), Ok(again)) = (Message::parse(request), Message::parse(again)) else { return false };
        let asked = |payload: &&Payload| match payload {
            Payload::Notify(notify) => notify.kind != NotifyType::Cookie,
            payload => payload.kind() != PayloadType::PuzzleSolution,
        };
        let view = View(&again.payloads);
        let (Some(cookie), Some(ni)) = (view.notify(NotifyType::Cookie), view.nonce()) else { return false };
        let of = Asked { spi_i: header.spi_i, from: path.remote, ni };
        request.header.exchange == header.exchange
            && request.payloads.iter().filter(asked).eq(again.payloads.iter().filter(asked))
            && self.cookies.open(now, &cookie.data, &of).is_some()
    }
}

impl Endpoint {
    /// Until when newcomers should rather wait: so many have begun of late, or wait for us, that more would only keep these from their
    /// ends. `None`: there is room. One prefix alone makes no crowd; and those who leave what they have begun are a part of none
    /// after [`HALF_OPEN_FRESH`](crate::limits::HALF_OPEN_FRESH).
    #[must_use]
    pub fn crowded_until(&self) -> Option<Instant> {
        let limits = self.shared.config.half_open;
        let enough = (limits.puzzle_threshold.min(limits.max) * 3 / 4).max(limits.cookie_threshold).max(1);
        let half_open = &self.shared.half_open;
        (half_open.spread() >= enough).then(|| half_open.fresh_until(enough)).flatten()
    }

    /// Whether a message, without the non-ESP marker, would begin a session, with a cookie of ours that proves where it comes from: it may
    /// wait. Any other is answered at once, and who was given a puzzle has waited for its solution.
    #[must_use]
    pub fn may_wait(&self, now: Instant, path: Path, message: &[u8]) -> bool {
        let (Ok(header), Ok(parsed)) = (Header::parse(message), Message::parse(message)) else {
            return false;
        };
        let view = View(&parsed.payloads);
        let (Some(cookie), Some(ni)) = (view.notify(NotifyType::Cookie), view.nonce()) else { return false };
        let first = matches!(header.exchange, ExchangeType::IkeSaInit | ExchangeType::IkeSessionResume);
        let asked = Asked { spi_i: header.spi_i, from: path.remote, ni };
        first
            && self.shared.half_open.begun_by(header.spi_i, path.remote).is_none()
            && self.shared.cookies.open(now, &cookie.data, &asked).is_some_and(|given| given.puzzle.is_none())
    }

    /// Whether a first message has brought what the load demands, and there is a place for it.
    pub(crate) fn place_for(
        &mut self,
        now: Instant,
        path: Path,
        header: &Header,
        view: View<'_>,
        ni: &[u8],
    ) -> Result<Place, Discard> {
        let limits = self.shared.config.half_open;
        if self.shared.half_open.len() > limits.cookie_threshold {
            self.shorten(now);
        }
        let asked = Asked { spi_i: header.spi_i, from: path.remote, ni };
        let worked = self.worked(now, path, header, view, &asked);
        let from = prefix_of(path.remote.ip());
        let place = worked.and_then(|(effort, solved)| {
            let full = self.shared.half_open.len() >= limits.max;
            let gives_way = full.then(|| self.shared.half_open.gives_way(now, from, effort)).flatten();
            match full && gives_way.is_none() {
                true => Err(Discard::TooManyHalfOpen),
                false => Ok(Place { effort, gives_way, solved: solved.map(<[u8]>::to_vec) }),
            }
        });
        if let Err(why @ (Discard::TooManyHalfOpen | Discard::Unsolved)) = place {
            self.shared.say_refused(now, from, why);
        }
        place
    }

    /// What the sender of a first message has done for it, and the cookie whose puzzle it has solved.
    /// "[...] it SHOULD reply to IKE_SA_INIT requests with a response containing the COOKIE notification" (RFC 7296 section
    /// 2.6)
    /// "[...] that party MUST ignore the cookie and process the message as if no cookie had been included" (RFC 7296 section
    /// 2.6): under load, it gets a new one.
    fn worked<'a>(
        &mut self,
        now: Instant,
        path: Path,
        header: &Header,
        view: View<'a>,
        asked: &Asked<'_>,
    ) -> Result<(Effort, Option<&'a [u8]>), Discard> {
        let shared = &mut self.shared;
        let resumes = header.exchange == ExchangeType::IkeSessionResume;
        let (from, limits) = (prefix_of(path.remote.ip()), shared.config.half_open);
        // A recorded ticket can be sent without end: beyond a prefix's share it is worth no more than a first message.
        let preferred = resumes && shared.half_open.from(from) < limits.per_prefix;
        let unasked = if preferred { Effort::WHOLE } else { Effort::NONE };
        if shared.half_open.len() < limits.cookie_threshold {
            return Ok((unasked, None));
        }
        let wanted = shared.difficulty(from).filter(|_| !resumes);
        let cookie = view.notify(NotifyType::Cookie).map(|n| n.data.as_slice());
        // "First, the cookie MUST be checked for validity." (RFC 8019 section 7.1.4)
        // "It is RECOMMENDED that a new cookie is requested in this case." (RFC 8019 section 7.1.4): if it is not valid.
        // "The requests that don't contain the COOKIE notification MUST NOT participate in this lottery." (RFC 8019 section 7.1)
        let given = cookie.and_then(|cookie| Some((cookie, shared.cookies.open(now, cookie, asked)?)));
        let Some((cookie, given)) = given else {
            return Err(self.challenge(now, path, header, view, asked, wanted));
        };
        let Some(puzzle) = given.puzzle else {
            // "[...] this payload MUST be ignored if the message contains a PS payload for any reason" (RFC 8019 section 7.1.4)
            return match wanted {
                None => Ok((unasked, None)),
                Some(_) => Err(self.challenge(now, path, header, view, asked, wanted)),
            };
        };
        // "If a PS payload is found in the message, then the Responder MUST verify the puzzle solution that it contains." (RFC 8019
        // section 7.1.4)
        let found = view.puzzle_solution().and_then(|solution| worth(puzzle.prf, cookie, solution));
        let enough = found.filter(|bits| *bits >= puzzle.difficulty.max(LEAST_THAT_COUNTS));
        match (enough, wanted) {
            (Some(bits), _) if !given.used => {
                let effort = if puzzle.difficulty == 0 { Effort(bits) } else { Effort::WHOLE };
                Ok((effort, Some(cookie)))
            }
            (_, None) => Ok((Effort::NONE, None)),
            (Some(_), Some(_)) => Err(self.challenge(now, path, header, view, asked, wanted)),
            (None, Some(_)) if shared.draws_lot(from) => Ok((Effort::NONE, None)),
            (None, Some(_)) => Err(Discard::Unsolved),
        }
    }

    /// Sends a cookie, with a puzzle if the load demands one and the newcomer has a PRF that we have.
    /// "Note that the PUZZLE notification MUST always be accompanied with the COOKIE notification" (RFC 8019 section 7.1.1)
    fn challenge(
        &mut self,
        now: Instant,
        path: Path,
        header: &Header,
        view: View<'_>,
        asked: &Asked<'_>,
        wanted: Option<u8>,
    ) -> Discard {
        let shared = &mut self.shared;
        let puzzle = wanted.zip(shared.puzzle_prf(view)).map(|(difficulty, prf)| Puzzle { prf, difficulty });
        let cookie = shared.cookies.issue(now, &mut shared.entropy, asked, puzzle);
        let mut list = vec![notify(NotifyType::Cookie, cookie)];
        list.extend(puzzle.map(|puzzle| Payload::Notify(puzzle.on_wire().notify())));
        shared.answer_first(path, header, &list);
        if puzzle.is_none() {
            return Discard::NoCookie;
        }
        shared.stats.puzzles_given += 1;
        Discard::NoPuzzle
    }

    /// Takes down what has been half-open for longer than the load allows.
    fn shorten(&mut self, now: Instant) {
        let limits = self.shared.config.half_open;
        while let Some(id) = self.shared.half_open.overdue(now, self.shared.half_open.life(&limits)) {
            self.displace(id);
        }
    }

    /// The place is taken now.
    pub(crate) fn take_place(&mut self, place: &Place) {
        if let Some(id) = place.gives_way {
            self.displace(id);
        }
        if let Some(cookie) = &place.solved {
            self.shared.cookies.use_up(cookie);
            self.shared.stats.puzzles_solved += 1;
        }
    }

    fn displace(&mut self, id: SaId) {
        self.shared.stats.half_open_displaced += 1;
        self.shared.half_open.leave(id);
        self.touch(id);
        match self.slots.get(&id) {
            Some(Slot::Established(_)) => self.end(id, CloseReason::Unconfirmed),
            _ => {
                if let Some(Slot::HalfOpen(half)) = self.slots.remove(&id) {
                    half.expire(&mut self.shared);
                }
            }
        }
    }
}

/// Zero bits below which a solution is not worth anything (RFC 8019 section 4.4).
const LEAST_THAT_COUNTS: u8 = 8;

impl Shared {
    /// How hard the puzzle is that newcomers from a prefix are given; `None`: they are given none.
    /// "If the Responder sets a non-zero difficulty level, then the level SHOULD be determined by analyzing the volume of the attack."
    /// (RFC 8019 section 7.1.1.1)
    /// "It is also RECOMMENDED to dynamically adjust the puzzle difficulty in accordance to the current Responder's load." (RFC 8019
    /// section 10)
    fn difficulty(&self, from: IpNet) -> Option<u8> {
        let limits = self.config.half_open;
        let hardest = limits.puzzle_difficulty;
        let of = |number: usize, threshold: usize| {
            let (over, room) = above(number, threshold, limits.max);
            let more = u32::from(hardest.saturating_sub(PUZZLE_EASIEST)) * over / room;
            let difficulty =
                PUZZLE_EASIEST.saturating_add(u8::try_from(more).unwrap_or(u8::MAX)).min(hardest);
            (number >= threshold && threshold < limits.max).then_some(difficulty)
        };
        of(self.half_open.from(from), limits.per_prefix)
            .max(of(self.half_open.spread(), limits.puzzle_threshold))
    }

    /// "The Responder parses the received SA payload and finds mutually supported transforms of type PRF. The Responder selects the
    /// preferred PRF from the list of mutually supported ones and includes it into the PUZZLE notification." (RFC 8019 section 7.1.1.2)
    fn puzzle_prf(&self, view: View<'_>) -> Option<Prf> {
        let offers = |prf: &Prf| {
            let mut transforms = view.sa().into_iter().flatten().flat_map(|proposal| &proposal.transforms);
            transforms.any(|t| t.kind == TransformType::Prf && t.id == prf.id())
        };
        PRFS.into_iter().find(offers)
    }

    /// Whether a newcomer that has not solved its puzzle is served nevertheless.
    /// "The decision whether to process any particular request must be probabilistic, with the probability depending on the
    /// Responder's load (i.e., on the volume of attack)." (RFC 8019 section 7.1)
    fn draws_lot(&mut self, from: IpNet) -> bool {
        let limits = self.config.half_open;
        let (there, over) = (self.half_open.from(from), self.half_open.spread());
        let of_prefix = (limits.per_prefix, there);
        let of_all = (limits.max.saturating_sub(over), limits.max.saturating_sub(limits.puzzle_threshold));
        [of_prefix, of_all].into_iter().all(|(chances, of)| {
            let (chances, of) = (chances.max(of / UNSOLVED_ONE_IN) as u64, of as u64);
            chances >= of || self.entropy.below(of) < chances
        })
    }

    /// Says in the log that first messages are refused: now and then, with their number.
    fn say_refused(&mut self, now: Instant, from: IpNet, why: Discard) {
        let Some(refused) = self.half_open.refusals.note(now) else { return };
        let (half_open, of_it) = (self.half_open.len(), self.half_open.from(from));
        tracing::warn!(%from, of_it, half_open, refused, %why, "newcomers are refused");
    }
}
