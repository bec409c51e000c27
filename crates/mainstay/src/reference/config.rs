//! The keys of the config file: the page that people read, and the JSON schema that editors read, from one table.

use mainstay_http_core::serve::limits as serve;
use mainstay_protocol::limits::{EVENTS, Limit, TABLE, Unit};
use mainstay_protocol::policy::Retry;
use mainstay_protocol::tier::Tier;
use mainstay_store::config::{file, quantity};
use serde_json::{Map, Value, json};

mod schema_tests;

/// The text before the tables.
const INTRODUCTION: &str = r#"# Config file

`~/.config/mainstay/config.toml`; it need not exist. `XDG_*` variables are not read, because clients pass on only six variables, and every mainstay process must read the same file.

Order of precedence: option, then `[server.NAME]`, then `[defaults]`, then the built-in default. A mistake in the table of a server stops `run` of this server, with the line number. So does a wrong `require_tier` in `[defaults]`, and a file that is not TOML. Any other mistake is a warning: the setting is left out, and the server runs.

```toml
[defaults]
grace_eof = "3s"

[server.playwright]
command = "npx"          # so that `mainstay run --name playwright` is enough
args = ["-y", "@playwright/mcp"]
env = { DEBUG = "pw:mcp" }
cwd = "~/work"
require_tier = "cgroup"
```

Times have a unit: `500ms`, `2s`, `10min` or `10m`, `1h`, `1d`, `2w`. Sizes are bytes or have a unit: `100k`, `512M`, `2G`, `2GB` and `2GiB` are powers of 1024. Options take the same.

An editor with TOML support (Taplo, Even Better TOML) completes and checks the file if [config.schema.json](config.schema.json) is beside it and its first line is `#:schema ./config.schema.json`.
"#;

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Tier,
    Retry,
    Switch,
    /// Relative paths are those of the server's directory.
    Paths,
    AbsolutePath,
    Path,
    Text,
    Texts,
    Words,
    Variables,
    Headers,
    Url,
    Address,
    Users,
}

struct Key {
    name: &'static str,
    form: Form,
    built_in: &'static str,
    help: &'static str,
}

const fn key(name: &'static str, form: Form, built_in: &'static str, help: &'static str) -> Key {
    Key {
        name,
        form,
        built_in,
        help,
    }
}

/// Keys of `[defaults]` and of a server, beside the limits.
const BOTH: [Key; 10] = [
    key(
        "tier",
        Form::Tier,
        "the strongest",
        "How the server's process tree is contained",
    ),
    key(
        "require_tier",
        Form::Tier,
        "none",
        "Do not start the server unless its process tree is contained at least this strongly",
    ),
    key(
        "retry",
        Form::Retry,
        "safe",
        "Which requests are sent again if the server dies before it answers: none, requests that only read, or also calls of tools that are marked read-only or idempotent",
    ),
    key(
        "lazy",
        Form::Switch,
        "false",
        "Do not start the server before it is needed",
    ),
    key(
        "advertise_list_changed",
        Form::Switch,
        "false",
        "After a restart, notify the client of changed lists even if the server has not declared that it does so",
    ),
    key(
        "watch",
        Form::Paths,
        "none",
        "Restart the server between two requests when one of these files or directories changes",
    ),
    key(
        "cache",
        Form::Switch,
        "true",
        "Remember the server's handshake and lists, and use them for a fast start",
    ),
    key(
        "record_file",
        Form::AbsolutePath,
        "none",
        "Append every message of each session to this file, secrets hidden",
    ),
    key(
        "record_secrets",
        Form::Switch,
        "false",
        "Do not hide secrets in that file",
    ),
    key(
        "notify",
        Form::Texts,
        "none",
        "A command that is run when the server is given up; the one in `[defaults]` also when `mainstay reap` reports orphans without a terminal. Its last argument is a text, which is also in `MAINSTAY_TEXT`; `MAINSTAY_EVENT` is `given_up` or `orphans`, and `MAINSTAY_SERVER` the name",
    ),
];

