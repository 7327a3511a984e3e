//! Users with passwords at a gateway that has a certificate. Owns these credentials.

use std::sync::Arc;
use std::time::Duration;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::{Certificate, Identity, TrustStore, Usage};
use dormouse_crypto::sign::SigningKey;
use dormouse_eap::NtHash;
use dormouse_ike::config::{
    Connection, EapLogin, EapMethod, EapPolicy, EapProof, EapUsers, IdentityPattern, LocalAuth, RemoteAuth,
};
use dormouse_sansio::Seeded;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams, SerialNumber, SignatureAlgorithm,
};

use super::{Faults, Pair, client_psk, gateway_psk};

/// The users of the tests, with their passwords.
pub const USERS: [(&str, &str); 2] = [("alice@example.org", "clientPass"), ("bob", "Geheimnis, größer")];

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        validity(&mut params);
        let certificate = params.self_signed(&key).expect("a certificate");
        let certificate = Certificate::from_der(certificate.der()).expect("readable");
        Self { issuer: Issuer::new(params, key), certificate }
    }

    pub fn issue(&self, name: &str, algorithm: &'static SignatureAlgorithm) -> LocalAuth {
        self.issue_with(&[name], algorithm, |_| {})
    }

    /// For several names, changed as wanted.
    pub fn issue_with(
        &self,
        names: &[&str],
        algorithm: &'static SignatureAlgorithm,
        change: impl FnOnce(&mut CertificateParams),
    ) -> LocalAuth {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let (mails, hosts): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains('@'));
        let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(hosts).expect("parameters");
        let mail = |mail: &str| rcgen::SanType::Rfc822Name(mail.try_into().expect("a mail address"));
        params.subject_alt_names.extend(mails.into_iter().map(mail));
        params.distinguished_name.push(rcgen::DnType::CommonName, names.first().copied().unwrap_or("nobody"));
        validity(&mut params);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        LocalAuth::Cert {
            key: Arc::new(SigningKey::from_der(&key.serialize_der()).expect("a key")),
            chain: vec![certificate.der().to_vec()],
        }
    }

    /// A certificate with this subject and these alternative names; and the subject as an identity.
    pub fn issue_named(&self, subject: &str, names: &[&str]) -> (LocalAuth, Identity) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, subject.trim_start_matches("CN="));
        validity(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = Arc::new(SigningKey::from_der(&key.serialize_der()).expect("a key"));
        let auth = LocalAuth::Cert { key, chain: vec![certificate.der().to_vec()] };
        (auth, subject.parse().expect("a name"))
    }

    /// A list of revoked certificates by their numbers, made before the origin of the tests, each some time after the one before, and good for two days.
    pub fn list(&self, serials: &[u64], number: u64) -> Vec<u8> {
        let this_update = rcgen::date_time_ymd(2027, 1, 15) + Duration::from_secs(number * 60);
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: this_update,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update,
            next_update: this_update + Duration::from_secs(2 * 86_400),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).expect("a list").der().to_vec()
    }

    pub fn trusted(&self) -> RemoteAuth {
        RemoteAuth::Cert {
            trust: Arc::new(TrustStore::new(vec![self.certificate.clone()]).expect("a store")),
            usage: Usage::Ike,
            accept_rsa_sha1: false,
            revocation: Default::default(),
        }
    }
}

/// From ten days before the origin of the tests on.
fn validity(params: &mut CertificateParams) {
    let origin = rcgen::date_time_ymd(2027, 1, 15);
    let days = |n: u64| Duration::from_secs(n * 86_400);
    (params.not_before, params.not_after) = (origin - days(10), origin + days(1_000));
}

pub fn login(user: &str, password: &str) -> LocalAuth {
    let password = Secret::from(password.as_bytes());
    LocalAuth::Eap(Arc::new(EapLogin { user: user.to_owned(), proof: EapProof::Password(password) }))
}

/// The user of this name proves himself by a certificate (EAP-TLS); `alone`: the gateway may do so inside EAP alone.
pub fn login_tls(user: &str, own: LocalAuth, alone: bool) -> LocalAuth {
    let LocalAuth::Cert { key, chain } = own else { panic!("a certificate") };
    let proof = EapProof::Certificate { key, chain, alone, server: None };
    LocalAuth::Eap(Arc::new(EapLogin { user: user.to_owned(), proof }))
}

/// Users with certificates, by these methods.
pub fn methods(list: &[EapMethod], alone: bool) -> Option<Arc<EapPolicy>> {
    let hash = |password: &str| NtHash::of_password(password).expect("not too long");
    let users = USERS.iter().map(|(user, password)| ((*user).to_owned(), hash(password)));
    let policy = EapPolicy::here(list.to_vec(), EapUsers::new(users).expect("names of users"));
    Some(Arc::new(if alone { policy.alone() } else { policy }))
}

pub fn users(list: &[(&str, &str)]) -> Option<Arc<EapPolicy>> {
    let hash = |password: &str| NtHash::of_password(password).expect("not too long");
    let users = list.iter().map(|(user, password)| ((*user).to_owned(), hash(password)));
    let users = EapUsers::new(users).expect("names of users");
    Some(Arc::new(EapPolicy::here(vec![EapMethod::MsChapV2], users)))
}

/// Alice's device, and a gateway that knows her and Bob.
pub fn connections(ca: &Authority) -> (Connection, Connection) {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    client.local_id = "192.0.2.10".parse().expect("an address");
    client.local_auth = login(USERS[0].0, USERS[0].1);
    client.remote_auth = ca.trusted();
    gateway.local_auth = ca.issue("gw.example.org", &rcgen::PKCS_ECDSA_P256_SHA256);
    gateway.remote_auth = RemoteAuth::Eap;
    gateway.remote_id = IdentityPattern::Any;
    gateway.answering.eap = users(&USERS);
    (client, gateway)
}

/// The client comes although so many packets of a hundred are lost, and 20 each repeated or late; nothing is left over at the gateway.
pub fn comes_through(pair: &mut Pair, seed: u64, lost: u64) {
    pair.faults = Some(Faults { seed: Seeded::new(seed), lost, doubled: 20, late: 20 });
    pair.connect();
    pair.run_for(Duration::from_secs(60));
    let failure = pair.client.failure().map(|e| e.to_string());
    assert!(pair.client.established().is_some(), "seed {seed}: {failure:?}");
    pair.faults = None;
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.gateway.endpoint.len(), 1, "seed {seed}");
    pair.assert_agree();
}

pub fn pair_of(seed: u64, change: impl FnOnce(&Authority, &mut Connection, &mut Connection)) -> Pair {
    let ca = Authority::new("CA");
    let (mut client, mut gateway) = connections(&ca);
    change(&ca, &mut client, &mut gateway);
    Pair::new(client, gateway, seed)
}
