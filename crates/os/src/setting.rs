//! What a process belongs to: a service, a container, a terminal. Only facts; [`mainstay_core::reap`] decides.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::procfs;
use crate::stdio::{self, End};

/// The systemd service that a process belongs to, unless we belong to the same one.
pub fn other_service(pid: i32) -> Option<String> {
    service(
        &cgroup(&pid.to_string())?,
        &cgroup("self").unwrap_or_default(),
    )
}

/// Whether a process runs in a container that we are not in.
pub fn in_container(pid: i32) -> bool {
    let namespace = |who: &str| fs::read_link(format!("/proc/{who}/ns/pid")).ok();
    let (theirs, ours) = (namespace(&pid.to_string()), namespace("self"));
    if theirs.is_some() && theirs != ours {
        return true;
    }
    let (theirs, ours) = (cgroup(&pid.to_string()), cgroup("self"));
    container(&theirs.unwrap_or_default(), &ours.unwrap_or_default())
}

/// Whether a process had a terminal that is deleted: it has none, and its standard descriptors all lead to the deleted one. A process that never
/// had one has other descriptors there.
pub fn lost_terminal(pid: i32) -> bool {
    const TTY_NR: usize = 7;
    if crate::ended::field(pid, TTY_NR) != Some(0) {
        return false;
    }
    (0..3).all(|fd| {
        let link = fs::read_link(format!("/proc/{pid}/fd/{fd}"));
        link.is_ok_and(|link| is_deleted_terminal(&link))
    })
}

/// The sockets of this network namespace at which a process listens, TCP and Unix.
pub fn listening() -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let rows = |file: &str| procfs::text(format!("/proc/net/{file}")).unwrap_or_default();
    for file in ["tcp", "tcp6"] {
        found.extend(rows(file).lines().skip(1).filter_map(tcp_listener));
    }
    found.extend(rows("unix").lines().skip(1).filter_map(unix_listener));
    found
}

/// Whether a process holds one of these sockets.
pub fn holds_one(pid: i32, sockets: &BTreeSet<u64>) -> bool {
    let held = stdio::descriptors(pid).unwrap_or_default();
    held.iter().any(|descriptor| match descriptor.end {
        End::Socket(inode) => sockets.contains(&inode),
        End::Pipe(_)
        | End::Null
        | End::Terminal
        | End::File
        | End::Other
        | End::Closed
        | End::Hidden => false,
    })
}

fn tcp_listener(row: &str) -> Option<u64> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = row.split_ascii_whitespace().collect();
    let inode = fields.get(9)?.parse().ok()?;
    (fields.get(3) == Some(&LISTEN)).then_some(inode)
}

fn unix_listener(row: &str) -> Option<u64> {
    // The flag of a socket that accepts connections.
    const ACCEPTS: u32 = 0x10000;
    let fields: Vec<&str> = row.split_ascii_whitespace().collect();
    let flags = u32::from_str_radix(fields.get(3)?, 16).ok()?;
    let inode = fields.get(6)?.parse().ok()?;
    (flags & ACCEPTS != 0).then_some(inode)
}

fn is_deleted_terminal(link: &Path) -> bool {
    let link = link.to_string_lossy();
    link.starts_with("/dev/pts/") && link.ends_with(" (deleted)")
}

/// The cgroup of a process: of the unified hierarchy, or else of systemd's.
fn cgroup(who: &str) -> Option<String> {
    let text = procfs::text(format!("/proc/{who}/cgroup")).ok()?;
    let of = |name: &str| {
        let mut lines = text.lines();
        let path = lines.find_map(|line| {
            line.split_once(':')?
                .1
                .strip_prefix(name)?
                .strip_prefix(':')
        })?;
        (path != "/").then(|| path.to_owned())
    };
    Some(of("").or_else(|| of("name=systemd")).unwrap_or_default())
}

/// The last service in their path that is not in ours. The manager of a user (`user@1000.service`) is no service of the user.
fn service(theirs: &str, ours: &str) -> Option<String> {
    let ours: Vec<&str> = ours.split('/').collect();
    let units = theirs
        .split('/')
        .enumerate()
        .filter(|(_, unit)| unit.ends_with(".service") && !unit.starts_with("user@"));
    let found = units.last()?;
    (ours.get(found.0) != Some(&found.1)).then(|| found.1.to_owned())
}

/// Engines name the cgroup of a container by its id of 64 hexadecimal digits.
fn container(theirs: &str, ours: &str) -> bool {
    let is_id = |part: &str| {
        let digits = part.bytes().filter(u8::is_ascii_hexdigit).count();
        part.len() >= 64 && digits >= 64
    };
    let mut parts = theirs.split('/');
    parts.any(|part| is_id(part) && !ours.split('/').any(|our| our == part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_and_sessions_are_none() {
        let session = "/user.slice/user-1000.slice/session-3.scope";
        let manager = "/user.slice/user-1000.slice/user@1000.service";
        for (theirs, ours, name) in [
            (
                "/system.slice/agent.service",
                session,
                Some("agent.service"),
            ),
            (session, session, None),
            (
                &format!("{manager}/app.slice/vte-spawn-1.scope"),
                session,
                None,
            ),
            (&format!("{manager}/init.scope"), session, None),
            (
                &format!("{manager}/app.slice/lobster.service"),
                session,
                Some("lobster.service"),
            ),
            // The whole machine is one service, and we are in it.
            (
                "/system.slice/pod.service/x",
                "/system.slice/pod.service",
                None,
            ),
            ("", "", None),
        ] {
            assert_eq!(service(theirs, ours).as_deref(), name, "{theirs}");
        }
    }

    #[test]
    fn containers_are_known_by_their_ids() {
        let id = "0123456789abcdef".repeat(4);
        let docker = format!("/system.slice/docker-{id}.scope");
        for (theirs, ours, inside) in [
            (docker.as_str(), "/user.slice", true),
            (&docker, &docker, false),
            (&format!("/kubepods/{id}"), "/", true),
            ("/user.slice/user-1000.slice/session-3.scope", "/", false),
        ] {
            assert_eq!(container(theirs, ours), inside, "{theirs}");
        }
        assert!(!in_container(std::process::id() as i32));
    }

    #[test]
    fn listeners_are_found() {
        let me = std::process::id() as i32;
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(holds_one(me, &listening()));
        drop(tcp);
        let connected = "   1: 0100007F:1F90 0100007F:A2B4 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1";
        assert_eq!(tcp_listener(connected), None);
        assert_eq!(tcp_listener(&connected.replace(" 01 ", " 0A ")), Some(4242));
        let unix = "0000000000000000: 00000002 00000000 00010000 0001 01 4343 /run/x";
        assert_eq!(unix_listener(unix), Some(4343));
        assert_eq!(unix_listener(&unix.replace("00010000", "00000000")), None);
        assert_eq!(unix_listener("torn"), None);
    }

    #[test]
    fn only_a_deleted_terminal_is_lost() {
        for (link, lost) in [
            ("/dev/pts/3 (deleted)", true),
            ("/dev/pts/3", false),
            ("/tmp/x (deleted)", false),
            ("pipe:[7]", false),
        ] {
            assert_eq!(is_deleted_terminal(Path::new(link)), lost, "{link}");
        }
    }
}