/// Keys of a server alone.
const SERVER: [Key; 8] = [
    key("command", Form::Text, "", "The server command"),
    key("args", Form::Texts, "", "The arguments of the command"),
    key(
        "env",
        Form::Variables,
        "",
        "Variables added to the server's environment",
    ),
    key(
        "cwd",
        Form::AbsolutePath,
        "the client's",
        "The directory that the server runs in",
    ),
    key(
        "url",
        Form::Url,
        "",
        "The URL of a streamable-HTTP server, instead of a command",
    ),
    key(
        "headers",
        Form::Headers,
        "",
        "Headers for that URL; they are never logged",
    ),
    key(
        "header_env",
        Form::Headers,
        "",
        "Headers whose values are in environment variables: `Authorization = \"MY_TOKEN\"`",
    ),
    key(
        "share",
        Form::Switch,
        "false",
        "Let all sessions of `serve` share one server, also those up to protocol 2025-11-25; it cannot send requests to its clients",
    ),
];

/// Keys of `[serve]`, beside its limits.
const SERVE: [Key; 5] = [
    key(
        "listen",
        Form::Address,
        "127.0.0.1:8808",
        "The address to listen on",
    ),
    key(
        "token_file",
        Form::Path,
        "none",
        "The file with the token that clients must send",
    ),
    key(
        "allow_host",
        Form::Texts,
        "none",
        "Host names that clients may use, beside localhost",
    ),
    key(
        "allow_origin",
        Form::Texts,
        "none",
        "Web sites whose pages may send requests",
    ),
    key(
        "allow_user",
        Form::Users,
        "none",
        "Users of this machine who may connect without a token, beside you and root; `any` for all users",
    ),
];

/// Keys of `[reap]`.
const REAP: [Key; 1] = [key(
    "protect",
    Form::Words,
    "none",
    "`mainstay reap` never ends a server whose command contains one of these",
)];

impl Form {
    fn words(self) -> String {
        let fixed = match self {
            Self::Tier => return tiers().join(", "),
            Self::Retry => return Retry::ALL.map(Retry::word).join(", "),
            Self::Switch => "true or false",
            Self::Paths => "list of paths, relative to the server's directory, or `~/…`",
            Self::AbsolutePath => "absolute path, or `~/…`",
            Self::Path => "path, or `~/…`",
            Self::Text | Self::Url => "text",
            Self::Texts | Self::Words => "list of texts",
            Self::Variables | Self::Headers => "table of texts",
            Self::Address => "address with port",
            Self::Users => "list of ids or texts",
        };
        fixed.into()
    }

    fn schema(self) -> Value {
        let names = |pattern: &str| {
            json!({
                "type": "object",
                "propertyNames": { "pattern": pattern },
                "additionalProperties": { "type": "string" },
            })
        };
        match self {
            Self::Tier => json!({ "enum": tiers() }),
            Self::Retry => json!({ "enum": Retry::ALL.map(Retry::word) }),
            Self::Switch => json!({ "type": "boolean" }),
            Self::AbsolutePath => json!({ "type": "string", "pattern": "^(/|~/|~$)" }),
            Self::Path | Self::Text => json!({ "type": "string" }),
            Self::Address => json!({ "type": "string", "pattern": "[0-9]" }),
            Self::Url => json!({ "type": "string", "pattern": "^https?://" }),
            Self::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Self::Paths | Self::Words => {
                json!({ "type": "array", "items": { "type": "string", "minLength": 1 } })
            }
            Self::Variables => names("^[^=]+$"),
            Self::Headers => names("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$"),
            Self::Users => json!({
                "type": "array",
                "items": { "anyOf": [{ "type": "string" }, { "type": "integer", "minimum": 0 }] },
            }),
        }
    }
}

fn tiers() -> Vec<&'static str> {
    Tier::ALL.iter().map(|tier| tier.word()).collect()
}

fn unit_words(unit: Unit) -> &'static str {
    match unit {
        Unit::Time => "time",
        Unit::Size => "size",
        Unit::Count => "number",
    }
}

/// The page.
pub fn page() -> String {
    let mut page = String::from(INTRODUCTION);
    page += "\n| key | where | value | built in | what it is |\n|---|---|---|---|---|\n";
    for limit in &TABLE {
        page += &format!("| {} |\n", limit_cells(limit, "both | "));
    }
    for (keys, place) in [(&BOTH[..], "both | "), (&SERVER, "server | ")] {
        for key in keys {
            page += &format!("| {} |\n", key_cells(key, place));
        }
    }
    page += "\n## `[events]`\n\nFor all servers, because they share the [event files](events.md). The process that writes the first event of a day deletes old files. As long as the \
             config file has a mistake, nothing is deleted.\n\n| key | value | built in | what it is |\n|---|---|---|---|\n";
    for limit in &EVENTS {
        page += &format!("| {} |\n", limit_cells(limit, ""));
    }
    page += "\n## `[reap]`\n\n| key | value | built in | what it is |\n|---|---|---|---|\n";
    for key in &REAP {
        page += &format!("| {} |\n", key_cells(key, ""));
    }
    page += "\n## `[serve]`\n\nFor `mainstay serve`; options take precedence. Its limits are on the page of [options](options.md#limits-of-serve).\n\n\
             | key | value | built in | what it is |\n|---|---|---|---|\n";
    for key in &SERVE {
        page += &format!("| {} |\n", key_cells(key, ""));
    }
    page += "\n## Tiers, weakest first\n\n";
    for tier in Tier::ALL {
        page += &format!("- `{tier}`: {}\n", tier.promise());
    }
    page
}

