//! The members of a batch, each as a message of its own.

use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::message::batch;
use mainstay_protocol::message::frame::{Frame, Id, Kind};

/// What is known of a member, apart from the batch that it came in.
pub(in crate::link) struct Member {
    kind: Kind,
    id: Option<Vec<u8>>,
    method: Option<String>,
}

impl Member {
    pub fn frame(&self) -> Frame<'_> {
        Frame {
            kind: self.kind,
            id: self.id.as_deref().map_or(Id::Absent, Id::Token),
            method: self.method.as_deref().map(Into::into),
            bytes: 0,
        }
    }
}

/// The members of a batch, each as a line of its own.
pub(in crate::link) fn members(line: &[u8]) -> Vec<(Member, Vec<u8>)> {
    let mut all = Vec::new();
    batch::each_member_line(line, |frame, line| {
        let id = match frame.id {
            Id::Token(id) => Some(id.to_vec()),
            Id::Absent | Id::Null | Id::TooLong => None,
        };
        let member = Member {
            kind: frame.kind,
            id,
            method: frame.method.as_deref().map(Into::into),
        };
        all.push((member, line.to_vec()));
    });
    all
}
