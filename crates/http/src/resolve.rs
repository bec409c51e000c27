//! From a host's name to its addresses: `/etc/hosts`, then the name servers of `/etc/resolv.conf`.
//!
//! A static program cannot use the C library for this. What is not here: mDNS, NIS, LDAP and whatever else
//! `nsswitch.conf` may name; a local stub (systemd-resolved, dnsmasq) brings its own.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use mainstay_http_core::dns::{self, Answer, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

const HOSTS: &str = "/etc/hosts";
const SERVERS: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
/// Name servers that are asked, as in the C library.
const SERVERS_MOST: usize = 3;
/// The longest answer over UDP without an extension.
const PACKET_BYTES: usize = 4096;

/// Why a host has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// The text cannot be the name of a host.
    NotAName(String),
    /// The name servers know no such name.
    NoSuchHost(String),
    /// The name exists, but has no address.
    NoAddress(String),
    /// No name server answered.
    NoServer,
    /// What the last name server that was asked did instead of an answer.
    Server(IpAddr, ServerTrouble),
}

/// What a name server did instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrouble {
    /// It refused, with this code.
    Refused(u8),
    /// Its answer cannot be read.
    Unusable,
    /// It cannot be reached, for a reason of the kernel's.
    Unreachable(String),
    /// It says nothing.
    Silent,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAName(host) => write!(f, "`{host}` cannot be the name of a host"),
            Self::NoSuchHost(name) => write!(f, "there is no host `{name}`"),
            Self::NoAddress(name) => write!(f, "`{name}` has no address"),
            Self::NoServer => f.write_str("no name server answered"),
            Self::Server(server, trouble) => write!(f, "the name server {server} {trouble}"),
        }
    }
}

impl fmt::Display for ServerTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(code) => write!(f, "refused (code {code})"),
            Self::Unusable => f.write_str("gave no usable answer"),
            Self::Unreachable(why) => write!(f, "cannot be asked: {why}"),
            Self::Silent => f.write_str("does not answer"),
        }
    }
}

impl Error for ResolveError {}

/// The addresses of a host.
pub async fn addresses(host: &str) -> Result<Vec<IpAddr>, ResolveError> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let hosts = fs::read_to_string(HOSTS).unwrap_or_default();
    let known = in_hosts(&hosts, host);
    if !known.is_empty() {
        return Ok(known);
    }
    if host == "localhost" || host.ends_with(".localhost") {
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    let servers = Servers::read(&fs::read_to_string(SERVERS).unwrap_or_default());
    servers.addresses(host).await
}

fn in_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split('#').next()?.split_ascii_whitespace();
            let address = words.next()?.parse().ok()?;
            words
                .any(|name| name.eq_ignore_ascii_case(host))
                .then_some(address)
        })
        .collect()
}

/// The name servers, and how they are asked.
#[derive(Debug, PartialEq, Eq)]
struct Servers {
    asked: Vec<SocketAddr>,
    search: Vec<String>,
    dots: usize,
    wait: Duration,
    attempts: u32,
}

impl Servers {
    fn read(text: &str) -> Self {
        let mut read = Self {
            asked: Vec::new(),
            search: Vec::new(),
            dots: 1,
            wait: Duration::from_secs(2),
            attempts: 2,
        };
        for line in text.lines() {
            let mut words = line
                .split(['#', ';'])
                .next()
                .unwrap_or("")
                .split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    read.asked
                        .extend(address.map(|ip| SocketAddr::new(ip, PORT)));
                }
                Some("search" | "domain") => read.search = words.map(Into::into).collect(),
                Some("options") => words.for_each(|word| read.option(word)),
                Some(_) | None => {}
            }
        }
        if read.asked.is_empty() {
            read.asked
                .push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT));
        }
        read.asked.truncate(SERVERS_MOST);
        read
    }

    fn option(&mut self, word: &str) {
        let Some((name, value)) = word.split_once(':') else {
            return;
        };
        let Ok(value) = value.parse::<u32>() else {
            return;
        };
        match name {
            "ndots" => self.dots = value.min(15) as usize,
            "timeout" => self.wait = Duration::from_secs(u64::from(value.clamp(1, 10))),
            "attempts" => self.attempts = value.clamp(1, 5),
            _ => {}
        }
    }

    /// The names that may be meant, in order.
    fn candidates(&self, host: &str) -> Vec<String> {
        if host.ends_with('.') {
            return vec![host.into()];
        }
        let searched = self.search.iter().map(|domain| format!("{host}.{domain}"));
        let dots = host.matches('.').count();
        if dots >= self.dots {
            std::iter::once(host.to_string()).chain(searched).collect()
        } else {
            searched.chain([host.to_string()]).collect()
        }
    }

    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let mut why = ResolveError::NotAName(host.into());
        for name in self.candidates(host) {
            let (four, six) = both(self.ask(&name, Kind::A), self.ask(&name, Kind::Aaaa)).await;
            let mut found = Vec::new();
            for answer in [four, six] {
                match answer {
                    Ok(addresses) => found.extend(addresses),
                    Err(problem) => why = problem,
                }
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Err(why)
    }

    async fn ask(&self, name: &str, kind: Kind) -> Result<Vec<IpAddr>, ResolveError> {
        let mut why = ResolveError::NoServer;
        for _ in 0..self.attempts {
            for server in &self.asked {
                let trouble = match timeout(self.wait, exchange(*server, name, kind)).await {
                    Ok(Ok(Answer::Addresses(addresses))) if addresses.is_empty() => {
                        return Err(ResolveError::NoAddress(name.into()));
                    }
                    Ok(Ok(Answer::Addresses(addresses))) => return Ok(addresses),
                    Ok(Ok(Answer::NoSuchHost)) => {
                        return Err(ResolveError::NoSuchHost(name.into()));
                    }
                    Ok(Ok(Answer::Refused(code))) => ServerTrouble::Refused(code),
                    Ok(Ok(Answer::Truncated | Answer::NotOurs)) => ServerTrouble::Unusable,
                    Ok(Err(error)) => ServerTrouble::Unreachable(mainstay_report::plain(&error)),
                    Err(_) => ServerTrouble::Silent,
                };
                why = ResolveError::Server(server.ip(), trouble);
            }
        }
        Err(why)
    }
}

