//! `--help` of every verb shows how it is used.
//! guards: The help of every command has examples.

use crate::support::home::Home;

#[test]
fn the_help_of_every_command_has_examples() {
    let home = Home::new();
    for verb in [
        "run", "adopt", "release", "learn", "ps", "stop", "restart", "events", "logs", "doctor",
        "cache", "sessions", "lease", "reap", "metrics",
    ] {
        let help = home.mainstay(&[verb, "--help"]);
        assert_eq!((help.stderr.as_str(), help.code), ("", Some(0)));
        let example = format!("Examples:\n  mainstay {verb}");
        assert!(help.stdout.contains(&example), "{}", help.stdout);
    }
    for verb in ["open", "renew", "close", "list"] {
        let help = home.mainstay(&["lease", verb, "--help"]).stdout;
        let example = format!("Examples:\n  mainstay lease {verb}");
        assert!(help.contains(&example), "{help}");
    }
    for verb in ["list", "clear"] {
        let help = home.mainstay(&["cache", verb, "--help"]).stdout;
        let example = format!("Examples:\n  mainstay cache {verb}");
        assert!(help.contains(&example), "{help}");
    }
    let help = home.mainstay(&["--help"]).stdout;
    assert!(help.contains("Examples:"), "{help}");
    for hidden in ["guardian", "debts", "forget"] {
        assert!(!help.contains(hidden), "{help}");
    }
    let run = home.mainstay(&["run", "--help"]).stdout;
    assert!(run.contains("Limits:\n      --grace-eof <TIME>"), "{run}");
    let short = home.mainstay(&["run", "-h"]).stdout;
    assert!(
        short.contains("mainstay run --help") && !short.contains("--grace-term"),
        "{short}"
    );
}
