//! Containment: the client, any of our processes or all of them may be killed, and no process is left.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod another_users_state_is_not_obeyed;
mod container_is_stopped_too;
mod container_of_a_dead_link_is_ended;
mod file_size_limits_hurt_no_server;
mod guard_killed_gets_a_side_guard;
mod init_that_does_not_reap;
mod keeper_killed_before_a_slow_reader;
mod keeper_killed_in_the_middle_of_a_line;
mod keeper_killed_is_taken_over;
mod keeper_killed_while_no_server_runs;
mod keepers_killed_again_and_again_leave_no_process;
mod launcher_gone_client_stays;
mod leaked_pipe_end_does_not_keep_the_server_alive;
mod lost_witness_is_reported;
mod pair_killed_at_once_leaves_no_old_tree;
mod r26658_orphans_after_client_death;
mod scarce_limits_are_survived_or_explained;
mod side_guard_is_not_part_of_the_servers_tree;
mod slow_saver_gets_its_grace;
mod stuck_keeper_ends_with_its_client;
mod sweep_spares_other_processes;
