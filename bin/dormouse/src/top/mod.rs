//! `dormouse top`: what the daemon is doing, as it goes on. Owns the terminal while it runs, which it leaves as it was however it ends; a thread of its own asks the
//! daemon, so that a key is answered at once.
//!
//! A gateway's sessions are asked for a thousand at a time, with pauses of nine times as long as each answer took: watching costs the daemon a tenth of
//! its time at most, and a round through a hundred thousand sessions takes some tens of seconds.

pub(crate) mod draw;
pub(crate) mod model;
pub(crate) mod rows;
#[cfg(test)]
mod tests;

use crate::client::Client;
use clap::Args;
use dormouse_control::{Error, ErrorKind, ExitCode, Reply, Sessions, Status, Verb};
use dormouse_io::clock::BootClock;
use draw::Foot;
use model::Model;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{IsTerminal, Stdout, stdout};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// Signals and what has come are looked for so often.
const LOOK: Duration = Duration::from_millis(100);
/// Between two pages at least, and before a daemon that is gone is looked for again.
const PAUSE: Duration = Duration::from_millis(100);
const AGAIN: Duration = Duration::from_secs(1);
/// Longest filter, in characters.
const FILTER: usize = 64;

/// Watch sessions, sleepers, traffic and load as they change
///
/// Every connection, every session of a gateway and every device that sleeps is a row. Keys: q quits; / filters by any part of a name, connection, state or address; < and > choose
/// the column to sort by, r turns the order; arrows, Page Up, Page Down, Home and End move.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Look anew after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// Sort by this column: who, connection, state, address, in, out, bytes or quiet
    #[arg(long, value_name = "COLUMN", value_parser = column, default_value = "in")]
    sort: model::Column,
    /// Show only rows with this text in a name, connection, state or address
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
}

fn column(text: &str) -> Result<model::Column, String> {
    let name = |column: &model::Column| column.title().trim_end_matches("/s").to_lowercase();
    let known = || model::Column::ALL.iter().map(name).collect::<Vec<_>>().join(", ");
    model::Column::ALL.into_iter().find(|c| name(c) == text).ok_or_else(|| format!("one of {}", known()))
}

/// What came from the daemon.
pub(crate) enum News {
    Status(Box<Status>),
    Page(Sessions),
    Trouble(Error),
}

pub(crate) fn run(args: &TopArgs, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    if json {
        let error = Error::new(ErrorKind::Request, "top is for people");
        return Err(error.with_change("dormouse --json status, or dormouse --json watch"));
    }
    if !(std::io::stdin().is_terminal() && stdout().is_terminal()) {
        let error = Error::new(ErrorKind::Request, "top needs a terminal");
        return Err(error.with_change("dormouse status"));
    }
    let interval =
        Duration::try_from_secs_f64(args.interval).ok().filter(|time| *time >= PAUSE).ok_or_else(|| {
            Error::new(ErrorKind::Request, format!("--interval {} is not 0.1 or more", args.interval))
        })?;
    // What is wrong with the daemon is said in the ordinary way, before the window is taken.
    let client = Client::connect(socket)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|e| failed(&e))?;
    }
    let (sender, news) = sync_channel(1);
    let socket = socket.to_owned();
    std::thread::spawn(move || ask(Some(client), &socket, interval, &sender));
    let model = Model::new(args.sort, args.filter.chars().take(FILTER).collect());
    let mut screen = Screen::enter().map_err(|e| failed(&e))?;
    let outcome = watch(&mut screen, model, &news, &stop);
    drop(screen);
    outcome.map(|()| ExitCode::Ok).map_err(|e| failed(&e))
}

fn failed(e: &std::io::Error) -> Error {
    Error::new(ErrorKind::Other, format!("the terminal: {e}"))
}

/// Asks for ever, or until nobody listens.
pub(crate) fn ask(client: Option<Client>, socket: &Path, interval: Duration, news: &SyncSender<News>) {
    let mut connected = client;
    loop {
        let began = BootClock::now();
        let told = match &mut connected {
            Some(client) => round(client, news),
            None => match Client::connect(socket) {
                Ok(client) => {
                    connected = Some(client);
                    continue;
                }
                Err(error) => Err(Some(error)),
            },
        };
        match told {
            Ok(()) => {
                let spent = BootClock::now().saturating_since(began);
                std::thread::sleep(interval.saturating_sub(spent).max(PAUSE));
            }
            Err(None) => return,
            Err(Some(error)) => {
                connected = None;
                if news.send(News::Trouble(error)).is_err() {
                    return;
                }
                std::thread::sleep(AGAIN);
            }
        }
    }
}

