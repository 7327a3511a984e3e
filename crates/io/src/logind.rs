//! The machine's own sleep, as systemd-logind announces it (`PrepareForSleep`): what is to be done before, and that it is over.
//!
//! A delay inhibitor gives the daemon time before the machine is suspended: as long as the [`Inhibitor`] that comes with
//! [`Event::AboutToSleep`] lives, at most `InhibitDelayMaxSec` of logind.conf (5 s unless changed). It must be short-lived:
//! a user who closed the lid waits for it. Timers need nothing from here: they count suspended time ([`crate::timer`]).
//!
//! D-Bus is spoken on a thread of its own, which sleeps until the bus has something to say; the loop sees a descriptor
//! ([`Watch`]). A machine without a bus or without logind is fine, and said once ([`Event::Unavailable`]); logind coming back is
//! noticed by the bus, the bus coming back by trying again, ever more rarely.

use crate::bell::Bell;
use crate::dbus;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;
use zbus::export::futures_core::Stream;
use zbus::message::Type;
use zbus::{Connection, MatchRule, Message, MessageStream, OwnedFd};

const NAME: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
const DBUS: &str = "org.freedesktop.DBus";

/// A bus that answers no sooner is as good as none.
const PATIENCE: Duration = Duration::from_secs(10);
/// First pause before a bus that is gone is looked for again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Keeps the machine awake a little longer; dropping it lets it sleep.
#[derive(Debug)]
pub struct Inhibitor(#[expect(dead_code, reason = "its life is what counts")] OwnedFd);

/// What happens to the machine.
#[derive(Debug)]
pub enum Event {
    /// Announcements will come from now on. Whether the sleep can be delayed, or why not (the daemon may not be allowed to).
    Watching(Result<(), String>),
    /// The machine is about to be suspended. It waits for the hold, if there is one, to be dropped.
    AboutToSleep(Option<Inhibitor>),
    /// It is awake again; or it never slept, because the suspend was cancelled.
    Resumed,
    /// No announcements come, and why. Another [`Event::Watching`] says when they do.
    Unavailable(String),
}

/// The events, as a descriptor for the [`crate::poller::Poller`]. Dropping it releases what it holds.
#[derive(Debug)]
pub struct Watch {
    events: Receiver<Event>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the two threads share.
#[derive(Debug)]
struct Shared {
    bell: Bell,
    stop: Mutex<Stop>,
}

#[derive(Debug, Default)]
struct Stop {
    stopped: bool,
    waker: Option<Waker>,
}

impl Shared {
    fn stopped(&self, context: Option<&mut Context<'_>>) -> bool {
        let mut stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = context {
            stop.waker = Some(context.waker().clone());
        }
        stop.stopped
    }
}

impl Watch {
    /// Watches the bus at `address`; `None` is the system bus. To be called after privileges are dropped: it starts a thread.
    ///
    /// # Errors
    /// The kernel's, when descriptors or threads run out.
    pub fn new(address: Option<&str>) -> io::Result<Self> {
        let shared = Arc::new(Shared { bell: Bell::new()?, stop: Mutex::default() });
        let (sender, events) = channel();
        let teller = Teller { sender, shared: Arc::clone(&shared) };
        let address = address.map(str::to_owned);
        let thread = std::thread::Builder::new()
            .name("logind".into())
            .spawn(move || watch(address.as_deref(), &teller))?;
        Ok(Self { events, shared, thread: Some(thread) })
    }

    /// The next event, if there is one. Never waits.
    #[expect(clippy::should_implement_trait, reason = "the convention of the I/O parts: `next` never blocks")]
    pub fn next(&mut self) -> Option<Event> {
        // First the bell, then the queue: an event between the two rings again.
        self.shared.bell.clear();
        self.events.try_recv().ok()
    }
}

crate::as_fd!(Watch, shared bell);

impl Drop for Watch {
    fn drop(&mut self) {
        let waker = {
            let mut stop = self.shared.stop.lock().unwrap_or_else(PoisonError::into_inner);
            stop.stopped = true;
            stop.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The thread's end.
struct Teller {
    sender: Sender<Event>,
    shared: Arc<Shared>,
}

impl Teller {
    fn tell(&self, event: Event) {
        // The loop may be gone; then the next look at `stopped` ends this thread.
        if self.sender.send(event).is_ok() {
            self.shared.bell.ring();
        }
    }

    /// Waits, but not when it is to stop.
    fn pause(&self, time: Duration) {
        if !self.shared.stopped(None) {
            // A wake-up that comes early only tries the bus early.
            std::thread::park_timeout(time);
        }
    }
}

fn watch(address: Option<&str>, teller: &Teller) {
    let mut pause = FIRST_PAUSE;
    let mut known = false;
    while !teller.shared.stopped(None) {
        match dbus::connect(address, PATIENCE) {
            Ok(bus) => {
                (known, pause) = (true, FIRST_PAUSE);
                match zbus::block_on(follow(&bus, teller)) {
                    Ok(()) => return,
                    Err(e) => teller.tell(Event::Unavailable(format!("the bus is lost: {e}"))),
                }
            }
            // A machine without a bus does not get one later: nothing is to wake up for that.
            Err(e) if !known => return teller.tell(Event::Unavailable(format!("there is no D-Bus: {e}"))),
            Err(error) => tracing::debug!(%error, "the bus is not back yet"),
        }
        teller.pause(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Follows logind until it is to stop, or the bus is lost (an error).
async fn follow(bus: &Connection, teller: &Teller) -> zbus::Result<()> {
    let sleep = MatchRule::builder()
        .msg_type(Type::Signal)
        .sender(NAME)
        .path(PATH)
        .interface(MANAGER)
        .member("PrepareForSleep")
        .build()?;
    let owner = MatchRule::builder()
        .msg_type(Type::Signal)
        .sender(DBUS)
        .interface(DBUS)
        .member("NameOwnerChanged")
        .arg(0, NAME)
        .build()?;
    let mut sleep = MessageStream::for_match_rule(sleep, bus, None).await?;
    let mut owner = MessageStream::for_match_rule(owner, bus, None).await?;
    let mut hold = begin(bus, teller).await;
    while let Some(signal) = next(&mut sleep, &mut owner, teller).await {
        match signal? {
            Signal::Sleep(true) => teller.tell(Event::AboutToSleep(hold.take())),
            Signal::Sleep(false) => {
                teller.tell(Event::Resumed);
                // Quietly: if it was allowed before it will be again.
                hold = inhibit(bus).await.ok();
            }
            Signal::Owner(true) => hold = begin(bus, teller).await,
            Signal::Owner(false) => {
                hold = None;
                teller.tell(Event::Unavailable("systemd-logind has ended".into()));
            }
        }
    }
    drop(hold);
    bus.clone().close().await
}

/// Takes the first inhibitor of a logind, which also starts it where the bus can, and tells how that went.
async fn begin(bus: &Connection, teller: &Teller) -> Option<Inhibitor> {
    match inhibit(bus).await {
        Ok(hold) => {
            teller.tell(Event::Watching(Ok(())));
            Some(hold)
        }
        Err(zbus::Error::FDO(e)) if matches!(*e, zbus::fdo::Error::ServiceUnknown(_)) => {
            teller.tell(Event::Unavailable("systemd-logind does not run".into()));
            None
        }
        Err(e) => {
            teller.tell(Event::Watching(Err(e.to_string())));
            None
        }
    }
}

async fn inhibit(bus: &Connection) -> zbus::Result<Inhibitor> {
    let body = ("sleep", "Dormouse", "tells the gateway that this device sleeps", "delay");
    let answer = bus.call_method(Some(NAME), PATH, Some(MANAGER), "Inhibit", &body).await?;
    Ok(Inhibitor(answer.body().deserialize()?))
}

enum Signal {
    /// `PrepareForSleep`: before (true), or after.
    Sleep(bool),
    /// logind is there, or gone.
    Owner(bool),
}

/// The next signal; `None` when it is to stop.
async fn next(
    sleep: &mut MessageStream,
    owner: &mut MessageStream,
    teller: &Teller,
) -> Option<zbus::Result<Signal>> {
    poll_fn(|context| {
        if teller.shared.stopped(Some(context)) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(message) = Pin::new(&mut *sleep).poll_next(context) {
            return Poll::Ready(Some(read(message, |m| Ok(Signal::Sleep(m.body().deserialize()?)))));
        }
        if let Poll::Ready(message) = Pin::new(&mut *owner).poll_next(context) {
            return Poll::Ready(Some(read(message, |m| {
                let body = m.body();
                let (_, _, new): (&str, &str, &str) = body.deserialize()?;
                Ok(Signal::Owner(!new.is_empty()))
            })));
        }
        Poll::Pending
    })
    .await
}

fn read(
    message: Option<zbus::Result<Message>>,
    parse: impl Fn(&Message) -> zbus::Result<Signal>,
) -> zbus::Result<Signal> {
    // The end of a stream is the end of the connection.
    let message =
        message.ok_or_else(|| zbus::Error::from(io::Error::from(io::ErrorKind::UnexpectedEof)))??;
    parse(&message)
}
