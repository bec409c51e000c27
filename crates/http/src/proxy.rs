//! Proxies, as the environment names them: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, in either case.
//!
//! To an `http` server a proxy is sent the request itself, with the whole URL; to an `https` server it opens a way
//! (`CONNECT`), and sees neither headers nor messages. This machine itself is never reached through one. Proxies that
//! want TLS themselves, and SOCKS, are not spoken.
//!
//! Invariant: no message contains the user or password of a proxy.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use mainstay_http_core::base64;
use mainstay_store::config::target::{Target, UrlError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::decoded;

/// The longest answer to `CONNECT`.
const ANSWER_BYTES: usize = 16 * 1024;

/// The proxies, and the hosts that are reached without one.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    except: Vec<String>,
}

/// A proxy, or why the variable is not valid.
type Proxy = Result<Target, BadProxy>;

/// A variable of the environment that names no proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadProxy {
    variable: &'static str,
    why: NotAProxy,
}

/// Why a text names no proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NotAProxy {
    Url(UrlError),
    Tls,
}

impl fmt::Display for BadProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names no proxy: ", self.variable)?;
        match &self.why {
            NotAProxy::Url(error) => error.fmt(f),
            NotAProxy::Tls => f.write_str("a proxy is spoken to without TLS; write http://"),
        }
    }
}

impl Error for BadProxy {}

/// Why a proxy opened no way to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoWay {
    /// The proxy: host and port.
    proxy: String,
    why: ProxyRefuses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyRefuses {
    Closed,
    NotAProxy,
    WantsUser,
    Status(u16),
}

impl fmt::Display for NoWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy {} ", self.proxy)?;
        match self.why {
            ProxyRefuses::Closed => f.write_str("closed the connection"),
            ProxyRefuses::NotAProxy => f.write_str("does not answer as a proxy does"),
            ProxyRefuses::WantsUser => f.write_str(
                "wants a user: write it into its variable, as in http://user:password@proxy:3128",
            ),
            ProxyRefuses::Status(status) => write!(f, "refused the way with HTTP {status}"),
        }
    }
}

impl Error for NoWay {}

impl Proxies {
    /// Those of this process's environment.
    pub fn from_env() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Those of an environment.
    pub fn read(var: impl Fn(&str) -> Option<String>) -> Self {
        let either = |name: &str| {
            let lower = var(&name.to_ascii_lowercase());
            let found = lower.or_else(|| var(name));
            found.filter(|value| !value.trim().is_empty())
        };
        let proxy = |name: &'static str| {
            let found = either(name).map(|value| (name, value));
            let (name, value) = found.or_else(|| Some(("ALL_PROXY", either("ALL_PROXY")?)))?;
            let variable = name;
            Some(parse(value.trim()).map_err(|why| BadProxy { variable, why }))
        };
        let except = either("NO_PROXY").unwrap_or_default();
        Self {
            http: proxy("HTTP_PROXY"),
            https: proxy("HTTPS_PROXY"),
            except: except
                .split([',', ' '])
                .map(|one| one.trim().to_ascii_lowercase())
                .filter(|one| !one.is_empty())
                .collect(),
        }
    }

    /// The proxy on the way to this server; none: it is reached directly.
    pub fn of(&self, target: &Target) -> Result<Option<&Target>, BadProxy> {
        let proxy = if target.tls() {
            &self.https
        } else {
            &self.http
        };
        match proxy {
            None => Ok(None),
            Some(_) if is_here(target.host()) || self.is_except(target) => Ok(None),
            Some(Ok(proxy)) => Ok(Some(proxy)),
            Some(Err(why)) => Err(why.clone()),
        }
    }

    fn is_except(&self, target: &Target) -> bool {
        self.except.iter().any(|one| excepts(one, target))
    }
}

fn parse(value: &str) -> Result<Target, NotAProxy> {
    let with_scheme = if value.contains("://") {
        value.to_string()
    } else {
        format!("http://{value}")
    };
    let proxy = Target::parse(&with_scheme).map_err(NotAProxy::Url)?;
    if proxy.tls() {
        return Err(NotAProxy::Tls);
    }
    Ok(proxy)
}

