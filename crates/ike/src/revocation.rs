//! Whether the certificates that peers show are revoked. Owns what is known of it, where it is asked and when again, and which handshakes
//! wait for an answer; must never fetch anything: [`Event::Fetch`](crate::Event::Fetch) asks the driver, and
//! [`Endpoint::fetched`](crate::Endpoint::fetched) takes what came.
//!
//! Nothing is asked for a stranger: a handshake waits only after its peer has proved to hold the key of a certificate that one of our
//! authorities vouches for, so that the URLs are the authorities' own.
//!
//! # Timer
//! *revocation*: a list or answer is asked for again a tenth of its time before it ends, each hour at the latest where a connection
//! answers; after a failure in 1 min, doubled to 1 h; not earlier than [`AGAIN_LEAST`]. Where a list is found that no session needs any more is
//! forgotten [`WANTED`] after the last use, because tickets live on. So is an OCSP responder, which is meanwhile asked when its certificate's
//! session comes back. Lists are kept over restarts, and so is which responder is asked about which certificate.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_crypto::cert::{
    Certificate, Crl, Issued, NONCE_LEN, OcspAnswer, OcspRequest, RevocationError, Revocations, Status,
    Verified,
};
use dormouse_crypto::{HashAlg, hash};
use dormouse_keying::SaId;
use dormouse_sansio::{Deadline, Entropy, Instant, UnixTime};

use crate::config::{Connection, RemoteAuth, RevocationMode};
use crate::credential::{Credential, Refusal};
use crate::limits;

const AGAIN_LEAST: Duration = Duration::from_secs(60);
const AGAIN_MOST: Duration = Duration::from_secs(3_600);
const WANTED: Duration = limits::TICKET_LIFETIME_MOST;
const RECORDED_EVERY: Duration = Duration::from_secs(86_400);
const SLACK: Duration = Duration::from_secs(60);

/// What an authenticated peer's certificates mean to a connection.
#[derive(Debug)]
pub(crate) enum Judgement {
    Admitted(Credential),
    /// An answer is on its way.
    Wait,
    Refused(Refusal),
}

/// A question that is due: [`Event::Fetch`](crate::Event::Fetch) puts it.
pub(crate) struct Question {
    pub(crate) id: u64,
    pub(crate) url: String,
    pub(crate) body: Option<Vec<u8>>,
    /// What the next run needs to ask again, if that is not on record.
    pub(crate) store: Option<Stored>,
}

/// A name in the store, and what it stands for.
pub(crate) type Stored = (String, Vec<u8>);

/// What an answer has changed.
pub(crate) struct Learned {
    /// Something is revoked, or good, that was not known to be.
    pub(crate) news: bool,
    /// What the next run needs of it.
    pub(crate) store: Option<Stored>,
}

/// Where the status of certificates comes from.
#[derive(Debug)]
struct Source {
    url: String,
    /// The certificate that an OCSP responder is asked about; `None`: a CRL.
    about: Option<Issued>,
    /// Who may have signed what comes, by [`Certificate::key_hash`].
    issuers: BTreeMap<[u8; 32], Certificate>,
    state: State,
    failures: u32,
    /// When something came of it last.
    answered: Option<Instant>,
    /// OCSP: when it was put on record last that this responder is asked.
    recorded: Option<Instant>,
    /// When it needs not be asked again any more; `None`: it is configured.
    wanted: Option<Instant>,
    /// A connection that answers uses it.
    gateway: bool,
}

#[derive(Debug)]
enum State {
    Asked(Option<OcspRequest>),
    Due(Instant),
    /// No session rests on the certificate that an OCSP responder knows of.
    Idle,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Revocation {
    book: Revocations,
    sources: BTreeMap<u64, Source>,
    next: u64,
    /// Configured lists of issuers that no peer has shown yet.
    lists: Vec<Vec<u8>>,
    /// Handshakes that wait, and which sources may tell what each misses.
    waiting: BTreeMap<SaId, BTreeSet<u64>>,
}

impl Revocation {
    /// Why a peer with this chain must be refused now by what the connection wants to know.
    pub(crate) fn refuses(
        &self,
        connection: &Connection,
        credential: &Credential,
        now: UnixTime,
    ) -> Result<(), Refusal> {
        match (mode(connection), self.book.status(credential.chain(), now)) {
            (RevocationMode::Off, _) | (_, Status::Good) => Ok(()),
            (_, Status::Revoked(reason)) => Err(Refusal::Revoked(reason)),
            // Where to ask stands in the certificates, which must be shown again.
            (_, Status::Unknown) if credential.is_unasked() => Err(Refusal::Unasked),
            (RevocationMode::Soft, Status::Unknown) => Ok(()),
            (RevocationMode::Strict, Status::Unknown) => Err(Refusal::StatusUnknown),
        }
    }

