//! The signal of the machine's radio. Owns the question; changes nothing, and needs no privilege.

use super::interface;
use super::nl80211::Nl80211;
use super::{Options, RadioError};

/// Reads the signal of an 802.11 interface, as `iw dev INTERFACE link` does.
#[derive(Debug)]
pub struct SignalReader {
    options: Options,
    nl80211: Option<Nl80211>,
}

impl SignalReader {
    /// Of the interface of this name, else of the only radio of the machine, else of the radio that has the default route. Looked for with each reading:
    /// it may be plugged in later.
    #[must_use]
    pub fn new(interface: Option<String>) -> Self {
        Self { options: Options { interface, ..Options::default() }, nl80211: None }
    }

    /// The signal in dBm. `None`: it is a wire, or has joined no network, or its driver does not say. The kernel answers at once; some drivers ask
    /// their hardware for it, which takes milliseconds.
    ///
    /// # Errors
    /// If there is no radio and no wire, or the kernel does not answer.
    pub fn read(&mut self) -> Result<Option<i8>, RadioError> {
        let found = interface::find(&self.options).map_err(RadioError::Nowhere)?;
        if found.phy.is_none() {
            return Ok(None);
        }
        let failed = |e| RadioError::step("nl80211", &found.name, e);
        let nl80211 = match self.nl80211.take() {
            Some(nl80211) => nl80211,
            None => Nl80211::new().map_err(failed)?,
        };
        // After an error the next reading begins anew.
        let signal = self.nl80211.insert(nl80211).signal(&found.name);
        signal.inspect_err(|_| self.nl80211 = None).map_err(failed)
    }
}
