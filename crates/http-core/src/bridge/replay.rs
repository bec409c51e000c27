//! What is sent to a new session before the messages of the client continue, so that it knows what the old one knew.
//!
//! `initialize` as the client sent it, `initialized`, the log level and the subscriptions. It keeps lines, and does not send
//! them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::limits;
use mainstay_protocol::message::envelope;
use mainstay_protocol::message::slot::Tracked;

use crate::lines::{look, offered};

/// The lines.
#[derive(Debug, Default)]
pub(super) struct ReplayLog {
    initialize: Option<Vec<u8>>,
    initialized: Option<Vec<u8>>,
    level: Option<Vec<u8>>,
    subscriptions: BTreeMap<String, Vec<u8>>,
}

impl ReplayLog {
    /// The client begins with this line.
    pub fn begun_with(initialize: Vec<u8>) -> Self {
        Self {
            initialize: Some(initialize),
            ..Self::default()
        }
    }

    /// The client confirms.
    pub fn confirmed_with(&mut self, initialized: Vec<u8>) {
        self.initialized = Some(initialized);
    }

    /// The opening was refused: there is nothing to repeat.
    pub fn forget_opening(&mut self) {
        self.initialize = None;
    }

    /// True if a session can be opened again.
    pub fn has_opening(&self) -> bool {
        self.initialize.is_some()
    }

    /// A request of this sort succeeded.
    pub fn learn(&mut self, method: Tracked, asked: &[u8]) {
        match method {
            Tracked::SetLevel => self.level = Some(asked.to_vec()),
            Tracked::Subscribe => {
                let Some(uri) = envelope::uri(asked) else {
                    return;
                };
                if look(asked).method != "resources/subscribe" {
                    self.subscriptions.remove(uri.as_ref());
                } else if self.subscriptions.len() < limits::HTTP_SUBSCRIPTIONS {
                    self.subscriptions.insert(uri.into_owned(), asked.to_vec());
                }
            }
            Tracked::Other
            | Tracked::Initialize
            | Tracked::Discover
            | Tracked::Ping
            | Tracked::List
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::Listen
            | Tracked::Task => {}
        }
    }

    /// The client's `initialize` under an id of ours.
    pub fn initialize(&self, own_id: &[u8]) -> Option<Vec<u8>> {
        under(self.initialize.as_deref()?, own_id)
    }

    /// The client's `initialized`, or what it would have been.
    pub fn initialized(&self) -> Vec<u8> {
        self.initialized.clone().unwrap_or_else(|| {
            br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec()
        })
    }

    /// The level and the subscriptions under ids of ours, each with its id.
    pub fn rest(&self, mut own_id: impl FnMut() -> Vec<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let lines = self.level.iter().chain(self.subscriptions.values());
        lines
            .filter_map(|line| {
                let own = own_id();
                let line = under(line, &own)?;
                Some((own, line))
            })
            .collect()
    }

    /// The protocol version that the client offered.
    pub fn offered(&self) -> Option<String> {
        self.initialize.as_deref().and_then(offered)
    }
}

fn under(line: &[u8], own_id: &[u8]) -> Option<Vec<u8>> {
    envelope::with_id(&envelope::without_progress(line), own_id)
}
