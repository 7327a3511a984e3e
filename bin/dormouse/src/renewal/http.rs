//! The few messages of HTTP/1.1 that renewal needs, as EST has them (RFC 7030): pure functions of bytes. Owns their form and the bounds on their length;
//! what a request leads to is decided elsewhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Longest header of a request or an answer, in bytes.
const MOST_HEAD: usize = 8 << 10;
/// Longest body of a request, in bytes: one with an RSA key of 8,192 bits has some 3,500.
const MOST_ASKED: usize = 16 << 10;
/// Longest body of an answer.
const MOST_ANSWERED: usize = 64 << 10;
/// Fields of a header.
const MOST_FIELDS: usize = 64;
/// Characters of base64 in a line.
const LINE: usize = 64;

/// Most bytes of a whole request.
pub(super) const MOST_REQUEST: usize = MOST_HEAD + MOST_ASKED;
/// Most bytes of a whole answer.
pub(super) const MOST_ANSWER: usize = MOST_HEAD + MOST_ANSWERED;

/// Where EST is (RFC 7030, section 3.2.2).
const PLACE: &str = "/.well-known/est/";
const AUTHORITIES: &str = "cacerts";
const RENEWAL: &str = "simplereenroll";

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// The authority's certificate (RFC 7030, section 4.1).
    Authorities,
    /// A certificate in the place of the one that is shown, for the key of this request in DER (section 4.2.2).
    Renewal(Vec<u8>),
}

/// Why something is not done: a status of HTTP, and words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) why: String,
}

impl Refusal {
    pub(super) fn new(status: u16, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }
}

/// What the bytes ask for that have come so far; `None` if they are not all.
pub(super) fn asked(bytes: &[u8]) -> Result<Option<Asked>, Refusal> {
    let refuse = |status, why: &str| Err(Refusal::new(status, why));
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let head = match request.parse(bytes) {
        Ok(httparse::Status::Complete(head)) if head <= MOST_HEAD => head,
        Ok(httparse::Status::Partial) if bytes.len() <= MOST_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return refuse(431, "the request's header is too long");
        }
        Err(_) => return refuse(400, "the request is not understood"),
    };
    let target = request.path.unwrap_or_default();
    let Some(what) = target.strip_prefix(PLACE) else { return refuse(404, "there is no such page") };
    let length = match length(request.headers) {
        Ok(length) => length,
        Err(why) => return refuse(400, why),
    };
    match (request.method, what, length) {
        (Some("GET"), AUTHORITIES, None | Some(0)) => Ok(Some(Asked::Authorities)),
        (Some("POST"), RENEWAL, Some(length)) if length <= MOST_ASKED => {
            let body = bytes.get(head..).unwrap_or_default();
            match body.get(..length) {
                None => Ok(None),
                Some(_) if body.len() > length => refuse(400, "something follows the request"),
                Some(body) => match unwrapped(body) {
                    Some(der) => Ok(Some(Asked::Renewal(der))),
                    None => refuse(400, "the request is not base64"),
                },
            }
        }
        (Some("POST"), RENEWAL, Some(_)) => refuse(413, "the request is too large"),
        (Some("POST"), RENEWAL, None) => refuse(411, "the request does not say its length"),
        (_, AUTHORITIES | RENEWAL, _) => refuse(405, "GET for cacerts, POST for simplereenroll"),
        _ => {
            refuse(404, "cacerts and simplereenroll alone: new devices get their files by dormouse user add")
        }
    }
}

