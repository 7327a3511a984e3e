//! The pace at which passwords can be guessed. Owns how many wrong ones have come for a user, from one network and from all, and whence right ones came; must never
//! touch a session that is there, nor tell the guesser that his guess was not looked at: he is answered as for a wrong password.
//!
//! Each network has a pace of its own for each user, so that who guesses elsewhere does not keep the user out; and all networks together, but for those
//! from which the user has logged in of late, have another, so that many of them do not help much.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use dormouse_crypto::cert::Identity;
use dormouse_crypto::{HashAlg, hash};
use dormouse_sansio::Instant;
use ipnet::IpNet;

use crate::limits::{
    GUESS_WAIT_MOST, GUESS_WAIT_MOST_OF_ALL, GUESSES_FORGIVEN_EVERY, GUESSES_FREE, GUESSES_FREE_OF_ALL,
    GUESSES_REMEMBERED, NETWORKS_OF_USER,
};
use crate::prefix::prefix_of;

/// A user, in little room.
type User = [u8; 16];

/// Wrong passwords that came one after the other.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    count: u32,
    last: Instant,
    /// No other is looked at before.
    next: Instant,
}

/// What is known of a user from all networks.
#[derive(Debug)]
struct Of {
    wrong: Option<Wrong>,
    /// Networks from which he has logged in, the last one at the end.
    known: VecDeque<IpNet>,
    used: Instant,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    networks: BTreeMap<(User, IpNet), Wrong>,
    users: BTreeMap<User, Of>,
}

impl Wrong {
    /// How many still count.
    fn count(&self, now: Instant) -> u32 {
        let quiet = now.saturating_since(self.last).as_secs() / GUESSES_FORGIVEN_EVERY.as_secs();
        self.count.checked_shr(u32::try_from(quiet).unwrap_or(u32::MAX)).unwrap_or(0)
    }

    /// Another one.
    fn another(before: Option<Self>, now: Instant, free: u32, most: Duration) -> Self {
        let count = before.map_or(0, |wrong| wrong.count(now)).saturating_add(1);
        let wait = match count.checked_sub(free + 1) {
            Some(doublings) => Duration::from_secs(1 << doublings.min(16)).min(most),
            None => Duration::ZERO,
        };
        Self { count, last: now, next: now + wait }
    }
}

fn user_of(who: &Identity) -> User {
    let digest = hash(HashAlg::Sha256, &[&who.canonical()]);
    let mut user = User::default();
    user.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    user
}

impl Guesses {
    /// How long no password of this user is looked at that comes from there; `None`: it is now.
    pub(crate) fn waits(&self, who: &Identity, from: IpAddr, now: Instant) -> Option<Duration> {
        let (user, network) = (user_of(who), prefix_of(from));
        let of = self.users.get(&user);
        let familiar = of.is_some_and(|of| of.known.contains(&network));
        let all = of.and_then(|of| of.wrong).filter(|_| !familiar);
        let next =
            self.networks.get(&(user, network)).copied().into_iter().chain(all).map(|w| w.next).max()?;
        (now < next).then(|| next - now)
    }

    /// A wrong one has come.
    pub(crate) fn wrong(&mut self, who: &Identity, from: IpAddr, now: Instant) {
        let key = (user_of(who), prefix_of(from));
        self.make_room(now);
        let before = self.networks.get(&key).copied();
        self.networks.insert(key, Wrong::another(before, now, GUESSES_FREE, GUESS_WAIT_MOST));
        let of = self.of(key.0, now);
        of.wrong = Some(Wrong::another(of.wrong, now, GUESSES_FREE_OF_ALL, GUESS_WAIT_MOST_OF_ALL));
    }

    /// The right one has come.
    pub(crate) fn right(&mut self, who: &Identity, from: IpAddr, now: Instant) {
        let (user, network) = (user_of(who), prefix_of(from));
        self.networks.remove(&(user, network));
        self.make_room(now);
        let of = self.of(user, now);
        of.known.retain(|known| *known != network);
        of.known.push_back(network);
        while of.known.len() > NETWORKS_OF_USER {
            of.known.pop_front();
        }
    }

    fn of(&mut self, user: User, now: Instant) -> &mut Of {
        let of = self.users.entry(user).or_insert(Of { wrong: None, known: VecDeque::new(), used: now });
        of.used = now;
        of
    }

