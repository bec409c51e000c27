//! guards: Each mistake in the config file is reported with its line and the key that was meant.

use std::path::PathBuf;

use mainstay_protocol::policy::Retry;
use mainstay_protocol::tier::Tier;

use super::*;
use crate::config::serving::User;

fn read(text: &str) -> Result<Config, Report> {
    parse(Path::new("c.toml"), Path::new("/home/ann"), text)
}

#[test]
fn everything_that_may_stand_there() {
    let config = read(
        r#"
[defaults]
grace_eof = "3s"
grace_term = 0
stderr_tail_lines = 10
stderr_tail_bytes = "4KiB"
tier = "subreaper"
retry = "annotated"
memory_max = "512MiB"
hibernate = "10m"

[server.play]
grace_eof = "500ms"
require_tier = "cgroup"
command = "npx"
args = ["-y", "@playwright/mcp"]
env = { A = "1" }
cwd = "~/work"
lazy = true
advertise_list_changed = false
watch = ["src", "~/lib", "/opt/x"]
record = false
record_file = "~/frames.jsonl"
record_secrets = true
record_bytes = "1MiB"

[server."dotted.name"]
"#,
    )
    .unwrap();
    let play = config.server("play");
    let limits = play.settings.limits();
    assert_eq!((limits.grace_eof_ms, limits.grace_term_ms), (500, 0));
    assert_eq!(limits.stderr_tail_bytes, 4096);
    assert_eq!(limits.opening_ms, 55_000);
    assert_eq!(play.settings.tier, Some(Tier::Subreaper));
    assert_eq!(play.settings.require_tier, Some(Tier::Cgroup));
    assert_eq!(play.settings.frames, Some("/home/ann/frames.jsonl".into()));
    assert_eq!(play.settings.secrets, Some(true));
    assert_eq!(limits.record_bytes, 1 << 20);
    assert_eq!(play.command.as_deref(), Some("npx"));
    assert_eq!(play.args, ["-y", "@playwright/mcp"]);
    assert_eq!(play.env["A"], "1");
    assert_eq!(play.cwd, Some("/home/ann/work".into()));
    assert_eq!(limits.memory_max_bytes, 512 << 20);
    assert_eq!(limits.hibernate_ms, 600_000);
    assert_eq!(play.settings.retry, Some(Retry::Annotated));
    assert_eq!(play.settings.lazy, Some(true));
    assert_eq!(play.settings.advertise, Some(false));
    assert_eq!(play.settings.cache, Some(false));
    let watch = ["src", "/home/ann/lib", "/opt/x"].map(PathBuf::from);
    assert_eq!(play.settings.watch, Some(watch.into()));
    let other = config.server("another");
    assert_eq!(other.settings.limits().grace_eof_ms, 3_000);
    assert_eq!(other.command, None);
    assert!(config.servers.contains_key("dotted.name"));
}

#[test]
fn each_mistake_names_its_place_and_what_was_meant() {
    for (text, problem, hint) in [
        (
            "[defaults]\ngrce_eof = \"2s\"",
            "c.toml:2: unknown key `grce_eof` in [defaults]",
            Some("did you mean `grace_eof`?"),
        ),
        (
            "[server.x]\n\ncomand = \"y\"",
            "c.toml:3: unknown key `comand` in [server.x]",
            Some("did you mean `command`?"),
        ),
        (
            "[servers.x]",
            "c.toml:1: unknown key `servers` at the top",
            Some("did you mean `server`?"),
        ),
        (
            "grace-eof = \"3s\"",
            "c.toml:1: unknown key `grace-eof` at the top",
            Some("write `grace_eof` below a line `[server.NAME]`, or `[defaults]` for all servers"),
        ),
        (
            "command = \"y\"",
            "c.toml:1: unknown key `command` at the top",
            Some("write `command` below a line `[server.NAME]`"),
        ),
        (
            "[defaults]\ncommand = \"y\"",
            "c.toml:2: unknown key `command` in [defaults]",
            None,
        ),
        (
            "[defaults]\ngrace_eof = 2",
            "c.toml:2: `grace_eof`: `2` is not a time (write it like `500ms`, `2s`, `10min`, `1h` or `1d`)",
            Some("leave `grace_eof` out for the built-in value, 2s"),
        ),
        (
            "[defaults]\nstderr_tail_bytes = \"8 kilos\"",
            "c.toml:2: `stderr_tail_bytes`: `8 kilos` is not a size (write it like `8192`, `100k`, `512M` or `2GiB`)",
            Some("leave `stderr_tail_bytes` out for the built-in value, 8KiB"),
        ),
        (
            "[defaults]\nkill_confirm = \"1ms\"",
            "c.toml:2: `kill_confirm`: `1ms` is out of range (10ms to 1m)",
            Some("leave `kill_confirm` out for the built-in value, 5s"),
        ),
        (
            "[defaults]\ngrace_eof = true",
            "c.toml:2: `grace_eof` is a boolean, not a text or a number",
            Some("write a text or a number after `grace_eof =`"),
        ),
        (
            "[defaults]\ntier = \"jail\"",
            "c.toml:2: `tier`: unknown tier `jail` (one of subreaper, cgroup, scope, pidns)",
            Some("`mainstay doctor` shows which tiers this machine has"),
        ),
        (
            "[defaults]\nretry = \"always\"",
            "c.toml:2: `retry`: `always` is not a way to retry: say never, safe or annotated",
            Some("leave `retry` out for the built-in value, safe"),
        ),
        (
            "[defaults]\nlazy = \"yes\"",
            "c.toml:2: `lazy` is a string, not `true` or `false`",
            Some("write `lazy = true` or `lazy = false`"),
        ),
        (
            "[server.x]\nrecord_file = \"x\"",
            "c.toml:2: `record_file` is not an absolute path: `x`",
            Some("begin it with `/` or `~/`"),
        ),
        (
            "[server.x]\nwatch = \"src\"",
            "c.toml:2: `watch` is a string, not a list of texts",
            Some("write it like `watch = [\"…\", \"…\"]`"),
        ),
        (
            "[server.x]\nargs = [\"a\"]",
            "c.toml:2: [server.x] has `args` but no `command`",
            Some("add `command = \"…\"`, or leave `args` out"),
        ),
        (
            "[server.x]\ncommand = \"c\"\nargs = [1]",
            "c.toml:3: `args` is an integer, not a text",
            Some("write each text in quotes, as in `args = [\"…\"]`"),
        ),
        (
            "[server.x]\ncwd = \"work\"",
            "c.toml:2: `cwd` is not an absolute path: `work`",
            Some("begin it with `/` or `~/`"),
        ),
        (
            "[server.x]\nenv = { \"A=B\" = \"1\" }",
            "c.toml:2: `A=B` cannot be the name of a variable",
            None,
        ),
        (
            "[serve]\nallow_user = 1000",
            "c.toml:2: `allow_user` is an integer, not a list of ids or texts",
            None,
        ),
        (
            "[serve]\nallow_user = [true]",
            "c.toml:2: `allow_user` is a boolean, not an id or a text",
            None,
        ),
        (
            "[serve]\nallow_user = [1000, -1]",
            "c.toml:2: `allow_user`: `-1` is no user in /etc/passwd (write the id, as `id -u` shows it, or `any`)",
            None,
        ),
        (
            "defaults = 1",
            "c.toml:1: `defaults` is an integer, not a table",
            Some("write a line `[defaults]`, and its keys below it"),
        ),
    ] {
        let report = read(text).unwrap_err();
        assert_eq!(report.problem(), problem);
        if hint.is_some() {
            assert_eq!(report.advice(), hint, "{text}");
        }
        assert_eq!(report.exit(), Exit::Failed);
    }
}

