//! Tokens by way of their module. Owns the modules that are loaded, and the session with a token.

use super::{Error, Uri};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as Pkcs11Error, RvError};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, SessionState, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;
use dormouse_crypto::sign::{Scheme, Signer};
use dormouse_crypto::{Secret, hash};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The module that knows all others of this machine (p11-kit), where the URI names none.
const PROXY: &str = "p11-kit-proxy.so";

/// Bytes of a key that is derived, and of a block of AES-CMAC.
const DERIVED: usize = 32;
const CMAC: usize = 16;

/// Modules that are loaded: each may be initialised once in a process.
static MODULES: Mutex<BTreeMap<PathBuf, Pkcs11>> = Mutex::new(BTreeMap::new());

/// A key in a token, with a session of its own.
#[derive(Debug)]
pub struct Token {
    session: Mutex<Session>,
    key: ObjectHandle,
    name: String,
}

impl Token {
    /// Logs in, if there is a PIN and this process has not, and finds the key. A token that remembers a wrong PIN is not asked.
    ///
    /// # Errors
    /// [`Error`], which says what there is instead.
    pub fn open(uri: &Uri, pin: Option<&Secret>) -> Result<Self, Error> {
        Self::find(uri, pin, ObjectClass::PRIVATE_KEY, "private key")
    }

    /// 32 bytes that a secret key in a token makes for `label`: NIST SP 800-108, counter mode, with AES-CMAC, which the token computes. The same key in
    /// another token makes the same bytes.
    ///
    /// # Errors
    /// As [`Self::open`], or if the token has no AES-CMAC for this key.
    pub fn derive(uri: &Uri, pin: Option<&Secret>, label: &[u8]) -> Result<Secret, Error> {
        let Self { session, key, name } = Self::find(uri, pin, ObjectClass::SECRET_KEY, "secret key")?;
        let session = session.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut out = Secret::zeroed(DERIVED);
        for (block, number) in out.as_mut_bytes().chunks_exact_mut(CMAC).zip(1_u32..) {
            let bits = (DERIVED * 8) as u32;
            let input = [&number.to_be_bytes()[..], label, &[0], &bits.to_be_bytes()].concat();
            let made = session.sign(&Mechanism::AesCMac, key, &input);
            let made = made
                .map_err(|source| Error::Module { doing: format!("AES-CMAC with {name}"), source })
                .map(Secret::from)?;
            if made.len() != CMAC {
                return Err(Error::NotFound(format!("{name} makes no AES-CMAC of {CMAC} bytes")));
            }
            block.copy_from_slice(made.as_bytes());
        }
        Ok(out)
    }

    fn find(uri: &Uri, pin: Option<&Secret>, class: ObjectClass, what: &str) -> Result<Self, Error> {
        let failed = |doing: String| move |source| Error::Module { doing, source };
        let path = uri.module.clone().unwrap_or_else(|| PROXY.into());
        let module = module(&path)?;
        let slot = find_slot(&module, uri)?;
        let session = module.open_ro_session(slot).map_err(failed("opening the token".into()))?;
        if let Some(pin) = pin {
            log_in(&module, slot, &session, pin)?;
        }
        let mut wanted = vec![Attribute::Class(class)];
        wanted.extend(uri.object.as_ref().map(|label| Attribute::Label(label.clone().into_bytes())));
        wanted.extend(uri.id.clone().map(Attribute::Id));
        let found = session.find_objects(&wanted).map_err(failed("looking for the key".into()))?;
        let name = uri.object.clone().unwrap_or_else(|| "the key".into());
        match found.as_slice() {
            [key] => Ok(Self { key: *key, session: Mutex::new(session), name }),
            [] => Err(Error::NotFound(format!(
                "the token has no {what} {name} (pin-source may be missing or wrong)"
            ))),
            many => {
                Err(Error::NotFound(format!("{} objects are named so, each a {what}; add id", many.len())))
            }
        }
    }
}