    /// Forgets what makes no difference any more, and then what was there longest.
    fn make_room(&mut self, now: Instant) {
        if self.networks.len() >= GUESSES_REMEMBERED {
            self.networks.retain(|_, wrong| wrong.count(now) > 0);
        }
        if self.networks.len() >= GUESSES_REMEMBERED
            && let Some(key) = oldest(&self.networks, |wrong| wrong.last)
        {
            self.networks.remove(&key);
        }
        if self.users.len() >= GUESSES_REMEMBERED
            && let Some(key) = oldest(&self.users, |of| of.used)
        {
            self.users.remove(&key);
        }
    }
}

fn oldest<K: Copy, V>(all: &BTreeMap<K, V>, when: impl Fn(&V) -> Instant) -> Option<K> {
    all.iter().min_by_key(|(_, value)| when(value)).map(|(key, _)| *key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Identity {
        name.parse().unwrap()
    }

    fn net(n: u32) -> IpAddr {
        IpAddr::from(0xc633_6400_u32.wrapping_add(n).to_be_bytes())
    }

    /// Guesses without a pause for so long, as often as they are looked at.
    fn guess(guesses: &mut Guesses, from: &[IpAddr], now: &mut Instant, seconds: u64) -> u64 {
        let (alice, mut looked_at) = (who("alice"), 0);
        for n in 0..seconds * 4 {
            *now += Duration::from_millis(250);
            let from = from[usize::try_from(n).unwrap() % from.len()];
            if guesses.waits(&alice, from, *now).is_none() {
                guesses.wrong(&alice, from, *now);
                looked_at += 1;
            }
        }
        looked_at
    }

    #[test]
    fn who_guesses_is_slowed_down_and_nobody_else() {
        let (mut guesses, mut now) = (Guesses::default(), Instant::ZERO);
        let day = guess(&mut guesses, &[net(1)], &mut now, 86_400);
        assert!((1_000..1_500).contains(&day), "{day}: once a minute");
        assert_eq!(guesses.waits(&who("bob"), net(1), now), None);
        // From elsewhere the user waits half a minute at most, and where he has logged in not at all.
        assert!(guesses.waits(&who("alice"), net(2), now) <= Some(GUESS_WAIT_MOST_OF_ALL));
        now += GUESS_WAIT_MOST_OF_ALL;
        assert_eq!(guesses.waits(&who("alice"), net(2), now), None);
        guesses.right(&who("alice"), net(2), now);
        guess(&mut guesses, &[net(1), net(3)], &mut now, 600);
        assert_eq!(guesses.waits(&who("alice"), net(2), now), None);
        // He may be wrong a few times.
        for _ in 0..GUESSES_FREE {
            guesses.wrong(&who("Alice"), net(2), now);
        }
        assert_eq!(guesses.waits(&who("ALICE"), net(2), now), None);
        guesses.wrong(&who("alice"), net(2), now);
        assert_eq!(guesses.waits(&who("alice"), net(2), now), Some(Duration::from_secs(1)));
        guesses.right(&who("alice"), net(2), now);
        assert_eq!(guesses.waits(&who("alice"), net(2), now), None);
    }

    #[test]
    fn many_networks_do_not_help_much() {
        let (mut guesses, mut now) = (Guesses::default(), Instant::ZERO);
        let from: Vec<IpAddr> = (0..100_000).map(net).collect();
        let day = guess(&mut guesses, &from, &mut now, 86_400);
        assert!(day < 4_000, "{day}");
        assert!(guesses.networks.len() <= GUESSES_REMEMBERED);
    }

    #[test]
    fn quiet_forgives_and_no_more_is_remembered_than_has_room() {
        let (mut guesses, mut now) = (Guesses::default(), Instant::ZERO);
        guess(&mut guesses, &[net(1)], &mut now, 3_600);
        assert!(guesses.waits(&who("alice"), net(1), now).is_some());
        now += GUESSES_FORGIVEN_EVERY * 10;
        guesses.wrong(&who("alice"), net(1), now);
        assert_eq!(guesses.waits(&who("alice"), net(1), now), None, "counts begin anew");
        for n in 0..3 * u32::try_from(GUESSES_REMEMBERED).unwrap() {
            now += Duration::from_millis(1);
            guesses.wrong(&who(&format!("user{n}")), net(n), now);
            guesses.right(&who(&format!("other{n}")), net(n), now);
        }
        assert!(guesses.networks.len() <= GUESSES_REMEMBERED && guesses.users.len() <= GUESSES_REMEMBERED);
    }
}
