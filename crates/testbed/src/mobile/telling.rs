//! What a foreign agent tells the daemon of the access router beside it: which devices have come, where from, and which have gone. Owns the words and the
//! thread that says them; must never keep the agent waiting.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Result, bail};
use dormouse_control::{MAX_LINE, Request, Response, Verb, line};
use dormouse_mobileip::{ForeignEvent, RouterNews};
use serde::{Deserialize, Serialize};

use super::driver::say;

/// What waits to be told; more is not told, and said in the log.
const WAITING: usize = 64;
/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The access router beside a foreign agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessRouter {
    /// The control socket of its daemon, which the agent's user may use (`daemon.group`).
    pub socket: PathBuf,
    /// The routers beside other foreign agents: their identities, by the agent's address.
    pub others: BTreeMap<Ipv4Addr, String>,
}

/// See the module.
pub(super) struct Telling {
    others: BTreeMap<Ipv4Addr, String>,
    to: SyncSender<Verb>,
}

impl Telling {
    /// Its thread ends with it.
    pub(super) fn start(router: AccessRouter) -> Result<Self> {
        let (to, what) = sync_channel::<Verb>(WAITING);
        let AccessRouter { socket, others } = router;
        let talk = move || {
            for verb in what {
                let words = format!("{verb:?}");
                match tell(&socket, verb) {
                    Ok(()) => say(&format!("router told: {words}")),
                    Err(error) => say(&format!("router not told: {words}: {error:#}")),
                }
            }
        };
        std::thread::Builder::new().name("router".into()).spawn(talk)?;
        Ok(Self { others, to })
    }

    /// Tells what follows for keys from what has happened.
    pub(super) fn note(&self, event: &ForeignEvent) {
        let verb = match event.for_router() {
            Some(RouterNews::Here { home, previous: Some(agent) }) => {
                let Some(previous) = self.others.get(&agent).cloned() else { return };
                Verb::KeysHere { device: home.into(), previous: Some(previous) }
            }
            Some(RouterNews::Here { home, previous: None }) => {
                Verb::KeysHere { device: home.into(), previous: None }
            }
            Some(RouterNews::Gone { home }) => Verb::KeysGone { device: home.into() },
            None => return,
        };
        if self.to.try_send(verb).is_err() {
            say("router not told: too much waits");
        }
    }
}

fn tell(socket: &Path, verb: Verb) -> Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(line(&Request::new(verb))?.as_bytes())?;
    let (mut text, most) = (String::new(), u64::try_from(MAX_LINE)?);
    BufReader::new(stream).take(most).read_line(&mut text)?;
    if text.is_empty() {
        bail!("no answer");
    }
    Response::parse(text.as_bytes())?;
    Ok(())
}
