//! The one door through which the demo starts processes: this very program, in one of its parts.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, Stdio};

use mainstay_core::ids::TAG_VARIABLE;
use mainstay_core::lease::LEASE_VARIABLE;

use super::act::Act;

/// The words that start this program in this part.
pub fn words(act: Act, party: &str) -> io::Result<Vec<OsString>> {
    let program = std::env::current_exe()?;
    Ok(vec![
        program.into(),
        "demo".into(),
        "--act".into(),
        act.word().into(),
        "--party".into(),
        party.into(),
    ])
}

/// The words that put `mainstay run` in front of a server's command.
pub fn through_mainstay(name: &str, server: Vec<OsString>) -> io::Result<Vec<OsString>> {
    let mut words: Vec<OsString> = vec![
        std::env::current_exe()?.into(),
        "run".into(),
        "--name".into(),
        name.into(),
        "--".into(),
    ];
    words.extend(server);
    Ok(words)
}

/// The words of `mainstay run` for a server that is reached by its URL.
pub fn to_url(name: &str, url: &str) -> io::Result<Vec<OsString>> {
    Ok(vec![
        std::env::current_exe()?.into(),
        "run".into(),
        "--name".into(),
        name.into(),
        "--url".into(),
        url.into(),
    ])
}

/// A command with these words, and nothing on its standard descriptors.
pub fn command(words: &[OsString]) -> Command {
    let (program, arguments) = words.split_first().map_or_else(
        || (OsString::new(), &words[..0]),
        |(program, rest)| (program.clone(), rest),
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "the demo's clients and helpers are no servers of ours: what they start must be able to escape"
    )]
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_remove(TAG_VARIABLE)
        .env_remove(LEASE_VARIABLE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Starts a command as a client does: with a pipe to it and a pipe from it.
pub fn serve(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}
