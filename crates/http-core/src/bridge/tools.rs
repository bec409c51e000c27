//! What is known of the server's tools: which the client was shown, what they say of themselves, and which headers their
//! calls need in the modern era.

use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::message::lists::{self, Lists, Which};
use mainstay_protocol::message::slot::Tracked;
use mainstay_protocol::message::{envelope, retry};
use mainstay_protocol::policy::Retry;

use super::requests::Request;
use crate::headers::{self, Marks};
use crate::lines::look;

/// The tools.
#[derive(Debug, Default)]
pub(super) struct Tools {
    lists: Lists,
    marks: Marks,
}

/// A list as the client is to see it.
pub(super) struct Shown {
    pub line: Vec<u8>,
    /// Tools that were left out, because their marks break the rules.
    pub left_out: Vec<String>,
}

impl Tools {
    /// Whether this request is a call of the modern era whose headers are not known: the client may have seen the list
    /// through a bridge that is dead, and a router needs the headers.
    pub fn lacks_headers(&self, request: &Request) -> bool {
        is_modern_call(request) && !self.marks.are_known()
    }

    /// The headers of a message of the modern era.
    pub fn headers(&self, line: &[u8], version: &str) -> Vec<(String, String)> {
        let mut headers = self.marks.of(&look(line).method, line);
        headers.push((headers::VERSION.into(), version.into()));
        headers
    }

    /// A request of ours for the list, on behalf of a request of the client's: the line and its headers.
    pub fn question(&self, own_id: &[u8], for_: &Request) -> (Vec<u8>, Vec<(String, String)>) {
        let meta = envelope::meta(for_.line());
        let mut line = lists::request(Which::Tools, own_id, None, meta.as_deref());
        line.pop();
        let mut headers = self.marks.of("tools/list", &line);
        let version = for_.modern().map(String::from);
        headers.extend(version.map(|version| (headers::VERSION.into(), version)));
        (line, headers)
    }

    /// The answer to that request.
    pub fn answered(&mut self, line: &[u8]) {
        self.marks.learn(line);
    }

    /// The answer to a list request of the client's, as it is shown; none if it was no request for tools.
    pub fn show(&mut self, request: &Request, line: &[u8]) -> Option<Shown> {
        let asked = request.line();
        if request.method() != Tracked::List || Which::asked(asked) != Some(Which::Tools) {
            return None;
        }
        let learned = request.modern().and_then(|_| self.marks.learn(line));
        let (line, left_out) = learned.unwrap_or_else(|| (line.to_vec(), Vec::new()));
        let page = lists::has_cursor(asked);
        self.lists.client_saw(Which::Tools, page, &line);
        Some(Shown { line, left_out })
    }

    /// Whether a request may be sent twice. What the server asked the client on its behalf would be asked twice, too.
    pub fn may_repeat(&self, retry: Retry, request: &Request) -> bool {
        !request.was_asked_about()
            && retry::may_repeat(retry, request.method(), request.line(), &self.lists)
    }
}

/// Whether it is a call that carries headers of the modern era.
pub(super) fn is_modern_call(request: &Request) -> bool {
    request.modern().is_some() && request.method() == Tracked::ToolsCall
}
