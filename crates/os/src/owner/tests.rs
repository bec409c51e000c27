//! guards: The owner of a TCP connection is known only from a complete answer of the kernel about an open socket.

use super::*;
use crate::skip::skip;
use std::net::{Shutdown, TcpListener, TcpStream};

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// One that asks by netlink, if the kernel answers that here, and one that reads the tables.
fn both(listener: &TcpListener) -> Vec<Owners> {
    let by_table = Owners {
        diag: None,
        unmapped: None,
    };
    let asking = Owners::open(listener);
    if asking.diag.is_none() {
        skip("netlink is not answered");
        return vec![by_table];
    }
    vec![asking, by_table]
}

fn pair(address: &str) -> Option<(TcpListener, TcpStream, TcpStream)> {
    let listener = TcpListener::bind(address)
        .inspect_err(|error| skip(&format!("{address}: {error}")))
        .ok()?;
    let mut to = listener.local_addr().unwrap();
    if to.ip().is_unspecified() {
        to.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let client = TcpStream::connect(to).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    Some((listener, client, accepted))
}

#[test]
fn our_own_connections_are_ours_in_either_family() {
    // The last one accepts IPv4 with an IPv6 socket.
    for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
        let Some((listener, client, accepted)) = pair(address) else {
            continue;
        };
        for owners in both(&listener) {
            assert_eq!(owners.of(&accepted), Ok(me()), "{address} {owners:?}");
            assert_eq!(owners.of(&client), Ok(me()), "the other way round");
            assert_eq!(owners.of(&listener), Err(Unknown::Closed));
        }
    }
}

#[test]
fn a_client_with_a_socket_of_the_other_kind_is_found() {
    let (listener, _, _) = pair("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mapped = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), port);
    let Ok(client) = TcpStream::connect(mapped) else {
        return skip("no IPv6");
    };
    let (accepted, peer) = listener.accept().unwrap();
    assert_eq!(
        peer.port(),
        client.local_addr().unwrap().port(),
        "it is this one"
    );
    for owners in both(&listener) {
        assert_eq!(owners.of(&accepted), Ok(me()), "{owners:?}");
    }
}

/// The kernel reports root as the owner of such a socket.
#[test]
fn closed_socket_has_no_owner() {
    let _lock = crate::child_lock::without_children();
    let (listener, client, accepted) = pair("127.0.0.1:0").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    for owners in both(&listener) {
        assert_eq!(owners.of(&accepted), Ok(me()), "half closed is open");
    }
    drop(client);
    for owners in both(&listener) {
        assert_eq!(owners.of(&accepted), Err(Unknown::Closed), "{owners:?}");
    }
    let (listener, client, accepted) = pair("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
    for owners in both(&listener) {
        assert_eq!(owners.of(&accepted), Err(Unknown::Closed), "reset");
    }
}

#[test]
fn overflow_uid_is_unknown_only_if_some_users_are_unmapped() {
    let (listener, _client, accepted) = pair("127.0.0.1:0").unwrap();
    for mut owners in both(&listener) {
        owners.unmapped = Some(me());
        assert_eq!(owners.of(&accepted), Err(Unknown::Unmapped));
        owners.unmapped = Some(me() ^ 1);
        assert_eq!(owners.of(&accepted), Ok(me()));
    }
    assert!(maps_all_users("         0          0 4294967295\n"));
    assert!(maps_all_users("0 0 1000\n1000 1001 4294966295\n"));
    for map in [
        "",
        "0 1000 1\n",
        "0 1000 1\n1 100000 65536\n",
        "x",
        "0 0 -1",
    ] {
        assert!(!maps_all_users(map), "{map}");
    }
}

fn answer(family: i32, state: u8, uid: u32, inode: u32) -> Vec<u8> {
    let ends = Ends {
        near: "127.0.0.1:4660".parse().unwrap(),
        far: "127.0.0.1:8808".parse().unwrap(),
    };
    let mut answer = vec![family as u8, state, 0, 0];
    answer.extend_from_slice(&question(&ends)[8..]);
    answer.extend_from_slice(&[0; 12]);
    answer.extend_from_slice(&uid.to_ne_bytes());
    answer.extend_from_slice(&inode.to_ne_bytes());
    answer
}

#[test]
fn owner_needs_a_whole_answer_about_an_open_socket_of_this_connection() {
    let whole = answer(libc::AF_INET, 1, 1000, 5);
    let found = read(&whole).unwrap();
    let ends = found.ends;
    assert_eq!(ends.near, "127.0.0.1:4660".parse().unwrap());
    assert_eq!(ends.far, "127.0.0.1:8808".parse().unwrap());
    assert_eq!(found.owner(&ends), Some(1000));
    for len in 0..whole.len() {
        assert_eq!(read(&whole[..len]), None, "{len}");
    }
    let longer = [&whole[..], &[0xff; 40]].concat();
    assert_eq!(read(&longer), Some(found), "attributes follow");
    assert_eq!(read(&answer(libc::AF_UNIX, 1, 1000, 5)), None);
    let other = read(&answer(libc::AF_INET6, 1, 1000, 5)).unwrap();
    assert_eq!(other.owner(&ends), None, "7f00:1::, another address");
    // Closed by its process, in TIME_WAIT, half open, listening, or a connection that is only being made.
    for (state, inode) in [
        (1, 0),
        (5, 0),
        (6, 0),
        (3, 0),
        (10, 5),
        (2, 5),
        (7, 5),
        (0, 5),
    ] {
        let found = read(&answer(libc::AF_INET, state, 0, inode)).unwrap();
        assert_eq!(found.owner(&ends), None, "{state} {inode}");
    }
    let swapped = Ends {
        near: ends.far,
        far: ends.near,
    };
    assert_eq!(found.owner(&swapped), None, "our own end");
}

#[test]
fn table_rows_are_parsed_and_others_are_skipped() {
    let line = "   1: 0100007F:1234 0100007F:2268 01 00000000:00000000 00:00000000 00000000  1000        0 77 1 0";
    let found = row(line).unwrap();
    assert_eq!(found.ends.near, "127.0.0.1:4660".parse().unwrap());
    assert_eq!((found.state, found.uid, found.inode), (1, 1000, 77));
    let mapped = "   1: 0000000000000000FFFF00000100007F:1234 00000000000000000000000001000000:2268 01 0:0 0:0 0 5 0 9";
    let found = row(mapped).unwrap();
    assert_eq!(found.ends.near, "127.0.0.1:4660".parse().unwrap());
    assert_eq!(found.ends.far, "[::1]:8808".parse().unwrap());
    for line in [
        "",
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
        "1: 0100007F:1234 0100007F:2268 01 0:0 0:0 0 1000 0",
        "1: 0100007F 0100007F:2268 01 0:0 0:0 0 1000 0 5",
        "1: 0100007:1234 0100007F:2268 01 0:0 0:0 0 1000 0 5",
        "1: 0100007F:1234 0100007F:2268 01 0:0 0:0 0 -1 0 5",
        "1: ééééé:1234 0100007F:2268 01 0:0 0:0 0 1 0 5",
    ] {
        assert_eq!(row(line), None, "{line}");
    }
}
