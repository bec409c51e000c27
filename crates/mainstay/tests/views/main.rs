//! What users read: `ps`, `why`, `events`, `tap`, `watch`, `doctor`, `demo`, and messages about mistakes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod a_listed_link_answers_commands;
mod a_reader_that_ends_early_is_not_an_error;
mod a_session_is_recorded_in_events;
mod a_signal_is_recorded_with_its_sender;
mod adopt_and_release_restore_every_client;
mod adopt_asks_before_it_changes;
mod adopt_points_to_a_program_that_stays;
mod adopt_says_what_it_cannot_change;
mod adopt_without_rights_loses_nothing;
mod cache_is_listed_and_cleared;
mod colour_is_used_where_it_is_wanted;
mod commands_in_the_guides_work;
mod completions_offer_server_names;
mod config_mistakes_are_explained;
mod demo_fits_its_terminal;
mod demo_holds_and_leaves_no_process;
mod demo_interrupted_leaves_no_process;
mod doctor_reports_each_problem;
mod ends_of_clients_and_shims_are_recorded_with_their_status;
mod events_are_shown_as_sentences;
mod events_follow_sees_new_lines;
mod every_command_has_examples;
mod logs_show_what_a_server_writes;
mod many_processes_write_one_ledger;
mod metrics_count_what_is_answered;
mod mistakes_in_a_client_config_leave_a_trace;
mod mistakes_on_the_command_line_are_explained;
mod notify_tells_the_user;
mod old_command_names_still_work;
mod old_event_names_are_read;
mod ps_shows_the_tree_of_a_link;
mod ps_watch_restores_the_terminal;
mod ps_without_servers_says_how_to_start;
mod r40207_watchdog_and_tracer_by_hand;
mod reap_ends_orphans_and_spares_others;
mod reap_spares_clients_of_other_parents;
mod recording_keeps_the_whole_session;
mod restart_waits_for_the_next_generation;
mod six_variables_are_enough;
mod stop_names_what_is_left;
mod tap_shows_what_passes;
mod timeline_puts_all_on_one_clock;
mod trace_signals_names_the_sender;
mod version_names_the_build;
mod watch_reports_starts_and_ends;
mod why_explains_what_ended_a_server;
mod why_gives_the_true_verdict;
mod why_no_stronger_tier;
