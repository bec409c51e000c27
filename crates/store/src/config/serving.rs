//! What may be set for the HTTP front, by options or below `[serve]`, and what comes of it.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use mainstay_http_core::serve::access::AccessRules;
use mainstay_http_core::serve::limits::{ServeLimits, TABLE};
use mainstay_report::{Exit, Report, plain};

use super::secret_file;

/// The default address.
pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8808);
/// The longest token.
const TOKEN_BYTES: u64 = 4_096;
/// A shorter token could be guessed.
const TOKEN_LEAST: usize = 16;
/// The uid of root, which can do everything anyway.
const ROOT: u32 = 0;
/// The file with the users of this machine.
const PASSWD: &str = "/etc/passwd";

/// What is set in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// Where to listen.
    pub listen: Option<SocketAddr>,
    /// The file with the token that clients must bear.
    pub token_file: Option<PathBuf>,
    /// Names that `Host` may have, beside the loopback ones.
    pub hosts: Vec<String>,
    /// Sites whose pages may ask, beside our own address.
    pub origins: Vec<String>,
    /// Users that may connect without a token, in addition to ours and root.
    pub users: Vec<User>,
    /// Limits by their name in the table.
    pub limits: BTreeMap<&'static str, u64>,
}

/// Which users may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// This user.
    Id(u32),
    /// All users, also if the user of a connection is not known.
    Any,
}

impl Serving {
    /// These settings where they say something, the others where they do not; lists add up.
    #[must_use]
    pub fn over(mut self, others: &Self) -> Self {
        self.listen = self.listen.or(others.listen);
        self.token_file = self.token_file.or_else(|| others.token_file.clone());
        self.hosts.extend_from_slice(&others.hosts);
        self.origins.extend_from_slice(&others.origins);
        self.users.extend_from_slice(&others.users);
        for (name, value) in &others.limits {
            self.limits.entry(name).or_insert(*value);
        }
        self
    }

    /// The limits, with what is built in where nothing is set.
    pub fn limits(&self) -> ServeLimits {
        let mut limits = ServeLimits::default();
        // Balancers are on other machines.
        if self.listen.unwrap_or(LISTEN).ip().is_loopback() {
            limits.drain_delay_ms = 0;
        }
        for limit in &TABLE {
            if let Some(value) = self.limits.get(limit.name) {
                *(limit.of)(&mut limits) = *value;
            }
        }
        limits
    }

    /// Where to listen and which clients may connect. On an address beyond this machine, each client needs a token.
    pub fn access(&self) -> Result<(SocketAddr, AccessRules), Report> {
        let listen = self.listen.unwrap_or(LISTEN);
        let token = self.token_file.as_deref().map(token).transpose()?;
        let local = listen.ip().is_loopback();
        if !local && token.is_none() {
            return Err(Report::new(
                Exit::Usage,
                format!("{listen} can be reached from other machines, and no token is asked for"),
            )
            .hint("give --token-file FILE, and put TLS in front; or listen on 127.0.0.1"));
        }
        let lower = |list: &[String]| {
            list.iter()
                .map(|one| one.trim().to_ascii_lowercase())
                .collect::<Vec<_>>()
        };
        let mut users = vec![rustix::process::geteuid().as_raw(), ROOT];
        users.extend(self.users.iter().filter_map(|user| match user {
            User::Id(id) => Some(*id),
            User::Any => None,
        }));
        let access = AccessRules {
            users,
            any_user: self.users.contains(&User::Any),
            any_host: !local && self.hosts.is_empty(),
            hosts: lower(&self.hosts),
            origins: lower(&self.origins),
            token,
        };
        Ok((listen, access))
    }
}

/// Reads an address: `127.0.0.1:8808`, `[::1]:8808`, `localhost:8808`, or a port alone.
pub fn address(text: &str) -> Result<SocketAddr, NotAnAddress> {
    let text = text.trim();
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse() {
        return Ok(SocketAddr::new(LISTEN.ip(), port));
    }
    let named = text.replacen("localhost:", "127.0.0.1:", 1);
    named.parse().map_err(|_| NotAnAddress(text.into()))
}

/// A text that is no address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAnAddress(String);

impl fmt::Display for NotAnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        write!(
            f,
            "`{text}` is not an address (write it like `127.0.0.1:8808`; port 0 takes a free one)"
        )
    }
}

impl Error for NotAnAddress {}

/// Parses a user: an id, a name of `/etc/passwd`, or `any`.
pub fn user(text: &str) -> Result<User, UnknownUser> {
    let text = text.trim();
    if text == "any" {
        return Ok(User::Any);
    }
    if let Ok(id) = text.parse() {
        return Ok(User::Id(id));
    }
    let known = fs::read_to_string(PASSWD).unwrap_or_default();
    let id = id_of(text, &known).map(User::Id);
    id.ok_or_else(|| UnknownUser(text.into()))
}

/// A text that is no user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownUser(String);

impl fmt::Display for UnknownUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        write!(
            f,
            "`{text}` is no user in {PASSWD} (write the id, as `id -u` shows it, or `any`)"
        )
    }
}

impl Error for UnknownUser {}

/// The id of a name in the lines of `/etc/passwd`.
fn id_of(name: &str, lines: &str) -> Option<u32> {
    let mut all = lines.lines().map(|line| line.split(':'));
    let mut fields = all.find_map(|mut fields| (fields.next()? == name).then_some(fields))?;
    fields.nth(1)?.parse().ok()
}

