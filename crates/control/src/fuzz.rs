//! The body of the fuzz target: any bytes as either side's line. Not for use in a program.

use crate::{MAX_REQUEST, Outcome, Request, Response, VERSION, line};

/// Any bytes as a request and as a response: what is accepted can be said again and is accepted then. (The same to the last bit it
/// need not be: numbers lose one in JSON.)
///
/// # Panics
/// If a property does not hold.
pub fn lines(data: &[u8]) {
    if let Ok(request) = Request::parse(data) {
        let text = line(&request).unwrap_or_default();
        // The reader lets a null be left out, the writer does not.
        assert!(text.len() > MAX_REQUEST || Request::parse(text.as_bytes()).is_ok(), "refused: {text}");
    }
    let (outcome, kind) = match Response::parse(data) {
        Ok(result) => (Outcome::Ok { result }, None),
        Err(error) => (Outcome::Error { error: error.clone() }, Some(error.kind)),
    };
    let text = line(&Response { version: VERSION, outcome }).unwrap_or_default();
    let again = Response::parse(text.as_bytes()).err().map(|e| e.kind);
    assert_eq!(again, kind, "another meaning: {text}");
}
