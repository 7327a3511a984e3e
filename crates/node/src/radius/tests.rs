//! Servers that are late, silent, wrong or gone.

use super::limits::{
    ASK_NO_LONGER, ASKED_AT_ONCE, ASKED_AT_ONCE_BY_ONE, QUESTIONS_WAITING, REPORT_AGAIN, REPORTED_AT_ONCE,
    REST,
};
use super::*;
use dormouse_crypto::{Secret, eap, mobileip};
use dormouse_eap::packet::{Packet, Type};
use dormouse_sansio::Seeded;

const SECRET: &[u8] = b"shared with the servers";
const TIMEOUT: Duration = Duration::from_secs(2);

fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 1812))
}

fn server(n: u8) -> Server {
    Server { address: address(n), secret: Secret::from(SECRET) }
}

struct Bench {
    radius: Radius,
    random: Seeded,
    now: Instant,
    /// What was sent and not closed: by socket, to whom, how often.
    open: Vec<(u64, SocketAddr, Vec<u8>, usize)>,
    told: Vec<(SaId, Verdict)>,
}

impl Bench {
    fn new(servers: &[u8], accounting: &[u8]) -> Self {
        let of = |list: &[u8]| list.iter().map(|n| server(*n)).collect();
        let policy = Policy {
            servers: of(servers),
            accounting: of(accounting),
            name: "gw.test".to_owned(),
            timeout: TIMEOUT,
            tries: 3,
            interim: None,
        };
        Self {
            radius: Radius::new(policy),
            random: Seeded::new(7),
            now: Instant::ZERO,
            open: Vec::new(),
            told: Vec::new(),
        }
    }

    fn turn(&mut self) {
        while let Some(what) = self.radius.poll() {
            match what {
                Do::Socket(SocketOrder::Send { socket, to, bytes }) => {
                    match self.open.iter_mut().find(|(of, ..)| *of == socket) {
                        Some((_, at, before, times)) => {
                            assert_eq!((*at, &*before), (to, &bytes), "repeated as it was");
                            *times += 1;
                        }
                        None => self.open.push((socket, to, bytes, 1)),
                    }
                }
                Do::Socket(SocketOrder::Close { socket }) => self.open.retain(|(of, ..)| *of != socket),
                Do::Tell(sa, verdict) => self.told.push((sa, verdict)),
            }
        }
    }

    /// Of a caller with an address of its own.
    fn ask(&mut self, sa: u64, response: &[u8]) {
        self.ask_from(std::net::Ipv4Addr::from(0x0a01_0000 + u32::try_from(sa).expect("few")), sa, response);
    }

    fn ask_from(&mut self, from: std::net::Ipv4Addr, sa: u64, response: &[u8]) {
        let (local, from) = ([192, 0, 2, 1].into(), from.into());
        let (sa, connection, response) = (SaId::new(sa), "users".to_owned(), response.to_vec());
        let question = Question { sa, connection, local, from, response };
        self.radius.ask(self.now, &mut self.random, question);
        self.turn();
    }

    fn introduce(&mut self, sa: u64) {
        self.ask(sa, &alices_name());
    }

    fn come(&mut self, socket: u64, datagram: &[u8]) {
        self.radius.came(self.now, &mut self.random, socket, datagram);
        self.turn();
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.radius.timers().map(|timer| timer.at).min().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.radius.handle_timeout(self.now, &mut self.random);
            self.turn();
        }
        self.now = until;
    }

    /// The one request that is on its way.
    fn request(&self) -> (u64, SocketAddr, Vec<u8>, usize) {
        assert_eq!(self.open.len(), 1, "{:?}", self.open);
        self.open[0].clone()
    }

    fn verdict(&mut self) -> Verdict {
        assert_eq!(self.told.len(), 1, "{:?}", self.told);
        self.told.remove(0).1
    }

    fn unanswered(&mut self) -> String {
        match self.verdict() {
            Verdict::Unanswered(why) => why,
            other => panic!("{other:?}"),
        }
    }
}

fn alices_name() -> Vec<u8> {
    Packet::Response { identifier: 1, kind: Type::IDENTITY, data: b"alice" }.emit().expect("short")
}