#[test]
fn users_are_ids_names_or_any() {
    let config = read("[serve]\nallow_user = [1000, \"1001\", \"root\", \"any\"]").unwrap();
    let users = [1000, 1001, 0].map(User::Id).into_iter();
    let users: Vec<_> = users.chain([User::Any]).collect();
    assert_eq!(config.serve.users, users);
}

#[test]
fn broken_toml_names_its_line() {
    let report = read("[defaults]\ngrace_eof = \n").unwrap_err();
    assert!(
        report.problem().starts_with("c.toml:2: not valid TOML: "),
        "{report}"
    );
    let twice = read("[defaults]\n[defaults]\n").unwrap_err();
    assert!(
        twice.problem().starts_with("c.toml:2: not valid TOML: "),
        "{twice}"
    );
}

#[test]
fn broken_toml_is_answered_with_what_to_write() {
    for (text, hint) in [
        ("{\n  \"mcpServers\": {}\n}\n", "the file is TOML, not JSON"),
        (
            "[server.a]\ncommand = \"x\"\n[server.a]\n",
            "a name may stand there once",
        ),
        (
            "[server.a]\nlazy = true\nlazy = false\n",
            "a name may stand there once",
        ),
        ("[server.a]\ncommand = npx\n", "texts stand in quotes"),
        (
            "[server.a\n",
            "a table begins with a line like `[server.NAME]`",
        ),
    ] {
        let report = read(text).unwrap_err();
        let advice = report.advice().unwrap();
        assert!(advice.contains(hint), "{text}: {advice}");
        // A server that is started by its name needs the file.
        assert!(!report.to_string().contains("nothing needs it"), "{report}");
    }
}

#[test]
fn sizes_and_times_are_those_of_the_options() {
    let config =
        read("[defaults]\nmemory_max = \"2G\"\nhibernate = \"10min\"\n[events]\nsize = \"100M\"\n");
    let config = config.unwrap();
    let limits = config.defaults.limits();
    assert_eq!(limits.memory_max_bytes, 2 << 30);
    assert_eq!(limits.hibernate_ms, 600_000);
    assert_eq!(config.events.bytes, 100 << 20);
}

#[test]
fn mistakes_in_the_defaults_do_not_stop_a_server_unless_it_must_be_contained() {
    let read_for = |text: &str| parse_for("play", Path::new("c.toml"), Path::new("/h"), text);
    let text = "[defaults]\nnotify = ['notify-send', 'mainstay']\ngrce_eof = '2s'\nlazy = 3\n\
                [server.play]\nnotify = []\n[server.other]\nlzy = true\n";
    let (config, ignored) = read_for(text).unwrap();
    let ignored: Vec<(bool, String)> = ignored
        .iter()
        .map(|one| (one.concerns, one.mistake.problem()))
        .collect();
    assert_eq!(
        ignored,
        [
            (
                true,
                "c.toml:3: unknown key `grce_eof` in [defaults]".into()
            ),
            (
                true,
                "c.toml:4: `lazy` is an integer, not `true` or `false`".into()
            ),
            (
                false,
                "c.toml:8: unknown key `lzy` in [server.other]".into()
            ),
        ]
    );
    let command = ["notify-send", "mainstay"].map(String::from);
    assert_eq!(config.defaults.notify, Some(command.into()));
    assert_eq!(config.server("play").settings.notify, Some(Vec::new()));
    assert_eq!(config.server("new").settings.notify, config.defaults.notify);
    assert!(read_for("[defaults]\nrequire_tier = 'cgruop'\n").is_err());
    assert!(read_for("[server.play]\nlzy = true\n").is_err());
    assert!(read(text).is_err(), "other commands say so at once");
}
