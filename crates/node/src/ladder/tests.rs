mod gateways;

use super::*;
use dormouse_sansio::Carrier;

fn path(host: u8) -> Path {
    Path {
        local: ([10, 0, host, 2], 4500).into(),
        remote: ([192, 0, 2, 1], 4500).into(),
        carrier: Carrier::NatT,
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn ladder() -> Ladder {
    Ladder::new(Deadlines {
        held: Duration::from_secs(1),
        probe: Duration::from_secs(2),
        resume: Duration::from_secs(3),
        full: Duration::from_secs(10),
        gateway_holds: Duration::from_secs(120),
    })
}

fn actions(l: &mut Ladder) -> Vec<Action> {
    std::iter::from_fn(|| l.poll_action()).collect()
}

fn established() -> Ladder {
    let mut l = ladder();
    l.network(at(0), Some(path(1)), true);
    l.up(at(0), true);
    assert_eq!(actions(&mut l), [Action::Connect(path(1))]);
    l.established(at(1), path(1), false);
    l.set_ticket(true);
    l
}

fn expire(l: &mut Ladder) -> Instant {
    let due = l.poll_timeout().expect("something is due").at;
    l.handle_timeout(due);
    due
}

#[test]
fn an_idle_session_has_no_deadline() {
    let l = established();
    assert_eq!(l.state(), State::Up);
    assert_eq!(l.poll_timeout(), None);
}

#[test]
fn a_short_sleep_on_the_same_network_costs_no_exchange() {
    let mut l = established();
    l.sleep(at(10));
    assert_eq!(l.poll_timeout(), None, "nothing wakes a sleeping radio");
    l.wake(at(15), Some(at(10)));
    assert!(l.data_flows());
    l.outbound(at(15));
    l.inbound(at(16));
    assert_eq!(actions(&mut l), []);
    assert_eq!(l.last_wake().map(|w| w.rung), Some(Rung::Held));
}

#[test]
fn a_long_sleep_sends_data_and_a_question_together() {
    let mut l = established();
    l.sleep(at(10));
    l.wake(at(500), Some(at(10)));
    assert!(l.data_flows());
    assert_eq!(actions(&mut l), [Action::Probe(Duration::from_secs(2))]);
    l.confirmed(at(500));
    assert_eq!(l.last_wake().map(|w| w.rung), Some(Rung::Held));
}

#[test]
fn a_silent_gateway_moves_the_ladder_through_every_rung_in_bounded_time() {
    let mut l = established();
    l.sleep(at(10));
    l.wake(at(20), Some(at(10)));
    l.outbound(at(20));
    assert_eq!(expire(&mut l), at(21));
    assert_eq!(actions(&mut l), [Action::Probe(Duration::from_secs(2))]);
    assert_eq!(expire(&mut l), at(23));
    assert_eq!(actions(&mut l), [Action::Abandon, Action::Resume(path(1))]);
    assert_eq!(expire(&mut l), at(26));
    assert_eq!(actions(&mut l), [Action::Abandon, Action::Connect(path(1))]);
    assert_eq!(expire(&mut l), at(36));
    assert_eq!(actions(&mut l), [Action::Abandon]);
    assert_eq!(l.state(), State::Backoff);
    assert_eq!(expire(&mut l), at(37));
    assert_eq!(actions(&mut l), [Action::Resume(path(1))], "the ticket was not refused, only unanswered");
}

#[test]
fn a_new_address_is_an_update_and_data_does_not_wait_for_it() {
    let mut l = established();
    l.network(at(10), Some(path(2)), true);
    assert!(l.data_flows());
    assert_eq!(actions(&mut l), [Action::Update(path(2))]);
    l.confirmed(at(11));
    assert_eq!(l.last_wake().map(|w| (w.rung, w.took)), Some((Rung::Move, Duration::from_secs(1))));
}

#[test]
fn an_address_that_changes_during_sleep_is_an_update_at_the_wake() {
    let mut l = established();
    l.sleep(at(10));
    l.network(at(11), Some(path(2)), false);
    assert_eq!(actions(&mut l), []);
    l.wake(at(12), Some(at(10)));
    assert_eq!(actions(&mut l), [Action::Update(path(2))]);
}

#[test]
fn a_refused_ticket_is_dropped_and_leads_to_a_full_exchange() {
    let mut l = established();
    l.failed(at(20), Failure::Lost);
    assert_eq!(actions(&mut l), [Action::Resume(path(1))]);
    l.failed(at(20), Failure::TicketRefused);
    assert_eq!(actions(&mut l), [Action::Connect(path(1))]);
    l.established(at(21), path(1), false);
    assert_eq!(l.last_wake().map(|w| w.rung), Some(Rung::Full));
    l.failed(at(30), Failure::Lost);
    assert_eq!(actions(&mut l), [Action::Connect(path(1))], "the refused ticket is not tried again");
}

#[test]
fn without_a_network_nothing_is_tried_and_nothing_is_due() {
    let mut l = established();
    l.network(at(10), None, true);
    assert_eq!(l.poll_timeout(), None);
    assert_eq!(actions(&mut l), []);
    assert!(!l.data_flows());
    l.network(at(4000), Some(path(1)), true);
    assert!(l.data_flows(), "the SA was kept");
}

#[test]
fn losing_the_network_in_the_middle_of_an_exchange_abandons_it() {
    let mut l = ladder();
    l.network(at(0), Some(path(1)), true);
    l.up(at(0), true);
    let _ = actions(&mut l);
    l.network(at(1), None, true);
    assert_eq!(actions(&mut l), [Action::Abandon]);
    l.network(at(2), Some(path(2)), true);
    assert_eq!(actions(&mut l), [Action::Connect(path(2))]);
}

#[test]
fn a_hint_that_the_sa_is_lost_is_only_worth_a_probe() {
    let mut l = established();
    l.doubt(at(10), false);
    l.doubt(at(10), false);
    assert_eq!(actions(&mut l), [Action::Probe(Duration::from_secs(2))]);
    assert!(l.data_flows());
    l.confirmed(at(10));
    assert_eq!(l.state(), State::Up);
}

#[test]
fn a_probe_that_is_answered_with_ignorance_moves_on_at_once() {
    let mut l = established();
    l.doubt(at(10), false);
    let _ = actions(&mut l);
    l.doubt(at(10), true);
    assert_eq!(actions(&mut l), [Action::Abandon, Action::Resume(path(1))]);
}

#[test]
fn a_refusal_waits_longer_than_silence() {
    let mut l = ladder();
    l.network(at(0), Some(path(1)), true);
    l.up(at(0), true);
    l.failed(at(1), Failure::Refused);
    assert_eq!(l.poll_timeout().map(|d| d.at), Some(at(31)));
}

#[test]
fn a_gateway_without_time_is_asked_again_soon_and_not_by_all_at_once() {
    let due = |spread| {
        let mut l = ladder();
        l.network(at(0), Some(path(1)), true);
        l.up(at(0), true);
        l.failed(at(1), Failure::Busy(spread));
        l.poll_timeout().map(|d| d.at - at(1))
    };
    assert_eq!(due(0), Some(Duration::from_millis(500)));
    assert_eq!(due(128), Some(Duration::from_secs(1)));
    assert!(due(255).is_some_and(|pause| pause < Duration::from_millis(1_500)));
}

#[test]
fn one_way_traffic_is_noticed() {
    let mut l = established();
    l.outbound(at(100));
    l.outbound(at(100) + Duration::from_millis(500));
    assert_eq!(expire(&mut l), at(101));
    assert_eq!(actions(&mut l), [Action::Probe(Duration::from_secs(2))]);
}

#[test]
fn within_the_granted_hold_the_sa_is_there_beyond_every_liveness_check() {
    let mut l = established();
    l.granted(Some(Granted::Hold(at(4_000))));
    l.sleep(at(10));
    assert_eq!(l.poll_timeout(), None);
    l.wake(at(3_999), Some(at(10)));
    assert!(l.data_flows());
    assert_eq!(actions(&mut l), [], "no question");
    l.outbound(at(3_999));
    l.inbound(at(4_000));
    assert_eq!(l.last_wake().map(|w| w.rung), Some(Rung::Held));
    assert_eq!(actions(&mut l), []);
    assert_eq!(l.poll_timeout(), None);
}

#[test]
fn whoever_wakes_with_nothing_to_send_says_that_it_is_awake() {
    let mut l = established();
    l.granted(Some(Granted::Hold(at(4_000))));
    l.sleep(at(10));
    l.wake(at(1_000), Some(at(10)));
    assert_eq!(l.poll_timeout().map(|d| d.why), Some("ladder: greeting"));
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Probe(Duration::from_secs(2))]);
    l.confirmed(at(1_001));
    assert_eq!((l.state(), l.poll_timeout()), (State::Up, None));
}

