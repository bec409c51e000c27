//! What clients and hosts rely on: bytes pass unchanged, servers are kept warm for them, leases end their servers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod a_client_that_comes_back_gets_a_server_that_works;
mod a_client_that_only_probes_leaves_nothing;
mod a_closed_lease_leaves_no_process;
mod a_dropped_lease_ends_its_servers;
mod a_killed_shim_keeps_its_server_warm;
mod a_lease_ends_by_itself;
mod a_lease_that_is_not_open_starts_no_server;
mod a_reattached_link_survives_every_kill;
mod a_strangers_signal_does_not_end_the_session;
mod a_tool_list_that_differs_from_the_record_is_announced;
mod another_configuration_has_its_own_cache;
mod answers_after_eof_are_delivered;
mod bytes_pass_untouched;
mod client_ids_come_back_byte_for_byte;
mod control_socket_peers_cannot_stall_a_link;
mod last_lines_are_not_lost;
mod late_answers_never_reach_the_next_client;
mod lazy_server_starts_with_the_first_real_call;
mod learned_tools_are_there_in_the_first_session;
mod linger_ends_when_no_client_can_come_back;
mod r1163_session_scoped_servers_leak;
mod r40207_healthy_server_gets_sigterm;
mod second_session_opens_before_its_server_is_up;
mod server_sees_what_the_client_gave;
mod slow_reader_gives_back_pressure;
mod stderr_flood_under_a_deaf_client_keeps_answering;
mod two_writers_never_mix_a_record;
mod unread_output_costs_no_processor_time;
mod which_client_gets_a_warm_server;
