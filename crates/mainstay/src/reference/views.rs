//! The page about `--json`, made from the doc comments of the types that are printed.
//!
//! It parses as much Rust as these types need, and fails if a field has no doc comment.

use std::fs;
use std::path::PathBuf;

/// One command, what it prints, and the types in its output (file and name).
struct View {
    command: &'static str,
    prints: &'static str,
    types: &'static [(&'static str, &'static str)],
}

const VIEWS: &[View] = &[
    View {
        command: "--version",
        prints: "a `Build`",
        types: &[("mainstay/src/cli/version.rs", "Build")],
    },
    View {
        command: "adopt` and `release",
        prints: "a `View`",
        types: &[
            ("mainstay/src/cli/adopt.rs", "View"),
            ("mainstay/src/cli/adopt/file.rs", "File"),
            ("mainstay/src/cli/adopt/file.rs", "Server"),
        ],
    },
    View {
        command: "learn",
        prints: "a list of `Row`",
        types: &[("mainstay/src/cli/learn.rs", "Row")],
    },
    View {
        command: "ps",
        prints: "a list of `Row`, one for each link",
        types: &[
            ("mainstay/src/cli/ps.rs", "Row"),
            ("mainstay/src/cli/ps/trouble.rs", "Trouble"),
            ("mainstay/src/cli/ps.rs", "Process"),
        ],
    },
    View {
        command: "ps --all",
        prints: "a `Both`; `others` are as `mainstay reap` prints them",
        types: &[("mainstay/src/cli/ps.rs", "Both")],
    },
    View {
        command: "metrics",
        prints: "a list of `Row`, one for each link",
        types: &[
            ("mainstay/src/cli/metrics.rs", "Row"),
            ("protocol/src/traffic.rs", "Traffic"),
            ("protocol/src/traffic.rs", "Durations"),
        ],
    },
    View {
        command: "stop",
        prints: "a list of `Row`",
        types: &[("mainstay/src/cli/stop.rs", "Row")],
    },
    View {
        command: "restart",
        prints: "a list of `Row`",
        types: &[("mainstay/src/cli/restart.rs", "Row")],
    },
    View {
        command: "why",
        prints: "a `Story`",
        types: &[
            ("report/src/story.rs", "Story"),
            ("report/src/story/brief.rs", "Impact"),
            ("core/src/verdict.rs", "Verdict"),
            ("core/src/verdict.rs", "By"),
            ("core/src/verdict.rs", "Sure"),
            ("core/src/verdict/rule.rs", "Rule"),
            ("protocol/src/event/standing.rs", "Suspect"),
            ("protocol/src/event/standing.rs", "Suspicion"),
            ("protocol/src/event/standing.rs", "Standing"),
            ("protocol/src/event/standing.rs", "Waiting"),
            ("protocol/src/event/standing.rs", "Brief"),
            ("protocol/src/event/signal.rs", "Relation"),
        ],
    },
    View {
        command: "logs",
        prints: "a `Row` per line, with the fields of a `LogLine`",
        types: &[
            ("mainstay/src/cli/logs.rs", "Row"),
            ("store/src/logs.rs", "LogLine"),
            ("store/src/logs.rs", "Source"),
        ],
    },
    View {
        command: "events --timeline",
        prints: "a `Row` per line",
        types: &[
            ("report/src/timeline.rs", "Row"),
            ("report/src/timeline.rs", "Thing"),
        ],
    },
    View {
        command: "tap",
        prints: "one object per line: `\"line\": \"frame\"` with the fields of a `Sight` and, if the body is JSON and not cut, the same as JSON in `message`, and lines `head`, `lost` and `end`",
        types: &[
            ("protocol/src/frames.rs", "Sight"),
            ("protocol/src/frames.rs", "Side"),
            ("protocol/src/frames.rs", "Kind"),
            ("protocol/src/frames.rs", "Ours"),
        ],
    },
    View {
        command: "watch",
        prints: "a `WatchLine` per line",
        types: &[
            ("observe/src/watch/line.rs", "WatchLine"),
            ("observe/src/watch/line.rs", "Happened"),
            ("observe/src/watch/line.rs", "Launcher"),
            ("observe/src/watch/line.rs", "Sender"),
            ("observe/src/watch/inspect.rs", "OurLink"),
        ],
    },
    View {
        command: "reap",
        prints: "a `Survey`",
        types: &[
            ("mainstay/src/cli/reap.rs", "Survey"),
            ("observe/src/reap/mod.rs", "Server"),
            ("core/src/reap.rs", "Verdict"),
            ("observe/src/reap/end.rs", "Done"),
        ],
    },
    View {
        command: "trace-signals",
        prints: "a `Row` per line",
        types: &[
            ("observe/src/trace/row.rs", "Row"),
            ("observe/src/trace/row.rs", "Process"),
            ("observe/src/trace/row.rs", "Link"),
            ("protocol/src/event/traced.rs", "Delivery"),
            ("protocol/src/event/traced.rs", "Target"),
        ],
    },
    View {
        command: "lease open` and `lease renew",
        prints: "a `LeaseTerms`",
        types: &[("mainstay/src/cli/lease.rs", "LeaseTerms")],
    },
    View {
        command: "lease close",
        prints: "a `CloseSummary`",
        types: &[
            ("mainstay/src/cli/lease.rs", "CloseSummary"),
            ("keeper/src/lease/close.rs", "Closed"),
            ("keeper/src/lease/close.rs", "Was"),
            ("keeper/src/lease/close.rs", "EndedServer"),
            ("protocol/src/lease.rs", "Over"),
        ],
    },
    View {
        command: "lease list",
        prints: "a list of `Row`",
        types: &[("mainstay/src/cli/lease/list.rs", "Row")],
    },
    View {
        command: "sessions",
        prints: "a list of `UnclosedSession`; `sessions close` a `ClosedSessions`",
        types: &[
            ("mainstay/src/cli/sessions.rs", "UnclosedSession"),
            ("mainstay/src/cli/sessions.rs", "ClosedSessions"),
        ],
    },
    View {
        command: "cache list",
        prints: "a list of `CacheEntry`",
        types: &[
            ("mainstay/src/cli/cache.rs", "CacheEntry"),
            ("store/src/cache/format.rs", "CacheContents"),
        ],
    },
    View {
        command: "cache clear",
        prints: "a `ClearedCache`",
        types: &[("mainstay/src/cli/cache.rs", "ClearedCache")],
    },
    View {
        command: "doctor",
        prints: "a `Health`",
        types: &[
            ("mainstay/src/cli/doctor.rs", "Health"),
            ("mainstay/src/cli/doctor.rs", "Places"),
            ("mainstay/src/cli/doctor.rs", "Containment"),
            ("mainstay/src/cli/doctor.rs", "Finding"),
            ("mainstay/src/cli/doctor.rs", "Status"),
            ("protocol/src/event.rs", "Detached"),
        ],
    },
    View {
        command: "serve",
        prints: "a `Listening` once it listens",
        types: &[
            ("http/src/serve/mod.rs", "Listening"),
            ("http/src/serve/mod.rs", "Where"),
        ],
    },
    View {
        command: "demo",
        prints: "a `SceneResult` per line, one for each scene; each scene has its own `facts`",
        types: &[("demo/src/lib.rs", "SceneResult")],
    },
];

