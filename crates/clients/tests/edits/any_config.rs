//! Properties of adopt and release over generated configs of every format and shape, in every layout that the writer below knows.
//! guards: Adopt, then release, gives back the same bytes for any config file, also with foreign edits in between.

use mainstay_clients::format::{Document, Format};
use mainstay_clients::node::Value;
use mainstay_clients::plan::{self, Action, Adopt};
use proptest::prelude::*;

use crate::support::{adopt, release, text};

/// A server of a generated config.
#[derive(Clone, Debug)]
struct Server {
    name: String,
    command: String,
    args: Option<Vec<String>>,
    env: Vec<(String, String)>,
}

/// Choices of layout, used up one by one.
#[derive(Clone, Debug)]
struct Choices {
    bytes: Vec<u8>,
    at: usize,
}

impl Choices {
    fn pick(&mut self, count: usize) -> usize {
        let byte = self.bytes.get(self.at % self.bytes.len().max(1)).copied();
        self.at += 1;
        usize::from(byte.unwrap_or(0)) % count
    }

    fn flip(&mut self) -> bool {
        self.pick(2) == 1
    }
}

/// One client for each format and shape.
const CLIENTS: [&str; 8] = [
    "copilot", "claude", "opencode", "cline", "codex", "hermes", "goose", "continue",
];

fn format_of(client: &str) -> Format {
    crate::support::file(client).format
}

/// The value of a whole config.
fn config(client: &str, servers: &[Server]) -> Value {
    let text = |text: &str| Value::Text(text.to_owned());
    let table = |members: Vec<(&str, Value)>| {
        let mut table = Value::Table(Vec::new());
        for (key, value) in members {
            table.set(key, value);
        }
        table
    };
    let entry = |server: &Server| -> Value {
        let mut env = Value::Table(Vec::new());
        for (name, value) in &server.env {
            env.set(name, text(value));
        }
        let args = server
            .args
            .as_ref()
            .map(|args| ("args", Value::words(args)));
        match client {
            "opencode" => {
                let words = std::iter::once(&server.command).chain(server.args.iter().flatten());
                let words = Value::words(words);
                table(vec![
                    ("type", text("local")),
                    ("command", words),
                    ("environment", env),
                ])
            }
            "cline" => {
                let mut inner = vec![("type", text("stdio")), ("command", text(&server.command))];
                inner.extend(args);
                table(vec![
                    ("transport", table(inner)),
                    ("disabled", Value::Other("false".into())),
                ])
            }
            "goose" => {
                let mut members = vec![("type", text("stdio")), ("cmd", text(&server.command))];
                members.extend(args);
                members.push(("envs", env));
                table(members)
            }
            _ => {
                let mut members = vec![("command", text(&server.command))];
                members.extend(args);
                if !server.env.is_empty() {
                    members.push(("env", env));
                }
                if client == "continue" {
                    members.push(("name", text(&server.name)));
                }
                table(members)
            }
        }
    };
    let all = if client == "continue" {
        Value::List(servers.iter().map(entry).collect())
    } else {
        let members = servers
            .iter()
            .map(|server| (server.name.as_str(), entry(server)));
        table(members.collect())
    };
    let key = match client {
        "opencode" => "mcp",
        "codex" | "hermes" => "mcp_servers",
        "goose" => "extensions",
        _ => "mcpServers",
    };
    table(vec![
        (key, all),
        ("note", text("MARK é😀")),
        ("zlast", Value::Other("1".into())),
    ])
}

/// Writes a value in some layout of its format.
fn render(value: &Value, format: Format, choices: &mut Choices) -> String {
    let mut out = String::new();
    match format {
        Format::Json | Format::JsonComments | Format::JsonLenient => {
            let layout = Json {
                lenient: format == Format::JsonLenient,
                newline: ["\n", "\r\n", ""][choices.pick(3)],
                indent: ["  ", "\t", "    "][choices.pick(3)],
            };
            layout.write(value, &mut out, choices, 0);
            out.push_str(layout.newline);
        }
        Format::Toml => {
            let newline = ["\n", "\r\n"][choices.pick(2)];
            toml_table(value, &mut out, choices, &mut Vec::new());
            out = out.replace('\n', newline);
        }
        Format::Yaml => {
            let newline = ["\n", "\r\n"][choices.pick(2)];
            if choices.flip() {
                out.push_str("# MARK\n");
            }
            yaml_block(value, &mut out, choices, 0);
            if choices.flip() {
                out.pop();
            }
            out = out.replace('\n', newline);
        }
    }
    if choices.pick(4) == 0 && format != Format::Json {
        out.insert(0, '\u{feff}');
    }
    out
}