    /// Takes a list under the key of whichever of `issuers` has signed it.
    fn take_list<'a>(
        &mut self,
        der: &[u8],
        issuers: impl IntoIterator<Item = &'a Certificate>,
        unix: UnixTime,
    ) -> Result<(Certificate, UnixTime, Option<UnixTime>, bool), RevocationError> {
        let mut error = RevocationError::MayNotSign("an unknown issuer".to_owned());
        for issuer in issuers {
            match Crl::verify(der, issuer, unix) {
                Ok(list) => {
                    let (this, next) = (list.this_update(), list.next_update());
                    let news = self.book.add_list(list, unix);
                    return Ok((issuer.clone(), this, next, news));
                }
                Err(why) => error = why,
            }
        }
        Err(error)
    }

    /// Configured lists whose issuer is known now.
    fn take_lists(&mut self, issuers: &[Certificate], unix: UnixTime) {
        for list in std::mem::take(&mut self.lists) {
            if self.take_list(&list, issuers, unix).is_err() {
                self.lists.push(list);
            }
        }
    }

    fn source(&mut self, now: Instant, url: &str, about: Option<&Issued>) -> Option<(u64, &mut Source)> {
        let known = self.sources.iter().find(|(_, s)| s.url == url && s.about.as_ref() == about);
        let id = match known.map(|(id, _)| *id) {
            Some(id) => id,
            None if !self.has_room() => return None,
            None => {
                self.next += 1;
                let source = Source {
                    url: url.to_owned(),
                    about: about.cloned(),
                    issuers: BTreeMap::new(),
                    state: State::Due(now),
                    failures: 0,
                    answered: None,
                    recorded: None,
                    wanted: Some(now + WANTED),
                    gateway: false,
                };
                self.sources.insert(self.next, source);
                self.next
            }
        };
        self.sources.get_mut(&id).map(|source| (id, source))
    }

    /// Whether there is room for another source. Of those that are idle, the one that was of use longest ago makes it.
    fn has_room(&mut self) -> bool {
        if self.sources.len() < limits::REVOCATION_SOURCES_MAX {
            return true;
        }
        let idle = self.sources.iter().filter(|(_, s)| matches!(s.state, State::Idle));
        let oldest = idle.min_by_key(|(_, s)| s.wanted).map(|(id, _)| *id);
        oldest.is_some_and(|id| self.sources.remove(&id).is_some())
    }

    /// A session rests on these certificates, or will: their status is asked for from now on.
    pub(crate) fn touch(&mut self, now: Instant, chain: &[Issued]) {
        for source in self.sources.values_mut().filter(|source| chain.iter().any(|c| source.is_about(c))) {
            source.wanted = source.wanted.map(|_| now + WANTED);
            if matches!(source.state, State::Idle) {
                source.state = State::Due(now);
            }
        }
    }

    /// Notes where the status of a certificate is found that is not known: those go into `asked` that have been asked, or will be at once.
    fn note(
        &mut self,
        now: Instant,
        issued: &Issued,
        (certificate, issuer): (&Certificate, &Certificate),
        gateway: bool,
        asked: &mut BTreeSet<u64>,
    ) {
        let fetchable = |urls: &[String]| -> Vec<String> {
            urls.iter().filter(|url| url.starts_with("http://") && url.len() <= 1_024).cloned().collect()
        };
        let lists = fetchable(certificate.crl_urls()).into_iter().map(|url| (url, None));
        let responders = fetchable(certificate.ocsp_urls()).into_iter().map(|url| (url, Some(issued)));
        for (url, about) in lists.chain(responders) {
            let Some((id, source)) = self.source(now, &url, about) else { continue };
            source.learn(issuer);
            source.wanted = source.wanted.map(|_| now + WANTED);
            source.gateway |= gateway;
            let on_the_way = match source.state {
                State::Asked(_) => true,
                State::Idle => {
                    source.state = State::Due(now);
                    true
                }
                // What came may have become stale; a failure is not repeated before its time.
                State::Due(_)
                    if source.failures == 0 && source.answered.is_none_or(|at| now - at >= AGAIN_LEAST) =>
                {
                    source.state = State::Due(now);
                    true
                }
                State::Due(at) => at <= now,
            };
            if on_the_way {
                asked.insert(id);
            }
        }
    }

