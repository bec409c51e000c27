//! The bridges that are compared, and how each is started. `bench/bridges` pins the versions and installs them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The command that installs them.
pub const INSTALL: &str = "node bench/bridges/install.mjs";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Ours.
    Mainstay,
    /// Another build of ours.
    Old,
    /// npm `supergateway`: both directions.
    Supergateway,
    /// npm `mcp-proxy`: HTTP in front of a stdio server.
    ProxyNpm,
    /// Python `mcp-proxy`: both directions.
    ProxyPython,
    /// `mcp-proxy` of crates.io: HTTP in front of a stdio server.
    ProxyRust,
    /// npm `mcp-remote`: stdio in front of an HTTP server.
    Remote,
}

impl Peer {
    /// All that are on the page.
    pub const ALL: [Self; 6] = [
        Self::Mainstay,
        Self::Supergateway,
        Self::ProxyNpm,
        Self::ProxyPython,
        Self::ProxyRust,
        Self::Remote,
    ];

    /// Its name, with the pinned version.
    pub fn words(self) -> String {
        let npm = |name: &str| format!("npm `{name}` {}", npm_version(name));
        match self {
            Self::Mainstay => "mainstay".into(),
            Self::Old => "mainstay, old".into(),
            Self::Supergateway => npm("supergateway"),
            Self::ProxyNpm => npm("mcp-proxy"),
            Self::Remote => npm("mcp-remote"),
            Self::ProxyPython => {
                let line = include_str!("../../../bridges/python.txt")
                    .lines()
                    .find_map(|line| line.strip_prefix("mcp-proxy=="));
                let version = line.and_then(|rest| rest.split(' ').next());
                format!("PyPI `mcp-proxy` {}", version.unwrap_or("?"))
            }
            Self::ProxyRust => {
                let pinned = include_str!("../../../bridges/crates.txt").trim();
                let (name, version) = pinned.split_once('@').unwrap_or((pinned, "?"));
                format!("crates.io `{name}` {version}")
            }
        }
    }

    /// Its program, if it is installed. Ours is found elsewhere.
    pub fn program(self) -> Option<Vec<OsString>> {
        let room = room();
        let script = |path: &str| {
            let path = room.join("npm/node_modules").join(path);
            path.is_file().then(|| {
                // They would listen on all interfaces.
                let words = ["node", "--import", LOOPBACK].map(OsString::from);
                words.into_iter().chain([path.into_os_string()]).collect()
            })
        };
        let binary = |path: &str| {
            let path = room.join(path);
            path.is_file().then(|| vec![path.into_os_string()])
        };
        match self {
            Self::Mainstay | Self::Old => None,
            Self::Supergateway => script("supergateway/dist/index.js"),
            Self::ProxyNpm => script("mcp-proxy/dist/bin/mcp-proxy.mjs"),
            Self::Remote => script("mcp-remote/dist/proxy.js"),
            Self::ProxyPython => binary("python/bin/mcp-proxy"),
            Self::ProxyRust => binary("crates/bin/mcp-proxy"),
        }
    }

