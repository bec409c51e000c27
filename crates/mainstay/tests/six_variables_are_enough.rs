//! Clients pass six variables, a login shell many more: both look at the same files.

mod support;
use support::Home;

#[test]
fn the_paths_agree() {
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
            "config": "~/.config/mainstay/config.toml",
        })
    );
    assert!(!elsewhere.exists());
}

#[test]
fn a_home_that_cannot_be_is_told() {
    let home = Home::new();
    let mut relative = home.command(&["ps"]);
    relative.env("HOME", "somewhere");
    let told = home.outcome(&mut relative);
    assert_eq!(
        (told.stderr.as_str(), told.code),
        (
            "error: HOME is not an absolute path: `somewhere`\nhint: set HOME to your home directory\n",
            Some(73)
        )
    );
    // Without HOME the passwd file answers, or says that it cannot.
    for value in [None, Some("")] {
        let mut without = home.command(&["ps", "--json"]);
        without.env_remove("HOME");
        if let Some(value) = value {
            without.env("HOME", value);
        }
        let told = home.outcome(&mut without);
        let no_home = told.code == Some(73) && told.stderr.starts_with("error: HOME is not set");
        assert!(told.code == Some(0) || no_home, "{told:?}");
    }
}