/// A server's answer to a request, as it is sealed with this secret.
fn answer(code: u8, request: &[u8], attributes: &[u8], secret: &[u8]) -> Vec<u8> {
    let body = [&[80, 18][..], &[0; 16], attributes].concat();
    let len = u16::try_from(20 + body.len()).expect("short").to_be_bytes();
    let mut packet = [&[code, request[1]][..], &len, &request[4..20], &body].concat();
    if code != 5 {
        let mac = mobileip::Authenticator::HmacMd5.compute(&Secret::from(secret), &packet);
        packet[22..38].copy_from_slice(&mac);
    }
    let authenticator = eap::md5(&[&packet, secret]);
    packet[4..20].copy_from_slice(&authenticator);
    packet
}

fn attribute(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind, u8::try_from(value.len() + 2).expect("short")][..], value].concat()
}

fn challenge(request: &[u8]) -> Vec<u8> {
    let eap = [1, 2, 0, 6, 26, 1];
    answer(11, request, &[attribute(79, &eap), attribute(24, b"state")].concat(), SECRET)
}

fn reject(request: &[u8]) -> Vec<u8> {
    answer(3, request, &attribute(79, &[4, 2, 0, 4]), SECRET)
}

#[test]
fn who_is_silent_is_asked_again_and_then_another() {
    let mut bench = Bench::new(&[1, 2], &[]);
    bench.introduce(1);
    let (first, to, ..) = bench.request();
    assert_eq!(to, address(1));
    bench.wait(2 * TIMEOUT);
    assert_eq!(bench.request().3, 3, "three times in all");
    bench.wait(TIMEOUT);
    let (second, to, request, times) = bench.request();
    assert_eq!((to, times), (address(2), 1));
    assert_ne!(first, second, "another socket");
    // What the first one says now is too late.
    bench.come(first, &challenge(&request));
    assert!(bench.told.is_empty());
    bench.come(second, &challenge(&request));
    assert!(matches!(bench.verdict(), Verdict::Continue(eap) if eap == [1, 2, 0, 6, 26, 1]));
    assert!(bench.open.is_empty(), "nothing stays open while the caller has the word");
    // It goes on where it began; a newcomer is asked about there too, until the first one has rested.
    bench.ask(1, &[2, 2, 0, 6, 26, 2]);
    assert_eq!(bench.request().1, address(2));
    let (socket, _, request, _) = bench.request();
    assert!(request.windows(7).any(|w| w == attribute(24, b"state")), "with the server's state");
    bench.come(socket, &reject(&request));
    assert!(
        matches!(bench.verdict(), Verdict::Refused { packet, why } if packet == [4, 2, 0, 4] && why.contains("10.0.0.2"))
    );
    bench.introduce(2);
    let (socket, to, request, _) = bench.request();
    assert_eq!(to, address(2));
    bench.come(socket, &reject(&request));
    bench.told.clear();
    bench.wait(REST);
    bench.introduce(3);
    assert_eq!(bench.request().1, address(1), "the order of the configuration again");
}

#[test]
fn no_answer_from_any_names_each() {
    let mut bench = Bench::new(&[1, 2], &[]);
    bench.introduce(1);
    bench.wait(6 * TIMEOUT);
    let why = bench.unanswered();
    assert!(
        why.contains("10.0.0.1:1812 (no answer in 6 s") && why.contains("10.0.0.2:1812 (no answer in 6 s"),
        "{why}"
    );
    assert!(bench.open.is_empty() && bench.radius.timers().next().is_none());
    // All rest: the one that has rested longest is asked nevertheless.
    bench.introduce(2);
    assert_eq!(bench.request().1, address(1));
}

#[test]
fn nobody_waits_for_more_servers_than_a_caller_does() {
    let mut bench = Bench::new(&[1, 2, 3, 4, 5], &[]);
    bench.introduce(1);
    bench.wait(ASK_NO_LONGER + 3 * TIMEOUT);
    let why = bench.unanswered();
    assert!(why.contains("10.0.0.4") && !why.contains("10.0.0.5"), "{why}");
}