    /// Whether it is a build of ours, which must work.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Mainstay | Self::Old)
    }

    /// Whether it puts HTTP in front of a stdio server.
    pub fn fronts(self) -> bool {
        self != Self::Remote
    }

    /// Words that put HTTP in front of this stdio server, at this port, or `None` if it cannot. A session that is unused for
    /// `idle_ms` must be ended; without a limit, the bridge's default applies.
    pub fn front(
        self,
        port: u16,
        server: &[OsString],
        idle_ms: Option<u64>,
        room: &Path,
    ) -> Option<Vec<OsString>> {
        let port = port.to_string();
        let idle = idle_ms.map(|ms| ms.to_string());
        let mut words: Vec<OsString> = Vec::new();
        let mut say = |some: &[&str]| words.extend(some.iter().map(OsString::from));
        match self {
            Self::Mainstay | Self::Old => {
                say(&["serve", "--listen", &format!("127.0.0.1:{port}")]);
                if let Some(idle) = idle {
                    say(&["--session-ttl", &format!("{idle}ms")]);
                }
                say(&["--"]);
            }
            Self::Supergateway => {
                say(&["--outputTransport", "streamableHttp", "--stateful"]);
                if let Some(idle) = idle {
                    say(&["--sessionTimeout", &idle]);
                }
                say(&["--logLevel", "none"]);
                say(&["--port", &port, "--stdio", &shell(server)]);
                return Some(words);
            }
            Self::ProxyNpm => {
                say(&["--host", "127.0.0.1", "--port", &port, "--server", "stream"]);
                if let Some(idle) = idle {
                    say(&["--sessionIdleTimeout", &idle]);
                }
                say(&["--"]);
            }
            Self::ProxyPython => {
                say(&["--host", "127.0.0.1", "--port", &port]);
                say(&["--log-level", "WARNING", "--pass-environment", "--"]);
            }
            Self::ProxyRust => {
                let config = room.join(format!("mcp-proxy-{port}.toml"));
                std::fs::write(&config, toml(&port, server)).ok()?;
                say(&["--config"]);
                words.push(config.into());
                return Some(words);
            }
            Self::Remote => return None,
        }
        words.extend(server.iter().cloned());
        Some(words)
    }

    /// Words that put stdio in front of this HTTP server, or `None` if it cannot.
    pub fn back(self, url: &str) -> Option<Vec<OsString>> {
        let words: &[&str] = match self {
            Self::Mainstay | Self::Old => &["run", "--url", url],
            Self::Supergateway => &["--streamableHttp", url, "--logLevel", "none"],
            Self::ProxyPython => &[
                "--transport",
                "streamablehttp",
                "--log-level",
                "WARNING",
                url,
            ],
            Self::Remote => &[url, "--allow-http", "--transport", "http-only", "--silent"],
            Self::ProxyNpm | Self::ProxyRust => return None,
        };
        Some(words.iter().map(OsString::from).collect())
    }

    /// The path of its endpoint.
    pub fn path(self) -> &'static str {
        match self {
            Self::ProxyRust => "/",
            Self::Mainstay
            | Self::Old
            | Self::Supergateway
            | Self::ProxyNpm
            | Self::ProxyPython
            | Self::Remote => "/mcp",
        }
    }

    /// The tool's name as this bridge passes it on.
    pub fn tool(self) -> &'static str {
        match self {
            Self::ProxyRust => "s/fill",
            Self::Mainstay
            | Self::Old
            | Self::Supergateway
            | Self::ProxyNpm
            | Self::ProxyPython
            | Self::Remote => "fill",
        }
    }

    /// Whether it has an idle limit for sessions.
    pub fn expires(self) -> bool {
        match self {
            Self::Mainstay | Self::Old | Self::Supergateway | Self::ProxyNpm => true,
            Self::ProxyPython | Self::ProxyRust | Self::Remote => false,
        }
    }
}

/// The directory in which they are installed.
fn room() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    target.unwrap_or(ours).join("bridges")
}

fn npm_version(name: &str) -> String {
    let package: Value =
        serde_json::from_str(include_str!("../../../bridges/package.json")).unwrap_or_default();
    let version = package["dependencies"][name].as_str();
    version.unwrap_or("?").into()
}

/// The command quoted for a shell.
fn shell(argv: &[OsString]) -> String {
    let quoted = argv
        .iter()
        .map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

fn toml(port: &str, server: &[OsString]) -> String {
    let word = |word: &OsString| Value::from(word.to_string_lossy()).to_string();
    let mut words = server.iter().map(word);
    let program = words.next().unwrap_or_default();
    let arguments = words.collect::<Vec<_>>().join(", ");
    format!(
        "[proxy]\nname = \"bench\"\nseparator = \"/\"\n\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {port}\n\n\
         [[backends]]\nname = \"s\"\ntransport = \"stdio\"\ncommand = {program}\nargs = [{arguments}]\n"
    )
}

/// Makes Node's servers listen on loopback only.
const LOOPBACK: &str = concat!(
    "data:text/javascript,",
    "import%20net%20from%20'node:net';const%7Blisten%7D=net.Server.prototype;",
    "net.Server.prototype.listen=function(port,...rest)%7Bconst%20last=rest.filter(one=>typeof%20one==='function');",
    "const%20number=typeof%20port==='object'%3Fport.port:port;",
    "return%20listen.call(this,%7Bport:Number(number),host:'127.0.0.1'%7D,...last)%7D",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bridge_has_a_version_and_a_direction() {
        for peer in Peer::ALL {
            assert!(!peer.words().contains('?'), "{}", peer.words());
            let room = std::env::temp_dir();
            let front =
                peer == Peer::ProxyRust || peer.front(1, &["s".into()], None, &room).is_some();
            assert!(front || peer.back("http://127.0.0.1:1/mcp").is_some());
        }
    }

    #[test]
    fn a_command_is_quoted() {
        let argv = ["a b", "it's"].map(OsString::from);
        assert_eq!(shell(&argv), r"'a b' 'it'\''s'");
        assert!(toml("1", &argv).contains("command = \"a b\"\nargs = [\"it's\"]"));
    }
}