fn log_in(module: &Pkcs11, slot: Slot, session: &Session, pin: &Secret) -> Result<(), Error> {
    let failed = |source| Error::Module { doing: "logging in with the PIN".into(), source };
    // A login counts for all sessions of a process.
    let state = session.get_session_info().map_err(failed)?.session_state();
    if matches!(state, SessionState::RoUser | SessionState::RwUser) {
        return Ok(());
    }
    let info = module.get_token_info(slot).map_err(failed)?;
    let name = info.label().trim_end();
    if info.user_pin_locked() {
        return Err(Error::Pin(format!("the token {name} has locked its PIN")));
    }
    if info.user_pin_count_low() || info.user_pin_final_try() {
        return Err(Error::Pin(format!("the last PIN that the token {name} was given was wrong")));
    }
    let text = String::from_utf8_lossy(pin.as_bytes()).trim_end().to_owned();
    match session.login(UserType::User, Some(&AuthPin::from(text))) {
        Ok(()) | Err(Pkcs11Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
        Err(Pkcs11Error::Pkcs11(
            RvError::PinIncorrect | RvError::PinLenRange | RvError::PinInvalid | RvError::PinLocked,
            _,
        )) => Err(Error::Pin(format!("the token {name} refuses this PIN"))),
        Err(source) => Err(failed(source)),
    }
}

fn module(path: &Path) -> Result<Pkcs11, Error> {
    let failed = |source| Error::Module { doing: format!("loading {}", path.display()), source };
    let mut modules = MODULES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(module) = modules.get(path) {
        return Ok(module.clone());
    }
    let module = Pkcs11::new(path).map_err(failed)?;
    module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)).map_err(failed)?;
    modules.insert(path.into(), module.clone());
    Ok(module)
}

fn find_slot(module: &Pkcs11, uri: &Uri) -> Result<Slot, Error> {
    let failed = |source| Error::Module { doing: "listing tokens".into(), source };
    let mut found = Vec::new();
    let mut there = Vec::new();
    for slot in module.get_slots_with_initialized_token().map_err(failed)? {
        let info = module.get_token_info(slot).map_err(failed)?;
        let fits = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|w| w == is.trim_end());
        if fits(&uri.token, info.label()) && fits(&uri.serial, info.serial_number()) {
            found.push(slot);
        }
        there.push(info.label().trim_end().to_owned());
    }
    match found.as_slice() {
        [slot] => Ok(*slot),
        [] => Err(Error::NotFound(format!("no such token; there are: {}", there.join(", ")))),
        many => Err(Error::NotFound(format!("{} tokens are named so; add serial", many.len()))),
    }
}

impl Signer for Token {
    fn sign(&self, scheme: Scheme, message: &[u8]) -> Option<Vec<u8>> {
        let pss = |hash_alg, mgf, salt: u8| {
            let s_len = core::ffi::c_ulong::from(salt).into();
            PkcsPssParams { hash_alg, mgf, s_len }
        };
        let digest = |alg| hash(alg, &[message]);
        let (mechanism, data) = match scheme {
            Scheme::RsaPkcs1Sha256 => (Mechanism::Sha256RsaPkcs, None),
            Scheme::RsaPkcs1Sha384 => (Mechanism::Sha384RsaPkcs, None),
            Scheme::RsaPkcs1Sha512 => (Mechanism::Sha512RsaPkcs, None),
            Scheme::RsaPssSha256 => {
                (Mechanism::Sha256RsaPkcsPss(pss(MechanismType::SHA256, PkcsMgfType::MGF1_SHA256, 32)), None)
            }
            Scheme::RsaPssSha384 => {
                (Mechanism::Sha384RsaPkcsPss(pss(MechanismType::SHA384, PkcsMgfType::MGF1_SHA384, 48)), None)
            }
            Scheme::RsaPssSha512 => {
                (Mechanism::Sha512RsaPkcsPss(pss(MechanismType::SHA512, PkcsMgfType::MGF1_SHA512, 64)), None)
            }
            // Tokens that hash for ECDSA are rare.
            Scheme::EcdsaSha256 | Scheme::EcdsaSha384 | Scheme::EcdsaSha512 => {
                (Mechanism::Ecdsa, scheme.hash().map(digest))
            }
            Scheme::Ed25519 => return None,
        };
        let session = self.session.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match session.sign(&mechanism, self.key, data.as_deref().unwrap_or(message)) {
            Ok(signature) => Some(signature),
            Err(error) => {
                tracing::error!(key = self.name, %scheme, %error, "the token does not sign");
                None
            }
        }
    }
}