/// Types that several commands print.
const SHARED: &[(&str, &str)] = &[
    ("protocol/src/event.rs", "Seen"),
    ("protocol/src/ids.rs", "Identity"),
    ("protocol/src/event.rs", "Status"),
    ("protocol/src/tier.rs", "Tier"),
    ("protocol/src/tier.rs", "WhyNot"),
];

/// Renders the page.
pub fn page() -> String {
    let mut page = String::from(
        "# What `--json` prints\n\nFields are only ever added; ignore fields that you do not know. Times that end in `_ms` are milliseconds, memory that ends in `_kib` is KiB, \
         `at` and what ends in `_at` is RFC 3339 in UTC, `LinkId` is a text of eight hexadecimal digits. A *choice* is printed as a word, or as an object with that word as the only \
         key if it has a value. `mainstay events` prints [events](events.md). The other lines of `mainstay tap` and of a recording: [frames](../design/frames.md).\n",
    );
    for View {
        command,
        prints,
        types,
    } in VIEWS
    {
        page += &format!("\n## `mainstay {command}`\n\nPrints {prints}.\n");
        for (file, name) in *types {
            page += &Type::read(file, name).section();
        }
    }
    page += "\n## In several of them\n";
    for (file, name) in SHARED {
        page += &Type::read(file, name).section();
    }
    complete(&page);
    page
}

