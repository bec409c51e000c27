//! Config files that break other editors: 21 of JSON, 13 of TOML, 17 of YAML, and what is refused.
//! guards: Adopt changes only command and arguments of an entry, and refuses a file that it cannot edit safely.

use mainstay_clients::limits::{DEPTH_LEVELS_MAX, FILE_BYTES_MAX};
use mainstay_clients::plan::Reason;
use mainstay_clients::refusal::Refusal;

use crate::support::{PROGRAM, adopt, adopted, reason};

/// Adopts and compares with the old text, in which `<C>` is the command and `<A>` stands where our words go.
fn exact(name: &str, marked: &str, command: &str, words: &str) {
    let old = marked.replace("<C>", command).replace("<A>", "");
    let program = format!("\"{PROGRAM}\"");
    let expected = marked.replace("<C>", &program).replace("<A>", words);
    assert_eq!(adopted(name, &old), expected, "{old}");
}

const JSON: &str = r#""run", "--name", "fs", "--", "npx", "#;

#[test]
fn json_is_changed_in_two_places_only() {
    let c = r#""npx""#;
    for marked in [
        // 1 as clients write it
        "{\n  \"mcpServers\": {\n    \"fs\": {\n      \"command\": <C>,\n      \"args\": [<A>\"-y\", \"pkg\"]\n    }\n  }\n}\n",
        // 2 comments of both kinds, also between the parts
        "// top\n{ /* a */ \"mcpServers\" /* b */ : { // c\n\"fs\": { \"command\": /* d */ <C> /* e */, // f\n\"args\": [ /* g */ <A>\"-y\" /* h */ ] } } } // end",
        // 3 trailing commas
        "{\"mcpServers\":{\"fs\":{\"command\":<C>,\"args\":[<A>\"-y\",],},},}",
        // 4 CRLF
        "{\r\n  \"mcpServers\": {\r\n    \"fs\": {\"command\": <C>,\r\n \"args\": [<A>\"-y\"]}\r\n  }\r\n}\r\n",
        // 5 mixed line ends
        "{\r\n  \"mcpServers\": {\n    \"fs\": {\"command\": <C>,\r\n \"args\": [<A>\"-y\"]}\n  }\r\n}",
        // 6 a lone CR
        "{\r  \"mcpServers\": {\r \"fs\": {\"command\": <C>, \"args\": [<A>\"-y\"]}}}",
        // 7 tabs
        "{\n\t\"mcpServers\": {\n\t\t\"fs\": {\n\t\t\t\"command\":\t<C>,\n\t\t\t\"args\": [<A>\"-y\"]\n\t\t}\n\t}\n}\n",
        // 8 minified
        "{\"mcpServers\":{\"fs\":{\"command\":<C>,\"args\":[<A>\"-y\",\"pkg\"]}}}",
        // 9 escaped keys
        "{\"mcp\\u0053ervers\":{\"\\u0066s\":{\"comm\\u0061nd\":<C>,\"\\u0061rgs\":[<A>\"-y\"]}}}",
        // 10 numbers that no double holds
        "{\"n\":123456789012345678901234567890.10e+400,\"mcpServers\":{\"fs\":{\"command\":<C>,\"args\":[<A>\"-y\"],\"timeout\":1E3}}}",
        // 11 line separators of JavaScript within strings
        "{\"mcpServers\":{\"fs\":{\"command\":<C>,\"args\":[<A>\"a\u{2028}b\u{2029}\"]}}}",
        // 12 args before command
        "{\"mcpServers\":{\"fs\":{\"args\":[<A>\"-y\"],\"command\":<C>}}}",
        // 13 no final newline, blanks at the end
        "{\"mcpServers\":{\"fs\":{\"command\":<C>,\"args\":[<A>\"-y\"]}}}   ",
        // 14 odd spacing
        "{ \"mcpServers\" :{\"fs\":   {\"command\"   :<C>   ,\"args\":[   <A>\"-y\"   ,   \"b\"   ]   }}}",
        // 15 emoji and other wide characters before the entry
        "{\"é😀\":\"中\",\"mcpServers\":{\"fs\":{\"command\":<C>,\"args\":[<A>\"😀\"]}}}",
        // 16 the words of other keys in strings and comments
        "{\"x\":\"\\\"command\\\": \\\"npx\\\"\", // \"command\": \"npx\"\n\"mcpServers\":{\"fs\":{\"command\":<C>,\"args\":[<A>\"\\\"command\\\"\"]}}}",
        // 17 duplicate entries: JavaScript takes the last
        "{\"mcpServers\":{\"fs\":{\"command\":\"dead\",\"args\":[]},\"fs\":{\"command\":<C>,\"args\":[<A>\"-y\"]}}}",
        // 18 duplicate command
        "{\"mcpServers\":{\"fs\":{\"command\":\"dead\",\"args\":[<A>\"-y\"],\"command\":<C>}}}",
        // 19 duplicate table
        "{\"mcpServers\":{\"fs\":{\"command\":\"dead\"}},\"mcpServers\":{\"fs\":{\"command\":<C>,\"args\":[<A>\"-y\"]}}}",
        // 20 a byte order mark
        "\u{feff}{\"mcpServers\":{\"fs\":{\"command\":<C>,\"args\":[<A>\"-y\"]}}}",
        // 21 numbers among the arguments
        "{\"mcpServers\":{\"fs\":{\"command\":<C>,\"args\":[<A>8080, true]}}}",
    ] {
        // Claude Code's file is strict JSON; Copilot allows comments and trailing commas. Both take the last duplicate.
        exact("copilot", marked, c, JSON);
    }
}

