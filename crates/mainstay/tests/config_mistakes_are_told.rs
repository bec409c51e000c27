//! A wrong config file or option stops `run` before anything is started, and says where the mistake is.

mod support;
use support::{Home, outcome};

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
fn a_mistake_in_a_table_of_somebody_else_is_a_warning() {
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
            "error: invalid value '2' for '--grace-eof <TIME>': `2` is not a time (write it like `1500ms`, `2s`, `5m` or `1h`)\n\nFor more information, try '--help'.\n",
        ),
        (
            &["run"],
            "error: no server command given\nhint: write it behind `--`: `mainstay run -- npx -y @playwright/mcp`, or name one of the config file with `--name`\n",
        ),
        (
            &["run", "--name", "nobody"],
            "mainstay: cannot start `nobody`: no server command given, and the config file has no [server.nobody]\nhint: write the command behind `--`, or add it to the config file\n",
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
            "mainstay: cannot start `true`: tier `subreaper` is wished for, but at least `cgroup` is required\nhint: leave one of the two out, or wish for the stronger one\n",
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
