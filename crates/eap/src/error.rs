//! Why a conversation failed, in words for a user or an administrator. Owns the words; must never hold a secret.

use dormouse_crypto::cert::CertError;

use crate::kind::Type;

/// Why a conversation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are no EAP packet, or not one of the method.
    #[error("a malformed EAP packet: {0}")]
    Malformed(&'static str),
    /// A packet of the right form at the wrong time.
    #[error("an EAP packet out of turn: {0}")]
    Unexpected(&'static str),
    /// More packets than any honest conversation has.
    #[error("the EAP conversation does not come to an end")]
    Endless,
    /// Something to be sent is too long.
    #[error("too long for EAP: {0}")]
    TooLong(&'static str),
    /// At an authenticator: the peer wants none of the methods on offer.
    #[error("the client refuses the EAP methods that are offered here; {}", wanted(.0))]
    NoCommonMethod(Vec<Type>),
    /// At a peer: the server ended it after a method was refused.
    #[error("the gateway offers {offered}, but {wanted} is configured here")]
    OtherMethod {
        /// The last one that it asked for.
        offered: Type,
        /// What is configured.
        wanted: Type,
    },
    /// The password is wrong; or, at a peer, the user may be unknown there.
    #[error("wrong user name or password")]
    WrongPassword,
    /// At an authenticator: nobody has this name. The peer is not told the difference.
    #[error("there is no such user")]
    UnknownUser,
    /// At a peer: the server wants another password first, which cannot be changed here.
    #[error("the password has expired; change it at the server's own pages, it cannot be changed here")]
    PasswordExpired,
    /// At an authenticator: the peer tried to change its password.
    #[error("the client tried to change its password, which is not possible through this gateway")]
    PasswordChange,
    /// At a peer: the server knows the user and lets nobody in by that name.
    #[error("the account is disabled")]
    AccountDisabled,
    /// At a peer: the server refused for another reason, by its number (RFC 2759 section 6), or gave none.
    #[error("the gateway refused{}", reason(*.0))]
    Refused(Option<u32>),
    /// At an authenticator: the peer gave up, or took us for an impostor.
    #[error("the client broke off")]
    PeerRefused,
    /// At a peer: the server has not shown that it knows the password.
    #[error("the gateway does not know the password: it may be an impostor")]
    ServerUnproven,
    /// At a peer: success was claimed before the method had ended.
    #[error("the gateway claims success before it has proved who it is")]
    EarlySuccess,
    /// The other side's certificate is not good enough.
    #[error("the certificate shown in EAP-TLS: {0}")]
    Certificate(#[from] CertError),
    /// At an authenticator: the certificate is good, and its owner may not come in.
    #[error("not admitted: {0}")]
    NotAdmitted(String),
    /// TLS failed, or the other side broke it off.
    #[error("EAP-TLS: {0}")]
    Tls(String),
}

fn wanted(types: &[Type]) -> String {
    if types.is_empty() {
        return "it names no other".to_owned();
    }
    let names: Vec<String> = types.iter().map(ToString::to_string).collect();
    format!("it wants {}", names.join(" or "))
}

fn reason(code: Option<u32>) -> String {
    match code {
        None => " without a reason".to_owned(),
        Some(646) => ": not at this time of day".to_owned(),
        Some(649) => ": this account may not dial in".to_owned(),
        Some(code) => format!(" with error {code}"),
    }
}
