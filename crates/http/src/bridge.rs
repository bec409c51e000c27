//! `mainstay bridge`: the server of `run --url`, a process that speaks stdio to its keeper and HTTP to the server.
//!
//! One thread, one loop: see what is ready, tell the machine, do what it asks. What to do is decided in
//! [`mainstay_http_core::bridge`]; here is what waits. Being an ordinary member of a contained tree, it is started,
//! watched, respawned, stopped and told of as any server.
//!
//! Invariants: it opens no descriptor that its keeper knows of, starts no process, and exits with 0 once its sessions are
//! closed or the time for that is over.

mod exchange;
mod exchanges;
mod journal;
pub mod spec;
mod stdin;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::header::HeaderMap;
use mainstay_http_core::bridge::{About, Bridge, ExchangeId, Input, Noted, Output, Sending, Verb};
use mainstay_os::clock;
use mainstay_os::role;
use mainstay_os::signals::{ENDING, Signals};
use mainstay_protocol::ids::{LinkId, TAG_VARIABLE, Tag};
use mainstay_protocol::limits;
use mainstay_protocol::policy::Retry;
use mainstay_report::{Exit, Report, plain, talk};
use mainstay_store::config::target::{Target, UrlError};
use mainstay_store::paths::Paths;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::time::Sleep;

use crate::client::{Client, Outgoing};
use crate::descriptor::registered;
use crate::unclosed::Keyring;
use crate::unclosed::close::{self, CloseMode};
use crate::unclosed::credentials::{HeaderError, OwnConfiguration};
use crate::unclosed::fingerprint::Fingerprint;
use exchanges::Exchanges;
use journal::Journal;
use spec::Spec;
use stdin::Stdin;

/// Bytes that may wait for the client. Above that, nothing is read from client or server.
const OUT_BYTES: usize = 1024 * 1024;
/// Things that may have come and are not looked at yet.
const INBOX: usize = 64;
/// Their bytes, beyond which nothing more is read of any answer. The last of them may be as long as a message can be.
const INBOX_BYTES: usize = 1024 * 1024;
/// The number of the task that closes sessions of dead bridges. The machine numbers its exchanges from 1.
const PAYING: ExchangeId = 0;
/// How long the last lines may take to leave.
const FLUSH_MS: u64 = 200;

/// Runs the bridge that the environment describes.
pub fn bridge() -> Result<Exit, Report> {
    let Some(spec) = Spec::from_env() else {
        return Err(Report::new(
            Exit::Usage,
            "`mainstay bridge` is a part of `mainstay run --url`",
        )
        .hint("write `mainstay run --url URL`"));
    };
    // It is started by way of `/proc/self/exe`, after which the kernel would call it `exe`.
    rustix::thread::set_name(c"mainstay").ok();
    mainstay_os::signals::ignore_pipe();
    let failed = |error: io::Error| {
        Report::new(Exit::Failed, "the bridge cannot be set up").because(plain(&error))
    };
    let signals = Signals::open(&ENDING).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(failed)?;
    runtime.block_on(async {
        let mut shell = Shell::new(&spec, signals)
            .map_err(|why| Report::new(Exit::Usage, "the bridge cannot be set up").because(why))?;
        shell.pay_own();
        poll_fn(|cx| shell.poll(cx)).await;
        shell.flush().await;
        Ok(Exit::Ok)
    })
}

/// Why the bridge cannot begin.
#[derive(Debug)]
enum SetupError {
    /// The URL that it was given is not valid.
    Url(UrlError),
    /// A header that it was given cannot be sent.
    Header(HeaderError),
    /// A descriptor cannot be used.
    Descriptor(io::Error),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::Header(error) => error.fmt(f),
            Self::Descriptor(error) => f.write_str(&plain(error)),
        }
    }
}

impl Error for SetupError {}

impl From<io::Error> for SetupError {
    fn from(error: io::Error) -> Self {
        Self::Descriptor(error)
    }
}

/// Why a request cannot be sent at all.
#[derive(Debug)]
enum Unsendable {
    /// The endpoint that the server names is no URL.
    Endpoint(UrlError),
    /// It is on another host.
    OtherHost,
    /// A header cannot be sent.
    Header(HeaderError),
}

impl fmt::Display for Unsendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(error) => error.fmt(f),
            Self::OtherHost => f.write_str(
                "the server names an endpoint on another host, where our headers must not go",
            ),
            Self::Header(error) => error.fmt(f),
        }
    }
}

