//! Tests of what we ask of the kernel, with real processes. A test that needs a process of its own runs in a copy of
//! this program.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

#[macro_use]
mod common;

mod client_that_hides_its_descriptors;
mod guardian_spares_owners_it_cannot_watch;
mod keeper_killed_leaves_no_process;
mod one_keeper_at_a_time_has_the_record;
mod pair_is_dead_before_the_next_one_looks;
mod roles_let_go_of_what_is_not_theirs;
mod scope_under_private_systemd;
mod spawn_child_side;
mod sweep_touches_only_strays;
mod tree_kill;
mod tree_measures;
mod turns_on_a_processor;
mod unseen_process_is_not_dead;