#[test]
fn what_is_no_answer_changes_nothing_and_is_said_in_the_end() {
    let mut bench = Bench::new(&[1], &[]);
    bench.introduce(1);
    let (socket, _, request, _) = bench.request();
    let mut unsigned = reject(&request);
    unsigned.drain(20..38);
    unsigned[3] -= 18;
    let other = answer(3, &request, &attribute(79, &[4, 2, 0, 4]), b"another secret");
    let mut old = request.clone();
    old[4] ^= 1;
    for wrong in [&[][..], &[2; 19], &unsigned, &reject(&old), &other] {
        bench.come(socket, wrong);
        assert!(bench.told.is_empty() && bench.open.len() == 1, "{wrong:?}");
    }
    assert_eq!(bench.radius.health()[0][0].discarded, 5);
    bench.wait(3 * TIMEOUT);
    let why = bench.unanswered();
    assert!(why.contains("the shared secret is another at the server"), "{why}");
}

#[test]
fn a_conversation_ends_with_its_server() {
    let mut bench = Bench::new(&[1, 2], &[]);
    bench.introduce(1);
    let (socket, _, request, _) = bench.request();
    bench.come(socket, &challenge(&request));
    bench.told.clear();
    bench.ask(1, &[2, 2, 0, 6, 26, 2]);
    bench.wait(3 * TIMEOUT);
    let why = bench.unanswered();
    assert!(why.contains("in the middle of a conversation") && !why.contains("10.0.0.2"), "{why}");
    bench.introduce(2);
    assert_eq!(bench.request().1, address(2), "who comes again is asked about elsewhere");
}

#[test]
fn where_nothing_listens_the_next_is_asked_at_once() {
    let mut bench = Bench::new(&[1, 2], &[]);
    bench.introduce(1);
    let (socket, ..) = bench.request();
    bench.radius.unreachable(bench.now, &mut bench.random, socket, "nothing listens there");
    bench.turn();
    let (socket, to, ..) = bench.request();
    assert_eq!(to, address(2));
    bench.radius.unreachable(bench.now, &mut bench.random, socket, "nothing listens there");
    bench.turn();
    assert!(bench.unanswered().contains("10.0.0.2:1812 (nothing listens there)"));
}

#[test]
fn a_caller_without_a_name_is_not_asked_about() {
    let mut bench = Bench::new(&[1], &[]);
    for (sa, response) in [&[2, 9, 0, 5, 1][..], &[1, 9, 0, 5, 1], &[]].iter().enumerate() {
        bench.ask(sa as u64, response);
        assert!(bench.open.is_empty());
        let identifier = response.get(1).copied().unwrap_or_default();
        assert!(
            matches!(bench.verdict(), Verdict::Refused { packet, .. } if packet == [4, identifier, 0, 4])
        );
    }
}

#[test]
fn a_crowd_waits_its_turn_and_has_an_end() {
    let mut bench = Bench::new(&[1], &[]);
    let most = (ASKED_AT_ONCE + QUESTIONS_WAITING) as u64;
    for sa in 0..=most {
        bench.introduce(sa);
    }
    assert_eq!(bench.open.len(), ASKED_AT_ONCE);
    assert!(bench.unanswered().contains("wait for an answer already"));
    let (socket, _, request, _) = bench.open[0].clone();
    bench.come(socket, &reject(&request));
    assert_eq!(
        (bench.open.len(), bench.radius.pending().0),
        (ASKED_AT_ONCE, ASKED_AT_ONCE + QUESTIONS_WAITING - 1)
    );
    // Who has waited for too long is not there any more: the servers are spared.
    bench.now += Duration::from_secs(31);
    bench.wait(7 * TIMEOUT);
    assert_eq!((bench.open.len(), bench.radius.pending().0), (0, 0));
}

#[test]
fn who_comes_often_from_one_address_leaves_room_for_others() {
    let mut bench = Bench::new(&[1], &[]);
    let share = ASKED_AT_ONCE_BY_ONE as u64;
    for sa in 0..share + 2 {
        bench.ask_from([203, 0, 113, 9].into(), sa, &alices_name());
    }
    assert_eq!(
        (bench.open.len(), bench.radius.pending().0),
        (ASKED_AT_ONCE_BY_ONE, ASKED_AT_ONCE_BY_ONE + 2)
    );
    bench.introduce(1_000);
    assert_eq!(bench.open.len(), ASKED_AT_ONCE_BY_ONE + 1, "another does not wait");
    let (socket, _, request, _) = bench.open.pop().expect("the last one");
    bench.come(socket, &reject(&request));
    assert_eq!(bench.open.len(), ASKED_AT_ONCE_BY_ONE, "its room is nobody's of theirs");
    let (socket, _, request, _) = bench.open[0].clone();
    bench.come(socket, &reject(&request));
    assert_eq!(
        (bench.open.len(), bench.radius.pending().0),
        (ASKED_AT_ONCE_BY_ONE, ASKED_AT_ONCE_BY_ONE + 1)
    );
}

