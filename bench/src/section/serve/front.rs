//! A running `mainstay serve`, and its metrics.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::Duration;

use mainstay_testkit::wait::idle;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::http::{Connection, Endpoint};
use crate::place::Place;
use crate::role;

/// How often the metrics are read while waiting.
const LOOK: Duration = Duration::from_millis(20);

/// The front with the tiny server behind it.
pub struct Front {
    child: Child,
    address: SocketAddr,
}

/// The metrics that are read.
pub struct State {
    /// Sessions that are open.
    pub sessions: u64,
    /// Links that have not ended.
    pub links: u64,
    /// Descriptors of its process.
    pub descriptors: u64,
    /// Memory of its process, in bytes.
    pub resident: u64,
}

impl Front {
    pub fn start(place: &Place<'_>, options: &[&str]) -> io::Result<Self> {
        let mut argv = place.kept(options, place.ours([role::SERVE]));
        // `mainstay run …` with the front's verb and address, and with JSON output.
        let front = ["serve", "--listen", "127.0.0.1:0", "--json"].map(OsString::from);
        argv.splice(1..2, front);
        let mut child = place
            .command(&argv)?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(stdout).read_line(&mut line)?;
        let told: Value = serde_json::from_str(&line)?;
        let address = told["listen"].as_str().unwrap_or("").parse();
        Ok(Self {
            child,
            address: address.map_err(io::Error::other)?,
        })
    }

    pub fn connect(&self) -> io::Result<Connection> {
        self.at("/mcp")
    }

    fn at(&self, path: &str) -> io::Result<Connection> {
        Connection::to(&Endpoint {
            address: self.address,
            path: path.into(),
        })
    }

    /// Reads the metrics.
    pub fn state(&self) -> io::Result<State> {
        let page = self.at("/metrics")?.page()?;
        let number = |name: &str| {
            let line = page
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse().ok())
                .ok_or_else(|| io::Error::other(format!("no {name}")))
        };
        Ok(State {
            sessions: number("mainstay_sessions_open")?,
            links: number("mainstay_links")?,
            descriptors: number("mainstay_descriptors")?,
            resident: number("mainstay_resident_bytes")?,
        })
    }

    /// Waits until there are this many links.
    pub fn settled(&self, place: &Place<'_>, links: u64) -> io::Result<()> {
        while self.state()?.links != links {
            place.step();
            idle(LOOK);
        }
        Ok(())
    }

    /// Sends SIGTERM and waits for the end.
    pub fn end(mut self) -> io::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("serve ended with {status}")))
    }
}
