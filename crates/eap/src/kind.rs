//! The numbers of EAP methods. Owns their names.

use core::fmt;

/// The type of a request or response: Identity, a method, or an answer to one (RFC 3748 section 5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Type(pub u8);

impl Type {
    /// Who are you?
    pub const IDENTITY: Self = Self(1);
    /// A text to show.
    pub const NOTIFICATION: Self = Self(2);
    /// In a response: not this method, but one of these.
    pub const NAK: Self = Self(3);
    /// EAP-TLS (RFC 5216).
    pub const TLS: Self = Self(13);
    /// EAP-TTLS (RFC 5281).
    pub const TTLS: Self = Self(21);
    /// EAP-MSCHAPv2 (draft-kamath-pppext-eap-mschapv2).
    pub const MSCHAPV2: Self = Self(26);

    /// Whether it is a method of authentication.
    #[must_use]
    pub const fn is_method(self) -> bool {
        self.0 >= 4
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            1 => "Identity",
            2 => "Notification",
            3 => "Nak",
            4 => "EAP-MD5",
            6 => "EAP-GTC",
            13 => "EAP-TLS",
            18 => "EAP-SIM",
            21 => "EAP-TTLS",
            23 => "EAP-AKA",
            25 => "PEAP",
            26 => "EAP-MSCHAPv2",
            50 => "EAP-AKA'",
            52 => "EAP-PWD",
            other => return write!(f, "EAP method {other}"),
        };
        f.write_str(name)
    }
}
