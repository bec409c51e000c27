//! Sessions over HTTP: `run --url` in front of a server, `serve` in front of clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod a_host_that_stops_fails_no_request;
mod a_socket_from_systemd_is_used;
mod cancelled_request_is_over;
mod client_that_comes_back_gets_the_rest;
mod connections_dropped_anywhere_leave_nothing;
mod http_headers_stay_secret;
mod http_requests_have_one_answer;
mod http_session_is_closed_however_its_link_ends;
mod many_clients_share_one_modern_server;
mod r56456_http_sessions_are_never_deleted;
mod r56456_sessions_that_are_never_deleted;
mod serve_leaves_no_server_however_it_ends;
mod serve_refuses_bad_requests;
mod server_death_is_not_the_end_of_its_session;
mod session_over_http_ends_by_delete;
mod sessions_share_one_server_where_allowed;
mod unclosed_http_sessions_are_closed_by_the_next_run;
mod unused_session_is_ended;
mod upstream_sessions_are_closed;