/// Reads the token; its value is in no message.
fn token(path: &Path) -> Result<Vec<u8>, Report> {
    let trouble = |cause: String| {
        Report::new(
            Exit::Failed,
            format!("cannot use the token file {}", path.display()),
        )
        .because(cause)
        .hint("write a long random text into it: head -c 32 /dev/urandom | base64")
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| trouble(plain(&error)))?;
    let found = file.metadata().map_err(|error| trouble(plain(&error)))?;
    if let Some(readers) = secret_file::readers(&found) {
        let chmod = format!("chmod 600 {}", path.display());
        return Err(trouble(readers.to_string()).hint(format!(
            "make it yours alone: {chmod}; in a container, mount it with mode 0400. Others may have read the token that is in it: write a new one"
        )));
    }
    file.take(TOKEN_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| trouble(plain(&error)))?;
    let token = bytes.trim_ascii();
    if token.len() < TOKEN_LEAST {
        return Err(trouble(format!(
            "it has fewer than {TOKEN_LEAST} characters"
        )));
    }
    if bytes.len() as u64 > TOKEN_BYTES {
        return Err(trouble(format!("it has more than {TOKEN_BYTES} bytes")));
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(trouble("it has characters that no header can hold".into()));
    }
    Ok(token.to_vec())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn addresses_and_ports() {
        for (text, meant) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::1]:80", "[::1]:80"),
            ("9000", "127.0.0.1:9000"),
            (":9000", "127.0.0.1:9000"),
            ("0.0.0.0:5", "0.0.0.0:5"),
        ] {
            assert_eq!(address(text), Ok(meant.parse().unwrap()), "{text}");
        }
        for text in ["", "example.com:80", "127.0.0.1", "99999", "1.2.3.4:x"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn users_by_id_by_name_or_all_of_them() {
        for (text, meant) in [
            ("any", User::Any),
            ("0", User::Id(0)),
            (" 1000 ", User::Id(1000)),
            ("root", User::Id(0)),
        ] {
            assert_eq!(user(text), Ok(meant), "{text}");
        }
        for text in ["", "-1", "4294967296", "Any", "1000,1001", "no such user"] {
            let problem = user(text).unwrap_err().to_string();
            assert!(problem.contains("id -u"), "{problem}");
        }
        let lines = "\nroot:x:0:0::/root:/bin/sh\n+\nalice:x:1001:5::/:/bin/sh\nbob:x:?:5\neve:x\n";
        assert_eq!(id_of("alice", lines), Some(1001));
        for name in ["", "bob", "eve", "x", "ali", "alice:x"] {
            assert_eq!(id_of(name, lines), None, "{name}");
        }
    }

    #[test]
    fn without_a_token_owner_root_and_allowed_users_may_connect() {
        let me = rustix::process::geteuid().as_raw();
        let other = |more: u32| me.wrapping_add(more).max(1);
        let (_, access) = Serving::default().access().unwrap();
        assert!(access.admits(Some(me)) && access.admits(Some(0)));
        assert!(!access.admits(Some(other(5))) && !access.admits(None));
        let given = Serving {
            users: vec![User::Id(other(5))],
            ..Serving::default()
        };
        let file = Serving {
            users: vec![User::Id(other(6))],
            ..Serving::default()
        };
        let (_, access) = given.over(&file).access().unwrap();
        assert!(access.admits(Some(other(5))) && access.admits(Some(other(6))));
        assert!(!access.admits(Some(other(7))) && !access.admits(None));
        let open = Serving {
            users: vec![User::Any],
            ..Serving::default()
        };
        let (_, access) = open.access().unwrap();
        assert!(access.admits(Some(other(7))) && access.admits(None));
    }

    #[test]
    fn beyond_this_machine_only_with_a_token() {
        let open = Serving {
            listen: Some("0.0.0.0:80".parse().unwrap()),
            ..Serving::default()
        };
        let report = open.access().unwrap_err();
        assert_eq!(report.exit(), Exit::Usage);
        assert!(report.problem().contains("no token is asked for"));
        let (listen, access) = Serving::default().access().unwrap();
        assert!(listen.ip().is_loopback() && !access.any_host && access.token.is_none());
    }

    #[test]
    fn a_token_is_long_enough_and_is_never_told() {
        let scratch = crate::scratch::Scratch::new();
        let path = scratch.path().join("token");
        std::fs::write(&path, "").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
        mode(0o600).unwrap();
        for (text, problem) in [
            ("short", "fewer than 16"),
            ("0123456789abcdef 0123456789", "no header can hold"),
        ] {
            std::fs::write(&path, text).unwrap();
            let report = token(&path).unwrap_err();
            assert!(report.problem().contains(problem), "{report}");
            assert!(!report.to_string().contains(text), "{report}");
        }
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        assert_eq!(token(&path).unwrap(), b"0123456789abcdef");
        for (bits, problem) in [
            (0o640, "others than its owner can read it (mode 640)"),
            (0o604, "others than its owner can read it (mode 604)"),
            (0o644, "others than its owner can read it (mode 644)"),
            (0o622, "others than its owner can write it (mode 622)"),
        ] {
            mode(bits).unwrap();
            let report = token(&path).unwrap_err();
            assert!(report.problem().contains(problem), "{report}");
            let advice = report.advice().unwrap();
            assert!(
                advice.contains(&format!("chmod 600 {}", path.display())),
                "{advice}"
            );
            assert!(!report.to_string().contains("0123456789abcdef"), "{report}");
        }
        for bits in [0o600, 0o400, 0o700] {
            mode(bits).unwrap();
            assert!(token(&path).is_ok(), "{bits:o}");
        }
        assert!(token(&scratch.path().join("none")).is_err());
    }
}
