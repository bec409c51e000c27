//! The one rule for what may be sent a second time: to the next generation after a death, or over HTTP after an exchange
//! that broke.
//!
//! It is asked only about requests that a server may have acted upon: one that no server has read may be sent again
//! whatever it is.

use super::envelope;
use super::lists::Lists;
use super::slot::Tracked;
use crate::policy::Retry;

/// How often one request is sent at most: a second failure is not put down to chance.
pub const SENT_MOST: u8 = 2;

/// Parameters that make a call part of something that lasts: a task, or an exchange of questions.
const LASTING: [&str; 3] = ["task", "inputResponses", "requestState"];

/// True if this request does no harm when a server gets it twice, by the protocol's own rules and as far as the user
/// allows it. `lists` are the tool lists that the client was shown: hints count only if the client could see them.
pub fn may_repeat(retry: Retry, method: Tracked, line: &[u8], lists: &Lists) -> bool {
    match (retry, method) {
        (Retry::Never, _) => false,
        (Retry::Annotated, Tracked::ToolsCall) => {
            let hints = envelope::tool_name(line).and_then(|name| lists.tool(&name));
            hints.is_some_and(|hints| hints.read_only || hints.idempotent)
                && !envelope::has_param(line, &LASTING)
        }
        (Retry::Safe | Retry::Annotated, _) => method.is_repeatable(),
    }
}

#[cfg(test)]
mod tests {
    //! guards: A call is repeated only if the user and the tool allow it.

    use super::*;
    use crate::message::lists::Which;
    use alloc::format;

    fn lists() -> Lists {
        let mut lists = Lists::new();
        lists.client_saw(
            Which::Tools,
            false,
            br#"{"id":1,"result":{"tools":[
                {"name":"reads","annotations":{"readOnlyHint":true}},
                {"name":"sets","annotations":{"idempotentHint":true}},
                {"name":"writes","annotations":{"readOnlyHint":false}},
                {"name":"says nothing"}]}}"#,
        );
        lists
    }

    fn call(params: &str) -> alloc::string::String {
        format!(r#"{{"id":2,"method":"tools/call","params":{{{params}}}}}"#)
    }

    #[test]
    fn a_call_is_repeated_only_if_the_user_and_the_tool_allow_it() {
        let lists = lists();
        for (retry, params, repeats) in [
            (Retry::Annotated, r#""name":"reads""#, true),
            (Retry::Annotated, r#""name":"sets","arguments":{}"#, true),
            (Retry::Annotated, r#""name":"writes""#, false),
            (Retry::Annotated, r#""name":"says nothing""#, false),
            (Retry::Annotated, r#""name":"not listed""#, false),
            (Retry::Annotated, r#""arguments":{}"#, false),
            (Retry::Safe, r#""name":"reads""#, false),
            (Retry::Never, r#""name":"reads""#, false),
        ] {
            let line = call(params);
            let found = may_repeat(retry, Tracked::ToolsCall, line.as_bytes(), &lists);
            assert_eq!(found, repeats, "{retry:?} {params}");
        }
        let unseen = Lists::new();
        let line = call(r#""name":"reads""#);
        let (retry, method) = (Retry::Annotated, Tracked::ToolsCall);
        assert!(!may_repeat(retry, method, line.as_bytes(), &unseen));
    }

    #[test]
    fn a_call_that_is_part_of_something_lasting_is_not_repeated() {
        for key in LASTING {
            let line = call(&format!(r#""name":"reads","{key}":{{}}"#));
            let (retry, method) = (Retry::Annotated, Tracked::ToolsCall);
            assert!(
                !may_repeat(retry, method, line.as_bytes(), &lists()),
                "{key}"
            );
        }
        // The same word as an argument of the tool is the tool's own.
        let line = call(r#""name":"reads","arguments":{"task":1}"#);
        let (retry, method) = (Retry::Annotated, Tracked::ToolsCall);
        assert!(may_repeat(retry, method, line.as_bytes(), &lists()));
    }

    #[test]
    fn other_requests_are_repeated_if_they_only_read_or_set_what_was_set() {
        let lists = Lists::new();
        for (method, repeats) in [
            ("initialize", true),
            ("ping", true),
            ("tools/list", true),
            ("resources/read", true),
            ("tasks/get", true),
            ("logging/setLevel", true),
            ("resources/unsubscribe", true),
            ("subscriptions/listen", true),
            ("tasks/cancel", false),
            ("elicit/anything", false),
        ] {
            let tracked = Tracked::of(method);
            for retry in [Retry::Safe, Retry::Annotated] {
                assert_eq!(
                    may_repeat(retry, tracked, b"{}", &lists),
                    repeats,
                    "{method}"
                );
            }
            assert!(
                !may_repeat(Retry::Never, tracked, b"{}", &lists),
                "{method}"
            );
        }
    }
}