#[test]
fn a_released_or_outlived_sa_is_not_asked_for_but_replaced_by_the_ticket() {
    for (granted, woken) in [(Granted::Release, 11), (Granted::Release, 5_000), (Granted::Hold(at(600)), 600)]
    {
        for host in [1, 2] {
            let mut l = established();
            l.granted(Some(granted));
            l.sleep(at(10));
            l.network(at(woken), Some(path(host)), false);
            l.wake(at(woken), Some(at(10)));
            assert_eq!(l.state(), State::Climbing(Rung::Resume), "{granted:?} woken at {woken} s");
            assert!(!l.data_flows());
            assert_eq!(actions(&mut l), [Action::Abandon, Action::Resume(path(host))]);
        }
    }
}

#[test]
fn a_hold_goes_along_to_another_network() {
    let mut l = established();
    l.granted(Some(Granted::Hold(at(4_000))));
    l.sleep(at(10));
    l.network(at(3_000), Some(path(2)), false);
    l.wake(at(3_000), Some(at(10)));
    assert_eq!(l.state(), State::Climbing(Rung::Move));
}

#[test]
fn a_verdict_waits_for_a_network_and_is_forgotten_with_the_next_packet() {
    let mut l = established();
    l.granted(Some(Granted::Release));
    l.sleep(at(10));
    l.network(at(20), None, false);
    l.wake(at(30), Some(at(10)));
    assert_eq!(l.state(), State::Offline);
    l.network(at(40), Some(path(1)), true);
    assert_eq!(l.state(), State::Climbing(Rung::Resume));
    let mut l = established();
    l.granted(Some(Granted::Release));
    l.outbound(at(10));
    l.inbound(at(10));
    l.sleep(at(11));
    l.wake(at(12), Some(at(11)));
    assert_eq!(
        l.state(),
        State::Climbing(Rung::Held),
        "it did not sleep when it said so, and the gateway knows"
    );
}

