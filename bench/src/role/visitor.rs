//! A client of an HTTP server in its own process, so that it can be killed: it opens sessions, makes a call in each, listens,
//! prints their ids, and waits.

use std::ffi::OsString;
use std::io;

use mainstay_testkit::wait::{HANG_STOP, idle};

use crate::http::{Connection, Endpoint, call};

/// Runs until it is killed. The words: address, path, tool, how many sessions.
pub fn visit(words: &[OsString]) -> io::Result<()> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let [address, path, tool, count] = words[..] else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let endpoint = Endpoint {
        address: address.parse().map_err(io::Error::other)?,
        path: path.into(),
    };
    let mut held = Vec::new();
    let mut names = Vec::new();
    for id in 0..count.parse().map_err(io::Error::other)? {
        let mut connection = Connection::to(&endpoint)?;
        let session = connection.open()?;
        connection.post(Some(&session), &call(tool, id))?;
        connection.answer()?.result()?;
        let mut news = Connection::to(&endpoint)?;
        news.listen(&session)?;
        names.push(session.told());
        held.push((connection, news));
    }
    rustix::io::write(
        rustix::stdio::stdout(),
        format!("{}\n", names.join("\t")).as_bytes(),
    )?;
    loop {
        idle(HANG_STOP);
        let _held = &held;
    }
}
