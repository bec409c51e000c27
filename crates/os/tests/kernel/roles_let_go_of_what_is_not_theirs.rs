//! Even if the kernel refuses some calls, a role of ours closes the descriptors that it must not hold.
//! guards: Shim, guard and keeper close every descriptor that is not theirs, even if the kernel refuses some calls.

use std::os::fd::{AsFd, AsRawFd};

use crate::common::{alone, few_descriptors, refuse};
use mainstay_os::role;
use rustix::pipe::pipe;

#[test]
fn clients_pipes_are_released_without_a_free_descriptor() {
    alone(
        this_test!("clients_pipes_are_released_without_a_free_descriptor"),
        || {
            // With free descriptors, and with none but those that it has.
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
        },
    );
}

#[test]
fn descriptors_are_closed_without_close_range() {
    alone(
        this_test!("descriptors_are_closed_without_close_range"),
        || {
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
        },
    );
}
