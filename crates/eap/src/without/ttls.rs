//! In the place of EAP-TTLS, in a program without the feature `tls`: it is never configured.

use dormouse_crypto::Secret;
use dormouse_sansio::Entropy;

use crate::error::Error;
use crate::method::Turn;
use crate::tls::TunnelConfig;
use crate::users::Users;

/// The gateway's part.
#[derive(Debug)]
pub(crate) struct Server(TunnelConfig);

impl Server {
    pub(crate) fn start(config: &TunnelConfig) -> Result<(Self, Vec<u8>), Error> {
        config.never()
    }

    pub(crate) const fn refusal(&self) -> Option<&Error> {
        self.0.never()
    }

    pub(crate) fn receive(
        &mut self,
        _: &[u8],
        _: &dyn Users,
        _: &str,
        _: &Secret,
        _: &mut dyn Entropy,
    ) -> Turn {
        self.0.never()
    }
}