struct Json {
    lenient: bool,
    newline: &'static str,
    indent: &'static str,
}

impl Json {
    fn gap(&self, out: &mut String, choices: &mut Choices, level: usize) {
        match choices.pick(6) {
            0 | 1 => {
                out.push_str(self.newline);
                out.push_str(&self.indent.repeat(level));
            }
            2 => out.push(' '),
            3 if self.lenient => out.push_str(" /* MARK, \"command\": [ */ "),
            4 if self.lenient => out.push_str("// MARK \"args\", {\n"),
            _ => {}
        }
    }

    fn write(&self, value: &Value, out: &mut String, choices: &mut Choices, level: usize) {
        match value {
            Value::Text(text) => out.push_str(&json_string(text, choices)),
            Value::Other(raw) => out.push_str(raw),
            Value::List(items) => {
                out.push('[');
                for (place, item) in items.iter().enumerate() {
                    self.comma(out, choices, place);
                    self.gap(out, choices, level + 1);
                    self.write(item, out, choices, level + 1);
                }
                self.close(out, choices, level, items.is_empty());
                out.push(']');
            }
            Value::Table(members) => {
                out.push('{');
                for (place, (key, value)) in shuffled(members, choices).into_iter().enumerate() {
                    self.comma(out, choices, place);
                    self.gap(out, choices, level + 1);
                    out.push_str(&json_string(key, choices));
                    self.gap(out, choices, level + 1);
                    out.push(':');
                    self.gap(out, choices, level + 1);
                    self.write(value, out, choices, level + 1);
                }
                self.close(out, choices, level, members.is_empty());
                out.push('}');
            }
        }
    }

    fn comma(&self, out: &mut String, choices: &mut Choices, place: usize) {
        if place > 0 {
            self.gap(out, choices, 1);
            out.push(',');
        }
    }

    fn close(&self, out: &mut String, choices: &mut Choices, level: usize, empty: bool) {
        self.gap(out, choices, level);
        if self.lenient && !empty && choices.flip() {
            out.push(',');
            self.gap(out, choices, level);
        }
    }
}

/// Members in another order.
fn shuffled<'v>(members: &'v [(String, Value)], choices: &mut Choices) -> Vec<&'v (String, Value)> {
    let mut order: Vec<&(String, Value)> = members.iter().collect();
    for place in (1..order.len()).rev() {
        order.swap(place, choices.pick(place + 1));
    }
    order
}

fn json_string(text: &str, choices: &mut Choices) -> String {
    if choices.pick(5) == 0 {
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        let units = units.collect::<Vec<_>>().concat();
        return format!("\"{units}\"");
    }
    serde_json::to_string(text).unwrap()
}

fn toml_string(text: &str, choices: &mut Choices) -> String {
    let literal = !text.contains('\'') && !text.contains(char::is_control);
    if literal && choices.flip() {
        return format!("'{text}'");
    }
    serde_json::to_string(text)
        .unwrap()
        .replace('\u{7f}', "\\u007f")
}

fn toml_key(key: &str, choices: &mut Choices) -> String {
    let bare = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if bare && choices.pick(4) > 0 {
        key.to_owned()
    } else {
        toml_string(key, choices)
    }
}

fn toml_value(value: &Value, out: &mut String, choices: &mut Choices) {
    match value {
        Value::Text(text) => out.push_str(&toml_string(text, choices)),
        Value::Other(raw) => out.push_str(raw),
        Value::List(items) => {
            let between = ["", " ", "\n  ", " # MARK\n  "][choices.pick(4)];
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                out.push_str(if place > 0 { "," } else { "" });
                out.push_str(between);
                toml_value(item, out, choices);
            }
            if !items.is_empty() && choices.flip() {
                out.push(',');
            }
            out.push_str(between);
            out.push(']');
        }
        Value::Table(members) => {
            let blank = ["", " "][choices.pick(2)];
            out.push('{');
            for (place, (key, value)) in shuffled(members, choices).into_iter().enumerate() {
                out.push_str(if place > 0 { "," } else { "" });
                out.push_str(blank);
                out.push_str(&toml_key(key, choices));
                out.push('=');
                out.push_str(blank);
                toml_value(value, out, choices);
            }
            out.push_str(blank);
            out.push('}');
        }
    }
}

