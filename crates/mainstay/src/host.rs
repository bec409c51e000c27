//! The library for host programs: leases, and servers in them.
//!
//! Leases are files, so they are opened and closed in the host's own process. Servers are started by the mainstay binary.
//! This module starts no thread, and no `Drop` waits.

mod server;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_keeper::lease::close::end;
use mainstay_keeper::lease::{self, Closed, LeaseDirectory, Wish};
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::lease::{Over, Term};
use mainstay_report::Report;
use mainstay_store::paths::Paths;

pub use server::{Server, ServerCommand};

/// The options of a lease.
#[derive(Clone, Debug, Default)]
pub struct LeaseOptions {
    ttl: Option<Duration>,
    mainstay: Option<PathBuf>,
}

impl LeaseOptions {
    /// A lease that ends with this process.
    pub fn new() -> Self {
        Self::default()
    }

    /// The lease also ends if it is not renewed for this long. Time in which the machine sleeps does not count.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The path of the mainstay binary. Without it, `MAINSTAY_BIN` and then `PATH` are used.
    #[must_use]
    pub fn mainstay(mut self, path: impl Into<PathBuf>) -> Self {
        self.mainstay = Some(path.into());
        self
    }
}

/// A named scope that owns servers. It belongs to this process: when the process ends, for whatever reason, the lease ends, and
/// mainstay ends its servers.
///
/// Dropping a lease marks it as over and does not wait: its servers end in the background. To be sure that no process is left,
/// use [`Lease::close`].
#[derive(Debug)]
pub struct Lease {
    name: String,
    /// Distinguishes this lease from a later one with the same name.
    id: LinkId,
    paths: Paths,
    mainstay: Option<PathBuf>,
    /// `close` was called, so `drop` has nothing to do.
    closed: bool,
}

impl Lease {
    /// Opens a lease. If this process already has a lease with this name, that lease is renewed, and both values mean the same
    /// lease. If another owner has one, that is an error.
    ///
    /// A name has at most 64 characters: letters, digits, `.`, `_` and `-`.
    pub fn open(name: impl Into<String>, options: &LeaseOptions) -> Result<Self, HostError> {
        server::reap();
        let (name, paths) = (name.into(), Paths::find()?);
        let wish = Wish {
            ttl_ms: options.ttl.map(milliseconds),
            owner: Some(me()?),
            by: Some(me()?),
        };
        let opened = lease::open(&paths, &name, &wish)?;
        Ok(Self {
            name,
            id: opened.term().id,
            paths,
            mainstay: options.mainstay.clone(),
            closed: false,
        })
    }

    /// The name, for `mainstay run --lease NAME` or for the variable `MAINSTAY_LEASE` of a program that starts servers for you.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts the time of the lease again, with a new duration if one is given. Fails if the lease is over.
    pub fn renew(&self, ttl: Option<Duration>) -> Result<(), HostError> {
        lease::renew(&self.paths, &self.name, ttl.map(milliseconds))?;
        Ok(())
    }

    /// Starts a server in the lease. Returns as soon as the mainstay binary runs. If the server itself cannot be started, the
    /// first request gets a JSON-RPC error, and the exit code says so.
    pub fn start(&self, command: &ServerCommand) -> Result<Server, HostError> {
        server::start(&self.paths, &self.name, self.mainstay.as_ref(), command)
    }

    /// Ends all servers of the lease with everything that they started, waits until no process is left, and returns what was
    /// ended. It is not an error if the lease is over already.
    pub fn close(mut self) -> Result<Closed, HostError> {
        self.closed = true;
        if self.place().is_none() {
            server::reap();
            return Ok(Closed::unknown(&self.name));
        }
        let closed = lease::close(&self.paths, &self.name, me().ok(), None);
        server::reap();
        Ok(closed?)
    }

    /// Its directory, unless it is gone or another lease has its name by now.
    fn place(&self) -> Option<(LeaseDirectory, Option<Term>)> {
        let place = LeaseDirectory::find(&self.paths, &self.name)
            .ok()
            .flatten()?;
        let term = place.term();
        // A damaged lease has no readable id, so its name decides.
        let ours = term.as_ref().is_none_or(|term| term.id == self.id);
        ours.then_some((place, term))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        // This only writes one small file. If it fails, the lease ends with this process.
        if let Some((place, term)) = self.place() {
            let by = me().ok();
            if end(&self.paths, &place, term.as_ref(), &Over::Closed { by }).is_ok() {
                place.remove_if_empty();
            }
        }
        server::reap();
    }
}

/// An error of this library, with a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostError {
    problem: String,
    hint: Option<String>,
}

impl HostError {
    fn new(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            hint: Some(hint.into()),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for HostError {}

impl From<Report> for HostError {
    fn from(report: Report) -> Self {
        Self {
            problem: report.problem(),
            hint: report.advice().map(Into::into),
        }
    }
}

fn me() -> Result<Seen, HostError> {
    lease::process(std::process::id() as i32).ok_or_else(|| {
        HostError::new(
            "this process cannot be found in /proc",
            "is /proc mounted, and visible to this process?",
        )
    })
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
