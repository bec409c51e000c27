//! Connections: taken up to a limit, each with the user whose it is, watched for dead peers, closed when we stop.
//!
//! Invariant: a connection whose user is refused takes no place of those that are let in. It gets one of a few places of its
//! own in which it is told why, for a short time; beyond them it is told in one write, and closed.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use mainstay_os::owner::{Owners, Unknown};
use mainstay_report::{Exit, Report, plain};
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::connections::Standing;
use super::front::Front;
use super::http::Owner;
use super::metrics::count;
use super::seat::Seat;
use super::{Either, http, race};

/// Connections that may wait to be taken.
const BACKLOG: u32 = 4_096;
/// How long we wait when no descriptor is left.
const EXHAUSTED_MS: u64 = 50;
/// How long a refused user's request may take to come.
const REFUSED_WAIT_MS: u64 = 2_000;
/// The reply to a connection of a refused user if there are too many of them.
const REFUSED: &[u8] = b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
/// The reply to a connection beyond the limit.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";

/// Listens.
pub fn listener(address: SocketAddr) -> Result<TcpListener, Report> {
    let open = || -> io::Result<TcpListener> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().map_err(|error| {
        Report::new(Exit::Failed, format!("cannot listen on {address}"))
            .because(plain(&error))
            .hint("choose another port with --listen; port 0 takes a free one")
    })
}

/// Listens on a socket that systemd has opened.
pub fn passed(socket: std::net::TcpListener) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

/// Takes connections until we stop.
pub async fn accept(front: Rc<Front>, listener: TcpListener) {
    let stopping = || front.stopping().then_some(());
    let owners = Owners::open(&listener);
    // Other machines always need a token, and with a token the user does not matter.
    let local = listener
        .local_addr()
        .is_ok_and(|address| address.ip().is_loopback());
    while let Either::One(taken) = race(listener.accept(), front.bell.until(stopping)).await {
        let Ok((socket, _)) = taken else {
            // No descriptor is left, or the peer is gone already: others wait, and so do we.
            tokio::time::sleep(Duration::from_millis(EXHAUSTED_MS)).await;
            continue;
        };
        // Now, while the other end is open: the kernel does not know the user of a closed one. Also if a token is required,
        // because the config file may be read again while the connection is open.
        let owner = if local {
            owners.of(&socket)
        } else {
            Err(Unknown::Closed)
        };
        let standing = if front.access().admits(owner.ok()) {
            Standing::Admitted
        } else {
            Standing::Refused
        };
        match front.connect(standing) {
            Some(seat) => {
                let guest = Guest { owner, standing };
                front
                    .tasks
                    .start(connection(Rc::clone(&front), socket, guest, seat));
            }
            None => turn_away(&front, &socket, standing),
        }
    }
}

/// The other end of a connection, as it was judged when the connection was taken.
#[derive(Clone, Copy, Debug)]
struct Guest {
    owner: Owner,
    standing: Standing,
}

/// Tells a connection that there is no place for it, if that can be done without waiting.
fn turn_away(front: &Front, socket: &TcpStream, standing: Standing) {
    let words = match standing {
        Standing::Admitted => FULL,
        Standing::Refused => {
            count(&front.metrics.refused);
            REFUSED
        }
    };
    socket.try_write(words).ok();
}

async fn connection(front: Rc<Front>, socket: TcpStream, guest: Guest, seat: Seat) {
    let limits = front.limits();
    let Guest { owner, standing } = guest;
    let refused = standing == Standing::Refused;
    let header_wait_ms = if refused {
        limits.header_wait_ms.min(REFUSED_WAIT_MS)
    } else {
        limits.header_wait_ms
    };
    // A connection that cannot be watched is one that may be dead: it is not served.
    if watch(&socket, limits.dead_peer_ms).is_err() {
        return;
    }
    let answering = Rc::clone(&front);
    let service = service_fn(move |request| {
        let front = Rc::clone(&answering);
        async move { Ok::<_, Infallible>(http::answer(front, owner, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(!refused)
        .header_read_timeout(Duration::from_millis(header_wait_ms))
        .max_buf_size(limits.header_max_bytes as usize)
        .serve_connection(TokioIo::new(socket), service);
    let mut served = pin!(served);
    let mut closing = pin!(front.closing_bell.until(|| front.closing().then_some(())));
    let mut told = false;
    poll_fn(|cx| {
        if !told && closing.as_mut().poll(cx).is_ready() {
            told = true;
            served.as_mut().graceful_shutdown();
        }
        match served.as_mut().poll(cx) {
            // What went wrong on a connection is the peer's affair, and it has been told.
            Poll::Ready(done) => {
                drop(done);
                Poll::Ready(())
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    drop(seat);
}

/// Has the kernel find out that a peer is gone, while we send and while we do not.
fn watch(socket: &TcpStream, dead_peer_ms: u64) -> io::Result<()> {
    let fd = socket.as_fd();
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(fd, true)?;
    let idle = Duration::from_millis(dead_peer_ms.max(1_000));
    sockopt::set_tcp_keepidle(fd, idle)?;
    sockopt::set_tcp_keepintvl(fd, (idle / 3).max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepcnt(fd, 3)?;
    sockopt::set_tcp_user_timeout(fd, dead_peer_ms as u32)?;
    Ok(())
}
