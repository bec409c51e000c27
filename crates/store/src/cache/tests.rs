//! guards: A damaged cache file counts as missing, and no cache file contains a secret.

use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::UNIX_EPOCH;

use mainstay_protocol::message::{lists::Which, remembered::Learned};

use super::*;
use crate::scratch::Scratch;
use crate::state::{DIRECTORY_MODE, FILE_MODE};

const SECRET: &str = "sk-very-secret";

fn cache_file(directory: &Location, token: &str) -> Session {
    session(directory, &[&format!("TOKEN={token}")])
}

/// A session of one command with this environment.
fn session(directory: &Location, env: &[&str]) -> Session {
    let env: Vec<CString> = env.iter().map(|&one| CString::new(one).unwrap()).collect();
    let configuration = Configuration {
        argv: &["server", "--key", SECRET].map(OsString::from),
        cwd: Path::new("/"),
        env: &env,
    };
    Session {
        file: CacheFile::of(directory, "demo", &configuration),
        env,
    }
}

struct Session {
    file: CacheFile,
    env: Vec<CString>,
}

impl Session {
    fn path(&self) -> PathBuf {
        self.file.path()
    }

    fn load(&self) -> Remembered {
        self.file.load()
    }

    fn save(&self, remembered: &Remembered) -> io::Result<()> {
        self.file.write(remembered)
    }

