//! Clients pass six variables, a login shell many more. Both must use the same files.
//! guards: Only HOME decides where our files are, so a client and a login shell see the same.

use crate::support::home::Home;
use crate::support::scene::mainstay;

#[test]
fn mainstay_uses_the_same_paths_with_six_variables_as_with_all() {
    let home = Home::new();
    let few = home.mainstay(&["doctor", "--json"]).json();
    let elsewhere = home.path().join("elsewhere");
    let mut login = home.command(&["doctor", "--json"]);
    for (name, value) in [
        ("LOGNAME", "ann".into()),
        ("SHELL", "/bin/bash".into()),
        ("TERM", "xterm-256color".into()),
        ("USER", "ann".into()),
        ("XDG_STATE_HOME", elsewhere.join("state")),
        ("XDG_CONFIG_HOME", elsewhere.join("config")),
        ("XDG_RUNTIME_DIR", elsewhere.join("run")),
        ("XDG_DATA_HOME", elsewhere.join("data")),
    ] {
        login.env(name, value);
    }
    let many = home.outcome(&mut login).json();
    assert_eq!(few["paths"], many["paths"]);
    assert_eq!(
        few["paths"],
        serde_json::json!({
            "state": "~/.local/state/mainstay",
            "events": "~/.local/state/mainstay/events",
            "run": "~/.local/state/mainstay/run",
            "cache": "~/.local/state/mainstay/cache",
            "leases": "~/.local/state/mainstay/lease",
            "sessions": "~/.local/state/mainstay/sessions",
            "backups": "~/.local/state/mainstay/backups",
            "config": "~/.config/mainstay/config.toml",
            "program": mainstay(),
        })
    );
    assert!(!elsewhere.exists());
}

#[test]
fn root_writes_nothing_into_the_home_of_the_user_behind_sudo() {
    if !mainstay_testkit::skip::root_or_skip("only root can borrow another user's HOME") {
        return;
    }
    let home = Home::new();
    let temp = home.path().join("temp");
    std::fs::create_dir(&temp).unwrap();
    std::os::unix::fs::chown(home.path(), Some(12_345), None).unwrap();
    let mut through_sudo = home.command(&["ps"]);
    through_sudo
        .env("SUDO_UID", "12345")
        .env("XDG_RUNTIME_DIR", "/nonexistent")
        .env("TMPDIR", &temp);
    let told = home.outcome(&mut through_sudo);
    let warning = "warning: events and links are kept in ~/temp/mainstay-0: HOME is ~, which belongs to uid 12345, but this is uid 0\n\
                   hint: set HOME to a directory of yours that you can write to\n";
    assert!(told.stderr.starts_with(warning), "{told:?}");
    assert_eq!(told.code, Some(0));
    assert!(!home.path().join(".local").exists());
}

#[test]
fn an_impossible_home_is_reported() {
    let home = Home::new();
    let mut relative = home.command(&["ps"]);
    relative
        .env("HOME", "somewhere")
        .env("XDG_RUNTIME_DIR", "/nonexistent")
        .env("TMPDIR", "/dev/null");
    let told = home.outcome(&mut relative);
    assert_eq!(
        (told.stderr.as_str(), told.code),
        (
            "error: there is no place for events and links: HOME is not an absolute path: `somewhere`; /dev/null is not a directory\n\
             hint: set HOME to a directory of yours that you can write to\n",
            Some(73)
        )
    );
    // Without HOME the passwd file decides, otherwise the temporary directory is used.
    for value in [None, Some("")] {
        let mut without = home.command(&["ps", "--json"]);
        without.env_remove("HOME").env("TMPDIR", home.path());
        if let Some(value) = value {
            without.env("HOME", value);
        }
        let told = home.outcome(&mut without);
        assert_eq!(told.code, Some(0), "{told:?}");
    }
}
