//! A mistake in the config file or the options stops `run` before a server is started, and the message says where the mistake is.
//! guards: A mistake in the config file or the options is reported with its place before a server is started.

use crate::support::home::{Home, outcome};

#[test]
fn a_mistake_in_the_file_names_its_line() {
    let home = Home::new();
    home.config("[defaults]\ngrace_eof = \"2s\"\n\n[server.play]\ngrace_trem = \"1s\"\n");
    assert_eq!(
        home.mainstay(&["run", "--name", "play", "--", "true"]),
        outcome(
            "",
            "mainstay: cannot start `play`: ~/.config/mainstay/config.toml:5: unknown key `grace_trem` in [server.play]\nhint: did you mean `grace_term`?\n",
            125
        )
    );
}

#[test]
fn a_mistake_in_the_table_of_another_server_is_a_warning() {
    let home = Home::new();
    home.config("[serve]\nsesion_ttl = '1m'\n\n[server.other]\ngrace_trem = \"1s\"\n");
    assert_eq!(
        home.mainstay(&["run", "--name", "play", "--", "sh", "-c", "exit 3"]),
        outcome(
            "",
            "warning: ~/.config/mainstay/config.toml:2: unknown key `sesion_ttl` in [serve]\nhint: did you mean `session_ttl`?\n\
             warning: ~/.config/mainstay/config.toml:5: unknown key `grace_trem` in [server.other]\nhint: did you mean `grace_term`?\n",
            3
        )
    );
}

#[test]
fn a_mistake_in_the_options_is_a_usage_error() {
    let home = Home::new();
    for (words, stderr) in [
        (
            &["run", "--grace-eof", "2", "--", "true"][..],
            "error: invalid value '2' for '--grace-eof <TIME>': `2` is not a time (write it like `500ms`, `2s`, `10min`, `1h` or `1d`)\n\nFor more information, try '--help'.\n",
        ),
        (
            &["run"],
            "error: no server command given\nhint: write it after `--`: `mainstay run -- npx -y @playwright/mcp`, or use `--name` with a server of the config file\n",
        ),
        (
            &["run", "--name", "missing"],
            "mainstay: cannot start `missing`: no server command given, and the config file has no [server.missing]\nhint: write the command after `--`, or add it to the config file\n",
        ),
        (
            &[
                "run",
                "--tier",
                "subreaper",
                "--require-tier",
                "cgroup",
                "--",
                "true",
            ],
            "mainstay: cannot start `true`: tier `subreaper` is weaker than the required tier `cgroup`\nhint: leave one of the two out, or use the stronger tier for both\n",
        ),
    ] {
        assert_eq!(home.mainstay(words), outcome("", stderr, 2), "{words:?}");
    }
    let unknown = home.mainstay(&["run", "--grace-eoff", "2s", "--", "true"]);
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.stderr.contains("'--grace-eof'"),
        "{}",
        unknown.stderr
    );
}
