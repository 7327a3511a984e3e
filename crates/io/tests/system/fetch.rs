//! Fetching by HTTP: what comes, what is refused, and that the loop is woken.

use dormouse_io::fetch::{Fetcher, MOST, Wanted};
use dormouse_io::poller::{Interest, Poller};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

/// A server on loopback that answers each request by `answer`.
fn server(answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
            let whole = |request: &[u8]| {
                let head = request.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
                let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
                let length =
                    text.split("content-length: ").nth(1).and_then(|t| t.split("\r\n").next()?.parse().ok());
                (request.len() >= head + length.unwrap_or(0)).then_some(())
            };
            while whole(&request).is_none() {
                match stream.read(&mut chunk) {
                    Ok(n) if n > 0 => request.extend_from_slice(&chunk[..n]),
                    _ => break,
                }
            }
            let _ = stream.write_all(&answer(&request));
        }
    });
    format!("http://{address}/")
}

fn ok(body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

/// Fetches all, and waits for the answers as the daemon's loop does.
fn fetch(wanted: Vec<Wanted>) -> Vec<(u64, Result<Vec<u8>, String>)> {
    let (mut fetcher, poller) = (Fetcher::new().expect("descriptors"), Poller::new().expect("a poller"));
    poller.add(&fetcher, 0, Interest::READ).expect("added");
    let count = wanted.len();
    wanted.into_iter().for_each(|wanted| fetcher.fetch(wanted));
    let (mut done, mut ready) = (Vec::new(), Vec::new());
    while done.len() < count {
        poller.wait(&mut ready, Some(Duration::from_secs(60))).expect("woken");
        assert!(!ready.is_empty(), "{} of {count} came", done.len());
        while let Some(one) = fetcher.take() {
            done.push(one);
        }
    }
    done.sort_by_key(|(id, _)| *id);
    done
}

fn get(id: u64, url: &str) -> Wanted {
    Wanted { id, url: url.to_owned(), body: None }
}

#[test]
fn lists_come_by_get_and_answers_by_post() {
    let url = server(|request| {
        let text = String::from_utf8_lossy(request);
        if text.starts_with("GET / ") {
            return ok(b"a list");
        }
        let asked = text.contains("content-type: application/ocsp-request") && text.ends_with("a question");
        ok(if text.starts_with("POST / ") && asked { b"an answer" } else { b"?" })
    });
    let question = Wanted { body: Some(b"a question".to_vec()), ..get(2, &url) };
    let done = fetch(vec![get(1, &url), question]);
    assert_eq!(done, [(1, Ok(b"a list".to_vec())), (2, Ok(b"an answer".to_vec()))]);
}

#[test]
fn more_than_go_at_once_all_come_and_failures_say_why() {
    let url = server(|_| ok(b"x"));
    let all: Vec<_> = (0..40).map(|id| get(id, &url)).collect();
    assert!(fetch(all).iter().all(|(_, content)| content.as_deref() == Ok(b"x")));
    let missing = server(|_| b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec());
    let nonsense = server(|_| b"SMTP\r\n\r\n".to_vec());
    let loops = server(|_| b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n".to_vec());
    let tls = server(|_| {
        b"HTTP/1.1 302 Found\r\nlocation: https://127.0.0.1/\r\ncontent-length: 0\r\n\r\n".to_vec()
    });
    let closed = "http://127.0.0.1:1/";
    let huge = server(|_| ok(&vec![7; usize::try_from(MOST).expect("small") + 1]));
    let unreachable = [&missing, &nonsense, &loops, &tls, closed, "ftp://127.0.0.1/", "no URL"];
    let mut wanted: Vec<_> = unreachable.iter().zip(0..).map(|(url, id)| get(id, url)).collect();
    wanted.push(get(99, &huge));
    for (id, content) in fetch(wanted) {
        let why = content.expect_err("refused");
        assert!(!why.is_empty(), "{id}");
    }
}

#[test]
fn what_is_refused_does_not_wait_for_the_loop_that_asks() {
    // A server that never answers, so that nothing moves on.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let (mut fetcher, poller) = (Fetcher::new().expect("descriptors"), Poller::new().expect("a poller"));
    poller.add(&fetcher, 0, Interest::READ).expect("added");
    // More than a socket's buffer has room for bytes sent one by one.
    (0..4_000).for_each(|id| fetcher.fetch(get(id, &url)));
    let mut ready = Vec::new();
    poller.wait(&mut ready, Some(Duration::from_secs(60))).expect("woken");
    let refused = std::iter::from_fn(|| fetcher.take()).filter(|(_, content)| content.is_err()).count();
    assert!((2_000..4_000).contains(&refused), "{refused}");
}