/// Asserts that every type that the page names is on the page, except those described elsewhere.
fn complete(page: &str) {
    let rows = page.lines().filter_map(|line| line.split('|').nth(2));
    for name in rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        let elsewhere = ["LinkId", "Event"].contains(&name);
        let lower = name.starts_with(char::is_lowercase);
        let documented = page.contains(&format!("**`{name}`**"));
        assert!(elsewhere || lower || documented, "{name} is not documented");
    }
}

/// One kind of event.
pub struct EventKind {
    pub word: String,
    /// Its name in earlier versions.
    pub old: Option<String>,
    pub meaning: String,
    pub fields: Vec<Field>,
}

/// All kinds of events, read from the source of their types.
pub fn events() -> Vec<EventKind> {
    let kinds = Type::read(EVENTS, "What").fields.into_iter();
    kinds
        .map(|kind| EventKind {
            word: snake(&kind.name),
            old: kind.old,
            meaning: kind.about,
            fields: event_fields(kind.form.trim_matches('`')),
        })
        .collect()
}

const EVENTS: &str = "protocol/src/event.rs";

/// The fields of this event struct. A flattened identity becomes a pid and a start time.
fn event_fields(name: &str) -> Vec<Field> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../protocol/src/event");
    let files = fs::read_dir(folder).unwrap().map(|entry| {
        let file = entry.unwrap().file_name();
        format!("protocol/src/event/{}", file.to_str().unwrap())
    });
    let declares = |file: &String| source(file).contains(&format!("pub struct {name} {{"));
    let file = files.chain([EVENTS.into()]).find(declares).unwrap();
    let mut fields = Vec::new();
    for field in Type::read(&file, name).fields {
        if field.form == "the fields of `Identity`" {
            fields.extend(Type::read("protocol/src/ids.rs", "Identity").fields);
        } else {
            fields.push(field);
        }
    }
    fields
}

fn source(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(file);
    fs::read_to_string(path).unwrap()
}

/// A struct or an enum.
struct Type {
    name: String,
    about: String,
    lower: bool,
    choice: bool,
    fields: Vec<Field>,
}

/// A field, or a variant.
pub struct Field {
    pub name: String,
    /// The old name that is still read.
    old: Option<String>,
    form: String,
    pub about: String,
    /// Whether it is left out if it has no value.
    pub seldom: bool,
}

impl Type {
    /// Reads a type from its source.
    fn read(file: &str, name: &str) -> Self {
        let text = source(file);
        let lines: Vec<&str> = text.lines().collect();
        let opens = |line: &&str| {
            let line = line.trim_start_matches("pub ");
            let rest = line
                .strip_prefix("struct ")
                .or_else(|| line.strip_prefix("enum "));
            rest.and_then(|rest| rest.strip_prefix(name))
                .is_some_and(|rest| rest.starts_with([' ', '<']))
        };
        let at = lines.iter().position(opens);
        let at = at.unwrap_or_else(|| panic!("{file} has no {name}"));
        let head: Vec<&str> = lines[..at]
            .iter()
            .rev()
            .take_while(|line| line.starts_with("///") || line.starts_with("#["))
            .copied()
            .collect();
        let body = lines[at + 1..].iter().take_while(|line| **line != "}");
        let choice = lines[at].contains("enum ");
        Self {
            name: name.into(),
            about: said(head.iter().rev().copied()),
            lower: head.iter().any(|line| line.contains("\"lowercase\"")),
            choice,
            fields: fields(body.copied(), choice, &format!("{file} {name}")),
        }
    }

