//! The power saving of an 802.11 radio (it sleeps between the access point's beacons), switched for a measurement. Owns the promise to
//! put it back; decides nothing about when.

use super::{Nl80211, Options, interface};
use std::io;

/// A radio whose power saving can be switched. Dropped: as it was found.
#[derive(Debug)]
pub struct PowerSave {
    nl80211: Nl80211,
    interface: String,
    found: bool,
    set: bool,
}

impl PowerSave {
    /// Of the radio that `options` name.
    ///
    /// # Errors
    /// Why there is none, in words: no radio, no 802.11, or a driver without power saving.
    pub fn find(options: &Options) -> Result<Self, String> {
        let interface = interface::find(options)?.name;
        let mut nl80211 = Nl80211::new().map_err(|e| e.to_string())?;
        let found = nl80211.power_save(&interface).map_err(|e| format!("{interface}: {e}"))?;
        // Setting it to what it is shows whether it can be set at all.
        nl80211.set_power_save(&interface, found).map_err(|e| format!("{interface}: {e}"))?;
        Ok(Self { nl80211, interface, found, set: found })
    }

    /// As it was found.
    #[must_use]
    pub const fn found(&self) -> bool {
        self.found
    }

    /// Switches it. The interface must be up.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set(&mut self, on: bool) -> io::Result<()> {
        self.nl80211.set_power_save(&self.interface, on)?;
        self.set = on;
        Ok(())
    }

    /// Puts it back.
    ///
    /// # Errors
    /// The kernel's.
    pub fn restore(&mut self) -> io::Result<()> {
        if self.set == self.found { Ok(()) } else { self.set(self.found) }
    }
}

impl Drop for PowerSave {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            tracing::error!(%error, interface = self.interface, "power saving could not be restored");
        }
    }
}