    /// Looks up what an authenticated peer's certificates need; the sources that may tell what is not known.
    pub(crate) fn look_up(
        &mut self,
        (now, unix): (Instant, UnixTime),
        (connection, sa): (&Connection, SaId),
        (own, verified): (&Certificate, &Verified),
    ) -> BTreeSet<u64> {
        let certificates = || std::iter::once(own).chain(&verified.issuers);
        self.waiting.remove(&sa);
        self.take_lists(&verified.issuers, unix);
        self.touch(now, &verified.chain);
        let mut asked = BTreeSet::new();
        for (depth, (issued, certificate)) in verified.chain.iter().zip(certificates()).enumerate() {
            self.book.learn(issued, certificate);
            if self.book.status_of(issued, depth > 0, unix) == Status::Unknown
                && let Some(issuer) = verified.issuers.get(depth)
            {
                let gateway = connection.role.answers();
                self.note(now, issued, (certificate, issuer), gateway, &mut asked);
            }
        }
        asked
    }

    /// What these certificates mean to `connection`, now that `asked` are. `until`: when the handshake has waited long enough, if it has
    /// waited.
    pub(crate) fn judge(
        &mut self,
        (now, unix): (Instant, UnixTime),
        (connection, sa): (&Connection, SaId),
        credential: Credential,
        asked: BTreeSet<u64>,
        until: Option<Instant>,
    ) -> Judgement {
        let known = self.book.status(credential.chain(), unix) != Status::Unknown;
        // A client does not wait to be told that its gateway is good: the answer may come through the tunnel alone.
        let waits = mode(connection) == RevocationMode::Strict || connection.role.answers();
        let may_wait = !asked.is_empty()
            && until.is_none_or(|until| now < until)
            && self.waiting.len() < limits::REVOCATION_WAITING_MAX;
        if !known && waits && may_wait {
            self.waiting.insert(sa, asked);
            return Judgement::Wait;
        }
        match self.refuses(connection, &credential, unix) {
            Ok(()) => Judgement::Admitted(credential),
            Err(error) => Judgement::Refused(error),
        }
    }

    /// The questions that are due: each is asked by that.
    pub(crate) fn ask(
        &mut self,
        (now, unix): (Instant, UnixTime),
        entropy: &mut dyn Entropy,
    ) -> Vec<Question> {
        let mut questions = Vec::new();
        for (id, source) in &mut self.sources {
            if !matches!(source.state, State::Due(at) if at <= now) {
                continue;
            }
            let (mut request, mut record) = (None, None);
            if let (Some(about), Some(issuer)) = (&source.about, source.issuers.values().next()) {
                let mut nonce = [0; NONCE_LEN];
                entropy.fill(&mut nonce);
                request = Some(OcspRequest::new(about, issuer, nonce));
                if source.recorded.is_none_or(|at| now.saturating_since(at) >= RECORDED_EVERY) {
                    source.recorded = Some(now);
                    record = Some((stored_name(source), store(source, issuer, &unix.0.to_be_bytes())));
                }
            }
            let body = request.as_ref().map(OcspRequest::to_der);
            questions.push(Question { id: *id, url: source.url.clone(), body, store: record });
            source.state = State::Asked(request);
        }
        questions
    }

    /// The configuration is another one: what it says comes next. What was learned by the old one stays known.
    pub(crate) fn forget_configured(&mut self, now: Instant) {
        self.lists.clear();
        for source in self.sources.values_mut().filter(|s| s.wanted.is_none()) {
            source.wanted = Some(now + WANTED);
            source.issuers.clear();
        }
    }

    /// The lists and URLs that a connection is configured with.
    pub(crate) fn configure(&mut self, now: Instant, unix: UnixTime, connection: &Connection) {
        let RemoteAuth::Cert { trust, revocation: policy, .. } = &connection.remote_auth else { return };
        if policy.mode == RevocationMode::Off {
            return;
        }
        let authorities: Vec<Certificate> = trust.authorities().cloned().collect();
        let new: Vec<_> = policy.lists.iter().filter(|l| !self.lists.contains(l)).cloned().collect();
        self.lists.extend(new);
        self.take_lists(&authorities, unix);
        for url in &policy.urls {
            let Some((_, source)) = self.source(now, url, None) else { continue };
            source.wanted = None;
            source.gateway |= connection.role.answers();
            authorities.iter().for_each(|authority| source.learn(authority));
        }
    }