fn toml_table(value: &Value, out: &mut String, choices: &mut Choices, path: &mut Vec<String>) {
    let Value::Table(members) = value else { return };
    let members = shuffled(members, choices);
    // A table is written in lines of its own, or inline among the other members.
    let inline: Vec<bool> = members
        .iter()
        .map(|(_, value)| !matches!(value, Value::Table(_)) || choices.pick(3) == 0)
        .collect();
    let comment = |choices: &mut Choices| ["", " # MARK command = \"x\""][choices.pick(2)];
    for ((key, value), inline) in members.iter().zip(&inline) {
        if *inline {
            let indent = ["", "  ", "\t"][choices.pick(3)];
            out.push_str(indent);
            out.push_str(&toml_key(key, choices));
            out.push_str(["=", " = "][choices.pick(2)]);
            toml_value(value, out, choices);
            out.push_str(comment(choices));
            out.push('\n');
        }
    }
    for ((key, value), inline) in members.iter().zip(&inline) {
        if !*inline {
            path.push(toml_key(key, choices));
            let comment = comment(choices);
            out.extend(["[", &path.join("."), "]", comment, "\n"]);
            toml_table(value, out, choices, path);
            path.pop();
        }
    }
}

fn yaml_string(text: &str, choices: &mut Choices, key: bool) -> String {
    let mut characters = text.chars();
    let first = characters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || "/".contains(c));
    let plain = first && characters.all(|c| c.is_ascii_alphanumeric() || "/._-@".contains(c));
    let word = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let plain = plain && !word.contains(&text.to_lowercase().as_str());
    let printable =
        !text.contains(|c: char| c.is_control() || "\u{2028}\u{2029}\u{feff}".contains(c));
    match choices.pick(3) {
        0 | 1 if plain => text.to_owned(),
        2 if printable && !text.is_empty() && !key => format!("'{}'", text.replace('\'', "''")),
        _ => {
            let quoted = serde_json::to_string(text).unwrap();
            let escape = |c: char| {
                if c.is_control() || "\u{2028}\u{2029}\u{feff}".contains(c) {
                    format!("\\u{:04x}", c as u32)
                } else {
                    c.to_string()
                }
            };
            quoted.chars().map(escape).collect()
        }
    }
}

fn yaml_flow(value: &Value, out: &mut String, choices: &mut Choices) {
    match value {
        Value::Text(text) => out.push_str(&yaml_string(text, choices, false)),
        Value::Other(raw) => out.push_str(raw),
        Value::List(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push_str([", ", " , ", "  ,"][choices.pick(3)]);
                }
                yaml_flow(item, out, choices);
            }
            out.push_str(if !items.is_empty() && choices.flip() {
                ", ]"
            } else {
                "]"
            });
        }
        Value::Table(members) => {
            out.push('{');
            for (place, (key, value)) in shuffled(members, choices).into_iter().enumerate() {
                if place > 0 {
                    out.push_str([", ", " , ", "  ,"][choices.pick(3)]);
                }
                out.push_str(&yaml_string(key, choices, true));
                out.push_str(": ");
                yaml_flow(value, out, choices);
            }
            out.push_str(["}", " }"][choices.pick(2)]);
        }
    }
}