/// Runs two questions at once.
async fn both<A: Future, B: Future>(one: A, other: B) -> (A::Output, B::Output) {
    let mut one = Box::pin(one);
    let mut other = Box::pin(other);
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(move |cx| {
        if first.is_none()
            && let std::task::Poll::Ready(value) = one.as_mut().poll(cx)
        {
            first = Some(value);
        }
        if second.is_none()
            && let std::task::Poll::Ready(value) = other.as_mut().poll(cx)
        {
            second = Some(value);
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => std::task::Poll::Ready((a, b)),
            (a, b) => {
                (first, second) = (a, b);
                std::task::Poll::Pending
            }
        }
    })
    .await
}

async fn exchange(server: SocketAddr, name: &str, kind: Kind) -> io::Result<Answer> {
    let mut id = [0; 2];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
    let id = u16::from_ne_bytes(id);
    let Some(question) = dns::question(id, name, kind) else {
        return Ok(Answer::NoSuchHost);
    };
    let here: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    // Connected: the kernel drops what others send.
    let socket = UdpSocket::bind(here).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut packet = [0; PACKET_BYTES];
    loop {
        let length = socket.recv(&mut packet).await?;
        match dns::answer(&packet[..length], id, name, kind) {
            // Perhaps a late one to an earlier question, perhaps forged: the true one may come yet.
            Answer::NotOurs => {}
            Answer::Truncated => return over_tcp(server, &question, id, name, kind).await,
            answer @ (Answer::Addresses(_) | Answer::NoSuchHost | Answer::Refused(_)) => {
                return Ok(answer);
            }
        }
    }
}

async fn over_tcp(
    server: SocketAddr,
    question: &[u8],
    id: u16,
    name: &str,
    kind: Kind,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(server).await?;
    let mut packet = (question.len() as u16).to_be_bytes().to_vec();
    packet.extend_from_slice(question);
    stream.write_all(&packet).await?;
    let length = stream.read_u16().await?;
    let mut packet = vec![0; usize::from(length)];
    stream.read_exact(&mut packet).await?;
    Ok(dns::answer(&packet, id, name, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_file_comes_first() {
        let text = "127.0.0.1 localhost\n# 1.2.3.4 a\n192.0.2.7\tbox Box.example # x\n::1 localhost ip6-localhost\nbroken\n";
        assert_eq!(
            in_hosts(text, "box.EXAMPLE"),
            [IpAddr::from([192, 0, 2, 7])]
        );
        assert_eq!(in_hosts(text, "localhost").len(), 2);
        assert!(in_hosts(text, "a").is_empty());
    }

    #[test]
    fn the_resolver_file_is_read_as_the_c_library_reads_it() {
        let text = "; x\nnameserver 192.0.2.1\nnameserver ::1\nnameserver nonsense\nsearch a.example b.example\noptions ndots:2 timeout:1 attempts:3 rotate\n";
        let read = Servers::read(text);
        assert_eq!(
            read.asked,
            ["192.0.2.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()]
        );
        assert_eq!(
            (read.dots, read.wait, read.attempts),
            (2, Duration::from_secs(1), 3)
        );
        assert_eq!(
            read.candidates("h.x"),
            ["h.x.a.example", "h.x.b.example", "h.x"]
        );
        assert_eq!(
            read.candidates("h.x.y"),
            ["h.x.y", "h.x.y.a.example", "h.x.y.b.example"]
        );
        assert_eq!(read.candidates("h."), ["h."]);
        assert_eq!(Servers::read("").asked, ["127.0.0.1:53".parse().unwrap()]);
    }

    /// A name server of our own on loopback: over UDP it says "truncated", over TCP it answers.
    #[test]
    fn a_name_server_is_asked_and_asked_again_over_tcp() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = tcp.local_addr().unwrap();
            let udp = UdpSocket::bind(at).await.unwrap();
            let serve = async {
                let mut packet = [0; 512];
                let (length, from) = udp.recv_from(&mut packet).await.unwrap();
                udp.send_to(b"junk", from).await.unwrap();
                packet[2] = 0x83;
                udp.send_to(&packet[..length], from).await.unwrap();
                let (mut stream, _) = tcp.accept().await.unwrap();
                let length = stream.read_u16().await.unwrap();
                let mut packet = vec![0; usize::from(length)];
                stream.read_exact(&mut packet).await.unwrap();
                packet[2] = 0x81;
                packet[7] = 1;
                packet.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x05");
                stream.write_u16(packet.len() as u16).await.unwrap();
                stream.write_all(&packet).await.unwrap();
            };
            let ((), answer) = both(serve, exchange(at, "a.example", Kind::A)).await;
            let expected = Answer::Addresses(vec![IpAddr::from([192, 0, 2, 5])]);
            assert_eq!(answer.unwrap(), expected);
        });
    }
}