impl Error for Unsendable {}

type Inbox = Rc<RefCell<exchange::Box>>;

struct Shell {
    machine: Bridge,
    target: Target,
    headers: HeaderMap,
    client: Rc<Client>,
    stdin: Option<Stdin>,
    stdout: Option<pipe::Sender>,
    out: VecDeque<u8>,
    signals: AsyncFd<Signals>,
    inbox: Inbox,
    exchanges: Exchanges,
    journal: Journal,
    keyring: Option<Keyring>,
    timer: Pin<Box<Sleep>>,
    /// The bridge must end: lines that it has not read yet are left for its successor.
    ending: bool,
    done: bool,
}

impl Shell {
    fn new(spec: &Spec, signals: Signals) -> Result<Self, SetupError> {
        let target = Target::parse(&spec.url).map_err(SetupError::Url)?;
        let headers = spec.headers().map_err(SetupError::Header)?;
        let link = std::env::var(TAG_VARIABLE)
            .ok()
            .and_then(|text| text.parse::<Tag>().ok())
            .map_or(LinkId(0), |tag| tag.link);
        let secret = target.has_secret().then(|| spec.from.clone());
        let (paths, _) = Paths::find_or_nowhere();
        let fingerprint = Fingerprint::of(&target, &headers);
        let journal = Journal::new(paths, link, spec, &target, secret, fingerprint);
        let keyring = Keyring {
            given: spec.values(),
            url: Some(target.clone()),
            of: Some(OwnConfiguration {
                url: spec.from.clone(),
                headers: spec.named(),
            }),
            ..Keyring::default()
        };
        Ok(Self {
            machine: Bridge::new(About {
                name: spec.name.clone(),
                place: target.to_string(),
                retry: spec.retry.parse().unwrap_or(Retry::Safe),
                drain_ms: spec.drain_ms,
            }),
            target,
            headers,
            client: Rc::new(Client::new()),
            stdin: Some(Stdin::new(own(0)?)?),
            stdout: Some(pipe::Sender::from_owned_fd(own(1)?)?),
            out: VecDeque::new(),
            signals: registered(signals, Interest::READABLE)?,
            inbox: Rc::default(),
            exchanges: Exchanges::default(),
            journal,
            keyring: Some(keyring),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            ending: false,
            done: false,
        })
    }

    /// Pays what an earlier bridge to this URL owes: here are the secrets for it.
    fn pay_own(&mut self) {
        let Some(keyring) = self.keyring.take() else {
            return;
        };
        let paths = self.journal.paths().clone();
        self.exchanges.begin(PAYING, async move {
            let mut rest = Duration::from_millis(limits::CLOSE_RETRY_MS);
            for turn in 0.. {
                let done = close::close_all(&paths, &keyring, CloseMode::Due).await;
                // Another process may have locked a note for a moment, without the secret that is known here.
                if done.left == 0 && (done.locked == 0 || turn > 0) {
                    break;
                }
                tokio::time::sleep(rest).await;
                rest = (rest * 2).min(Duration::from_millis(limits::CLOSE_RETRY_MOST_MS));
            }
        });
    }

