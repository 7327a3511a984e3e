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
}

/// Carries out everything that the host wants. What was ordered to be stored is durable before anything that depends on it leaves.
pub fn carry_out_all(driver: &mut impl Driver, now: Instant) {
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