#[test]
fn a_rung_can_be_exercised_only_on_a_session_at_rest_that_has_what_it_needs() {
    for (rung, expected) in [
        (Rung::Held, vec![Action::Probe(Duration::from_secs(2))]),
        (Rung::Move, vec![Action::Update(path(1))]),
        (Rung::Resume, vec![Action::Abandon, Action::Resume(path(1))]),
        (Rung::Full, vec![Action::Abandon, Action::Connect(path(1))]),
    ] {
        let mut l = established();
        assert!(l.exercise(at(20), rung));
        assert_eq!(actions(&mut l), expected);
        assert_eq!(l.state(), State::Climbing(rung));
        assert_eq!(l.data_flows(), matches!(rung, Rung::Held | Rung::Move));
        assert!(!l.exercise(at(20), rung), "one at a time");
        match rung {
            Rung::Held | Rung::Move => l.confirmed(at(21)),
            Rung::Resume | Rung::Full => l.established(at(21), path(1), rung == Rung::Resume),
        }
        assert_eq!(l.last_wake().map(|w| (w.rung, w.took)), Some((rung, Duration::from_secs(1))));
        assert_eq!((l.state(), l.poll_timeout()), (State::Up, None));
    }
    let mut l = established();
    l.set_ticket(false);
    assert!(!l.exercise(at(20), Rung::Resume) && actions(&mut l).is_empty());
    l.sleep(at(20));
    assert!(!l.exercise(at(21), Rung::Full), "not while the radio sleeps");
}

#[test]
fn an_exercised_rung_that_fails_hands_over_to_the_next() {
    let mut l = established();
    assert!(l.exercise(at(20), Rung::Resume));
    actions(&mut l);
    l.failed(at(21), Failure::TicketRefused);
    assert_eq!(l.state(), State::Climbing(Rung::Full));
}

/// A way to another address of the gateway.
fn other(host: u8, gateway: u8) -> Path {
    Path { remote: ([192, 0, 2, gateway], 4500).into(), ..path(host) }
}

