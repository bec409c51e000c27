//! The `data` of an error: the same for programs.

use alloc::vec::Vec;

use serde::Serialize;

use super::{Why, telling};
use crate::event::Status;
use crate::message::slot::Tracked;

/// The `data` of an error, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Data<'a> {
    proxy: &'static str,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<Exit>,
    restarted: bool,
    retried: bool,
    safe_to_retry: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stderr: Vec<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Exit {
    Code(i32),
    Signal(i32),
}

impl Why<'_> {
    pub(super) fn data(&self, method: Tracked) -> Data<'_> {
        let (reason, restarted) = match self {
            Self::StartFailed { .. } => ("start_failed", false),
            Self::ServerExit { restarted, .. } => ("server_exit", *restarted),
            Self::Abandoned { .. } => ("abandoned", false),
            Self::Renewed { .. } => ("restarted", true),
            Self::Deadline { .. } => ("call_deadline", false),
            Self::Differs { .. } => ("server_differs", true),
            Self::KeeperLost { .. } => ("keeper_lost", true),
            Self::OpeningSilent { .. } => ("opening_silent", false),
            Self::Lost { .. } => ("server_exit", true),
            Self::TooLong { .. } => ("answer_too_long", false),
            Self::Asked { .. } => ("stopped", false),
            Self::LeaseEnded { .. } => ("lease_ended", false),
            Self::ClientStopping { .. } => ("client_stopping", false),
        };
        let unsent = matches!(
            self,
            Self::StartFailed { .. } | Self::Abandoned { sent: false, .. }
        );
        let mut data = Data {
            proxy: "mainstay",
            reason,
            exit: None,
            restarted,
            retried: false,
            safe_to_retry: unsent || method.is_repeatable(),
            stderr: Vec::new(),
        };
        if let Self::ServerExit {
            status, poisoned, ..
        } = *self
        {
            data.exit = Some(match status {
                Status::Code(code) => Exit::Code(code),
                Status::Signal { number, .. } => Exit::Signal(number),
            });
            data.retried = poisoned;
        }
        if let Self::ServerExit { stderr_tail, .. } | Self::Abandoned { stderr_tail, .. } = *self {
            data.stderr = telling(stderr_tail);
        }
        data
    }
}
