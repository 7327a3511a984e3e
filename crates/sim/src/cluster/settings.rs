//! What differs between worlds of several gateways besides the seed of their events. Owns the odds of a configuration.

use dormouse_sansio::{Entropy, Seeded};

/// See the module. Times are in the unit that the name says: a story is printed as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Two or three.
    pub gateways: u8,
    /// One to four.
    pub devices: u8,
    /// The pool has five addresses, or 29 with `"never"`, which all gateways give; otherwise each gives a part of very many.
    pub small_pool: bool,
    /// How far each gateway's clock is ahead, in seconds.
    pub clocks: [i64; 3],
    /// Each so-manyth device is behind a NAT; 0: none.
    pub natted: u8,
    /// One way on the links, in milliseconds.
    pub delay_ms: u64,
    /// The longest that a statement takes, there and back, in milliseconds.
    pub slow_ms: u64,
    /// How long a gateway serves without the store, in seconds.
    pub alone_for_s: u64,
    /// The gateways stand in for devices that sleep.
    pub stand_in: bool,
    /// How long sessions of devices that announce a sleep are held, in seconds.
    pub hold_s: u64,
    /// The longest that a process takes to wake up, in milliseconds.
    pub lag_ms: u64,
    /// A device renews its IKE SA so often, in seconds.
    pub rekey_s: u64,
    /// So many sessions an identity may have, and who copies a device's disk can log in as it: `unique = "keep"`, or else `"never"`. 0: `"replace"`.
    pub limit: u8,
    /// See there.
    pub keep: bool,
    /// Each so-manyth device has no tickets, and does not say when it sleeps; 0: none. Only in stories that are about them.
    pub ticketless: u8,
    /// Gateways take IKE SAs over from others that are silent, and devices without tickets let their message ids be set anew; they reach the gateways at one
    /// address, which is led to one of them. Only in stories that are about it.
    pub takeover: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gateways: 2,
            devices: 1,
            small_pool: false,
            clocks: [0; 3],
            natted: 0,
            delay_ms: 20,
            slow_ms: 10,
            alone_for_s: 3_600,
            stand_in: false,
            hold_s: 14_400,
            lag_ms: 0,
            rekey_s: 14_400,
            limit: 0,
            keep: false,
            ticketless: 0,
            takeover: false,
        }
    }
}

impl Settings {
    /// The settings of `seed`.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut rng = Seeded::new(seed ^ 0x0c1d_57e2_0000_5e77);
        let mut pick = |of: &[u64]| of[usize::try_from(rng.below(of.len() as u64)).unwrap_or_default()];
        let ahead = |drawn: u64| i64::try_from(drawn).unwrap_or(0) - 10;
        let mut small = |most: u64| u8::try_from(pick(&(0..most).collect::<Vec<_>>())).unwrap_or(0);
        let (gateways, devices, natted) = (2 + small(2), 1 + small(4), small(3));
        let clocks = [small(21), small(21), small(21)].map(|drawn| ahead(drawn.into()));
        Self {
            gateways,
            devices,
            natted,
            small_pool: pick(&[0, 0, 0, 1]) == 1,
            clocks: if pick(&[0, 1]) == 1 { clocks } else { [0; 3] },
            delay_ms: pick(&[1, 20, 20, 150]),
            slow_ms: pick(&[2, 10, 10, 300, 3_000]),
            alone_for_s: pick(&[60, 600, 3_600]),
            stand_in: pick(&[0, 1]) == 1,
            hold_s: pick(&[60, 600, 14_400]),
            lag_ms: pick(&[0, 0, 3, 30]),
            rekey_s: pick(&[60, 14_400, 14_400]),
            limit: 0,
            keep: false,
            ticketless: 0,
            takeover: false,
        }
    }

    /// Whether a device has tickets.
    #[must_use]
    pub(crate) fn has_tickets(&self, device: usize) -> bool {
        self.ticketless == 0 || !device.is_multiple_of(self.ticketless.into())
    }

    /// Whether a device lets its message ids be set anew.
    #[must_use]
    pub(crate) fn offers_ids(&self, device: usize) -> bool {
        self.takeover && !self.has_tickets(device)
    }

    /// Those of `seed`, with a limit of sessions.
    #[must_use]
    pub fn limited(seed: u64) -> Self {
        let mut rng = Seeded::new(seed ^ 0x0117_17ed_0000_0000);
        let keep = rng.below(2) == 0;
        let limit = if keep { 1 } else { 1 + u8::try_from(rng.below(2)).unwrap_or(0) };
        Self { limit, keep, ..Self::random(seed) }
    }

    /// Those of `seed`, with gateways that stand in for devices that sleep more often.
    #[must_use]
    pub fn drained(seed: u64) -> Self {
        let mut rng = Seeded::new(seed ^ 0xd4a1_5e77_0000_0000);
        let it = Self::random(seed);
        Self { stand_in: it.stand_in || rng.below(2) == 0, ..it }
    }

    /// Those of `seed`, with devices that have no tickets.
    #[must_use]
    pub fn ticketless(seed: u64) -> Self {
        let mut rng = Seeded::new(seed ^ 0x0715_c4e7_0000_0000);
        let ticketless = 1 + u8::try_from(rng.below(2)).unwrap_or(0);
        Self { ticketless, ..Self::random(seed) }
    }

    /// Those of `seed`, with devices that have no tickets, and gateways that take their sessions over.
    #[must_use]
    pub fn taken_over(seed: u64) -> Self {
        Self { takeover: true, ..Self::ticketless(seed) }
    }

    /// Those of [`Settings::drained`]; sessions are held as long as any device sleeps, and the store always says in time whether a ticket counts.
    #[must_use]
    pub fn drained_in_calm(seed: u64) -> Self {
        let it = Self::drained(seed);
        Self { hold_s: Self::default().hold_s, slow_ms: it.slow_ms.min(300), ..it }
    }

    /// The settings of the default world, one at a time.
    pub(crate) fn simpler(&self) -> Vec<Self> {
        let it = || self.clone();
        let default = Self::default();
        let simpler = [
            Self { devices: self.devices.saturating_sub(1).max(1), ..it() },
            Self { gateways: default.gateways, ..it() },
            Self { small_pool: default.small_pool, ..it() },
            Self { clocks: default.clocks, ..it() },
            Self { natted: default.natted, ..it() },
            Self { delay_ms: default.delay_ms, ..it() },
            Self { slow_ms: default.slow_ms, ..it() },
            Self { alone_for_s: default.alone_for_s, ..it() },
            Self { stand_in: default.stand_in, ..it() },
            Self { hold_s: default.hold_s, ..it() },
            Self { lag_ms: default.lag_ms, ..it() },
            Self { rekey_s: default.rekey_s, ..it() },
            Self { limit: default.limit, keep: default.keep, ..it() },
            Self { ticketless: default.ticketless, takeover: default.takeover, ..it() },
            Self { takeover: default.takeover, ..it() },
        ];
        simpler.into_iter().filter(|settings| settings != self).collect()
    }
}