#[test]
fn json_lists_keep_their_layout() {
    exact(
        "copilot",
        "{\"mcpServers\":{\"fs\":{\"command\":<C>,\n\"args\": [\n    <A>\"-y\",\n    \"pkg\"\n  ]}}}",
        r#""npx""#,
        "\"run\",\n    \"--name\",\n    \"fs\",\n    \"--\",\n    \"npx\",\n    ",
    );
    let end = r#""run", "--name", "fs", "--", "npx""#;
    for empty in ["[<A>]", "[<A> ]", "[<A> /* none */ ]", "[<A>\n]"] {
        let marked = format!("{{\"mcpServers\":{{\"fs\":{{\"command\":<C>,\"args\":{empty}}}}}}}");
        exact("copilot", &marked, r#""npx""#, end);
    }
}

#[test]
fn json_without_args_gets_them_and_loses_them_again() {
    let list = "\"args\": [\"run\", \"--name=fs\", \"npx\"]";
    for (marked, between) in [
        ("{\"mcpServers\":{\"fs\":{\"command\":<C><A>}}}", ", "),
        ("{\"mcpServers\":{\"fs\":{\"command\":<C><A>,}}}", ", "),
        (
            "{\"mcpServers\":{\"fs\":{ \"command\": <C><A> , \"env\": {} }}}",
            ", ",
        ),
        (
            "{\"mcpServers\":{\"fs\":{\n  \"command\": <C><A>\n}}}",
            ",\n  ",
        ),
        (
            "{\"mcpServers\":{\"fs\":{\r\n\t\"command\": <C><A> // c\r\n}}}",
            ",\r\n\t",
        ),
        (
            "{\"mcpServers\":{\"fs\":{\n  \"env\": {},\n\n  \"command\": <C><A>,\n  \"x\": 1\n}}}",
            ",\n  ",
        ),
    ] {
        exact("copilot", marked, "\"npx\"", &format!("{between}{list}"));
    }
}

#[test]
fn what_json_cannot_do_is_refused() {
    for (text, line, column) in [
        ("{\"mcpServers\":{\"fs\":{\"command\":\"npx\",}}", 1, 1),
        ("{\"mcpServers\": {\"fs\": \"\\ud800\"}}", 1, 24),
        ("{\"mcpServers\": {\n\"fs\" {}}}", 2, 6),
        ("{} {}", 1, 4),
        ("{\"mcpServers\":", 1, 15),
        ("not json", 1, 1),
    ] {
        match adopt("copilot", text.as_bytes()) {
            Err(Refusal::Syntax {
                line: at,
                column: on,
                ..
            }) => {
                assert_eq!((at, on), (line, column), "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    // Strict readers take neither comments nor trailing commas.
    for text in ["{} // c", "{\"a\":1,}", "{'a':1}"] {
        assert!(adopt("claude", text.as_bytes()).is_err(), "{text}");
    }
    assert!(adopt("gemini", b"{} // c").is_ok());
    assert!(adopt("gemini", b"{\"a\":[1,]}").is_err());
    // Which duplicate Zed takes is not known.
    let twice = "{\"context_servers\":{\"a\":{\"command\":\"x\"},\"a\":{\"command\":\"y\"}}}";
    assert_eq!(reason("zed", twice), Reason::Duplicate { key: "a".into() });
    let twice = "{\"context_servers\":{\"a\":{\"command\":\"x\",\"command\":\"y\"}}}";
    let key = "command".into();
    assert_eq!(reason("zed", twice), Reason::Duplicate { key });
    let twice = b"{\"context_servers\":{},\"context_servers\":{}}";
    let key = "context_servers".into();
    assert_eq!(adopt("zed", twice).unwrap_err(), Refusal::Duplicate { key });
}

#[test]
fn toml_is_changed_in_two_places_only() {
    for (marked, c) in [
        // 1 as Codex writes it
        (
            "model = \"o\"\n\n[mcp_servers.fs]\ncommand = <C>\nargs = [<A>\"-y\", \"pkg\"]\n",
            "\"npx\"",
        ),
        // 2 comments
        (
            "# a\n[mcp_servers.fs] # b\ncommand = <C> # c\nargs = [ # d\n  <A>\"-y\", # e\n]# f",
            "\"npx\"",
        ),
        // 3 CRLF
        (
            "[mcp_servers.fs]\r\ncommand = <C>\r\nargs = [<A>\"-y\"]\r\n",
            "\"npx\"",
        ),
        // 4 a byte order mark
        (
            "\u{feff}[mcp_servers.fs]\ncommand = <C>\nargs = [<A>\"-y\"]\n",
            "\"npx\"",
        ),
        // 5 dotted keys
        (
            "mcp_servers.fs.command = <C>\nmcp_servers.fs.args = [<A>\"-y\"]\n",
            "\"npx\"",
        ),
        // 6 an inline table
        (
            "[mcp_servers]\nfs = { command = <C>, args = [<A>\"-y\"], env = { A = \"b\" } }\n",
            "\"npx\"",
        ),
        // 7 an inline table over several lines, with comments and a trailing comma (TOML 1.1)
        (
            "[mcp_servers]\nfs = {\n  command = <C>, # c\n  args = [<A>\"-y\",],\n}\n",
            "\"npx\"",
        ),
        // 8 quoted keys
        (
            "[\"mcp_servers\".'fs']\n\"command\" = <C>\n'args' = [<A>\"-y\"]\n",
            "\"npx\"",
        ),
        // 9 tables out of order
        (
            "[mcp_servers.fs.env]\nA = \"b\"\n[other]\nx = 1\n[mcp_servers.fs]\nargs = [<A>\"-y\"]\ncommand = <C>\n",
            "\"npx\"",
        ),
        // 10 literal strings: the token moves as it stands
        (
            "[mcp_servers.fs]\ncommand = <C>\nargs = [<A>'-y']\n",
            "'npx'",
        ),
        // 11 dates, numbers, arrays of tables elsewhere
        (
            "d = 1979-05-27T07:32:00Z\nn = 0xf_f\n[[p]]\nx = 1\n[[p]]\nx = inf\n[mcp_servers.fs]\ncommand = <C>\nargs = [<A>\"-y\"]\n",
            "\"npx\"",
        ),
        // 12 no final newline, indented
        (
            "[mcp_servers]\n  [mcp_servers.fs]\n    command=<C>\n    args=[<A>\"-y\"]",
            "\"npx\"",
        ),
        // 13 wide characters and multi-line strings before it
        (
            "é = \"\"\"\ncommand = 'x'\n😀\"\"\"\n[mcp_servers.fs]\ncommand = <C>\nargs = [<A>\"-y\"]\n",
            "\"npx\"",
        ),
    ] {
        let marked = marked.replacen("é =", "\"é\" =", 1);
        let gap = if marked.contains("\n  <A>") {
            "\n  "
        } else {
            " "
        };
        let words = ["\"run\"", "\"--name\"", "\"fs\"", "\"--\"", c];
        let words: String = words.map(|word| format!("{word},{gap}")).concat();
        exact("codex", &marked, c, &words);
    }
}

#[test]
fn toml_without_args_gets_them_and_loses_them_again() {
    let list = "args = [\"run\", \"--name=fs\", \"npx\"]";
    for (marked, before) in [
        ("[mcp_servers.fs]\ncommand = <C><A>\n", "\n"),
        ("[mcp_servers.fs]\ncommand = <C><A>", "\n"),
        (
            "[mcp_servers.fs]\r\ncommand = <C> # c<A>\r\nenabled = true\r\n",
            "\r\n",
        ),
        (
            "[mcp_servers.fs]\n\tcommand = <C><A>\n[mcp_servers.fs.env]\n",
            "\n\t",
        ),
        (
            "mcp_servers.fs.command = <C><A>\nx = 1",
            "\nmcp_servers.fs.",
        ),
        ("mcp_servers.fs = { command = <C><A> }", ", "),
        (
            "mcp_servers = { fs = { env = {}, command = <C><A>, enabled = true } }",
            ", ",
        ),
    ] {
        exact("codex", marked, "\"npx\"", &format!("{before}{list}"));
    }
    // A dotted key within an inline table has no line of its own.
    let odd = "mcp_servers = { fs.command = \"npx\" }\n";
    assert_eq!(reason("codex", odd), Reason::Unusual);
}

#[test]
fn what_toml_cannot_do_is_refused() {
    for text in [
        "[mcp_servers.fs]\ncommand = \"a\"\ncommand = \"b\"\n",
        "[mcp_servers.fs]\n[mcp_servers.fs]\n",
        "[mcp_servers.fs\n",
        "command = npx\n",
    ] {
        let refused = adopt("codex", text.as_bytes()).unwrap_err();
        assert!(
            matches!(refused, Refusal::Syntax { .. }),
            "{text}: {refused}"
        );
    }
    let number = "[mcp_servers.fs]\ncommand = 1\n";
    assert_eq!(reason("codex", number), Reason::CommandNotText);
    let long = "[mcp_servers.fs]\ncommand = \"\"\"\nnpx\"\"\"\n";
    assert_eq!(reason("codex", long), Reason::Unusual);
    let tables = "[[mcp_servers]]\ncommand = \"npx\"\n";
    let key = "mcp_servers".into();
    assert_eq!(
        adopt("codex", tables.as_bytes()).unwrap_err(),
        Refusal::NotATable { key }
    );
}

#[test]
fn yaml_is_changed_in_two_places_only() {
    let words = |before: &str, after: &str, command: &str| -> String {
        let quoted = ["\"run\"", "\"--name\"", "\"fs\"", "\"--\"", command];
        quoted.map(|word| format!("{before}{word}{after}")).concat()
    };
    let block = |indent: &str| words("- ", &format!("\n{indent}"), "npx");
    let flow = words("", ", ", "npx");
    for (marked, c, words) in [
        // 1 a block
        (
            "mcp_servers:\n  fs:\n    command: <C>\n    args:\n      <A>- -y\n      - pkg\n",
            "npx",
            block("      "),
        ),
        // 2 a sequence that is not indented
        (
            "mcp_servers:\n  fs:\n    command: <C>\n    args:\n    <A>- -y\n    - pkg\n",
            "npx",
            block("    "),
        ),
        // 3 a flow sequence
        (
            "mcp_servers:\n  fs:\n    command: <C>\n    args: [<A>-y, pkg]\n",
            "npx",
            flow.clone(),
        ),
        // 4 all flow
        (
            "mcp_servers: {fs: {command: <C>, args: [<A>-y]}}\n",
            "npx",
            flow.clone(),
        ),
        // 5 comments everywhere
        (
            "# a\nmcp_servers: # b\n  # c\n  fs: # d\n    command: <C> # e\n    args: # f\n      # g\n      <A>- -y # h\n# end\n",
            "npx",
            block("      "),
        ),
        // 6 CRLF
        (
            "mcp_servers:\r\n  fs:\r\n    command: <C>\r\n    args:\r\n      <A>- -y\r\n",
            "npx",
            words("- ", "\r\n      ", "npx"),
        ),
        // 7 a byte order mark
        (
            "\u{feff}mcp_servers:\n  fs:\n    command: <C>\n    args: [<A>-y]\n",
            "npx",
            flow.clone(),
        ),
        // 8 a directive and document marks
        (
            "%YAML 1.2\n---\nmcp_servers:\n  fs:\n    command: <C>\n    args: [<A>-y]\n...\n",
            "npx",
            flow.clone(),
        ),
        // 9 single quotes: the token moves as it stands
        (
            "mcp_servers:\n  fs:\n    command: <C>\n    args: [<A>'-y']\n",
            "'npx'",
            words("", ", ", "'npx'"),
        ),
        // 10 double quotes with escapes, and blanks behind
        (
            "mcp_servers:\n  fs:\n    command: <C>   \n    args: [<A>-y]\n",
            "\"\\x6epx\"",
            words("", ", ", "\"\\x6epx\""),
        ),
        // 11 emoji before it: places are counted in characters
        (
            "é😀: 中 # 😀\nmcp_servers:\n  fs:\n    command: <C>\n    args:\n      <A>- 😀\n",
            "npx",
            block("      "),
        ),
        // 12 quoted keys
        (
            "\"mcp_servers\":\n  'fs':\n    \"command\": <C>\n    'args': [<A>-y]\n",
            "npx",
            flow.clone(),
        ),
        // 13 no final newline
        (
            "mcp_servers:\n  fs:\n    args:\n      <A>- -y\n    command: <C>",
            "npx",
            block("      "),
        ),
        // 14 block scalars, anchors and aliases elsewhere
        (
            "a: &x |\n  command: npx\nb: *x\nmcp_servers:\n  fs:\n    command: <C>\n    args: [<A>-y]\n    env: *x\n",
            "npx",
            flow.clone(),
        ),
        // 15 arguments that are no strings, and long ones
        (
            "mcp_servers:\n  fs:\n    command: <C>\n    args:\n      <A>- 8080\n      - |\n        text\n      - true\n",
            "npx",
            block("      "),
        ),
        // 16 empty arguments
        (
            "mcp_servers:\n  fs:\n    command: <C>\n    args: [<A>]\n",
            "npx",
            "\"run\", \"--name\", \"fs\", \"--\", npx".into(),
        ),
        // 17 duplicate keys: Hermes takes the last
        (
            "mcp_servers:\n  fs:\n    command: dead\n    command: <C>\n    args: [<A>-y]\n",
            "npx",
            flow.clone(),
        ),
    ] {
        exact("hermes", marked, c, &words);
    }
}

#[test]
fn yaml_without_args_gets_them_and_loses_them_again() {
    let list = "args: [\"run\", \"--name=fs\", npx]";
    for (name, marked, before) in [
        (
            "hermes",
            "mcp_servers:\n  fs:\n    command: <C><A>\n",
            "\n    ",
        ),
        (
            "hermes",
            "mcp_servers:\n  fs:\n    command: <C><A>",
            "\n    ",
        ),
        (
            "hermes",
            "mcp_servers:\r\n  fs:\r\n    command: <C> # c<A>\r\n    env: {}\r\n",
            "\r\n    ",
        ),
        (
            "hermes",
            "mcp_servers: {fs: {command: <C><A> , env: {}}  } # c\n",
            ", ",
        ),
        (
            "hermes",
            "mcp_servers:\n  fs: {command: <C><A>   # c\n    , env: {} # d\n    }\n",
            ", ",
        ),
        ("hermes", "mcp_servers: {fs: {command: <C><A>}}\n", ", "),
        (
            "continue",
            "mcpServers:\n  - name: fs\n    command: <C><A>\n",
            "\n    ",
        ),
        (
            "continue",
            "mcpServers:\n- command: <C><A>\n  name: fs\n",
            "\n  ",
        ),
    ] {
        exact(name, marked, "npx", &format!("{before}{list}"));
    }
}

#[test]
fn what_yaml_cannot_do_safely_is_left_alone() {
    let entry = |body: &str| format!("mcp_servers:\n  fs:\n{body}");
    for (body, why) in [
        ("    command: &c npx\n", Reason::Tied),
        ("    command: *c\n", Reason::Tied),
        ("    command: !!str npx\n", Reason::Tied),
        ("    command: npx\n    args: &a [x]\n", Reason::Tied),
        ("    <<: *c\n    command: npx\n", Reason::Tied),
        ("    command: npx\n    args:\n", Reason::ArgsNotAList),
        ("    command: npx\n    args: x\n", Reason::ArgsNotAList),
        ("    command: |\n      npx\n", Reason::CommandNotText),
        ("    command: >-\n      npx\n", Reason::CommandNotText),
        ("    command: npx\n      tail\n", Reason::CommandNotText),
        ("    command: 7\n", Reason::CommandNotText),
        ("    command:\n", Reason::CommandNotText),
        ("    command: a,b\n    args: [x]\n", Reason::Unusual),
        ("    command: npx -y pkg\n", Reason::CommandLine),
        ("    ? command\n    : npx\n", Reason::Unusual),
        (
            "    command: npx\n    args:\n      - |\n        long\n",
            Reason::Unusual,
        ),
        (
            "    command: npx\n    args:\n      -\n        x\n",
            Reason::Unusual,
        ),
    ] {
        let text = format!("c: &c {{}}\n{}", entry(body));
        assert_eq!(reason("hermes", &text), why, "{text}");
    }
    let anchored = "mcp_servers:\n  a: &x {command: npx}\n  b: *x\n";
    assert_eq!(reason("hermes", anchored), Reason::Tied);
    for (text, refused) in [
        ("a: 1\n---\nb: 2\n", Refusal::SeveralDocuments),
        (
            "x: &x {}\nmcp_servers: *x\n",
            Refusal::Tied {
                key: "mcp_servers".into(),
            },
        ),
        (
            "mcp_servers: &x {}\n",
            Refusal::Tied {
                key: "mcp_servers".into(),
            },
        ),
        (
            "mcp_servers: []\n",
            Refusal::NotATable {
                key: "mcp_servers".into(),
            },
        ),
    ] {
        assert_eq!(
            adopt("hermes", text.as_bytes()).unwrap_err(),
            refused,
            "{text}"
        );
    }
    // Goose's reader refuses duplicates, so which one counts is not ours to guess.
    let twice = "extensions:\n  a:\n    type: stdio\n    cmd: x\n    cmd: y\n";
    assert_eq!(
        reason("goose", twice),
        Reason::Duplicate { key: "cmd".into() }
    );
    let broken = adopt("hermes", b"a: [1\nb: 2\n").unwrap_err();
    assert!(matches!(broken, Refusal::Syntax { .. }), "{broken}");
}

#[test]
fn bytes_that_are_no_config_are_refused_in_every_format() {
    for name in ["claude", "codex", "hermes"] {
        let refused = |bytes: &[u8]| adopt(name, bytes).unwrap_err();
        assert_eq!(
            refused(b"\xff\xfe{\0}\0"),
            Refusal::NulByte { at: 3 },
            "{name}"
        );
        assert_eq!(refused(b"{}\xc3"), Refusal::NotUtf8 { at: 2 }, "{name}");
        let large = vec![b' '; FILE_BYTES_MAX + 1];
        let bytes = large.len();
        assert_eq!(refused(&large), Refusal::TooLarge { bytes }, "{name}");
        for levels in [DEPTH_LEVELS_MAX + 1, 600, 100_000] {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            let text = match name {
                "codex" => format!("a = {open}{close}\n"),
                "hermes" => format!("a: {open}{close}\n"),
                _ => format!("{{\"a\":{open}{close}}}"),
            };
            let why = refused(text.as_bytes());
            assert!(
                matches!(why, Refusal::TooDeep | Refusal::Syntax { .. }),
                "{name} {levels}: {why}"
            );
        }
    }
}

#[test]
fn files_without_servers_have_nothing_to_do() {
    for (name, text) in [
        ("claude", ""),
        ("claude", "  \n"),
        ("claude", "\u{feff}"),
        ("claude", "{}"),
        ("claude", "{\"mcpServers\": {}}"),
        ("claude", "{\"mcpServers\": null}"),
        ("codex", ""),
        ("codex", "model = \"x\"\n"),
        ("hermes", "# nothing\n"),
        ("hermes", "mcp_servers:\n"),
        ("hermes", "mcp_servers: {}\n"),
        ("warp", "{}"),
        ("warp", "{\"other\": 1, \"theme\": {\"name\": \"x\"}}"),
    ] {
        let plan = adopt(name, text.as_bytes()).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert!(plan.entries().is_empty() && !plan.changes(), "{text}");
    }
}
