//! One server for one job.

use mainstay::{Lease, LeaseOptions, ServerCommand};

fn main() -> Result<(), mainstay::HostError> {
    let lease = Lease::open("job-17", &LeaseOptions::new())?;
    let _server = lease.start(&ServerCommand::new("npx").args(["-y", "@playwright/mcp"]))?;
    // … speak MCP over its stdin and stdout …
    let closed = lease.close()?;
    assert_eq!(closed.left(), 0);
    Ok(())
}
