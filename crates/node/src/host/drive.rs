//! The order in which a driver does what its host wants: the same in `dormoused` and in the worlds of `dormouse-sim`. Owns that order
//! alone; what an output means to the machine is the driver's.

use super::{Host, Output};
use dormouse_sansio::Instant;

/// What carries out the outputs of a host, and brings it the packets of the inner side.
pub trait Driver {
    /// What makes the driver give up.
    type Error;

    /// The host.
    fn host(&mut self) -> &mut Host;

    /// Carries out an output. `bytes` are its own, if it has any, and may be taken. What [`Order::Store`](super::Order::Store) names is durable when this returns.
    fn carry_out(&mut self, now: Instant, output: Output, bytes: &mut Vec<u8>);

    /// Takes the packets that are ready on the inner side, and sends what they become: [`Host::plan`], [`Host::seal`].
    ///
    /// # Errors
    /// If the inner side cannot be read.
    fn forward(&mut self, now: Instant) -> Result<(), Self::Error>;

    /// An engine was lent SAs that it has not begun to carry: what is for them waits with it.
    fn is_beginning(&self) -> bool {
        false
    }

    /// Brings the host all that was on its way before they were lent: the packets that are in the tunnel's interface and the sockets.
    fn drain(&mut self, _now: Instant) {}

    /// The engine begins with those that were lent before the last [`Driver::drain`].
    fn begin(&mut self, _now: Instant) {}
}

/// Carries out everything that the host wants. What was ordered to be stored is durable before anything that depends on it leaves. An engine that waits for it begins
/// when all that came before is sent or handed to it: no packet overtakes another.
pub fn carry_out_all(driver: &mut impl Driver, now: Instant) {
    carry_out_outputs(driver, now);
    while driver.is_beginning() {
        driver.drain(now);
        carry_out_outputs(driver, now);
        driver.begin(now);
    }
}

fn carry_out_outputs(driver: &mut impl Driver, now: Instant) {
    let mut bytes = Vec::new();
    while let Some(output) = driver.host().poll(now, &mut bytes) {
        driver.carry_out(now, output, &mut bytes);
    }
}

/// Forwards packets of the inner side, after what is ordered: the ticket of a session that has just come back is on the disk before its
/// first packet leaves.
///
/// # Errors
/// See [`Driver::forward`].
pub fn forward<D: Driver>(driver: &mut D, now: Instant) -> Result<(), D::Error> {
    if driver.host().has_orders() {
        carry_out_all(driver, now);
    }
    driver.forward(now)
}
