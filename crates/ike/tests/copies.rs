//! Copies of a recorded request: what they can make a gateway say.

mod common;

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::Datagram;
use common::resumed::{confirmed, resume, slept};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines that a log at level INFO has.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("one thread"))
    }
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{field}={value:?} ").expect("a string");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut Text(&mut line));
        self.0.lock().expect("one thread").push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn copies_write_no_line_and_the_owner_does() {
    let (mut pair, ticket, _) = slept(1);
    let (send, caught) = std::sync::mpsc::channel();
    pair.filter = Some(Box::new(move |d| send.send(d.clone()).is_err()));
    let owners = resume(&mut pair, &ticket);
    let request = caught.try_recv().expect("caught");
    pair.client.endpoint.forget(pair.now, owners);
    pair.filter = None;
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        for port in 1..=40 {
            let from = ([203, 0, 113, 66], port).into();
            pair.deliver(Datagram { from, ..request.clone() });
        }
        assert!(pair.gateway.established().is_some_and(|e| !e.confirmed));
        pair.run_for(Duration::from_secs(60));
        assert_eq!((pair.gateway.endpoint.half_open(), lines.take()), (0, Vec::<String>::new()));
        resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        assert!(confirmed(&mut pair).is_some());
        let said = lines.take();
        let line = said.iter().find(|line| line.contains("IKE SA established") && line.contains("path="));
        assert!(line.is_some(), "{said:?}");
    });
}