fn limit_cells<L>(limit: &Limit<L>, place: &str) -> String {
    format!(
        "`{}` | {place}{} | {} | {}",
        file::key(limit),
        unit_words(limit.unit),
        quantity::show(limit.unit, limit.default),
        limit.help
    )
}

fn key_cells(key: &Key, place: &str) -> String {
    let Key {
        name,
        form,
        built_in,
        help,
    } = key;
    format!("`{name}` | {place}{} | {built_in} | {help}", form.words())
}

/// The schema.
pub fn schema() -> Value {
    let mut settings = Map::new();
    for limit in &TABLE {
        settings.insert(file::key(limit), limit_schema(limit));
    }
    add(&mut settings, &BOTH);
    settings.insert(
        "record".into(),
        json!({ "type": "boolean", "description": "The old name of `cache`", "deprecated": true }),
    );
    let mut server = settings.clone();
    add(&mut server, &SERVER);
    let mut serve = Map::new();
    for limit in &serve::TABLE {
        serve.insert(file::key(limit), limit_schema(limit));
    }
    add(&mut serve, &SERVE);
    let mut events = Map::new();
    for limit in &EVENTS {
        events.insert(file::key(limit), limit_schema(limit));
    }
    let mut reap = Map::new();
    add(&mut reap, &REAP);
    let mut one = table(&server, "One server");
    one["dependencies"] = json!({ "args": ["command"] });
    one["not"] = json!({ "required": ["command", "url"] });
    let servers = json!({
        "type": "object",
        "description": "Servers by name",
        "additionalProperties": one,
    });
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "The config file of mainstay",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "defaults": table(&settings, "What holds for every server"),
            "server": servers,
            "serve": table(&serve, "What holds for `mainstay serve`"),
            "events": table(&events, "How much is kept of the events of all servers"),
            "reap": table(&reap, "What `mainstay reap` spares"),
        },
    })
}

fn table(properties: &Map<String, Value>, description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "additionalProperties": false,
        "properties": properties,
    })
}

fn add(properties: &mut Map<String, Value>, keys: &[Key]) {
    for key in keys {
        let mut schema = key.form.schema();
        schema["description"] = key.help.into();
        properties.insert(key.name.into(), schema);
    }
}

/// A number in the limit's range, or a text with a unit, whose range no schema can express.
fn limit_schema<L>(limit: &Limit<L>) -> Value {
    let shown = quantity::show(limit.unit, limit.default);
    let range = json!({ "type": "integer", "minimum": limit.min, "maximum": limit.max });
    let (pattern, number) = match limit.unit {
        Unit::Time if limit.min == 0 => (
            "^ *([0-9]+ *(ms|s|m|min|h|d|w)|0+) *$",
            Some(json!({ "const": 0 })),
        ),
        Unit::Time => ("^ *[0-9]+ *(ms|s|m|min|h|d|w) *$", None),
        Unit::Size => ("^ *[0-9]+ *([KMGTkmgt]([iI]?[bB])?|[bB])? *$", Some(range)),
        Unit::Count => ("^ *[0-9]+ *$", Some(range)),
    };
    let text = json!({ "type": "string", "pattern": pattern });
    let forms: Vec<Value> = [Some(text), number].into_iter().flatten().collect();
    json!({
        "description": format!("{} (built in: {shown})", limit.help),
        "anyOf": forms,
    })
}

#[test]
fn every_key_that_is_read_is_documented() {
    let names = |keys: &[Key]| keys.iter().map(|key| key.name).collect::<Vec<_>>();
    assert_eq!(names(&BOTH), file::COMMON);
    assert_eq!(names(&SERVER), file::SERVER);
    assert_eq!(names(&SERVE), file::SERVE);
    assert_eq!(names(&REAP), file::REAP);
    assert_eq!(BOTH[2].built_in, Retry::default().word());
}
