//! The saved form: tag, losses, guard, occupied contexts. Little endian. Must accept nothing that the policy could not have
//! written.

use super::super::StateError;
use super::Dormouse;
use super::grid::NEVER;
use super::guard::Guard;
use super::table::Slot;

const TAG: u32 = u32::from_le_bytes(*b"ddm3");
/// Tag, break-even, the losses of the contexts and three more, a total.
const HEAD: usize = 4 + 8 * (1 + super::CONTEXTS + 3 + 1);
/// Tag, experience, sums (`never` has none by definition).
const SLOT: usize = 4 + 4 + 2 * 4 * NEVER;

pub(super) fn save(d: &Dormouse, out: &mut Vec<u8>) {
    out.extend(TAG.to_le_bytes());
    let totals = [d.mixed_loss, d.late_loss, d.break_even_loss, d.guard.over_break_even];
    let numbers = [d.break_even].into_iter().chain(d.losses).chain(totals);
    numbers.for_each(|x| out.extend(x.to_le_bytes()));
    for slot in d.table.tenants() {
        out.extend(slot.tag.to_le_bytes());
        out.extend(slot.seen.to_le_bytes());
        let sums = slot.sums.waits[..NEVER].iter().chain(&slot.sums.sleeps[..NEVER]);
        sums.for_each(|sum| out.extend(sum.to_le_bytes()));
    }
}

/// Little-endian numbers from a slice whose length was checked.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.0.split_first_chunk().map_or(([0; N], &[][..]), |(h, r)| (*h, r));
        self.0 = rest;
        head
    }

    fn f64(&mut self, what: &'static str) -> Result<f64, StateError> {
        let x = f64::from_le_bytes(self.next());
        if x.is_finite() { Ok(x) } else { Err(StateError::Damaged { what }) }
    }

    fn f32(&mut self, what: &'static str) -> Result<f32, StateError> {
        let x = f32::from_le_bytes(self.next());
        if x.is_finite() { Ok(x) } else { Err(StateError::Damaged { what }) }
    }
}

pub(super) fn restore(d: &mut Dormouse, bytes: &[u8]) -> Result<(), StateError> {
    // The tag first: another version has another length.
    let found = bytes.first_chunk().map_or(TAG, |tag| u32::from_le_bytes(*tag));
    if found != TAG {
        return Err(StateError::Version { expected: TAG, found });
    }
    let slots = bytes.len().saturating_sub(HEAD) / SLOT;
    if bytes.len() != HEAD + slots * SLOT || slots > d.tuning.contexts {
        return Err(StateError::Length {
            expected: HEAD + slots.min(d.tuning.contexts) * SLOT,
            found: bytes.len(),
        });
    }
    let mut numbers = Numbers(bytes.get(TAG.to_le_bytes().len()..).unwrap_or_default());
    let saved_break_even = numbers.f64("break-even time")?;
    if saved_break_even <= 0.0 {
        return Err(StateError::Damaged { what: "break-even time" });
    }
    let mut fresh = Dormouse::with(saved_break_even, d.tuning);
    for loss in &mut fresh.losses {
        *loss = numbers.f64("loss of a context")?;
    }
    for total in [&mut fresh.mixed_loss, &mut fresh.late_loss, &mut fresh.break_even_loss] {
        *total = numbers.f64("loss of a policy")?;
    }
    fresh.guard = Guard::restored(numbers.f64("total against break-even")?);
    for _ in 0..slots {
        let mut slot = Slot { tag: u32::from_le_bytes(numbers.next()), ..Slot::EMPTY };
        slot.seen = numbers.f32("experience of a context")?;
        for wait in &mut slot.sums.waits[..NEVER] {
            *wait = numbers.f32("cost in a context")?;
        }
        let mut shorter = slot.seen;
        for sleeps in &mut slot.sums.sleeps[..NEVER] {
            *sleeps = numbers.f32("number of sleeps in a context")?;
            // What outlasts a time-out outlasts the shorter ones.
            if !(0.0..=shorter).contains(&*sleeps) {
                return Err(StateError::Damaged { what: "number of sleeps in a context" });
            }
            shorter = *sleeps;
        }
        if !fresh.table.restore(slot) {
            return Err(StateError::Damaged { what: "set of contexts" });
        }
    }
    super::Scheduler::set_break_even(&mut fresh, d.break_even);
    fresh.wake_on = d.wake_on;
    *d = fresh;
    Ok(())
}
