//! The library: leases and servers for a host program.
//!
//! Leases are files, so they are opened and closed in the host's own process; a server is started by the mainstay binary.
//! Nothing here makes a thread or waits in a `Drop`.

mod server;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_core::event::Seen;
use mainstay_core::ids::LinkId;
use mainstay_core::lease::{Over, Term};

pub use server::{Server, ServerCommand};

use crate::lease::close::end;
use crate::lease::{self, Closed, Place, Wish};
use crate::paths::Paths;
use crate::report::Report;

/// How a lease is opened.
#[derive(Clone, Debug, Default)]
pub struct LeaseOptions {
    ttl: Option<Duration>,
    mainstay: Option<PathBuf>,
}

impl LeaseOptions {
    /// Bound to this process, and to nothing else.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bound to a time, too: it is over if it is not renewed for this long. Time that the machine sleeps does not count.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Where the mainstay binary is; else `MAINSTAY_BIN` or `PATH` says so.
    #[must_use]
    pub fn mainstay(mut self, path: impl Into<PathBuf>) -> Self {
        self.mainstay = Some(path.into());
        self
    }
}

/// A named scope that owns servers. It belongs to this process: if the process ends, however it ends, the lease is over, and
/// its servers are ended without anybody's help.
///
/// Dropping a lease marks it as over and waits for nothing: its servers are ended behind your back, in their own time. To know
/// that nothing is left, use [`Lease::close`].
#[derive(Debug)]
pub struct Lease {
    name: String,
    /// A later lease of the same name is another one.
    id: LinkId,
    paths: Paths,
    mainstay: Option<PathBuf>,
    /// Nothing is left to do at the drop.
    closed: bool,
}

impl Lease {
    /// Opens a lease. One that this process has open under the same name is renewed, and both values mean the same lease; one
    /// of another owner is an error.
    ///
    /// A name has letters, digits, `.`, `_` and `-`, 64 of them at most.
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

    /// Its name: for `mainstay run --lease NAME`, or `MAINSTAY_LEASE` in the environment of whoever starts servers for you.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives it its time again, or another one. Fails if it is over.
    pub fn renew(&self, ttl: Option<Duration>) -> Result<(), HostError> {
        lease::renew(&self.paths, &self.name, ttl.map(milliseconds))?;
        Ok(())
    }

    /// Starts a server in it. It returns as soon as the mainstay binary runs: whether the server itself can be started is told
    /// on its stdout, as a JSON-RPC error to the first request, and by the exit code.
    pub fn start(&self, command: &ServerCommand) -> Result<Server, HostError> {
        server::start(&self.paths, &self.name, self.mainstay.as_ref(), command)
    }

    /// Ends every server of the lease with everything that it started, waits until nothing is left, and says what was ended.
    /// It is no error if the lease is over already.
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
    fn place(&self) -> Option<(Place, Option<Term>)> {
        let place = Place::find(&self.paths, &self.name).ok().flatten()?;
        let term = place.term();
        // One that is damaged is closed by its name.
        let ours = term.as_ref().is_none_or(|term| term.id == self.id);
        ours.then_some((place, term))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        // Marking is one small file; whatever fails here is made good by the end of this process.
        if let Some((place, term)) = self.place() {
            let by = me().ok();
            if end(&self.paths, &place, term.as_ref(), &Over::Closed { by }).is_ok() {
                place.remove_if_empty();
            }
        }
        server::reap();
    }
}

/// Why something of this library failed: what was wrong, and what to do.
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

    /// What to do about it, if that is known.
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
