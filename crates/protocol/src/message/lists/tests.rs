//! guards: A changed list of tools, prompts or resources is noticed, and a list without end is not read for ever.

use super::*;
use alloc::format;
use alloc::string::ToString;
use proptest::prelude::*;

/// A response with these tools (as JSON) and a cursor for the next page.
fn page(tools: &[&str], next: Option<&str>) -> Vec<u8> {
    let next = next.map_or(String::new(), |next| format!(r#","nextCursor":{next}"#));
    let tools = tools.join(",");
    let line = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{tools}]{next}}}}}"#);
    (line + "\n").into_bytes()
}

const A: &str = r#"{"name":"a","inputSchema":{"type":"object","required":["x"]}}"#;
const A_AGAIN: &str = r#"{ "inputSchema":{"required":["x"],"type":"obj\u0065ct"}, "name":"a" }"#;
const B: &str = r#"{"name":"b"}"#;
const C: &str = r#"{"name":"c"}"#;

/// What the client saw: pages in order.
fn seen(pages: &[Vec<u8>]) -> Lists {
    let mut lists = Lists::new();
    for (at, line) in pages.iter().enumerate() {
        lists.client_saw(Which::Tools, at > 0, line);
    }
    lists
}

/// Our walk over these pages: the verdict, and how many were asked for.
fn walk(lists: &mut Lists, pages: &[Vec<u8>]) -> (Check, usize) {
    for (at, line) in pages.iter().enumerate() {
        match lists.check(Which::Tools, at, line) {
            Check::More { cursor } => assert_eq!(Some(&cursor[..]), next_cursor(line)),
            verdict @ (Check::Same | Check::Differs) => return (verdict, at + 1),
        }
    }
    panic!("the walk went on after the last page");
}

#[test]
fn names_of_the_lists() {
    for which in Which::ALL {
        assert_eq!(Which::of(which.method()), Some(which));
        assert!(Which::changed_by(which.changed()).any(|w| w == which));
    }
    assert_eq!(Which::of("tools/call"), None);
    let stale = |method| Which::changed_by(method).collect::<Vec<_>>();
    assert_eq!(
        stale("notifications/resources/list_changed"),
        [Which::Resources, Which::Templates]
    );
    assert_eq!(stale("notifications/tools/list_changed"), [Which::Tools]);
    assert_eq!(stale("notifications/message"), []);
}

