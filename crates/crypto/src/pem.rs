//! PEM armour, for the files that people configure. Owns the tolerant look at what a file holds, so that an error can say it.

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::pem::SectionKind;

use crate::secret::Secret;

/// A section of any kind, with its kind.
struct Section(SectionKind, Vec<u8>);

impl PemObject for Section {
    fn from_pem(kind: SectionKind, der: Vec<u8>) -> Option<Self> {
        Some(Self(kind, der))
    }
}

/// The labels of the sections of a file, in order.
pub(crate) fn labels(content: &[u8]) -> Vec<String> {
    content
        .split(|&b| b == b'\n' || b == b'\r')
        .filter_map(|line| {
            let label = line.strip_prefix(b"-----BEGIN ")?.trim_ascii_end().strip_suffix(b"-----")?;
            Some(String::from_utf8_lossy(label.get(..label.len().min(64))?).into_owned())
        })
        .take(64)
        .collect()
}

/// Whether a section is encrypted, by its label or by the old header.
pub(crate) fn is_encrypted(content: &[u8]) -> bool {
    let has = |needle: &[u8]| content.windows(needle.len()).any(|w| w == needle);
    has(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(b"Proc-Type: 4,ENCRYPTED")
}

/// What a file holds, in words for an error message. Shows no content but PEM labels.
pub(crate) fn describe(content: &[u8]) -> String {
    let labels = labels(content);
    if !labels.is_empty() {
        return format!("the file holds {}", labels.join(", "));
    }
    match content {
        [] => "the file is empty".to_owned(),
        [0x30, ..] => "the file is DER of another structure".to_owned(),
        _ if content.is_ascii() => "the file is text without a PEM section".to_owned(),
        _ => "the file is binary, but not DER".to_owned(),
    }
}

/// The content of the first section with this label.
pub(crate) fn first_section(content: &[u8], label: &str) -> Result<Secret, String> {
    let mut found = sections(content, label)?;
    if found.is_empty() { Err(format!("no complete section {label}")) } else { Ok(found.swap_remove(0)) }
}

/// The contents of all sections with this label.
pub(crate) fn sections(content: &[u8], label: &str) -> Result<Vec<Secret>, String> {
    let wanted = match label {
        "PRIVATE KEY" => SectionKind::PrivateKey,
        "RSA PRIVATE KEY" => SectionKind::RsaPrivateKey,
        "EC PRIVATE KEY" => SectionKind::EcPrivateKey,
        "X509 CRL" => SectionKind::Crl,
        _ => SectionKind::Certificate,
    };
    let mut found = Vec::new();
    for section in Section::pem_slice_iter(content) {
        let Section(kind, der) = section.map_err(|e| e.to_string())?;
        let der = Secret::from(der);
        if kind == wanted {
            found.push(der);
        }
    }
    Ok(found)
}
