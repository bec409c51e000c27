//! A long-lived host: one process, a session per job, a server per session, and nothing left after each.
//!
//! ```sh
//! printf 'job-1\njob-2\n' | MAINSTAY_BIN=target/debug/mainstay cargo run --example host -- npx -y @playwright/mcp
//! ```
//!
//! The arguments are the server command. Each line of stdin is the name of a job: the host opens a lease of that name, starts
//! the server in it, opens the MCP session, and closes the lease. One line of JSON for each goes to stdout. At the end of stdin
//! the host ends; if it is killed, its leases end with it.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::io::{BufRead, BufReader, Write, stdin};

use mainstay::{Lease, LeaseOptions, Server, ServerCommand};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let program = words.next().ok_or("which server command?")?;
    let command = ServerCommand::new(program).args(words).name("worker");
    for job in stdin().lines() {
        println!("{}", run(&job?, &command)?);
    }
    Ok(())
}

/// One job, from the session's beginning to its end.
fn run(job: &str, command: &ServerCommand) -> Result<String, Box<dyn Error>> {
    let lease = Lease::open(job, &LeaseOptions::new())?;
    let mut server = lease.start(command)?;
    let answered = greet(&mut server)?;
    let pid = server.pid().map_or("null".into(), |pid| pid.to_string());
    // Here the job would be done. Then the session is over, and so is everything that belongs to it.
    let closed = lease.close()?;
    let status = server.wait()?;
    let ended: u32 = closed.servers.iter().map(|server| server.ended).sum();
    let (servers, left) = (closed.servers.len(), closed.left());
    Ok(format!(
        r#"{{"job":"{job}","pid":{pid},"answered":{answered},"servers":{servers},"ended":{ended},"left":{left},"status":"{status}"}}"#
    ))
}

/// Opens the MCP session; whether it was answered.
fn greet(server: &mut Server) -> Result<bool, Box<dyn Error>> {
    let stdin = server.stdin.as_mut().ok_or("stdin is closed")?;
    writeln!(stdin, "{INITIALIZE}")?;
    let stdout = server.stdout.as_mut().ok_or("stdout is closed")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    Ok(line.contains("\"result\""))
}
