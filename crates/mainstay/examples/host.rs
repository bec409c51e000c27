//! A long-lived host: one process, a session per job, a server per session, and nothing left after each.
//!
//! ```sh
//! MAINSTAY_BIN=target/debug/mainstay cargo run --example host -- 3 cat
//! ```
//!
//! The arguments are the number of jobs and the server command. Each job opens a lease, starts the server in it, says one
//! thing, and closes the lease. One line of JSON per job goes to stdout: what was ended and how many were left.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};

use mainstay::{Lease, LeaseOptions, ServerCommand};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let jobs: u32 = words.next().ok_or("how many jobs?")?.parse()?;
    let program = words.next().ok_or("which server command?")?;
    let args: Vec<String> = words.collect();
    for job in 1..=jobs {
        println!("{}", run(job, &program, &args)?);
    }
    Ok(())
}

/// One job, from the session's beginning to its end.
fn run(job: u32, program: &str, args: &[String]) -> Result<String, Box<dyn Error>> {
    let lease = Lease::open(format!("job-{job}"), &LeaseOptions::new())?;
    let command = ServerCommand::new(program).args(args).name("worker");
    let mut server = lease.start(&command)?;
    let answer = ask(&mut server)?;
    let closed = lease.close()?;
    let ended: u32 = closed.servers.iter().map(|server| server.ended).sum();
    let left = closed.left();
    let servers = closed.servers.len();
    // The shim has gone with its server, and the host reaps it.
    let status = server.wait()?;
    Ok(format!(
        "{{\"job\":{job},\"answered\":{answer},\"servers\":{servers},\"ended\":{ended},\"left\":{left},\"status\":\"{status}\"}}"
    ))
}

/// Opens the MCP session; whether it was answered.
fn ask(server: &mut mainstay::Server) -> Result<bool, Box<dyn Error>> {
    let stdin = server.stdin.as_mut().ok_or("stdin is closed")?;
    let stdout = server.stdout.as_mut().ok_or("stdout is closed")?;
    stdin.write_all(
        br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#,
    )?;
    stdin.write_all(b"\n")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    Ok(line.contains("\"id\":1"))
}