#[test]
fn before_an_sa_is_given_up_it_is_moved_to_the_gateways_other_addresses() {
    let mut l = established();
    l.others(vec![other(1, 7), other(1, 8)]);
    l.outbound(at(100));
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Probe(Duration::from_secs(2))]);
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Update(other(1, 7))], "the SA is not given up");
    assert!(l.data_flows(), "data does not wait");
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Update(other(1, 8))]);
    l.confirmed(at(200));
    assert_eq!((l.state(), l.last_wake().map(|w| w.rung)), (State::Up, Some(Rung::Move)));
    // It stays there: the network says nothing new, and a sleep changes nothing.
    l.network(at(201), Some(path(1)), true);
    l.sleep(at(210));
    l.wake(at(215), Some(at(210)));
    assert_eq!((actions(&mut l), l.state()), (vec![], State::Climbing(Rung::Held)));
    // From another network it is the address that answered last that is tried first, then the configured one.
    l.others(vec![other(2, 7), other(2, 8)]);
    l.network(at(220), Some(path(2)), true);
    assert_eq!(actions(&mut l), [Action::Update(other(2, 8))]);
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Update(path(2))]);
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Update(other(2, 7))]);
    expire(&mut l);
    let first = [Action::Abandon, Action::Resume(other(2, 8))];
    assert_eq!(actions(&mut l), first, "no address answers: the gateway that has the session is asked first");
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Abandon, Action::Resume(path(2))], "handshakes take turns");
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Abandon, Action::Resume(other(2, 7))]);
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Abandon, Action::Connect(other(2, 8))], "none takes the ticket");
    expire(&mut l);
    actions(&mut l);
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Resume(path(2))], "and then anew");
}

#[test]
fn a_ticket_goes_first_to_an_address_that_has_answered_and_a_refusal_counts_for_all() {
    let mut l = established();
    l.others(vec![other(1, 7)]);
    l.outbound(at(100));
    expire(&mut l);
    expire(&mut l);
    assert_eq!(actions(&mut l).last(), Some(&Action::Update(other(1, 7))));
    l.doubt(at(110), true);
    assert_eq!(actions(&mut l), [Action::Abandon, Action::Resume(other(1, 7))], "the other is silent");
    l.failed(at(111), Failure::TicketRefused);
    assert_eq!(actions(&mut l), [Action::Connect(other(1, 7))]);
}

#[test]
fn a_gateway_that_says_that_the_sa_is_gone_is_not_asked_elsewhere() {
    let mut l = established();
    l.others(vec![other(1, 7)]);
    l.doubt(at(100), false);
    assert_eq!(actions(&mut l), [Action::Probe(Duration::from_secs(2))]);
    l.doubt(at(100), true);
    assert_eq!(actions(&mut l), [Action::Abandon, Action::Resume(path(1))]);
}

#[test]
fn what_is_sent_is_unconfirmed_while_the_gateway_is_silent() {
    let mut l = established();
    l.inbound(at(10));
    assert!(!l.unconfirmed(at(10)));
    assert!(l.unconfirmed(at(11)), "a second of silence");
    l.inbound(at(12));
    l.sleep(at(12));
    l.wake(at(12), Some(at(12)));
    assert!(l.unconfirmed(at(12)), "just awake");
    l.inbound(at(13));
    assert!(!l.unconfirmed(at(13)));
}

const PROBE: Action = Action::Probe(Duration::from_secs(2));

#[test]
fn a_question_that_a_sleep_cut_short_is_asked_again_beside_the_data() {
    let asked: [fn(&mut Ladder); 3] = [
        |l| l.doubt(at(10), false),
        |l| {
            l.outbound(at(0));
            expire(l);
        },
        |l| {
            // The hint came when the radio was as good as off.
            l.sleep(at(10));
            l.doubt(at(10), false);
        },
    ];
    for (n, ask) in asked.into_iter().enumerate() {
        let mut l = established();
        ask(&mut l);
        let _ = actions(&mut l);
        l.sleep(at(11));
        assert_eq!((actions(&mut l), l.poll_timeout()), (vec![], None), "{n}");
        l.wake(at(15), Some(at(11)));
        assert_eq!(actions(&mut l), [PROBE], "{n}");
        assert!(l.data_flows() && l.unconfirmed(at(15)), "{n}");
        // A radio that is off again before the answer leaves the doubt, and the answer ends it.
        l.sleep(at(16));
        l.wake(at(20), Some(at(16)));
        assert_eq!(actions(&mut l), [PROBE], "{n}");
        l.confirmed(at(20));
        l.sleep(at(21));
        l.wake(at(25), Some(at(21)));
        assert_eq!((actions(&mut l), l.poll_timeout()), (vec![], None), "{n}");
    }
}