    /// One turn: everything that is ready is handled, then all wakers are set.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut again = self.poll_signals(cx);
            again |= self.poll_stdin(cx);
            again |= self.poll_inbox(cx);
            again |= self.exchanges.poll(cx);
            again |= self.poll_timer(cx);
            again |= self.poll_stdout(cx);
            if self.done {
                return Poll::Ready(());
            }
            if !again {
                return Poll::Pending;
            }
        }
    }

    fn give(&mut self, input: Input) {
        self.machine.handle(clock::now(), input);
        while let Some(output) = self.machine.output() {
            self.perform(output);
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send(sending) => self.send(sending),
            Output::Close(exchange) => {
                self.exchanges.break_off(exchange);
                self.inbox.borrow_mut().forget(exchange);
            }
            Output::Note { session, version } => {
                let noted = match self.journal.note(&session, version) {
                    Ok(()) => Noted::Written,
                    Err(error) => Noted::Failed { why: plain(&error) },
                };
                self.machine
                    .handle(clock::now(), Input::Noted(session, noted));
            }
            Output::Opening(exchange) => self.journal.opening(exchange),
            Output::Opened { exchange, known } => self.journal.opened(exchange, known),
            Output::SessionClosed { session, by } => self.journal.closed(&session, by),
            Output::SessionUnclosed { session, why } => {
                tell(&format!(
                    "the session could not be closed now ({why}); its note stays, and the next start closes it: mainstay sessions"
                ));
                self.journal.unclosed(&session, why);
            }
            Output::Say(line) => {
                if self.stdout.is_some() {
                    self.out.extend(line);
                }
            }
            Output::Tell(text) => tell(&text),
            Output::Done => self.done = true,
        }
    }

    fn send(&mut self, sending: Sending) {
        let exchange = sending.exchange;
        match self.outgoing(sending) {
            Ok(outgoing) => {
                let task = exchange::run(
                    Rc::clone(&self.client),
                    outgoing,
                    exchange,
                    Rc::clone(&self.inbox),
                );
                self.exchanges.begin(exchange, task);
            }
            Err(error) => {
                let why = error.to_string();
                self.inbox.borrow_mut().refuse(exchange, why);
            }
        }
    }

    fn outgoing(&self, sending: Sending) -> Result<Outgoing, Unsendable> {
        let target = match &sending.to {
            None => self.target.clone(),
            Some(to) => {
                let target = self.target.join(to).map_err(Unsendable::Endpoint)?;
                if !target.same_origin(&self.target) {
                    return Err(Unsendable::OtherHost);
                }
                target
            }
        };
        let mut headers = self.headers.clone();
        for (name, value) in &sending.headers {
            crate::unclosed::credentials::insert(&mut headers, name, value)
                .map_err(Unsendable::Header)?;
        }
        Ok(Outgoing {
            method: match sending.verb {
                Verb::Post => hyper::Method::POST,
                Verb::Get => hyper::Method::GET,
                Verb::Delete => hyper::Method::DELETE,
            },
            target,
            headers,
            body: sending.body.into(),
        })
    }

    fn poll_signals(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Poll::Ready(Ok(mut ready)) = self.signals.poll_read_ready(cx) {
            match ready.get_inner().read() {
                Ok(Some(_)) => any = true,
                Ok(None) | Err(_) => ready.clear_ready(),
            }
        }
        if any {
            self.ending = true;
            self.give(Input::Term);
        }
        any
    }

    fn full(&self) -> bool {
        self.out.len() > OUT_BYTES
    }

    fn poll_stdin(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while !self.ending && !self.full() && !self.machine.is_full() {
            let Some(stdin) = &mut self.stdin else {
                break;
            };
            match stdin.poll_next(cx) {
                Poll::Ready(Some(input)) => self.give(input),
                Poll::Ready(None) => {
                    self.stdin = None;
                    self.give(Input::Eof);
                }
                Poll::Pending => break,
            }
            any = true;
        }
        any
    }

    fn poll_inbox(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while !self.full() {
            let Some(input) = self.inbox.borrow_mut().take(cx) else {
                break;
            };
            self.give(input);
            any = true;
        }
        any
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.machine.wake_at() else {
            return false;
        };
        let now = clock::now();
        if now >= at {
            self.give(Input::Tick);
            return true;
        }
        let wait = Duration::from_nanos(at - now);
        self.timer
            .as_mut()
            .reset(tokio::time::Instant::now() + wait);
        self.timer.as_mut().poll(cx).is_ready()
    }

    fn poll_stdout(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while !self.out.is_empty() {
            let Some(stdout) = &mut self.stdout else {
                self.out.clear();
                break;
            };
            let (first, _) = self.out.as_slices();
            match tokio::io::AsyncWrite::poll_write(Pin::new(stdout), cx, first) {
                Poll::Ready(Ok(written)) => {
                    self.out.drain(..written);
                    any = true;
                }
                Poll::Ready(Err(_)) => {
                    // The client has closed its end.
                    self.stdout = None;
                    self.give(Input::Term);
                    any = true;
                }
                Poll::Pending => break,
            }
        }
        any
    }

    /// The last lines.
    async fn flush(&mut self) {
        let within = Duration::from_millis(FLUSH_MS);
        let flushed = poll_fn(|cx| {
            self.poll_stdout(cx);
            if self.out.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        // A client that does not read them has gone.
        tokio::time::timeout(within, flushed).await.ok();
    }
}

/// Says something where people look: on the stderr of the server that we stand for.
fn tell(text: &str) {
    talk(&format!("mainstay: {text}\n"));
}

fn own(fd: i32) -> io::Result<std::os::fd::OwnedFd> {
    role::standard(fd).try_clone_to_owned()
}
