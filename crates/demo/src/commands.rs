//! The commands that the demo starts: this program again, in one of its roles or as `mainstay run`.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, Stdio};

use mainstay_protocol::ids::TAG_VARIABLE;
use mainstay_protocol::lease::LEASE_VARIABLE;

use super::role::Role;

/// The command line of this program in this role.
pub fn role_args(role: Role, group: &str) -> io::Result<Vec<OsString>> {
    let program = std::env::current_exe()?;
    Ok(vec![
        program.into(),
        "demo".into(),
        "--role".into(),
        role.word().into(),
        "--group".into(),
        group.into(),
    ])
}

/// The command line of `mainstay run` for this server command.
pub fn run_args(name: &str, server: Vec<OsString>) -> io::Result<Vec<OsString>> {
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

/// The command line of `mainstay run --url`.
pub fn run_url_args(name: &str, url: &str) -> io::Result<Vec<OsString>> {
    Ok(vec![
        std::env::current_exe()?.into(),
        "run".into(),
        "--name".into(),
        name.into(),
        "--url".into(),
        url.into(),
    ])
}

/// A command with `/dev/null` as stdin, stdout and stderr.
pub fn command(words: &[OsString]) -> Command {
    let (program, arguments) = words.split_first().map_or_else(
        || (OsString::new(), &words[..0]),
        |(program, rest)| (program.clone(), rest),
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "processes that the demo starts without mainstay must be able to escape"
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

/// Starts a command as a client does: with pipes for stdin and stdout.
pub fn spawn_piped(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}