    /// What came of a question, or why nothing did. `None`: that source is forgotten.
    pub(crate) fn fetched(
        &mut self,
        (now, unix): (Instant, UnixTime),
        id: u64,
        content: Result<Vec<u8>, String>,
    ) -> Option<Learned> {
        let mut source = self.sources.remove(&id)?;
        let result = content.and_then(|bytes| {
            let taken = self.take(&source, &bytes, unix);
            taken.map(|taken| (bytes, taken)).map_err(|error| error.to_string())
        });
        let mut learned = Learned { news: false, store: None };
        let wait = match result {
            Ok((bytes, Taken { issuer, this_update, next_update, news, lasting })) => {
                tracing::info!(
                    url = source.url,
                    next_update = next_update.map(|n| n.0),
                    "revocations are known"
                );
                let stale = next_update.is_some_and(|next| next < unix);
                source.answered = Some(now);
                source.failures = if stale { source.failures.saturating_add(1) } else { 0 };
                if lasting {
                    // Not to be written over by the record of a question.
                    source.recorded = Some(now + WANTED);
                }
                let store = lasting.then(|| (stored_name(&source), store(&source, &issuer, &bytes)));
                learned = Learned { news, store };
                source.again(unix, this_update, next_update)
            }
            Err(error) => {
                tracing::warn!(url = source.url, error, "revocations are not known");
                source.failures = source.failures.saturating_add(1);
                AGAIN_LEAST * 2u32.saturating_pow(source.failures.min(7) - 1)
            }
        };
        source.state = State::Due(now + wait.clamp(AGAIN_LEAST, AGAIN_MOST.max(wait)));
        self.sources.insert(id, source);
        Some(learned)
    }

    /// What an earlier run has stored. False if it cannot be used.
    pub(crate) fn restore(&mut self, (now, unix): (Instant, UnixTime), content: &[u8]) -> bool {
        let Some((mut source, body)) = restore(now, content) else { return false };
        let asked_at = body.try_into().map(|at| UnixTime(u64::from_be_bytes(at)));
        let of_use = match (&source.about, asked_at) {
            (Some(_), Ok(at)) => {
                source.state = State::Idle;
                unix.saturating_since(at) < WANTED
            }
            _ => match self.take(&source, body, unix) {
                Ok(Taken { this_update, next_update, .. }) => {
                    source.state = State::Due(now + source.again(unix, this_update, next_update));
                    true
                }
                Err(_) => false,
            },
        };
        let known = self.sources.values().any(|s| s.url == source.url && s.about == source.about);
        let room = !known && self.sources.len() < limits::REVOCATION_SOURCES_MAX;
        // A certificate that is revoked stays so: nothing is asked again.
        if room && of_use && (source.about.is_none() || matches!(source.state, State::Idle)) {
            self.next += 1;
            self.sources.insert(self.next, source);
        }
        of_use
    }

    /// Forgets what needs not be asked again, and rests about certificates that no session has: those of all sessions are `in_use`.
    pub(crate) fn prune(&mut self, now: Instant, in_use: &BTreeSet<&Issued>) {
        let issuers: BTreeSet<&[u8; 32]> = in_use.iter().map(|issued| &issued.issuer_key).collect();
        self.sources.retain(|_, source| {
            if !matches!(source.state, State::Due(at) if at <= now) {
                return !matches!(source.state, State::Idle) || source.is_wanted(now);
            }
            let used = match &source.about {
                Some(about) => in_use.contains(about),
                None => source.issuers.keys().any(|key| issuers.contains(key)),
            };
            if used {
                source.wanted = source.wanted.map(|_| now + WANTED);
            } else if source.about.is_some() {
                source.state = State::Idle;
            }
            source.is_wanted(now)
        });
    }

    /// Handshakes that wait for this source.
    pub(crate) fn waiting_for(&self, source: u64) -> Vec<SaId> {
        self.waiting.iter().filter(|(_, on)| on.contains(&source)).map(|(id, _)| *id).collect()
    }

    pub(crate) fn stop_waiting(&mut self, sa: SaId) {
        self.waiting.remove(&sa);
    }

    /// Whether a peer with this chain must go: one of its certificates is revoked, and the connection minds.
    pub(crate) fn ends(&self, connection: &Connection, chain: &[Issued], unix: UnixTime) -> bool {
        mode(connection) != RevocationMode::Off && matches!(self.book.status(chain, unix), Status::Revoked(_))
    }

    pub(crate) fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.sources.values().filter_map(|s| match s.state {
            State::Due(at) => Some(Deadline { at, slack: SLACK, why: "revocation" }),
            State::Asked(_) | State::Idle => None,
        })
    }
}

