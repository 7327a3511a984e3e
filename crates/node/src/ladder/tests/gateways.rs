//! Which of several gateways of one name a client goes to.

use super::*;

#[test]
fn the_ticket_goes_first_to_the_gateway_that_had_the_session_in_whatever_order_its_name_is_read() {
    // It logged in at the second address.
    let mut l = ladder();
    l.others(vec![other(1, 7)]);
    l.network(at(0), Some(path(1)), true);
    l.up(at(0), true);
    assert_eq!(actions(&mut l), [Action::Connect(path(1))]);
    expire(&mut l);
    actions(&mut l);
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Connect(other(1, 7))]);
    l.established(at(20), other(1, 7), false);
    l.set_ticket(true);
    // It slept, and its SA was not held; the network is another one, and so is the order of the name.
    let wakes = |l: &mut Ladder, second: u64, first: Path, others: Vec<Path>| {
        l.granted(Some(Granted::Release));
        l.sleep(at(second));
        l.others(others);
        l.network(at(second + 5), Some(first), false);
        l.wake(at(second + 5), Some(at(second)));
        actions(l)
    };
    let here = other(2, 7);
    assert_eq!(wakes(&mut l, 30, path(2), vec![here]), [Action::Abandon, Action::Resume(here)]);
    // If it does not answer, the others are asked.
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Abandon, Action::Resume(path(2))]);
    l.established(at(40), path(2), true);
    assert_eq!(wakes(&mut l, 50, other(1, 7), vec![path(1)]), [Action::Abandon, Action::Resume(path(1))]);
    l.established(at(60), path(1), true);
    // Of very many addresses it is not the one that is left out.
    let many = (10..40).map(|n| other(3, n)).chain([path(3)]).collect();
    assert_eq!(wakes(&mut l, 70, other(3, 9), many), [Action::Abandon, Action::Resume(path(3))]);
    // Who has no ticket goes by the name's order.
    l.failed(at(76), Failure::TicketRefused);
    assert_eq!(actions(&mut l), [Action::Connect(other(3, 9))]);
}

#[test]
fn an_sa_that_is_held_stays_where_it_is_and_moves_to_no_other_gateway() {
    let mut l = established();
    l.others(vec![other(1, 7)]);
    // The name has another first address now, and the network is another one.
    l.others(vec![path(1)]);
    l.network(at(10), Some(other(1, 7)), true);
    assert_eq!((actions(&mut l), l.state()), (vec![], State::Climbing(Rung::Held)));
    l.inbound(at(11));
    l.others(vec![path(2)]);
    l.network(at(20), Some(other(2, 7)), true);
    assert_eq!(actions(&mut l), [Action::Update(path(2))]);
    l.confirmed(at(21));
    for rung in [Rung::Resume, Rung::Full] {
        assert!(l.exercise(at(22), rung));
        let again = if rung == Rung::Resume { Action::Resume(path(2)) } else { Action::Connect(path(2)) };
        assert_eq!(actions(&mut l), [Action::Abandon, again]);
        l.established(at(23), path(2), rung == Rung::Resume);
    }
}

#[test]
fn a_login_is_sent_to_another_address_of_the_name_and_to_nowhere_else() {
    let mut l = ladder();
    l.others(vec![other(1, 7), other(1, 8)]);
    l.network(at(0), Some(path(1)), true);
    assert!(!l.send_on(at(0), [192, 0, 2, 8].into()), "it does not log in");
    l.up(at(0), true);
    actions(&mut l);
    assert!(!l.send_on(at(0), [192, 0, 2, 99].into()) && actions(&mut l).is_empty());
    assert_eq!(l.besides([192, 0, 2, 1].into()).len(), 2);
    assert!(l.send_on(at(0), [192, 0, 2, 8].into()));
    assert_eq!(actions(&mut l), [Action::Connect(other(1, 8))]);
    assert_eq!(l.gateway_address(), Some([192, 0, 2, 8].into()));
    // Where it came from, if that is said.
    expire(&mut l);
    assert!(l.turn_to([192, 0, 2, 1].into()));
    actions(&mut l);
    expire(&mut l);
    assert_eq!(actions(&mut l), [Action::Connect(path(1))]);
}