/// Writes lines, each with its newline; the first line is written where the caller stands.
fn yaml_block(value: &Value, out: &mut String, choices: &mut Choices, indent: usize) {
    let comment = |choices: &mut Choices| ["", " # MARK args: [", "  "][choices.pick(3)];
    match value {
        Value::Table(members) if !members.is_empty() => {
            for (place, (key, value)) in shuffled(members, choices).into_iter().enumerate() {
                if place > 0 {
                    if choices.pick(5) == 0 {
                        out.push_str("  # MARK: x\n");
                    }
                    out.push_str(&" ".repeat(indent));
                }
                out.push_str(&yaml_string(key, choices, true));
                out.push(':');
                let block = match value {
                    Value::Table(members) => !members.is_empty(),
                    Value::List(items) => !items.is_empty(),
                    Value::Text(_) | Value::Other(_) => false,
                };
                if block && choices.pick(4) > 0 {
                    out.push_str(comment(choices));
                    out.push('\n');
                    let list = matches!(value, Value::List(_));
                    let deeper = if list && choices.flip() { 0 } else { 2 };
                    out.push_str(&" ".repeat(indent + deeper));
                    yaml_block(value, out, choices, indent + deeper);
                } else {
                    out.push(' ');
                    yaml_flow(value, out, choices);
                    out.push_str(comment(choices));
                    out.push('\n');
                }
            }
        }
        Value::List(items) if !items.is_empty() => {
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push_str(&" ".repeat(indent));
                }
                out.push_str("- ");
                yaml_block(item, out, choices, indent + 2);
            }
        }
        Value::Table(_) | Value::List(_) | Value::Text(_) | Value::Other(_) => {
            yaml_flow(value, out, choices);
            out.push_str(comment(choices));
            out.push('\n');
        }
    }
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z][a-z0-9-]{0,8}",
        2 => "-{1,2}[a-z]{1,6}(=[a-z]{1,3})?",
        2 => Just("--".to_owned()),
        1 => Just("run".to_owned()),
        1 => Just("--name=x".to_owned()),
        1 => Just("--url".to_owned()),
        1 => Just("${HOME}/x y".to_owned()),
        1 => "\\PC{0,6}",
        1 => Just("a\"b\\c\td'e".to_owned()),
        1 => Just(String::new()),
    ]
}

fn command() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("npx".to_owned()),
        2 => "[a-z][a-z0-9.-]{0,8}",
        2 => "/[a-z]{1,5}( [a-z]{1,3})?/[a-z\"\\\\']{1,6}",
        1 => "[a-zA-Z,é😀]{1,6}",
    ]
}

fn server() -> impl Strategy<Value = Server> {
    let env = prop::collection::vec(("[A-Z_]{1,6}", "\\PC{0,8}"), 0..3);
    let args = prop::option::weighted(0.7, prop::collection::vec(word(), 0..5));
    (
        prop_oneof![4 => "[a-z][a-z0-9_-]{0,8}", 1 => "[a-zA-Z.é ]{1,8}"],
        command(),
        args,
        env,
    )
        .prop_map(|(name, command, args, env)| Server {
            name,
            command,
            args,
            env,
        })
}

prop_compose! {
    fn any_case()(
        client in prop::sample::select(CLIENTS.to_vec()),
        servers in prop::collection::vec(server(), 1..4),
        bytes in prop::collection::vec(any::<u8>(), 40),
        other in prop::collection::vec(any::<u8>(), 40),
    ) -> (&'static str, String, Choices) {
        let value = config(client, &servers);
        let mut choices = Choices { bytes, at: 0 };
        let text = render(&value, format_of(client), &mut choices);
        let read = Document::read(text.as_bytes(), format_of(client));
        let read = read.unwrap_or_else(|why| panic!("the test wrote what is no config: {why}\n{text}"));
        assert_eq!(read.root.unwrap().value(), value, "{text}");
        (client, text, Choices { bytes: other, at: 0 })
    }
}

fn value_of(client: &str, text: &str) -> Value {
    let document = Document::read(text.as_bytes(), format_of(client)).unwrap();
    document.root.unwrap().value()
}

/// All bytes of the old text that no changed place covers are in the new text, in order.
fn outside_is_kept(old: &[u8], new: &[u8], places: &[std::ops::Range<usize>]) -> bool {
    let mut rest = new;
    let mut at = 0;
    let ends = std::iter::once(old.len()..old.len());
    for place in places.iter().cloned().chain(ends) {
        let kept = &old[at..place.start];
        let found = (0..=rest.len().saturating_sub(kept.len()))
            .find(|start| rest[*start..].starts_with(kept));
        let Some(found) = found else { return false };
        rest = &rest[found + kept.len()..];
        at = place.end;
    }
    true
}