#[test]
fn a_question_that_the_lost_network_cut_short_is_asked_again_too() {
    let mut l = established();
    l.doubt(at(10), false);
    let _ = actions(&mut l);
    l.network(at(11), None, true);
    l.network(at(500), Some(path(1)), true);
    assert_eq!(actions(&mut l), [PROBE]);
}

#[test]
fn silence_adds_up_over_wakes_but_without_a_packet_nothing_is_asked() {
    let mut l = established();
    let half = Duration::from_millis(500);
    for second in [10, 20] {
        l.sleep(at(second));
        l.wake(at(second + 5), Some(at(second)));
        assert_eq!((actions(&mut l), l.poll_timeout()), (vec![], None));
    }
    l.outbound(at(25));
    l.sleep(at(25) + half);
    l.wake(at(30), Some(at(25) + half));
    assert_eq!(l.poll_timeout(), None, "no packet, no question");
    l.sleep(at(31));
    l.wake(at(40), Some(at(31)));
    l.outbound(at(40));
    assert_eq!(expire(&mut l), at(40) + half);
    assert_eq!(actions(&mut l), [PROBE]);
}

#[test]
fn a_granted_sleep_was_an_answer() {
    let mut l = established();
    l.outbound(at(9));
    l.granted(Some(Granted::Hold(at(4_000))));
    l.sleep(at(10));
    l.wake(at(100), Some(at(10)));
    l.outbound(at(100));
    assert_eq!(l.poll_timeout().map(|d| d.at), Some(at(101)));
}

#[test]
fn what_is_heard_before_the_radio_is_off_ends_the_doubt() {
    let mut l = established();
    l.doubt(at(10), false);
    let _ = actions(&mut l);
    l.sleep(at(10));
    l.inbound(at(10));
    l.wake(at(15), Some(at(10)));
    assert_eq!(actions(&mut l), []);
}

#[test]
fn a_rung_without_an_answer_is_named_once() {
    let mut l = ladder();
    l.network(at(0), Some(path(1)), true);
    l.set_ticket(true);
    l.up(at(0), true);
    for rung in [Rung::Resume, Rung::Full] {
        assert_eq!(l.take_expired(), None);
        assert_eq!(l.state(), State::Climbing(rung));
        expire(&mut l);
        assert_eq!(l.take_expired(), Some(rung));
    }
    assert_eq!((l.take_expired(), l.state()), (None, State::Backoff));
    expire(&mut l);
    assert_eq!(l.take_expired(), None, "a pause is no failure");
}

#[test]
fn a_ticket_of_which_the_gateway_cannot_say_in_time_whether_it_counts_is_not_shown_again_at_once() {
    let mut l = established();
    l.failed(at(10), Failure::Lost);
    assert_eq!(actions(&mut l), [Action::Resume(path(1))]);
    l.established(at(11), path(1), true);
    l.failed(at(13), Failure::Undecided);
    assert_eq!(actions(&mut l), [Action::Connect(path(1))]);
    assert_eq!(l.state(), State::Climbing(Rung::Full));
    // It may count the next time.
    l.failed(at(14), Failure::Busy(0));
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Resume(path(1))]);
}

#[test]
fn a_gateway_that_goes_is_not_sought_at_another_address_of_its_own() {
    let mut l = established();
    l.set_home([[192, 0, 2, 1].into(), [192, 0, 2, 9].into()].into());
    l.others(vec![other(1, 7), other(1, 9)]);
    assert!(!l.leave(at(20), Some([192, 0, 2, 9].into())) && actions(&mut l).is_empty());
    assert!(l.leave(at(20), None));
    assert_eq!(actions(&mut l), [Action::Resume(other(1, 7))]);
}