/// The length that a header says, once; `None` if it says none.
fn length(fields: &[httparse::Header<'_>]) -> Result<Option<usize>, &'static str> {
    let all = |name: &'static str| fields.iter().filter(move |f| f.name.eq_ignore_ascii_case(name));
    if all("transfer-encoding").next().is_some() {
        return Err("only bodies of a length that is said are read");
    }
    let mut lengths = all("content-length");
    let Some(first) = lengths.next() else { return Ok(None) };
    let digits = Some(first.value).filter(|v| (1..=9).contains(&v.len()) && v.iter().all(u8::is_ascii_digit));
    let length = digits.and_then(|v| str::from_utf8(v).ok()?.parse().ok());
    match (length, lengths.next()) {
        (Some(length), None) => Ok(Some(length)),
        _ => Err("one length is needed"),
    }
}

/// Base64 without its white space.
fn unwrapped(text: &[u8]) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    STANDARD.decode(text).ok()
}

fn wrapped(bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines = text.as_bytes().chunks(LINE);
    lines.map(|line| String::from_utf8_lossy(line).into_owned() + "\r\n").collect()
}

/// A request for a certificate, as it is sent.
pub(super) fn request(host: &str, der: &[u8]) -> Vec<u8> {
    let body = wrapped(der);
    format!(
        "POST {PLACE}{RENEWAL} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/pkcs10\r\nContent-Transfer-Encoding: base64\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Certificates as an answer (RFC 7030, sections 4.1.3 and 4.2.3): `message` is of CMS.
pub(super) fn certificates(message: &[u8]) -> Vec<u8> {
    let kind = "application/pkcs7-mime; smime-type=certs-only\r\nContent-Transfer-Encoding: base64";
    reply(200, kind, &wrapped(message))
}

/// A refusal as an answer.
pub(super) fn refused(refusal: &Refusal) -> Vec<u8> {
    reply(refusal.status, "text/plain; charset=utf-8", &format!("{}\n", refusal.why))
}

fn reply(status: u16, kind: &str, body: &str) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Bad Request",
    };
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// What has been answered: a message of CMS, or why there is none. `None` if the bytes are not all that will come.
pub(super) fn answered(bytes: &[u8]) -> Result<Option<Result<Vec<u8>, Refusal>>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut answer = httparse::Response::new(&mut fields);
    let head = match answer.parse(bytes) {
        Ok(httparse::Status::Complete(head)) if head <= MOST_HEAD => head,
        Ok(httparse::Status::Partial) if bytes.len() <= MOST_HEAD => return Ok(None),
        _ => return Err("its answer is not understood"),
    };
    let length = length(answer.headers)?.ok_or("its answer does not say its length")?;
    if length > MOST_ANSWERED {
        return Err("its answer is too long");
    }
    let Some(body) = bytes.get(head..).unwrap_or_default().get(..length) else { return Ok(None) };
    Ok(Some(match answer.code {
        Some(200) => Ok(unwrapped(body).ok_or("its answer is not base64")?),
        code => Err(Refusal::new(code.unwrap_or(0), String::from_utf8_lossy(body).trim())),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(fields: &str, body: &str) -> Vec<u8> {
        format!("POST /.well-known/est/simplereenroll HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}").into_bytes()
    }

    #[test]
    fn what_is_asked_is_understood_once_it_is_all_there() {
        let der: Vec<u8> = (0..=255).collect();
        let whole = request("10.9.0.1:4510", &der);
        for at in 0..whole.len() {
            assert_eq!(asked(&whole[..at]), Ok(None), "{at}");
        }
        assert_eq!(asked(&whole), Ok(Some(Asked::Renewal(der))));
        let get = b"GET /.well-known/est/cacerts HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(asked(get), Ok(Some(Asked::Authorities)));
    }

    #[test]
    fn what_is_wrong_is_refused_with_a_status_and_nothing_is_waited_for() {
        let long = format!("X: {}\r\n", "a".repeat(MOST_HEAD));
        for (bytes, status) in [
            (b"\x16\x03\x01\x02\x00".to_vec(), 400),
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 404),
            (b"GET /.well-known/est/simplereenroll HTTP/1.1\r\n\r\n".to_vec(), 405),
            (b"POST /.well-known/est/cacerts HTTP/1.1\r\nContent-Length: 1\r\n\r\n".to_vec(), 405),
            (b"POST /.well-known/est/simpleenroll HTTP/1.1\r\nContent-Length: 1\r\n\r\n".to_vec(), 404),
            (b"POST /.well-known/est/../../etc/shadow HTTP/1.1\r\n\r\n".to_vec(), 404),
            (post("", "AAAA"), 411),
            (post("Transfer-Encoding: chunked\r\n", "4\r\nAAAA\r\n0\r\n\r\n"), 400),
            (post("Content-Length: 4\r\nContent-Length: 4\r\n", "AAAA"), 400),
            (post("Content-Length: -4\r\n", "AAAA"), 400),
            (post("Content-Length: +4\r\n", "AAAA"), 400),
            (post("Content-Length: 99999999999999999999\r\n", "AAAA"), 400),
            (post("Content-Length: 4\r\n", "AAAAGET / HTTP/1.1"), 400),
            (post("Content-Length: 4\r\n", "A A*"), 400),
            (post(&format!("Content-Length: {}\r\n", MOST_ASKED + 1), ""), 413),
            (post(&long, ""), 431),
            (post(&"X: 1\r\n".repeat(MOST_FIELDS), ""), 431),
            (vec![b'A'; MOST_HEAD + 1], 431),
        ] {
            let refused = asked(&bytes).expect_err(&String::from_utf8_lossy(&bytes));
            assert_eq!(refused.status, status, "{}: {}", refused.why, String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn answers_are_read_as_they_were_written_and_hostile_ones_are_refused() {
        let message: Vec<u8> = (0..200).collect();
        let whole = certificates(&message);
        for at in 0..whole.len() {
            assert_eq!(answered(&whole[..at]), Ok(None), "{at}");
        }
        assert_eq!(answered(&whole), Ok(Some(Ok(message))));
        let refusal = Refusal::new(403, "another name");
        assert_eq!(answered(&refused(&refusal)), Ok(Some(Err(refusal))));
        for bytes in [
            &b"nonsense"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n***",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            answered(bytes).expect_err(&String::from_utf8_lossy(bytes));
        }
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'a'; MOST_HEAD]].concat();
        answered(&endless).expect_err("no end of it");
    }
}