#[test]
fn a_server_that_answers_others_does_not_rest_for_what_it_drops() {
    let mut bench = Bench::new(&[1, 2], &[]);
    bench.introduce(1);
    bench.wait(TIMEOUT);
    bench.introduce(2);
    let (socket, _, request, _) = bench.open.pop().expect("the second caller's");
    bench.come(socket, &reject(&request));
    bench.told.clear();
    bench.wait(2 * TIMEOUT);
    let (socket, to, request, _) = bench.request();
    assert_eq!(to, address(2), "the first caller's is asked of the other one");
    bench.come(socket, &reject(&request));
    bench.introduce(3);
    assert_eq!(bench.request().1, address(1), "newcomers' are not");
    assert_eq!(bench.radius.health()[0][0].unanswered, 1);
}

#[test]
fn other_servers_end_what_was_asked() {
    let mut bench = Bench::new(&[1], &[3]);
    bench.introduce(1);
    let (old, ..) = bench.request();
    let policy = Policy { servers: vec![server(2)], ..bench.radius.policy().clone() };
    bench.radius.reconfigure(policy);
    bench.turn();
    assert!(bench.unanswered().contains("the configuration has changed"));
    bench.introduce(2);
    let (new, to, ..) = bench.request();
    assert_eq!(to, address(2));
    assert_ne!(old, new);
}

#[test]
fn who_was_in_the_middle_when_servers_changed_comes_again_and_has_no_wrong_password() {
    let mut bench = Bench::new(&[1], &[]);
    bench.introduce(1);
    let (socket, _, request, _) = bench.request();
    bench.come(socket, &challenge(&request));
    bench.told.clear();
    let policy = Policy { servers: vec![server(2)], ..bench.radius.policy().clone() };
    bench.radius.reconfigure(policy);
    bench.turn();
    assert!(bench.told.is_empty(), "the caller has the word");
    bench.ask(1, &[2, 2, 0, 6, 26, 2]);
    assert!(bench.unanswered().contains("is not known any more"));
    assert!(bench.open.is_empty());
}

#[test]
fn without_servers_no_socket_stays_and_nobody_waits() {
    let mut bench = Bench::new(&[1], &[3]);
    bench.introduce(1);
    let account = bench.begin(1, "alice");
    assert_eq!(bench.open.len(), 2);
    bench.radius.end_all();
    bench.turn();
    assert!(bench.open.is_empty(), "{:?}", bench.open);
    assert!(bench.unanswered().contains("the configuration has changed"));
    bench.introduce(2);
    assert!(bench.unanswered().contains("none is configured"));
    drop(account);
}

fn about(user: &str) -> About {
    let [local, remote] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(Into::into);
    About {
        connection: "users".to_owned(),
        user: user.to_owned(),
        local,
        remote,
        inner: Some([10, 9, 0, 5].into()),
    }
}

/// Its status (1 start, 2 stop, 3 interim).
fn status(request: &[u8]) -> u8 {
    assert_eq!(request[20..22], [40, 6]);
    request[25]
}

impl Bench {
    fn begin(&mut self, sa: u64, user: &str) -> Box<Account> {
        let owner = Owner::Ike(SaId::new(sa));
        let account = self.radius.begin(self.now, &mut self.random, owner, about(user)).expect("it is told");
        self.turn();
        account
    }

    fn end(&mut self, account: &Account) {
        self.radius.end(self.now, &mut self.random, account, Usage::default(), 1);
        self.turn();
    }

    fn taken(&mut self) -> u8 {
        let (socket, _, request, _) = self.open[0].clone();
        self.come(socket, &answer(5, &request, &[], SECRET));
        status(&request)
    }
}

