//! A door for processes of one user: bytes and descriptors arrive together, and a dead host refuses. A test program of its own:
//! a child of another test would hold our ends for a moment.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use mainstay_os::door::{Door, Said, Visit};

fn directory() -> (std::path::PathBuf, File) {
    let name = format!("mainstay-door-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&path).unwrap();
    let opened = File::open(&path).unwrap();
    (path, opened)
}

#[test]
fn bytes_and_descriptors_arrive_together_and_the_dead_refuse() {
    let (path, directory) = directory();
    let door = Door::open(directory.as_fd(), "d").unwrap();
    assert!(door.admit().unwrap().is_none());
    let guest = Visit::at(directory.as_fd(), "d").unwrap();
    let host = door.admit().unwrap().unwrap();
    let me = std::process::id() as i32;
    assert_eq!(host.peer().unwrap().0, me);
    let (read, write) = rustix::pipe::pipe().unwrap();
    let long = vec![7; 70_000];
    guest.say(&long, &[read.as_fd(), write.as_fd()]).unwrap();
    let (mut bytes, mut lent) = (vec![0; 80_000], Vec::new());
    assert_eq!(host.hear(&mut bytes, &mut lent), Said::Bytes(70_000));
    assert_eq!(lent.len(), 2);
    assert_eq!(host.hear(&mut bytes, &mut lent), Said::Nothing);
    drop(guest);
    assert_eq!(host.hear(&mut bytes, &mut lent), Said::Gone);
    drop(door);
    let refused = Visit::at(directory.as_fd(), "d").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    std::fs::remove_dir_all(path).unwrap();
}
