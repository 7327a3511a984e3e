//! The key of one direction of an SA. Owns when its key schedules exist: from the first packet on, until the SA rests. They take most of the
//! memory of an SA, and a gateway holds many that carry nothing.

use core::fmt;

use dormouse_crypto::{Error, PacketKey, RestingKey};

use crate::params::SaParams;

pub(crate) enum SaKey {
    /// Negotiated.
    Of { material: RestingKey, schedules: Option<PacketKey> },
    /// For what is only measured.
    Made(PacketKey),
}

impl SaKey {
    /// The key of `params`, at rest.
    pub(crate) fn new(params: &SaParams) -> Result<Self, Error> {
        let material = RestingKey::new(params.encr, params.integ, params.keymat.as_bytes())?;
        Ok(Self::Of { material, schedules: None })
    }

    /// The key, for a packet.
    #[inline]
    pub(crate) fn awake(&mut self) -> Result<&PacketKey, Error> {
        match self {
            Self::Of { schedules: Some(key), .. } | Self::Made(key) => Ok(key),
            Self::Of { material, schedules } => Ok(schedules.insert(material.wake()?)),
        }
    }

    /// Nothing is expected to come or go for a while.
    pub(crate) fn rest(&mut self) {
        if let Self::Of { schedules, .. } = self {
            *schedules = None;
        }
    }
}

impl fmt::Debug for SaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of { material, .. } => material.fmt(f),
            Self::Made(key) => key.fmt(f),
        }
    }
}