#[test]
fn a_session_is_told_of_in_its_order() {
    let mut bench = Bench::new(&[1], &[3]);
    let account = bench.begin(1, "alice");
    bench.end(&account);
    let other = bench.begin(2, "bob");
    assert_eq!(
        bench.open.iter().map(|(.., request, _)| status(request)).collect::<Vec<_>>(),
        [1, 1],
        "one of each session"
    );
    assert_eq!(bench.taken(), 1);
    assert_eq!(bench.taken(), 1);
    assert_eq!(bench.taken(), 2);
    assert_eq!(bench.radius.pending().1, 0);
    // Sessions are told apart, and what was granted to a user is repeated.
    let grants = dormouse_eap::radius::Grants { class: vec![b"staff".to_vec()], ..Default::default() };
    bench.radius.asking.remember("users".to_owned(), "Carol", grants);
    let third = bench.begin(3, "carol");
    let (_, _, request, _) = bench.request();
    for part in [attribute(25, b"staff"), attribute(1, b"Carol"), attribute(8, &[10, 9, 0, 5])] {
        assert!(request.windows(part.len()).any(|w| w == part), "{part:?}");
    }
    drop((account, other, third));
}

#[test]
fn what_is_remembered_is_of_one_user_and_of_no_other_by_a_like_name() {
    let mut bench = Bench::new(&[1], &[3]);
    let grants = || dormouse_eap::radius::Grants { class: vec![b"staff".to_vec()], ..Default::default() };
    let asking = &mut bench.radius.asking;
    asking.remember("users".to_owned(), "Carol@Example.org", grants());
    asking.remember("users".to_owned(), "CN=carol", grants());
    for (user, theirs) in [
        ("Carol@example.ORG", true),
        ("carol@example.org", false),
        ("Carol@elsewhere.org", false),
        ("CN=carol", false),
    ] {
        assert_eq!(asking.granted("users", user).is_some(), theirs, "{user}");
    }
    assert!(asking.granted("guests", "Carol@Example.org").is_none());
}

#[test]
fn reports_wait_for_a_server_that_takes_them() {
    let mut bench = Bench::new(&[1], &[3, 4]);
    let account = bench.begin(1, "alice");
    assert_eq!(bench.request().1, address(3));
    bench.wait(3 * TIMEOUT);
    assert_eq!(bench.request().1, address(4));
    bench.wait(3 * TIMEOUT);
    assert!(bench.open.is_empty(), "no server takes it");
    bench.end(&account);
    assert!(bench.open.is_empty() && bench.radius.pending().1 == 2);
    bench.wait(REPORT_AGAIN);
    let (_, _, request, _) = bench.request();
    assert_eq!(status(&request), 1);
    let late = attribute(41, &42_u32.to_be_bytes());
    assert!(request.windows(6).any(|w| w == late), "and says how late it is");
    assert_eq!((bench.taken(), bench.taken()), (1, 2));
    assert_eq!((bench.radius.lost(), bench.radius.pending().1), (0, 0));
}

#[test]
fn interim_reports_come_when_they_are_due() {
    let mut bench = Bench::new(&[1], &[3]);
    bench.radius.policy.interim = Some(Duration::from_secs(600));
    let account = bench.begin(1, "alice");
    bench.taken();
    let due = bench.radius.timers().next().expect("an interim report");
    assert_eq!((due.at, due.why), (bench.now + Duration::from_secs(600), "RADIUS interim report"));
    assert_eq!(bench.radius.due_interim(bench.now), None);
    bench.now = due.at;
    let owner = bench.radius.due_interim(bench.now).expect("due");
    bench.radius.interim(bench.now, &mut bench.random, owner, &account, Usage::default());
    bench.turn();
    assert_eq!(bench.taken(), 3);
    assert_eq!(bench.radius.due_interim(bench.now), None, "once");
    // A server may not ask for more of them than it can mean.
    let grants = dormouse_eap::radius::Grants { interim: Some(Duration::from_secs(1)), ..Default::default() };
    bench.radius.asking.remember("users".to_owned(), "bob", grants);
    bench.begin(2, "bob");
    bench.taken();
    assert_eq!(bench.radius.timers().next().map(|timer| timer.at), Some(bench.now + INTERIM_LEAST));
}

#[test]
fn many_reports_do_not_go_out_at_once() {
    let mut bench = Bench::new(&[1], &[3]);
    let accounts: Vec<_> = (0..200).map(|n| bench.begin(n, &format!("user{n}"))).collect();
    assert_eq!(bench.open.len(), REPORTED_AT_ONCE);
    for _ in 0..200 {
        bench.taken();
    }
    assert_eq!((bench.open.len(), bench.radius.pending().1, accounts.len()), (0, 0, 200));
}
