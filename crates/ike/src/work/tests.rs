use super::*;
use dormouse_sansio::Seeded;

fn task() -> Task {
    let drawn = Drawn::draw(Group::X25519, &mut Seeded::new(1)).expect("a key");
    Task::Complete(Box::new(drawn))
}

fn from(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

/// The SAs whose orders are handed out now.
fn handed_out(works: &mut Works) -> Vec<(u64, Box<Order>)> {
    std::iter::from_fn(|| works.hand_out().map(|(sa, order)| (sa.get(), order))).collect()
}

fn numbers(out: &[(u64, Box<Order>)]) -> Vec<u64> {
    out.iter().map(|(sa, _)| *sa).collect()
}

#[test]
fn callers_who_are_known_come_first_and_each_prefix_has_its_turn() {
    let mut works = Works::default();
    for n in 0..AT_ONCE as u64 {
        works.order(SaId::new(n), Rank::Stranger, from(1), task());
    }
    assert_eq!(numbers(&handed_out(&mut works)), (0..AT_ONCE as u64).collect::<Vec<_>>());
    for (n, rank, last) in [
        (20, Rank::Stranger, 1),
        (21, Rank::Stranger, 1),
        (22, Rank::Stranger, 1),
        (30, Rank::Stranger, 2),
        (31, Rank::Stranger, 3),
        (40, Rank::Known, 1),
        (41, Rank::Known, 1),
        (42, Rank::Known, 2),
    ] {
        works.order(SaId::new(n), rank, from(last), task());
    }
    assert!(works.hand_out().is_none(), "enough is under way");
    for n in 0..AT_ONCE as u64 {
        assert!(works.came_back(SaId::new(n)));
    }
    assert_eq!(numbers(&handed_out(&mut works)), [40, 42, 41, 30, 31, 20, 21, 22]);
}

#[test]
fn of_an_sa_that_has_ended_nothing_is_wanted_and_the_next_one_has_its_turn() {
    let mut works = Works::default();
    for n in 0..AT_ONCE as u64 + 3 {
        works.order(SaId::new(n), Rank::Stranger, from(1), task());
    }
    let mut out = handed_out(&mut works);
    assert!(out.iter().all(|(_, order)| order.is_wanted()));
    works.forget(SaId::new(0));
    works.forget(SaId::new(AT_ONCE as u64));
    assert_eq!(out.iter().filter(|(_, order)| order.is_wanted()).count(), AT_ONCE - 1);
    assert!(works.hand_out().is_none(), "it has not come back");
    let (_, ended) = out.remove(0);
    assert!(ended.carry_out().is_late());
    assert!(!works.came_back(SaId::new(0)), "nothing waits for it");
    assert_eq!(numbers(&handed_out(&mut works)), [AT_ONCE as u64 + 1]);
    let (sa, order) = out.remove(0);
    assert!(!order.carry_out().is_late() && works.came_back(SaId::new(sa)));
    assert!(!works.came_back(SaId::new(sa)), "each comes back once");
    assert_eq!(numbers(&handed_out(&mut works)), [AT_ONCE as u64 + 2]);
    for n in 0..AT_ONCE as u64 + 3 {
        works.came_back(SaId::new(n));
        works.forget(SaId::new(n));
    }
    assert!(works.out.is_empty() && works.places.is_empty() && works.strangers.by_prefix.is_empty());
}
