//! Whatever the kernel refuses, a role of ours ends up without the descriptors that it must not hold.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::os::fd::{AsFd, AsRawFd};

use common::{alone, few_descriptors, refuse};
use mainstay_os::role;
use rustix::pipe::pipe;

#[test]
fn of_the_clients_pipes_without_a_descriptor_left() {
    alone("of_the_clients_pipes_without_a_descriptor_left", || {
        // Of any number; or of none but those that it has.
        for most in [0, 3] {
            let (reader, writer) = pipe().unwrap();
            let (gate, open) = pipe().unwrap();
            let holder = role::start(|| {
                role::take_stdio([gate.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
                role::close_all_but(&mut [gate.as_raw_fd()]);
                few_descriptors(most, role::release_stdio);
                // It lives on, and holds nothing.
                rustix::io::read(&gate, &mut [0u8]).unwrap();
                0
            })
            .unwrap();
            drop(writer);
            assert_eq!(rustix::io::read(&reader, &mut [0u8]), Ok(0));
            drop(open);
            assert_eq!(role::wait(holder).unwrap(), Some(0));
        }
    });
}

#[test]
fn where_close_range_is_refused() {
    alone("where_close_range_is_refused", || {
        let (reader, writer) = pipe().unwrap();
        let (gate, open) = pipe().unwrap();
        let holder = role::start(|| {
            refuse(libc::SYS_close_range);
            role::close_all_but(&mut [gate.as_raw_fd()]);
            rustix::io::read(&gate, &mut [0u8]).unwrap();
            0
        })
        .unwrap();
        drop(writer);
        assert_eq!(rustix::io::read(&reader, &mut [0u8]), Ok(0));
        drop(open);
        assert_eq!(role::wait(holder).unwrap(), Some(0));
    });
}