    fn section(&self) -> String {
        let kind = if self.choice { ", a choice" } else { "" };
        let mut section = format!("\n**`{}`**{kind}: {}\n\n", self.name, self.about);
        section += if self.choice {
            "| word | with it | what it is |\n|---|---|---|\n"
        } else {
            "| field | value | what it is |\n|---|---|---|\n"
        };
        for Field {
            name, form, about, ..
        } in &self.fields
        {
            let name = match (self.choice, self.lower) {
                (false, _) => name.clone(),
                (true, true) => name.to_lowercase(),
                (true, false) => snake(name),
            };
            section += &format!("| `{name}` | {form} | {about} |\n");
        }
        section
    }
}

/// The fields of a struct, or the variants of an enum.
fn fields<'l>(body: impl Iterator<Item = &'l str>, choice: bool, whose: &str) -> Vec<Field> {
    let mut fields: Vec<Field> = Vec::new();
    let (mut about, mut traits) = (Vec::new(), String::new());
    for line in body {
        let depth = line.len() - line.trim_start().len();
        let text = line.trim().trim_start_matches("pub ");
        if depth > 4 {
            // The fields of a variant.
            if let Some((name, form)) = text.trim_end_matches(',').split_once(": ")
                && !text.starts_with("//")
                && let Some(variant) = fields.last_mut()
            {
                let comma = if variant.form.is_empty() { "" } else { ", " };
                variant.form += &format!("{comma}`{name}`: {}", form_of(form));
            }
        } else if text.starts_with("///") {
            about.push(text);
        } else if text.starts_with("#[") {
            traits += text;
        } else if !text.starts_with(['}', ')']) {
            let (name, form) = if choice {
                variant(text)
            } else {
                let (name, form) = text.trim_end_matches(',').split_once(": ").unwrap();
                (name.to_owned(), form_of(form))
            };
            let said = said(about.drain(..));
            let traits = std::mem::take(&mut traits);
            if traits.contains("serde(skip)") {
                continue;
            }
            assert!(!said.is_empty(), "{whose}: `{name}` has no doc comment");
            let named = |word: &str| {
                let (_, rest) = traits.split_once(&format!("{word} = \""))?;
                rest.split_once('"').map(|(name, _)| name.to_owned())
            };
            let name = named("rename").unwrap_or(name);
            let old = named("alias");
            fields.push(if traits.contains("flatten") {
                Field {
                    name: "…".into(),
                    old,
                    form: format!("the fields of {form}"),
                    about: said,
                    seldom: false,
                }
            } else {
                let seldom = traits.contains("skip_serializing_if");
                let form = form.replace(
                    " or null",
                    if seldom { ", or not there" } else { " or null" },
                );
                Field {
                    name,
                    old,
                    form,
                    about: said,
                    seldom,
                }
            });
        }
    }
    fields
}

fn variant(text: &str) -> (String, String) {
    let text = text.trim_end_matches([',', '{', ' ']);
    match text.split_once('(') {
        Some((name, inner)) => (name.into(), form_of(inner.trim_end_matches(')'))),
        None => (text.into(), String::new()),
    }
}

/// Describes a type for users.
fn form_of(form: &str) -> String {
    let form = form
        .trim_start_matches("&'a ")
        .trim_start_matches("&'static ");
    let inner = |outer: &str| form.strip_prefix(outer)?.strip_suffix('>');
    // This type has its own serializer.
    if form == "Vec<LinkProcess>" {
        return "list of `Link`".into();
    }
    if let Some(inner) = inner("Option<") {
        return format!("{} or null", form_of(inner));
    }
    if let Some(inner) = inner("Vec<") {
        return format!("list of {}", form_of(inner));
    }
    if let Some((inner, _)) = form.strip_prefix('[').and_then(|form| form.split_once(';')) {
        return format!("list of {}", form_of(inner));
    }
    if let Some(inner) = inner("Box<") {
        return form_of(inner);
    }
    match form {
        "String" | "str" | "SocketAddr" => "text".into(),
        "bool" => "true or false".into(),
        "i32" | "u32" | "u64" | "usize" => "number".into(),
        "Value" => "anything".into(),
        other => format!("`{other}`"),
    }
}

/// Joins doc comments into the text of a table cell.
fn said<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    let words: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("///"))
        .map(str::trim)
        .collect();
    words.join(" ").replace('|', "\\|")
}

/// `ClientGone` as `client_gone`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}