    /// One session with a server that has this tool. True if the cache had the tool already.
    fn open(mut self, tool: &str) -> bool {
        let list = format!(r#"{{"tools":[{{"name":"{tool}"}}]}}"#);
        let mut remembered = self.load();
        let knew = remembered.list(Some(7), Which::Tools) == Some(list.as_bytes());
        remembered.learn_opening(7, br#"{"protocolVersion":"2025-11-25"}"#);
        remembered.learn_list(Some(7), Which::Tools, list.as_bytes());
        self.file.save(&self.env, &remembered).unwrap();
        knew
    }
}

fn sample() -> Remembered {
    let mut remembered = Remembered::default();
    remembered.learn_discover(br#"{"supportedVersions":["2026-07-28"],"n":1.0}"#);
    remembered.learn_opening(u64::MAX, br#"{ "protocolVersion" : "2025-06-18" }"#);
    remembered.learn_list(
        Some(u64::MAX),
        Which::Tools,
        br#"{"tools":[{"name":"\u0061"}]}"#,
    );
    remembered.learn_opening(7, br#"{"protocolVersion":"2025-11-25"}"#);
    remembered.learn_list(Some(7), Which::Templates, br#"{"resourceTemplates":[]}"#);
    let none = br#"{"code":-32601,"message":"Method not found"}"#;
    remembered.learn_list_refusal(Some(7), Which::Prompts, none);
    remembered.learn_list_refusal(None, Which::Resources, none);
    remembered.learn_list(None, Which::Prompts, br#"{"prompts":[]}"#);
    remembered.from_disk()
}

fn names(directory: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn what_was_saved_is_loaded_to_the_byte() {
    let scratch = Scratch::new();
    let directory = scratch.location().join("cache");
    let ours = cache_file(&directory, SECRET);
    assert_eq!(ours.load(), Remembered::default());
    ours.save(&sample()).unwrap();
    assert_eq!(ours.load(), sample());
    assert!(!ours.load().changed());
    let mut legacy = Remembered::default();
    legacy.learn_legacy();
    ours.save(&legacy).unwrap();
    assert!(ours.load().is_legacy());
    let error = br#"{"code":-32601,"message":"Method not found"}"#;
    legacy.learn_refusal(error);
    ours.save(&legacy).unwrap();
    assert_eq!(ours.load().refusal(), Some(error.as_slice()));
    let other = cache_file(&directory, "other");
    assert_ne!(ours.path(), other.path());
    assert_eq!(other.load(), Remembered::default());
}

#[test]
fn a_cache_file_is_private_and_contains_no_secret() {
    let scratch = Scratch::new();
    let directory = scratch.location().join("cache");
    let ours = cache_file(&directory, SECRET);
    ours.save(&sample()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&directory), DIRECTORY_MODE);
    assert_eq!(mode(&ours.path()), FILE_MODE);
    assert_eq!(names(&directory), [ours.path().file_name().unwrap()]);
    let text = fs::read_to_string(ours.path()).unwrap();
    assert!(!text.contains(SECRET) && !text.contains("TOKEN"), "{text}");
    assert!(
        text.starts_with(r#"{"version":1,"server":"demo","#),
        "{text}"
    );
}

#[test]
fn a_file_torn_at_any_byte_counts_as_missing() {
    let scratch = Scratch::new();
    let ours = cache_file(&scratch.location(), "x");
    ours.save(&sample()).unwrap();
    let whole = fs::read(ours.path()).unwrap();
    // Without the last byte only the newline is missing.
    for length in 0..whole.len() - 1 {
        fs::write(ours.path(), &whole[..length]).unwrap();
        assert_eq!(ours.load(), Remembered::default(), "{length} bytes");
    }
    ours.save(&sample()).unwrap();
    assert_eq!(ours.load(), sample());
}

#[test]
fn a_file_that_cannot_be_trusted_counts_as_missing_and_is_replaced() {
    let scratch = Scratch::new();
    let ours = cache_file(&scratch.location(), "x");
    ours.save(&sample()).unwrap();
    let whole = fs::read_to_string(ours.path()).unwrap();
    let huge = " ".repeat(CACHE_FILE_BYTES as usize) + &whole;
    for (what, text) in [
        ("version", whole.replace(r#""version":1"#, r#""version":2"#)),
        ("digest", whole.replace("ffffffffffffffff", "no digest")),
        ("missing", whole.replace(r#""legacy":false,"#, "")),
        (
            "type",
            whole.replace(r#""openings":["#, r#""openings":[7,"#),
        ),
        ("junk", "\u{0}\u{0}\u{0}".into()),
        ("huge", huge),
    ] {
        fs::write(ours.path(), text).unwrap();
        assert_eq!(ours.load(), Remembered::default(), "{what}");
        ours.save(&sample()).unwrap();
        assert_eq!(ours.load(), sample(), "{what}");
    }
    fs::set_permissions(ours.path(), fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(
        ours.load(),
        Remembered::default(),
        "other users can write it"
    );
    let elsewhere = scratch.path().join("elsewhere");
    ours.save(&sample()).unwrap();
    fs::rename(ours.path(), &elsewhere).unwrap();
    symlink(&elsewhere, ours.path()).unwrap();
    assert_eq!(ours.load(), Remembered::default(), "a link");
    fs::remove_file(ours.path()).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, ours.path(), rustix::fs::Mode::from(0o600)).unwrap();
    assert_eq!(ours.load(), Remembered::default(), "a pipe");
    ours.save(&sample()).unwrap();
    assert_eq!(ours.load(), sample());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(ours.path(), Some(12_345), None).unwrap();
        assert_eq!(
            ours.load(),
            Remembered::default(),
            "it belongs to another user"
        );
    }
}

#[test]
fn a_result_with_a_newline_is_ignored() {
    let scratch = Scratch::new();
    let ours = cache_file(&scratch.location(), "x");
    ours.save(&sample()).unwrap();
    let text = fs::read_to_string(ours.path()).unwrap();
    fs::write(
        ours.path(),
        text.replace(r#"{"prompts":[]}"#, "{\n\"prompts\":[]}"),
    )
    .unwrap();
    let mut loaded = ours.load();
    assert_eq!(loaded.list(None, Which::Prompts), None);
    let learned = loaded.learn_list(None, Which::Prompts, br#"{"prompts":[]}"#);
    assert_eq!(learned, Learned::New);
    assert_eq!(loaded.openings(), sample().openings());
}

#[test]
fn reading_counts_as_use() {
    let scratch = Scratch::new();
    let ours = cache_file(&scratch.location(), "x");
    ours.save(&sample()).unwrap();
    let old = || {
        let file = File::options().write(true).open(ours.path()).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
    };
    old();
    ours.load();
    let other = cache_file(&scratch.location(), "y");
    other.save(&sample()).unwrap();
    assert_eq!(ours.load(), sample());
    old();
    other.save(&sample()).unwrap();
    assert_eq!(ours.load(), Remembered::default(), "unused since 1970");
}

#[test]
fn a_directory_that_cannot_be_written_only_makes_the_save_fail() {
    let nowhere = crate::paths::Paths::nowhere().cache();
    let ours = cache_file(&nowhere, "x");
    assert_eq!(ours.load(), Remembered::default());
    assert!(ours.save(&sample()).is_err());
    let scratch = Scratch::new();
    let ours = cache_file(&scratch.location(), "x");
    fs::create_dir(ours.path()).unwrap();
    assert!(ours.save(&sample()).is_err());
    assert_eq!(ours.load(), Remembered::default());
    assert_eq!(names(scratch.path()).len(), 1, "nothing is left behind");
}

#[test]
fn the_list_has_servers_commands_sizes_and_contents() {
    let scratch = Scratch::new();
    let directory = &scratch.location();
    for token in ["x", "y"] {
        cache_file(directory, token).save(&sample()).unwrap();
    }
    let torn = cache_file(directory, "z");
    fs::write(torn.path(), "torn").unwrap();
    fs::write(directory.join(".new-7"), "x").unwrap();
    let all = all(directory).unwrap();
    let servers: Vec<Option<&str>> = all.iter().map(|one| one.server.as_deref()).collect();
    assert_eq!(servers, [None, Some("demo"), Some("demo")]);
    let whole = &all[1];
    assert_eq!(whole.command.as_deref(), Some("server --key [hidden]"));
    assert_eq!(
        whole.contents,
        Some(CacheContents {
            handshakes: 3,
            tools: Some(1),
            prompts: Some(0),
            resources: None,
            templates: Some(0),
        })
    );
    assert_eq!((all[0].contents, all[0].used_ms > 0), (None, true));
    let sum: u64 = all.iter().map(|one| one.bytes).sum();
    assert_eq!(extent(directory).unwrap(), (3, sum + 1));
}

/// Three variables that are new in each session, as an unknown client would set them.
fn of_unknown_client(n: u32) -> [String; 3] {
    [
        format!("ZED_SESSION={n}"),
        format!("ZED_SOCKET=/tmp/{n}.sock"),
        format!("ZED_PID={}", 1_000 + n),
    ]
}

fn with<'a>(volatile: &'a [String], own: &[&'a str]) -> Vec<&'a str> {
    volatile
        .iter()
        .map(String::as_str)
        .chain(own.iter().copied())
        .collect()
}

#[test]
fn a_variable_that_is_new_in_each_session_is_learned_to_be_volatile() {
    let scratch = Scratch::new();
    let knew: Vec<bool> = (0..8)
        .map(|n| {
            session(
                &scratch.location(),
                &with(&of_unknown_client(n), &["HOME=/h"]),
            )
            .open("a")
        })
        .collect();
    assert_eq!(knew, [false, false, false, true, true, true, true, true]);
    // Files of the three sessions that were needed to learn it (the key of the third is already without), and the openings.
    assert_eq!(names(scratch.path()).len(), 4);
}

#[test]
fn session_variables_of_a_known_client_never_count() {
    let scratch = Scratch::new();
    for (n, knows) in [(1, false), (2, true), (3, true)] {
        let env = [
            format!("CLAUDE_CODE_MESSAGING_TOKEN=secret-{n}"),
            format!("CLAUDE_CODE_MESSAGING_SOCKET=/tmp/{n}.sock"),
            format!("CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS={n}"),
            format!("CLAUDE_CODE_ENTRYPOINT=sdk-{n}"),
        ];
        let knew = session(&scratch.location(), &with(&env, &[])).open("a");
        assert_eq!(knew, knows, "session {n}");
    }
}

/// Cline CLI starts servers itself as long as its hub does not run, and lets the hub start them from then on.
#[test]
fn which_process_of_a_known_client_starts_the_server_does_not_count() {
    let scratch = Scratch::new();
    let itself = [
        r#"CLINE_CONNECTOR_CLI_LAUNCH={"launcher":"/n/1/cline","cwd":"/w"}"#,
        "HOME=/h",
    ];
    let hub = [
        "CLINE_BUILD_ENV=production",
        r#"CLINE_CONNECTOR_CLI_LAUNCH={"launcher":"/n/2/cline","cwd":"/w"}"#,
        "CLINE_NO_INTERACTIVE=1",
        "HOME=/h",
    ];
    assert!(!session(&scratch.location(), &itself).open("a"));
    assert!(session(&scratch.location(), &hub).open("a"));
    assert!(session(&scratch.location(), &itself).open("a"));
}

#[test]
fn a_variable_that_changes_what_the_server_shows_always_counts() {
    let scratch = Scratch::new();
    for round in 0..4 {
        for (n, tool) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let workspace = format!("WORKSPACE={tool}");
            let volatile = of_unknown_client(round * 4 + n as u32);
            let one = session(&scratch.location(), &with(&volatile, &[&workspace]));
            let shown = one.load().list(Some(7), Which::Tools).map(<[u8]>::to_vec);
            let own = format!(r#"{{"tools":[{{"name":"{tool}"}}]}}"#);
            assert!(shown.is_none_or(|shown| shown == own.as_bytes()), "{tool}");
            one.open(tool);
        }
    }
}

#[test]
fn a_variable_whose_value_comes_back_is_not_volatile() {
    let scratch = Scratch::new();
    let mut knew = Vec::new();
    for region in ["eu", "us", "eu", "us", "asia", "eu"] {
        let region = format!("REGION={region}");
        knew.push(session(&scratch.location(), &[&region]).open("a"));
    }
    // Each has a file of its own, although the answers are the same.
    assert_eq!(knew, [false, false, true, true, false, true]);
}

#[test]
fn a_credential_is_never_learned_and_not_even_its_digest_is_stored() {
    let scratch = Scratch::new();
    for n in 0..6 {
        let env = [
            format!("GITHUB_TOKEN=t{n}"),
            format!("api_key=k{n}"),
            format!("AWS_PROFILE=p{n}"),
        ];
        assert!(!session(&scratch.location(), &with(&env, &["HOME=/h"])).open("a"));
    }
    let openings = session(&scratch.location(), &[]).file.openings;
    let text = fs::read_to_string(scratch.path().join(openings)).unwrap();
    assert!(text.contains("HOME") && !text.contains("/h"), "{text}");
    for name in ["GITHUB", "api", "AWS"] {
        assert!(!text.contains(name), "{text}");
    }
}

#[test]
fn volatile_variables_are_learned_again_when_the_answers_change() {
    let scratch = Scratch::new();
    let open = |n, tool| session(&scratch.location(), &with(&of_unknown_client(n), &[])).open(tool);
    for n in 0..3 {
        open(n, "a");
    }
    assert!(open(3, "a"), "learned");
    assert!(!open(4, "b"), "it shows something else");
    assert!(!open(5, "b"), "so its environment counts again");
    open(6, "b");
    assert!(open(7, "b"), "until it is learned again");
}

#[test]
fn damaged_openings_count_as_missing_and_are_replaced() {
    let scratch = Scratch::new();
    for n in 0..3 {
        session(&scratch.location(), &with(&of_unknown_client(n), &[])).open("a");
    }
    let name = session(&scratch.location(), &[]).file.openings;
    let path = scratch.path().join(&name);
    let open = scratch.location().open().unwrap();
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() - 1 {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(read_openings(&open, &name).is_none(), "{length} bytes");
    }
    assert!(!session(&scratch.location(), &with(&of_unknown_client(9), &[])).open("a"));
    assert!(read_openings(&open, &name).is_some());
}

#[test]
fn two_writers_of_openings_leave_a_whole_file() {
    let scratch = Scratch::new();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let directory = scratch.location();
            scope.spawn(move || {
                for n in 0..50 {
                    let env = of_unknown_client(writer * 1_000 + n);
                    session(&directory, &with(&env, &[])).open("a");
                    let name = session(&directory, &[]).file.openings;
                    assert!(read_openings(&directory.open().unwrap(), &name).is_some());
                }
            });
        }
    });
    assert!(session(&scratch.location(), &with(&of_unknown_client(9_999), &[])).open("a"));
}

#[test]
fn what_was_learned_is_found_with_another_environment_but_not_for_another_account() {
    let scratch = Scratch::new();
    let directory = scratch.location();
    let mut learn = session(&directory, &["TOKEN=a", "LANG=C"]);
    learn.file = learn.file.of_learn();
    let mut seen = learn.load();
    seen.learn_opening(7, br#"{"protocolVersion":"2025-11-25"}"#);
    seen.learn_list(Some(7), Which::Tools, br#"{"tools":[]}"#);
    learn.file.save(&learn.env, &seen).unwrap();
    let tools = |env: &[&str]| {
        let remembered = session(&directory, env).load();
        remembered.list(Some(7), Which::Tools).is_some()
    };
    assert!(tools(&["TOKEN=a", "LANG=de", "CLAUDECODE=1"]));
    assert!(!tools(&["TOKEN=b", "LANG=C"]));
    assert!(!tools(&["LANG=C"]));
}
