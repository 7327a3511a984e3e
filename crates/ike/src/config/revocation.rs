//! What a connection makes of revoked certificates. Owns the words; the module `revocation` acts on them.

/// What is made of revoked certificates.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RevocationPolicy {
    /// Who is refused.
    pub mode: RevocationMode,
    /// CRLs in DER, of any authority.
    pub lists: Vec<Vec<u8>>,
    /// URLs (`http://`) of CRLs that the authorities themselves sign, besides those that stand in certificates.
    pub urls: Vec<String>,
}

/// Who is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RevocationMode {
    /// None; nothing is asked.
    Off,
    /// Those whose certificates are known to be revoked.
    #[default]
    Soft,
    /// Also those of whose certificates nothing fresh is known.
    Strict,
}
