//! `mainstay serve`: HTTP clients in front, servers behind, sessions that always end.
//!
//! One thread. For each session of the legacy era (or once for all, if the user says so), and once for all clients of the
//! modern era, it starts `mainstay run` and is that link's client: containment, respawn, replay, settlement, health and events are the keeper's and are not
//! done twice. If this process is killed, every keeper sees its client go, and no server stays.
//!
//! `http` takes requests, `exchange` waits for their answers, `link` is the way to a server, `upstream` the way to a server
//! of others, and `front` performs what `mainstay_http_core::serve::front` decides.

mod bell;
mod connections;
mod endpoint;
mod exchange;
mod front;
mod http;
mod journal;
mod link;
mod listen;
mod metrics;
mod page;
mod reply;
mod seat;
mod stop;
mod tasks;
mod upstream;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use mainstay_http_core::serve::access::AccessRules;
use mainstay_http_core::serve::limits::ServeLimits;
use mainstay_os::signals::Signals;
use mainstay_protocol::event::{ServeStarted, ServeStopped, What};
use mainstay_protocol::ids::LinkId;
use mainstay_report::{Exit, Report, plain, talk};
use mainstay_store::config::target::Target;
use mainstay_store::config::{Config, ServerConfig};
use mainstay_store::paths::Paths;
use serde::Serialize;
use tokio::io::Interest;
use tokio::task::LocalSet;

use crate::descriptor::registered;
use crate::unclosed::Keyring;
use crate::unclosed::close::{self, CloseMode};
use endpoint::Endpoint;
use front::Front;
use link::Spec;
use upstream::Upstream;

/// What is served, as options and config file say together.
#[derive(Debug)]
pub struct Settled {
    /// Where we listen.
    pub listen: SocketAddr,
    /// Every limit of the front.
    pub limits: ServeLimits,
    /// Which clients may connect.
    pub access: AccessRules,
    /// The servers.
    pub servers: Vec<Served>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// `/mcp`, or `/NAME/mcp`.
    pub path: String,
    /// Its name.
    pub name: String,
    /// Everything behind `mainstay run`.
    pub words: Vec<std::ffi::OsString>,
    /// Its text in the config file.
    pub config: ServerConfig,
    /// True if its sessions of the legacy era share one server.
    pub share: bool,
    /// The HTTP server that is passed on to, instead of one that is started.
    pub upstream: Option<Target>,
}

/// Where we listen, as scripts read it.
#[derive(Debug, Serialize)]
pub struct Listening {
    /// Address and port.
    pub listen: SocketAddr,
    /// One for each server.
    pub endpoints: Vec<Where>,
}

/// Where one server is.
#[derive(Debug, Serialize)]
pub struct Where {
    /// Its name.
    pub server: String,
    /// Its address.
    pub url: String,
}

/// Serves until it must stop, on the passed socket if there is one. `settle` is called again when the config file must be read
/// again.
pub fn serve(
    paths: Paths,
    id: LinkId,
    passed: Option<TcpListener>,
    settle: &dyn Fn() -> Result<Settled, Report>,
    tell: &mut dyn FnMut(&Listening) -> Result<(), Report>,
) -> Result<Exit, Report> {
    let settled = settle()?;
    let failed =
        |error: &io::Error| Report::new(Exit::Failed, "cannot serve").because(plain(error));
    let signals = Signals::open(&[libc::SIGHUP, libc::SIGINT, libc::SIGTERM])
        .map_err(|error| failed(&error))?;
    mainstay_os::signals::ignore_pipe();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| failed(&error))?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let listener = match passed {
            Some(socket) => listen::passed(socket).map_err(|error| failed(&error))?,
            None => listen::listener(settled.listen)?,
        };
        let bound = listener.local_addr().map_err(|error| failed(&error))?;
        let front = Front::new(paths, id, settled.limits.clone(), settled.access.clone());
        let endpoints = arrange(&front, &settled.servers);
        front.settle(settled.limits, settled.access, endpoints);
        let listening = listening(bound, &settled.servers);
        let servers = settled.servers.iter().map(|one| one.name.clone()).collect();
        front.record(
            NAME,
            What::ServeStarted(ServeStarted {
                listen: bound.to_string(),
                servers,
            }),
        );
        tell(&listening)?;
        front
            .tasks
            .start(listen::accept(Rc::clone(&front), listener));
        front.tasks.start(janitor(Rc::clone(&front)));
        front.tasks.start(pay_old_debts(Rc::clone(&front)));
        let signals = registered(signals, Interest::READABLE).map_err(|error| failed(&error))?;
        let number = obey(&front, &signals, settle, bound).await;
        let sessions = front.metrics.opened.get();
        let left = stop::stop(&front, &signals, number).await;
        front.record(
            NAME,
            What::ServeStopped(ServeStopped {
                number,
                sessions,
                left,
            }),
        );
        front.tasks.end();
        Ok(if left == 0 { Exit::Ok } else { Exit::Unhealthy })
    })
}

/// The server name in events of the front itself.
const NAME: &str = "serve";

fn listening(bound: SocketAddr, servers: &[Served]) -> Listening {
    let each = servers.iter().map(|one| Where {
        server: one.name.clone(),
        url: format!("http://{bound}{}", one.path),
    });
    Listening {
        listen: bound,
        endpoints: each.collect(),
    }
}