/// The text that a unified diff makes of another.
fn patched(old: &str, diff: &str) -> String {
    let lines: Vec<&str> = old.split_inclusive('\n').collect();
    let mut out: Vec<String> = Vec::new();
    let mut at = 0;
    let mut before = " ";
    for line in diff.lines().skip(2) {
        let (sign, rest) = line.split_at(1);
        let removed = std::mem::replace(&mut before, sign) == "-";
        match sign {
            "@" => {
                let start = rest.split(['-', ',']).nth(1).unwrap();
                let start: usize = start.parse().unwrap();
                out.extend(lines[at..start - 1].iter().map(ToString::to_string));
                at = start - 1;
            }
            "\\" if removed => {}
            "\\" => {
                out.last_mut().unwrap().pop();
            }
            "-" => at += 1,
            "+" => out.push(format!("{rest}\n")),
            _ => {
                assert_eq!(lines[at].trim_end_matches(['\r', '\n']), rest, "{diff}");
                out.push(lines[at].to_owned());
                if !lines[at].ends_with('\n') {
                    out.last_mut().unwrap().push('\n');
                }
                at += 1;
            }
        }
    }
    out.extend(lines[at..].iter().map(ToString::to_string));
    out.concat()
}

proptest! {

    #[test]
    fn adopt_then_release_is_the_identity((client, old, _) in any_case()) {
        let plan = adopt(client, old.as_bytes()).unwrap();
        let new = text(&plan);
        prop_assert!(outside_is_kept(old.as_bytes(), new.as_bytes(), &plan.changed_places()));
        let released = release(client, new.as_bytes()).unwrap();
        prop_assert_eq!(text(&released), &old);
        // None of these layouts is an excuse to leave an entry alone.
        for entry in plan.entries() {
            prop_assert!(entry.action.changes(), "{:?}\n{}", entry, old);
        }
    }

    #[test]
    fn adopt_twice_is_adopt_once((client, old, _) in any_case()) {
        let once = adopt(client, old.as_bytes()).unwrap();
        let twice = adopt(client, once.new_bytes()).unwrap();
        prop_assert_eq!(text(&twice), text(&once));
        for (first, second) in once.entries().iter().zip(twice.entries()) {
            let wrapped = matches!(first.action, Action::Wrap(_));
            prop_assert_eq!(wrapped, matches!(second.action, Action::Already));
        }
    }

    /// The user writes flags of their own into adopted entries. Whatever an update changes, they stay, in their order; and release removes them with ours.
    #[test]
    fn an_update_keeps_the_users_flags((client, old, _) in any_case(), flags in prop::collection::vec("--[a-z]{1,4}(=[a-z ]{0,3})?|[a-z]{1,5}", 1..4)) {
        let ours = ["--lazy", "--name", "--url"];
        prop_assume!(flags.iter().all(|flag| ours.iter().all(|ours| !flag.starts_with(ours))));
        // Only our own word may be `run`. In the lines of a YAML block it has other neighbours.
        prop_assume!(!old.contains("\"run\""));
        let plan = adopt(client, old.as_bytes()).unwrap();
        let tokens = format!("\"{}\", ", flags.join("\", \""));
        let edited = text(&plan).replace("\"run\", ", &format!("\"run\", {tokens}"));
        prop_assume!(edited != text(&plan));
        let wish = Adopt { update: true, thrifty: Some("5m".into()), program: "/usr/bin/mainstay".into(), ..Adopt::default() };
        let (profile, file) = (crate::support::client(client), crate::support::file(client));
        let updated = plan::adopt(edited.as_bytes(), profile, file, &wish).unwrap();
        for entry in updated.entries() {
            prop_assert!(matches!(entry.action, Action::Update(_)), "{:?}\n{}", entry, edited);
        }
        let count = edited.matches(&tokens).count();
        prop_assert_eq!(text(&updated).matches(&tokens).count(), count, "{}", text(&updated));
        let again = plan::adopt(updated.new_bytes(), profile, file, &wish).unwrap();
        prop_assert!(!again.changes());
        let released = release(client, updated.new_bytes()).unwrap();
        prop_assert_eq!(text(&released), &old);
    }

    /// Where nothing is masked or escaped, the preview is a diff that leads from the old to the new text.
    #[test]
    fn the_preview_says_what_will_be_written((client, old, _) in any_case()) {
        let plan = adopt(client, old.as_bytes()).unwrap();
        let diff = plan.diff("f");
        if ["[hidden]", "\\u{", "…"].iter().all(|sign| !diff.contains(sign)) {
            let plain = |text: &str| text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
            prop_assert_eq!(patched(&plain(&old), &diff), plain(text(&plan)), "{}", diff);
        }
    }

    /// The client or the user changes text elsewhere, comments included, between adopt and release.
    #[test]
    fn a_foreign_edit_in_between_survives((client, old, _) in any_case()) {
        let plan = adopt(client, old.as_bytes()).unwrap();
        let edited = text(&plan).replace("MARK", "CHANGED, longer");
        let released = release(client, edited.as_bytes()).unwrap();
        prop_assert_eq!(text(&released), old.replace("MARK", "CHANGED, longer"));
    }

    /// The client writes the whole file anew in another layout and order, without comments.
    #[test]
    fn a_rewritten_file_releases_to_equal_values((client, old, mut choices) in any_case()) {
        let plan = adopt(client, old.as_bytes()).unwrap();
        let rewritten = render(&value_of(client, text(&plan)), format_of(client), &mut choices);
        let released = release(client, rewritten.as_bytes()).unwrap();
        for entry in released.entries() {
            prop_assert!(!matches!(entry.action, Action::Leave(_)), "{:?}\n{}", entry, rewritten);
        }
        prop_assert_eq!(value_of(client, text(&released)), value_of(client, &old));
        // And what was released can be adopted again.
        let again = adopt(client, released.new_bytes()).unwrap();
        prop_assert_eq!(
            value_of(client, text(&again)),
            value_of(client, text(&plan)),
            "{}\n{:?}",
            text(&released),
            again.entries()
        );
    }

    /// The client writes the whole file anew, as most clients print JSON: then the old file, printed in the same way, comes back to the byte.
    #[test]
    fn a_pretty_printed_file_releases_to_the_same_bytes((client, old, _) in any_case()) {
        let pretty = |text: &str| {
            let value: serde_json::Value = serde_json::from_str(text).ok()?;
            serde_json::to_string_pretty(&value).ok()
        };
        if let Some(expected) = pretty(&old) {
            let plan = adopt(client, old.as_bytes()).unwrap();
            let released = release(client, pretty(text(&plan)).unwrap().as_bytes()).unwrap();
            prop_assert_eq!(text(&released), expected);
        }
    }

    /// Whatever the bytes are, the plan is made or refused; nothing panics.
    #[test]
    fn any_bytes_are_planned_or_refused(
        client in prop::sample::select(CLIENTS.to_vec()),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        soup in "[\\[\\]{}:,\"'#&*!|>\\-\\n a=.<]{0,60}",
    ) {
        for bytes in [bytes, soup.into_bytes()] {
            if let Ok(plan) = adopt(client, &bytes) {
                let released = release(client, plan.new_bytes()).unwrap();
                prop_assert_eq!(released.new_bytes(), &bytes[..]);
            }
        }
    }

    /// A config that is damaged at any place is planned or refused, and what is planned is still undone exactly.
    #[test]
    fn a_damaged_config_is_undone_exactly_or_refused(
        (client, old, _) in any_case(),
        at in any::<prop::sample::Index>(),
        with in prop_oneof![Just(""), Just("\""), Just(","), Just("\n"), Just("- "), Just("["), Just("#"), Just("&a "), Just("'")],
    ) {
        let mut place = at.index(old.len() + 1);
        while !old.is_char_boundary(place) {
            place -= 1;
        }
        let mut damaged = old[..place].to_owned();
        damaged.push_str(with);
        let rest = old[place..].chars().next().map_or(0, char::len_utf8);
        damaged.push_str(&old[place + if with.is_empty() { rest } else { 0 }..]);
        if let Ok(plan) = adopt(client, damaged.as_bytes()) {
            let released = release(client, plan.new_bytes()).unwrap();
            prop_assert_eq!(text(&released), damaged);
        }
    }
}
