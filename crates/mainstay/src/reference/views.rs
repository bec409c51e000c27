//! What `--json` prints: read off the types that are printed, whose fields say themselves what they are.
//!
//! It knows as much of Rust as the types of our views need, and fails where it meets a field that nothing is said of.

use std::fs;
use std::path::PathBuf;

/// One command, what it prints, and the types of which that is made: file and name.
struct View {
    command: &'static str,
    prints: &'static str,
    types: &'static [(&'static str, &'static str)],
}

const VIEWS: &[View] = &[
    View {
        command: "ps",
        prints: "a list of `Row`, one for each link",
        types: &[
            ("mainstay/src/cli/ps.rs", "Row"),
            ("mainstay/src/cli/ps.rs", "Process"),
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
            ("mainstay/src/view/story.rs", "Story"),
            ("core/src/verdict.rs", "Verdict"),
            ("core/src/verdict.rs", "By"),
            ("core/src/verdict.rs", "Sure"),
            ("core/src/verdict/rule.rs", "Rule"),
            ("core/src/event/standing.rs", "Suspect"),
            ("core/src/event/standing.rs", "Suspicion"),
            ("core/src/event/standing.rs", "Standing"),
            ("core/src/event/standing.rs", "Waiting"),
            ("core/src/event/standing.rs", "Brief"),
            ("core/src/event/signal.rs", "Relation"),
        ],
    },
    View {
        command: "events --timeline",
        prints: "a `Row` a line",
        types: &[
            ("mainstay/src/view/timeline.rs", "Row"),
            ("mainstay/src/view/timeline.rs", "Thing"),
        ],
    },
    View {
        command: "tap",
        prints: "a line each: `\"line\": \"frame\"` with the fields of a `Sight`, and `head`, `lost`, `end` around them",
        types: &[
            ("core/src/frames.rs", "Sight"),
            ("core/src/frames.rs", "Side"),
            ("core/src/frames.rs", "Kind"),
            ("core/src/frames.rs", "Ours"),
        ],
    },
    View {
        command: "watch",
        prints: "a `Line` a line",
        types: &[
            ("mainstay/src/watch/line.rs", "Line"),
            ("mainstay/src/watch/line.rs", "Happened"),
            ("mainstay/src/watch/line.rs", "Launcher"),
            ("mainstay/src/watch/line.rs", "Sender"),
            ("mainstay/src/watch/look.rs", "Ours"),
        ],
    },
    View {
        command: "trace-signals",
        prints: "a `Row` a line",
        types: &[
            ("mainstay/src/trace/row.rs", "Row"),
            ("mainstay/src/trace/row.rs", "Process"),
            ("mainstay/src/trace/row.rs", "Link"),
            ("core/src/event/traced.rs", "Delivery"),
            ("core/src/event/traced.rs", "Target"),
        ],
    },
    View {
        command: "lease open` and `lease renew",
        prints: "an `Agreed`",
        types: &[("mainstay/src/cli/lease.rs", "Agreed")],
    },
    View {
        command: "lease close",
        prints: "a `Told`",
        types: &[
            ("mainstay/src/cli/lease.rs", "Told"),
            ("mainstay/src/lease/close.rs", "Closed"),
            ("mainstay/src/lease/close.rs", "Was"),
            ("mainstay/src/lease/close.rs", "EndedServer"),
            ("core/src/lease.rs", "Over"),
        ],
    },
    View {
        command: "lease list",
        prints: "a list of `Row`",
        types: &[("mainstay/src/cli/lease/list.rs", "Row")],
    },
    View {
        command: "debts",
        prints: "a list of `Debt`; `debts pay` a `Done`",
        types: &[
            ("mainstay/src/cli/debts.rs", "Debt"),
            ("mainstay/src/cli/debts.rs", "Done"),
        ],
    },
    View {
        command: "forget",
        prints: "a `Forgotten`",
        types: &[("mainstay/src/cli/forget.rs", "Forgotten")],
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
            ("core/src/event.rs", "Detached"),
        ],
    },
    View {
        command: "serve",
        prints: "a `Listening` once it listens",
        types: &[
            ("mainstay/src/serve/mod.rs", "Listening"),
            ("mainstay/src/serve/mod.rs", "Where"),
        ],
    },
    View {
        command: "demo",
        prints: "a `Told` a line, one for each scene; `facts` are the scene's own",
        types: &[("mainstay/src/demo/mod.rs", "Told")],
    },
];