/// A status and all its pages. `Err(None)`: nobody listens any more.
fn round(client: &mut Client, news: &SyncSender<News>) -> Result<(), Option<Error>> {
    let other =
        || Some(Error::new(ErrorKind::Other, "the daemon answers something else than what it was asked"));
    let began = BootClock::now();
    let Reply::Status(status) = client.ask(Verb::Status).map_err(Some)?.1 else { return Err(other()) };
    let took = BootClock::now().saturating_since(began);
    let mut more = status.gateway.as_ref().and_then(|gateway| gateway.more);
    news.send(News::Status(status)).map_err(|_| None)?;
    std::thread::sleep((took * 9).max(PAUSE));
    while let Some(after) = more {
        let began = BootClock::now();
        let Reply::Sessions(page) = client.ask(Verb::Sessions { after }).map_err(Some)?.1 else {
            return Err(other());
        };
        // The daemon's own part of it is shorter still.
        let took = BootClock::now().saturating_since(began);
        more = page.more;
        news.send(News::Page(page)).map_err(|_| None)?;
        std::thread::sleep((took * 9).max(PAUSE));
    }
    Ok(())
}

fn watch(
    screen: &mut Screen,
    mut model: Model,
    news: &Receiver<News>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let (mut foot, mut changed, mut fits) = (Foot::Keys, true, 1);
    // https://no-color.org: present and not empty.
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    while !stop.load(Ordering::Relaxed) {
        loop {
            let now = BootClock::now();
            match news.try_recv() {
                Ok(News::Status(status)) => model.status(now, *status),
                Ok(News::Page(page)) => model.page(now, &page),
                Ok(News::Trouble(error)) => model.trouble = Some(error.message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    return Err(std::io::Error::other("what asks the daemon has ended"));
                }
            }
            changed = true;
        }
        if changed {
            screen.0.draw(|frame| fits = draw::draw(frame, &model, foot, colour))?;
            changed = false;
        }
        if event::poll(LOOK)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if key.code == KeyCode::Char('l') && key.modifiers.contains(KeyModifiers::CONTROL) {
                        // Something else has written on the terminal.
                        screen.renew()?;
                    }
                    if press(&mut model, &mut foot, key, fits) {
                        return Ok(());
                    }
                    changed = true;
                }
                Event::Resize(..) => {
                    screen.renew()?;
                    changed = true;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// A key was pressed; `fits`: rows of the window. True: it is to end.
fn press(model: &mut Model, foot: &mut Foot, key: KeyEvent, fits: usize) -> bool {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(key.code, KeyCode::Char('c' | 'd'));
    }
    let page = isize::try_from(fits.max(1)).unwrap_or(isize::MAX);
    match (*foot, key.code) {
        (Foot::Filter, KeyCode::Enter) => *foot = Foot::Keys,
        (Foot::Filter, KeyCode::Esc) => {
            *foot = Foot::Keys;
            model.filter.clear();
            model.arrange();
        }
        (Foot::Filter, KeyCode::Backspace) => {
            model.filter.pop();
            model.arrange();
        }
        (Foot::Filter, KeyCode::Char(c)) if !c.is_control() && model.filter.chars().count() < FILTER => {
            model.filter.push(c);
            model.first = 0;
            model.arrange();
        }
        (Foot::Keys, KeyCode::Char('q') | KeyCode::Esc) => return true,
        (Foot::Keys, KeyCode::Char('/')) => *foot = Foot::Filter,
        (Foot::Keys, KeyCode::Char('<' | ',') | KeyCode::Left) => model.sort_by_next(false),
        (Foot::Keys, KeyCode::Char('>' | '.' | 's') | KeyCode::Right) => model.sort_by_next(true),
        (Foot::Keys, KeyCode::Char('r')) => {
            model.reversed = !model.reversed;
            model.arrange();
        }
        (_, KeyCode::Up) => model.scroll(-1),
        (_, KeyCode::Down) => model.scroll(1),
        (_, KeyCode::PageUp) => model.scroll(-page),
        (_, KeyCode::PageDown) => model.scroll(page),
        (_, KeyCode::Home) => model.scroll(isize::MIN),
        (_, KeyCode::End) => model.scroll(isize::MAX),
        _ => {}
    }
    false
}

/// The terminal, taken.
struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    fn enter() -> std::io::Result<Self> {
        let before = std::panic::take_hook();
        // What a panic says belongs on the terminal as it was.
        std::panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
        }));
        enable_raw_mode()?;
        let entered = execute!(stdout(), EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        entered.map(Self).inspect_err(|_| leave())
    }

    /// Everything is drawn anew the next time. By a new one, since the other way asks the terminal where its cursor is, and not every one answers.
    fn renew(&mut self) -> std::io::Result<()> {
        execute!(stdout(), Clear(ClearType::All))?;
        self.0 = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Leaves the terminal as it was. More often than once does no harm; one that is gone takes nothing.
fn leave() {
    let _gone = disable_raw_mode();
    let _gone = execute!(stdout(), LeaveAlternateScreen, Show);
}