/// Paths as they are to be from now on. What has not changed stays what it is; what is gone takes nothing new.
fn arrange(front: &Rc<Front>, servers: &[Served]) -> BTreeMap<String, Rc<Endpoint>> {
    let mut old = front.endpoints();
    let mut new = BTreeMap::new();
    for one in servers {
        let spec = Spec {
            name: one.name.clone(),
            words: one.words.clone(),
        };
        let same = |held: &Rc<Endpoint>| {
            held.spec == spec && held.config == one.config && !held.retired.get()
        };
        let kept = match old.remove(&one.path) {
            Some(held) if same(&held) => held,
            changed => {
                if let Some(changed) = changed {
                    changed.retire(front);
                }
                let upstream = one
                    .upstream
                    .clone()
                    .map(|target| Upstream::new(target, front.id()));
                let path = one.path.clone();
                Rc::new(Endpoint {
                    number: front.with(|core, _| core.add_path(path, one.share)),
                    spec,
                    upstream,
                    config: one.config.clone(),
                    retired: Cell::new(false),
                })
            }
        };
        new.insert(one.path.clone(), kept);
    }
    for (path, gone) in old {
        gone.retire(front);
        new.insert(path, gone);
    }
    new
}

/// Ends the sessions upstream that an earlier process of ours was killed over.
async fn pay_old_debts(front: Rc<Front>) {
    let keyring = Keyring {
        config: Config::load(&front.paths).unwrap_or_default(),
        ..Keyring::default()
    };
    close::close_all(&front.paths, &keyring, CloseMode::Due).await;
}

/// Tells the machine the time when it is due, and gives memory back.
async fn janitor(front: Rc<Front>) {
    loop {
        let wait = front.tick();
        front.give_back();
        let rung = Cell::new(false);
        let changed = front.bell.until(|| rung.replace(true).then_some(()));
        match wait {
            Some(wait) => {
                // Whichever comes first: the time is up, or something has changed.
                drop(tokio::time::timeout(wait.max(Duration::from_millis(1)), changed).await);
            }
            None => changed.await,
        }
    }
}

/// Does what signals ask for until one ends us; which.
async fn obey(
    front: &Rc<Front>,
    signals: &tokio::io::unix::AsyncFd<Signals>,
    settle: &dyn Fn() -> Result<Settled, Report>,
    bound: SocketAddr,
) -> i32 {
    loop {
        let number = next_signal(signals).await;
        if number != libc::SIGHUP {
            return number;
        }
        match settle().and_then(|settled| still_safe(bound, settled)) {
            Ok(settled) => {
                let endpoints = arrange(front, &settled.servers);
                let moved = settled.listen != bound
                    && !(settled.listen.port() == 0 && settled.listen.ip() == bound.ip());
                front.settle(settled.limits, settled.access, endpoints);
                if moved {
                    talk("warning: the address cannot change while serve runs: start it anew\n");
                }
                talk("the config file was read: new sessions get what it says\n");
            }
            Err(report) => {
                report.tell();
                talk("everything stays as it is\n");
            }
        }
    }
}

/// Refuses a config file that was read again and drops the token of an address that other machines reach. The address of the
/// listening socket counts, because it cannot change while serve runs.
fn still_safe(bound: SocketAddr, settled: Settled) -> Result<Settled, Report> {
    if bound.ip().is_loopback() || settled.access.token.is_some() {
        return Ok(settled);
    }
    Err(Report::new(
        Exit::Usage,
        format!("{bound} can be reached from other machines, and no token would be asked for"),
    )
    .hint("the address cannot change while serve runs: start it anew, or keep the token file"))
}

/// The next signal.
async fn next_signal(signals: &tokio::io::unix::AsyncFd<Signals>) -> i32 {
    loop {
        if let Ok(Some(received)) = signals.get_ref().read() {
            return received.number;
        }
        match signals.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => return libc::SIGTERM,
        }
    }
}

/// Which of two came first.
enum Either<A, B> {
    /// The one.
    One(A),
    /// The other.
    Other(B),
}

async fn race<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> Either<A, B> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        if let Poll::Ready(done) = one.as_mut().poll(cx) {
            return Poll::Ready(Either::One(done));
        }
        other.as_mut().poll(cx).map(Either::Other)
    })
    .await
}

/// Random bits for an id that no client can guess.
fn draw() -> u128 {
    let mut bytes = [0u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .expect("the kernel has random bytes once it is up");
    u128::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_read_again_does_not_drop_the_token() {
        let settled = |token: Option<&[u8]>| Settled {
            // The address in the file has changed, but the socket stays where it is.
            listen: "127.0.0.1:1".parse().unwrap(),
            limits: ServeLimits::default(),
            access: AccessRules {
                token: token.map(<[u8]>::to_vec),
                ..AccessRules::default()
            },
            servers: Vec::new(),
        };
        let (public, local) = (
            "0.0.0.0:80".parse().unwrap(),
            "127.0.0.1:80".parse().unwrap(),
        );
        let report = still_safe(public, settled(None)).unwrap_err();
        assert_eq!(report.exit(), Exit::Usage);
        assert!(
            report.problem().contains("no token would be asked for"),
            "{report}"
        );
        assert!(still_safe(public, settled(Some(b"0123456789abcdef"))).is_ok());
        assert!(still_safe(local, settled(None)).is_ok());
    }
}