#[test]
fn lists_differ_by_their_elements_only() {
    let more = Some("\"2\"");
    let ab = || [page(&[A, B], None)].to_vec();
    for (name, client, ours, expected) in [
        ("the same", ab(), ab(), Check::Same),
        (
            "in other words, another order",
            ab(),
            [page(&[B, A_AGAIN], None)].to_vec(),
            Check::Same,
        ),
        (
            "one less",
            ab(),
            [page(&[A], None)].to_vec(),
            Check::Differs,
        ),
        (
            "one more",
            ab(),
            [page(&[A, B, C], None)].to_vec(),
            Check::Differs,
        ),
        (
            "another",
            ab(),
            [page(&[A, C], None)].to_vec(),
            Check::Differs,
        ),
        (
            "one twice",
            ab(),
            [page(&[A, A], None)].to_vec(),
            Check::Differs,
        ),
        (
            "none of none",
            [page(&[], None)].to_vec(),
            [page(&[], None)].to_vec(),
            Check::Same,
        ),
        (
            "cut otherwise",
            ab(),
            [page(&[A], more), page(&[B], None)].to_vec(),
            Check::Same,
        ),
        (
            "no longer cut",
            [page(&[A], more), page(&[B], None)].to_vec(),
            ab(),
            Check::Same,
        ),
        (
            "an empty last page",
            ab(),
            [page(&[A, B], more), page(&[], None)].to_vec(),
            Check::Same,
        ),
        (
            "an empty cursor",
            ab(),
            [page(&[A, B], Some("\"\""))].to_vec(),
            Check::Same,
        ),
        (
            "no cursor",
            ab(),
            [page(&[A, B], Some("null"))].to_vec(),
            Check::Same,
        ),
        (
            "longer",
            ab(),
            [page(&[A, B, C], more)].to_vec(),
            Check::Differs,
        ),
        (
            "only the first page was seen",
            [page(&[A, B], more)].to_vec(),
            [page(&[B, A], more)].to_vec(),
            Check::Same,
        ),
        (
            "of which something changed",
            [page(&[A, B], more)].to_vec(),
            [page(&[A, C], more)].to_vec(),
            Check::Differs,
        ),
        (
            "an error",
            ab(),
            [br#"{"id":1,"error":{"code":-32601}}"#.to_vec()].to_vec(),
            Check::Differs,
        ),
        ("nonsense", ab(), [b"{".to_vec()].to_vec(), Check::Differs),
        (
            "no array",
            ab(),
            [br#"{"id":1,"result":{"tools":{}}}"#.to_vec()].to_vec(),
            Check::Differs,
        ),
    ] {
        let mut lists = seen(&client);
        assert_eq!(lists.to_check(), [Which::Tools], "{name}");
        let asked = ours.len();
        assert_eq!(walk(&mut lists, &ours), (expected.clone(), asked), "{name}");
        // A successor of the keeper comes to the same end.
        let mut restored = Lists::new();
        restored.restore(Which::Tools, &lists.digest(Which::Tools).unwrap());
        assert_eq!(restored.known, lists.known, "{name}");
        assert_eq!(walk(&mut restored, &ours).0, expected, "{name}");
    }
}

#[test]
fn members_beside_the_elements_do_not_count() {
    let mut lists = seen(&[page(&[A, B], None)]);
    let other = format!(
        r#"{{"result":{{"_meta":{{"t":7}},"ttlMs":5,"resultType":"complete","tools":[{A},{B}]}},"id":"x"}}"#
    );
    assert_eq!(lists.check(Which::Tools, 0, other.as_bytes()), Check::Same);
}

#[test]
fn the_client_begins_again_and_reads_pages_twice() {
    let more = Some("\"2\"");
    let mut lists = seen(&[page(&[A], more), page(&[B], None)]);
    let two = lists.digest(Which::Tools);
    lists.client_saw(Which::Tools, true, &page(&[B], None));
    assert_eq!(lists.digest(Which::Tools), two);
    lists.client_saw(Which::Tools, false, &page(&[C], None));
    assert_eq!(walk(&mut lists, &[page(&[C], None)]).0, Check::Same);
}

#[test]
fn errors_make_no_memory_and_the_unreadable_ends_it() {
    let error = br#"{"id":1,"error":{"code":-32603,"message":"x"}}"#;
    let mut lists = Lists::new();
    lists.client_saw(Which::Tools, false, error);
    lists.client_saw(Which::Tools, true, &page(&[A], None));
    assert_eq!(
        (lists.to_check(), lists.digest(Which::Tools)),
        ([].to_vec(), None)
    );
    lists.client_saw(Which::Tools, false, &page(&[A], None));
    lists.client_saw(Which::Tools, false, error);
    assert_eq!(lists.to_check(), [Which::Tools]);
    lists.client_saw(
        Which::Tools,
        false,
        br#"{"id":1,"result":{"tools":[nope]}}"#,
    );
    assert_eq!((lists.to_check(), lists.tool("a")), ([].to_vec(), None));
}

#[test]
fn an_announced_change_ends_the_memory() {
    let mut lists = seen(&[page(&[A], None)]);
    lists.client_saw(
        Which::Templates,
        false,
        br#"{"id":1,"result":{"resourceTemplates":[]}}"#,
    );
    lists.adopt(Which::Tools);
    assert_eq!(lists.to_check(), [Which::Templates]);
    assert_eq!(lists.check(Which::Tools, 0, &page(&[], None)), Check::Same);
}

#[test]
fn a_client_that_asks_by_itself_ends_our_walk() {
    let more = Some("\"2\"");
    let mut lists = seen(&[page(&[A, B], None)]);
    let check = lists.check(Which::Tools, 0, &page(&[A], more));
    assert_eq!(
        check,
        Check::More {
            cursor: b"\"2\"".to_vec()
        }
    );
    lists.client_saw(Which::Tools, false, &page(&[A], more));
    assert_eq!(lists.check(Which::Tools, 1, &page(&[C], None)), Check::Same);
}

#[test]
fn a_walk_without_end_ends() {
    let mut lists = seen(&[page(&[A], None)]);
    let empty = page(&[], Some("\"2\""));
    let pages: Vec<_> = core::iter::repeat_n(empty, PAGES_MAX).collect();
    assert_eq!(walk(&mut lists, &pages), (Check::Differs, PAGES_MAX));
}

#[test]
fn hints_are_false_unless_said() {
    let hints = |read_only, idempotent| {
        Some(Hints {
            read_only,
            idempotent,
        })
    };
    let tools = [
        r#"{"name":"plain"}"#,
        r#"{"name":"r\u0065ad","annotations":{"readOnlyHint": true }}"#,
        r#"{"name":"set","annotations":{"idempotentHint":true,"readOnlyHint":false}}"#,
        r#"{"name":"odd","annotations":{"idempotentHint":"true","readOnlyHint":1}}"#,
        r#"{"name":"none","annotations":null}"#,
        r#"{"name":5}"#,
        "7",
    ];
    let mut lists = seen(&[page(&tools[..2], Some("\"2\"")), page(&tools[2..], None)]);
    for (name, expected) in [
        ("plain", hints(false, false)),
        ("read", hints(true, false)),
        ("set", hints(false, true)),
        ("odd", hints(false, false)),
        ("none", hints(false, false)),
        ("other", None),
    ] {
        assert_eq!(lists.tool(name), expected, "{name}");
    }
    lists.client_saw(Which::Tools, false, &page(&[A], None));
    assert_eq!(
        (lists.tool("read"), lists.tool("a")),
        (None, hints(false, false))
    );
}

#[test]
fn tools_without_number_are_not_all_remembered() {
    let tools: Vec<_> = (0..=TOOLS_MAX)
        .map(|n| format!(r#"{{"name":"{n}"}}"#))
        .collect();
    let tools: Vec<_> = tools.iter().map(String::as_str).collect();
    let lists = seen(&[page(&tools, None)]);
    assert!(lists.tool(&(TOOLS_MAX - 1).to_string()).is_some());
    assert_eq!(lists.tool(&TOOLS_MAX.to_string()), None);
}

#[test]
fn our_questions() {
    for (which, cursor, meta, expected) in [
        (
            Which::Tools,
            None,
            None,
            r#"{"jsonrpc":"2.0","id":"ms:1","method":"tools/list"}"#,
        ),
        (
            Which::Prompts,
            Some("\"c\""),
            None,
            r#"{"jsonrpc":"2.0","id":"ms:1","method":"prompts/list","params":{"cursor":"c"}}"#,
        ),
        (
            Which::Resources,
            None,
            Some("{}"),
            r#"{"jsonrpc":"2.0","id":"ms:1","method":"resources/list","params":{"_meta":{}}}"#,
        ),
        (
            Which::Templates,
            Some("\"c\""),
            Some("{}"),
            r#"{"jsonrpc":"2.0","id":"ms:1","method":"resources/templates/list","params":{"cursor":"c","_meta":{}}}"#,
        ),
    ] {
        let line = request(
            which,
            b"\"ms:1\"",
            cursor.map(str::as_bytes),
            meta.map(str::as_bytes),
        );
        assert_eq!(
            String::from_utf8(line.clone()).unwrap(),
            format!("{expected}\n")
        );
        assert_eq!(has_cursor(&line), cursor.is_some());
    }
}

#[test]
fn cursors_of_others() {
    for (line, expected) in [
        (
            r#"{"method":"tools/list","params":{"cursor":"\u0061"}}"#,
            true,
        ),
        (r#"{"method":"tools/list","params":{"cursor":null}}"#, false),
        (r#"{"method":"tools/list","params":{"cursor":""}}"#, false),
        (
            r#"{"method":"tools/list","params":{"x":{"cursor":"a"}}}"#,
            false,
        ),
        (r#"{"method":"tools/list","params":[]}"#, false),
        ("nope", false),
    ] {
        assert_eq!(has_cursor(line.as_bytes()), expected, "{line}");
    }
    assert_eq!(
        next_cursor(br#"{"result":{"nextCursor": "a\/b" }}"#),
        Some(&br#""a\/b""#[..])
    );
    assert_eq!(next_cursor(br#"{"result":{"nextCursor":5}}"#), None);
}

proptest! {
    #[test]
    fn any_lines_and_any_memory_are_safe(
        steps in prop::collection::vec((any::<bool>(), 0..3usize, prop_oneof![
            ".{0,40}",
            r#"\{"result":\{"tools":\[(\{"name":("a"|1)\}|,|\[\]){0,4}\](,"nextCursor":("a"|null))?\}\}"#,
            r#"\{"(result|error)":.{0,20}\}"#,
        ]), 0..12),
        memory in prop::collection::vec(any::<u8>(), 0..18),
    ) {
        let mut lists = Lists::new();
        lists.restore(Which::Tools, &memory);
        prop_assert_eq!(lists.digest(Which::Tools).is_some(), memory.len() == DIGEST_BYTES);
        for (client, at, line) in steps {
            if client {
                lists.client_saw(Which::Tools, at > 0, line.as_bytes());
                let page = Page::of(Which::Tools, line.as_bytes());
                if at == 0 && matches!(page, Page::Result { next: None, .. }) {
                    prop_assert_eq!(lists.clone().check(Which::Tools, 0, line.as_bytes()), Check::Same);
                }
            } else {
                lists.check(Which::Tools, at, line.as_bytes());
            }
        }
    }
}
