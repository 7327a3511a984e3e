//! What must be true once the faults of a story have stopped. Owns how long that may take; what must be true at every step is
//! [`crate::invariants`]'s.

use crate::settings::LIVENESS;
use crate::world::{Access, World};
use dormouse_node::ladder::State;
use std::collections::BTreeSet;
use std::time::Duration;

impl World {
    /// After any story: with a good network, whichever of the two, the session is up within a bounded time, data flows both ways,
    /// the two ends agree, and nothing of the past is left at the gateway.
    ///
    /// # Panics
    /// With the seed, if something of this is not true.
    pub fn settle_and_check(&mut self) {
        self.weather(0.0, 0.0, 0.0);
        if self.is_alive() {
            self.fuse = None;
            (self.device_mut().fuse, self.gateway_mut().fuse) = (None, None);
        }
        if self.seed % 2 == 1 {
            self.settle(Access::B);
        }
        self.settle(Access::A);
        self.run(Duration::from_secs(2 * u64::from(LIVENESS.0 + LIVENESS.1) + 60));
        self.check_agreement();
    }

    fn settle(&mut self, access: Access) {
        let seed = self.seed;
        self.enter(access);
        self.run(Duration::from_secs(150));
        let state = self.device_state();
        let changes = &self.device().changes;
        let tail = changes.get(changes.len().saturating_sub(8)..).unwrap_or(changes);
        // A session that lost its peer while nothing was sent may still believe in it: data, or liveness, finds out.
        assert!(
            matches!(state, State::Up | State::Climbing(_)),
            "seed {seed}: the device is {state:?} in {access:?}; {tail:#?}"
        );
        self.send_up();
        self.run(Duration::from_secs(90));
        if access == Access::B {
            // Behind a NAT that is not kept open, the gateway may have given the device up meanwhile.
            self.send_up();
            self.run(Duration::from_secs(15));
        }
        let turns = 0..2 * self.servers.len() * self.device().inner.len().max(1);
        let numbers: Vec<u64> = turns.clone().map(|_| self.send_up()).collect();
        self.run(Duration::from_secs(2));
        let back: Vec<u64> = turns.map(|_| self.send_down()).collect();
        self.run(Duration::from_secs(2));
        let state = self.device_state();
        assert_eq!(state, State::Up, "seed {seed}, {access:?}: {:#?}", self.device().changes);
        for number in numbers {
            let arrived = self.gateway().received.contains(&number);
            assert!(arrived, "seed {seed}: packet {number} did not reach the gateway from {access:?}");
        }
        for number in back {
            let arrived = self.device().received.contains(&number);
            assert!(arrived, "seed {seed}: packet {number} did not reach the device in {access:?}");
        }
    }

    /// Both ends have one session, the same, with all CHILD SAs that both are configured for. Asked a few times where lifetimes are short: a rekeying may be under way.
    fn check_agreement(&mut self) {
        for _ in 0..self.settings.agreement_retries() {
            if self.disagreement().is_none() {
                return;
            }
            self.run(Duration::from_millis(2_300));
        }
        let (seed, why) = (self.seed, self.disagreement());
        assert!(why.is_none(), "seed {seed}: {}; {:#?}", why.unwrap_or_default(), self.gateway().changes);
    }

    fn disagreement(&self) -> Option<String> {
        let (device, gateway) = (self.device().node()?, self.gateway().node()?);
        let ours: Vec<_> = device.client_infos(self.now()).into_iter().filter_map(|c| c.session).collect();
        let theirs = gateway.gateway_sessions(self.now());
        if (ours.len(), theirs.len()) != (1, 1) {
            return Some(format!("{} and {} sessions; {theirs:#?}", ours.len(), theirs.len()));
        }
        let pairs = |sessions: &[dormouse_node::SessionInfo], swap: bool| {
            let children = sessions.iter().flat_map(|s| &s.children);
            let pair = |c: &dormouse_node::ChildInfo| {
                if swap { (c.spi_out, c.id.spi()) } else { (c.id.spi(), c.spi_out) }
            };
            children.map(pair).collect::<BTreeSet<(u32, u32)>>()
        };
        let (ours, theirs) = (pairs(&ours, false), pairs(&theirs, true));
        if ours.len() != self.servers.len() {
            return Some(format!(
                "not as many CHILD SAs as are configured; {} {ours:x?}",
                self.servers.len()
            ));
        }
        (ours != theirs).then(|| format!("the two ends hold different CHILD SAs; {ours:x?}, {theirs:x?}"))
    }
}
