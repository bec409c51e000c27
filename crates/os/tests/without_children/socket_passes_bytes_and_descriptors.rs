//! A socket for processes of one user: bytes and descriptors arrive together, and a dead listener refuses.
//! guards: Bytes and descriptors that are sent together arrive together.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use mainstay_os::packet_socket::{PacketConnection, PacketListener, Received};

fn directory() -> (std::path::PathBuf, File) {
    let name = format!("mainstay-socket-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&path).unwrap();
    let opened = File::open(&path).unwrap();
    (path, opened)
}

#[test]
fn bytes_and_descriptors_arrive_together_and_a_dead_listener_refuses() {
    let (path, directory) = directory();
    let listener = PacketListener::open(directory.as_fd(), "d").unwrap();
    assert!(listener.accept().unwrap().is_none());
    let guest = PacketConnection::connect(directory.as_fd(), "d").unwrap();
    let host = listener.accept().unwrap().unwrap();
    let me = std::process::id() as i32;
    assert_eq!(host.peer().unwrap().0, me);
    let (read, write) = rustix::pipe::pipe().unwrap();
    let long = vec![7; 70_000];
    guest.send(&long, &[read.as_fd(), write.as_fd()]).unwrap();
    let (mut bytes, mut lent) = (vec![0; 80_000], Vec::new());
    assert_eq!(host.receive(&mut bytes, &mut lent), Received::Bytes(70_000));
    assert_eq!(lent.len(), 2);
    assert_eq!(host.receive(&mut bytes, &mut lent), Received::Nothing);
    drop(guest);
    assert_eq!(host.receive(&mut bytes, &mut lent), Received::Gone);
    drop(listener);
    let refused = PacketConnection::connect(directory.as_fd(), "d").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    std::fs::remove_dir_all(path).unwrap();
}