/// Types that several views print.
const SHARED: &[(&str, &str)] = &[
    ("core/src/event.rs", "Seen"),
    ("core/src/ids.rs", "Identity"),
    ("core/src/event.rs", "Status"),
    ("core/src/tier.rs", "Tier"),
    ("core/src/tier.rs", "WhyNot"),
];

/// The page.
pub fn page() -> String {
    let mut page = String::from(
        "# What `--json` prints\n\nFields are only ever added; ignore what you do not know. Times that end in `_ms` are milliseconds, memory that ends in `_kib` is KiB, \
         `at` and what ends in `_at` is RFC 3339 in UTC, `LinkId` is a text of eight hexadecimal digits. A *choice* is printed as its word, or as an object with its word as the only \
         key where something comes with it. `mainstay events` prints [events](events.md). What comes before and between the frames of `mainstay tap`, and of a recording: [frames](../design/frames.md).\n",
    );
    for View {
        command,
        prints,
        types,
    } in VIEWS
    {
        page += &format!("\n## `mainstay {command}`\n\nPrints {prints}.\n");
        for (file, name) in *types {
            page += &Type::read(file, name).told();
        }
    }
    page += "\n## In several of them\n";
    for (file, name) in SHARED {
        page += &Type::read(file, name).told();
    }
    complete(&page);
    page
}

/// Every type that is named is told, but those that the page says where to find.
fn complete(page: &str) {
    let rows = page.lines().filter_map(|line| line.split('|').nth(2));
    for name in rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        let elsewhere = ["LinkId", "Event"].contains(&name);
        let lower = name.starts_with(char::is_lowercase);
        let told = page.contains(&format!("**`{name}`**"));
        assert!(elsewhere || lower || told, "nothing is said of {name}");
    }
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
struct Field {
    name: String,
    form: String,
    about: String,
}

impl Type {
    /// Reads it off its source.
    fn read(file: &str, name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(file);
        let text = fs::read_to_string(&path).unwrap();
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

    fn told(&self) -> String {
        let kind = if self.choice { ", a choice" } else { "" };
        let mut told = format!("\n**`{}`**{kind}: {}\n\n", self.name, self.about);
        told += if self.choice {
            "| word | with it | what it is |\n|---|---|---|\n"
        } else {
            "| field | value | what it is |\n|---|---|---|\n"
        };
        for Field { name, form, about } in &self.fields {
            let name = match (self.choice, self.lower) {
                (false, _) => name.clone(),
                (true, true) => name.to_lowercase(),
                (true, false) => snake(name),
            };
            told += &format!("| `{name}` | {form} | {about} |\n");
        }
        told
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
            // What comes with a variant.
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
            assert!(!said.is_empty(), "{whose}: nothing is said of `{name}`");
            let renamed = traits
                .split_once("rename = \"")
                .and_then(|(_, rest)| rest.split_once('"'));
            let name = renamed.map_or(name, |(name, _)| name.into());
            fields.push(if traits.contains("flatten") {
                Field {
                    name: "…".into(),
                    form: format!("the fields of {form}"),
                    about: said,
                }
            } else {
                let seldom = traits.contains("skip_serializing_if");
                let form = form.replace(
                    " or null",
                    if seldom { ", or not there" } else { " or null" },
                );
                Field {
                    name,
                    form,
                    about: said,
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

/// A type in words.
fn form_of(form: &str) -> String {
    let form = form
        .trim_start_matches("&'a ")
        .trim_start_matches("&'static ");
    let inner = |outer: &str| form.strip_prefix(outer)?.strip_suffix('>');
    // Printed by a function of its own.
    if form == "Vec<Person>" {
        return "list of `Link`".into();
    }
    if let Some(inner) = inner("Option<") {
        return format!("{} or null", form_of(inner));
    }
    if let Some(inner) = inner("Vec<") {
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

/// Doc comments as one sentence after another, fit for a cell.
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
