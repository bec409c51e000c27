use std::path::PathBuf;

use mainstay_core::policy::Retry;
use mainstay_core::tier::Tier;

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
    assert_eq!(play.settings.record, Some(false));
    let watch = ["src", "/home/ann/lib", "/opt/x"].map(PathBuf::from);
    assert_eq!(play.settings.watch, Some(watch.into()));
    let other = config.server("somebody");
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
            "c.toml:2: `grace_eof`: `2` is not a time (write it like `1500ms`, `2s`, `5m` or `1h`)",
            None,
        ),
        (
            "[defaults]\nstderr_tail_bytes = \"8KB\"",
            "c.toml:2: `stderr_tail_bytes`: `8KB` is not a size (write it like `8192`, `8KiB`, `16MiB` or `1GiB`)",
            None,
        ),
        (
            "[defaults]\nkill_confirm = \"1ms\"",
            "c.toml:2: `kill_confirm`: `1ms` is out of range (10ms to 1m)",
            None,
        ),
        (
            "[defaults]\ngrace_eof = true",
            "c.toml:2: `grace_eof` is a boolean, not a text or a number",
            None,
        ),
        (
            "[defaults]\ntier = \"jail\"",
            "c.toml:2: `tier`: unknown tier `jail` (one of subreaper, cgroup, scope, pidns)",
            None,
        ),
        (
            "[defaults]\nretry = \"always\"",
            "c.toml:2: `retry`: `always` is not a way to retry: say never, safe or annotated",
            None,
        ),
        (
            "[defaults]\nlazy = \"yes\"",
            "c.toml:2: `lazy` is a string, not `true` or `false`",
            None,
        ),
        (
            "[server.x]\nrecord_file = \"x\"",
            "c.toml:2: `record_file` is not an absolute path: `x`",
            Some("begin it with `/` or `~/`"),
        ),
        (
            "[server.x]\nwatch = \"src\"",
            "c.toml:2: `watch` is a string, not a list of texts",
            None,
        ),
        (
            "[server.x]\nargs = [\"a\"]",
            "c.toml:2: [server.x] has `args` but no `command`",
            Some("add `command = \"…\"`, or leave `args` out"),
        ),
        (
            "[server.x]\ncommand = \"c\"\nargs = [1]",
            "c.toml:3: `args` is an integer, not a text",
            None,
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
            "c.toml:2: `allow_user`: `-1` is no user in /etc/passwd (write the id, as `id -u` tells it, or `any`)",
            None,
        ),
        (
            "defaults = 1",
            "c.toml:1: `defaults` is an integer, not a table",
            None,
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