pub(crate) fn mode(connection: &Connection) -> RevocationMode {
    match &connection.remote_auth {
        RemoteAuth::Cert { revocation, .. } => revocation.mode,
        RemoteAuth::Psk(_) | RemoteAuth::Eap => RevocationMode::Off,
    }
}

/// The names of a source in the store: they say nothing about it.
fn stored_name(source: &Source) -> String {
    let serial = source.about.as_ref().map_or(&[][..], |about| &about.serial);
    let digest = hash(HashAlg::Sha256, &[source.url.as_bytes(), &[0], serial]);
    digest.iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// What was taken from a source.
struct Taken {
    issuer: Certificate,
    this_update: UnixTime,
    next_update: Option<UnixTime>,
    news: bool,
    /// It is of use to the next run: not that one certificate is good now.
    lasting: bool,
}

impl Revocation {
    fn take(&mut self, source: &Source, bytes: &[u8], unix: UnixTime) -> Result<Taken, RevocationError> {
        let Some(about) = &source.about else {
            let lists = Crl::ders_of_file(bytes)?;
            let list = lists.first().map_or(&[][..], Vec::as_slice);
            let (issuer, this_update, next_update, news) =
                self.take_list(list, source.issuers.values(), unix)?;
            return Ok(Taken { issuer, this_update, next_update, news, lasting: true });
        };
        let unknown = || RevocationError::MayNotSign("an unknown issuer".to_owned());
        let issuer = source.issuers.values().next().ok_or_else(unknown)?;
        let answer = match &source.state {
            State::Asked(Some(request)) => OcspAnswer::verify(bytes, request, issuer, unix)?,
            _ => OcspAnswer::verify_kept(bytes, about, issuer, unix)?,
        };
        let (this_update, next_update) = (answer.this_update(), answer.next_update());
        let lasting = answer.is_revoked();
        let news = self.book.add_answer(answer, unix);
        Ok(Taken { issuer: issuer.clone(), this_update, next_update, news, lasting })
    }
}

impl Source {
    /// Whether it may tell the status of this certificate.
    fn is_about(&self, issued: &Issued) -> bool {
        match &self.about {
            Some(about) => about == issued,
            None => self.issuers.contains_key(&issued.issuer_key),
        }
    }

    fn is_wanted(&self, now: Instant) -> bool {
        self.wanted.is_none_or(|until| until > now)
    }

    /// This issuer may have signed what comes.
    fn learn(&mut self, issuer: &Certificate) {
        let key = issuer.key_hash();
        if self.issuers.len() < limits::REVOCATION_ISSUERS_MAX || self.issuers.contains_key(&key) {
            self.issuers.insert(key, issuer.clone());
        }
    }

    /// How long it is until it is asked again.
    fn again(&self, unix: UnixTime, this: UnixTime, next: Option<UnixTime>) -> Duration {
        let end = next.unwrap_or(unix + AGAIN_MOST);
        let left = end.saturating_since(unix).saturating_sub(end.saturating_since(this) / 10);
        let most = if self.gateway { AGAIN_MOST } else { WANTED };
        left.clamp(AGAIN_LEAST, most)
    }
}

const STORED: u8 = 1;

/// Length and content of each part.
fn store(source: &Source, issuer: &Certificate, body: &[u8]) -> Vec<u8> {
    let serial = source.about.as_ref().map_or(&[][..], |about| &about.serial);
    let mut bytes = vec![STORED, u8::from(source.about.is_some()), u8::from(source.gateway)];
    for part in [source.url.as_bytes(), issuer.der(), serial] {
        bytes.extend(u32::try_from(part.len()).unwrap_or(0).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(body);
    bytes
}

fn restore(now: Instant, content: &[u8]) -> Option<(Source, &[u8])> {
    let ([STORED, answer, gateway], mut rest) = content.split_first_chunk()? else { return None };
    let mut part = || {
        let (len, after) = rest.split_first_chunk()?;
        let (part, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        rest = after;
        Some(part)
    };
    let (url, issuer, serial) = (part()?, part()?, part()?);
    let issuer = Certificate::from_der(issuer).ok()?;
    let about = (*answer == 1).then(|| Issued { issuer_key: issuer.key_hash(), serial: serial.to_vec() });
    let source = Source {
        url: String::from_utf8(url.to_vec()).ok()?,
        about,
        issuers: BTreeMap::from([(issuer.key_hash(), issuer)]),
        state: State::Due(now),
        failures: 0,
        answered: None,
        recorded: Some(now),
        wanted: Some(now + WANTED),
        gateway: *gateway == 1,
    };
    Some((source, rest))
}