/// Whether a host is this machine.
fn is_here(host: &str) -> bool {
    let by_name = host == "localhost" || host.ends_with(".localhost");
    by_name || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// Whether an entry of `NO_PROXY` means this server: `*`, a name with all that is below it, an address, a network
/// (`10.0.0.0/8`); each but the first may have a port.
fn excepts(entry: &str, target: &Target) -> bool {
    if entry == "*" {
        return true;
    }
    let (host, port) = match entry.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse::<u16>().ok())
        }
        Some(_) | None => (entry, None),
    };
    if port.is_some_and(|port| port != target.port()) {
        return false;
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = target.host().parse::<IpAddr>() {
        return match host.split_once('/') {
            Some((network, bits)) => is_within(address, network, bits),
            None => host.parse() == Ok(address),
        };
    }
    let name = host.trim_start_matches("*.").trim_start_matches('.');
    let below = target.host().strip_suffix(name);
    !name.is_empty() && below.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn is_within(address: IpAddr, network: &str, bits: &str) -> bool {
    let bits_of = |address: IpAddr| match address {
        IpAddr::V4(it) => (u128::from(it.to_bits()) << 96, 32),
        IpAddr::V6(it) => (it.to_bits(), 128),
    };
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    let ((one, width), (other, of)) = (bits_of(address), bits_of(network));
    let mask = match bits {
        0 => 0,
        bits => u128::MAX << (128 - bits.min(128)),
    };
    width == of && bits <= width && one & mask == other & mask
}

/// The value of `Proxy-Authorization`, if the proxy's URL has a user.
pub fn credentials(proxy: &Target) -> Option<String> {
    let user = decoded(proxy.user()?);
    Some(format!("Basic {}", base64::encode(&user)))
}

/// Has the proxy open a way to the server.
pub async fn open_way(
    mut stream: TcpStream,
    proxy: &Target,
    target: &Target,
) -> Result<TcpStream, NoWay> {
    let failed = |why| NoWay {
        proxy: proxy.authority(),
        why,
    };
    let host = match target.host() {
        host if host.contains(':') => format!("[{host}]"),
        host => host.to_string(),
    };
    let place = format!("{host}:{}", target.port());
    let mut asked = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
    if let Some(value) = credentials(proxy) {
        asked.extend(["Proxy-Authorization: ", &value, "\r\n"]);
    }
    asked.push_str("\r\n");
    let broke = |_| failed(ProxyRefuses::Closed);
    stream.write_all(asked.as_bytes()).await.map_err(broke)?;
    // Byte by byte: what follows the head belongs to TLS.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= ANSWER_BYTES {
            return Err(failed(ProxyRefuses::NotAProxy));
        }
        head.push(stream.read_u8().await.map_err(broke)?);
    }
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let words = String::from_utf8_lossy(line).into_owned();
    let mut words = words.split(' ');
    let status = words
        .next()
        .filter(|version| version.starts_with("HTTP/1."))
        .and_then(|_| words.next()?.parse::<u16>().ok());
    match status {
        Some(200..=299) => Ok(stream),
        Some(407) => Err(failed(ProxyRefuses::WantsUser)),
        Some(status) => Err(failed(ProxyRefuses::Status(status))),
        None => Err(failed(ProxyRefuses::NotAProxy)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn via(env: &[(&str, &str)], url: &str) -> Result<Option<String>, BadProxy> {
        let found = |name: &str| {
            let mut all = env.iter();
            all.find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_string())
        };
        let target = Target::parse(url).unwrap();
        let proxies = Proxies::read(found);
        Ok(proxies.of(&target)?.map(Target::authority))
    }

    #[test]
    fn the_environment_names_the_proxy_and_its_exceptions() {
        let both = [
            ("HTTPS_PROXY", "http://u:p@s:1"),
            ("http_proxy", "h:2"),
            ("HTTP_PROXY", "not:3"),
        ];
        let none = [("HTTPS_PROXY", " "), ("ALL_PROXY", "a:4")];
        for (env, url, expected) in [
            (&both[..], "https://x/mcp", Some("s:1")),
            (&both, "http://x/mcp", Some("h:2")),
            (&none, "https://x/", Some("a:4")),
            (&none[..1], "https://x/", None),
            (&both, "http://localhost:1/", None),
            (&both, "http://127.0.0.9/", None),
            (&both, "http://[::1]/", None),
        ] {
            assert_eq!(via(env, url).unwrap().as_deref(), expected, "{url}");
        }
        for (value, why) in [("https://s", "without TLS"), ("socks5://s", "not spoken")] {
            let told = via(&[("HTTP_PROXY", value)], "http://x/").unwrap_err();
            let told = told.to_string();
            assert!(told.contains("HTTP_PROXY") && told.contains(why), "{told}");
        }
    }

    #[test]
    fn exceptions_mean_names_addresses_and_networks() {
        for (except, url, direct) in [
            ("*", "http://x/", true),
            ("corp.example", "http://corp.example/", true),
            ("corp.example", "http://a.corp.example/", true),
            (".corp.example", "http://a.corp.example/", true),
            ("*.corp.example", "http://a.corp.example/", true),
            ("corp.example", "http://notcorp.example/", false),
            ("a , corp.example", "http://corp.example/", true),
            ("corp.example:8080", "http://corp.example/", false),
            ("corp.example:8080", "http://corp.example:8080/", true),
            ("10.0.0.0/8", "http://10.1.2.3/", true),
            ("10.0.0.0/8", "http://11.1.2.3/", false),
            ("10.0.0.0/99", "http://10.1.2.3/", false),
            ("0.0.0.0/0", "http://11.1.2.3/", true),
            ("fd00::/8", "http://[fd12::1]/", true),
            ("::/0", "http://11.1.2.3/", false),
            ("[fd12::1]:80", "http://[fd12::1]/", true),
            ("fd12::1", "http://[fd12::1]/", true),
            (",,", "http://x/", false),
        ] {
            let env = [("HTTP_PROXY", "h:2"), ("NO_PROXY", except)];
            let found = via(&env, url).unwrap();
            assert_eq!(found.is_none(), direct, "{except} {url}");
        }
    }
}
