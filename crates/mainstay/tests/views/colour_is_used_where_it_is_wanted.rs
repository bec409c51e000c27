//! `--color` counts before the variables, and without colours a view says the same.
//! guards: `--color`, `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` decide on colours, which carry no meaning alone.

use mainstay_protocol::ids::LinkId;
use mainstay_store::registry::Entry;

use crate::support::home::{Home, card};

fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        plain + part.split_once('m').map_or("", |(_, rest)| rest)
    })
}

#[test]
fn colours_into_a_pipe_are_there_only_if_they_are_asked_for() {
    let home = Home::new();
    let entry = Entry::create(&home.paths(), LinkId(0xab)).unwrap();
    entry.write(&card(0xab, "playwright")).unwrap();
    let plain = home.mainstay(&["ps"]).stdout;
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    for (words, variables, coloured) in [
        (&["ps", "--color", "always"][..], &[][..], true),
        (&["--color=always", "ps"], &[("NO_COLOR", "1")], true),
        (&["ps"], &[("CLICOLOR_FORCE", "1")], true),
        (&["ps"], &[("CLICOLOR_FORCE", "0")], false),
        (
            &["ps"],
            &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")],
            false,
        ),
        (
            &["ps", "--color", "never"],
            &[("CLICOLOR_FORCE", "1")],
            false,
        ),
        (&["ps", "--color", "auto"], &[("TERM", "xterm")], false),
    ] {
        let mut command = home.command(words);
        let shown = home.outcome(command.envs(variables.iter().copied()));
        assert_eq!(shown.code, Some(0), "{shown:?}");
        assert_eq!(
            shown.stdout.contains('\u{1b}'),
            coloured,
            "{words:?} {variables:?}"
        );
        assert_eq!(without_colours(&shown.stdout), plain, "{words:?}");
    }
    let json = home.mainstay(&["ps", "--json", "--color", "always"]);
    assert!(!json.stdout.contains('\u{1b}'), "{json:?}");
    let wrong = home.mainstay(&["ps", "--color", "blue"]);
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong
            .stderr
            .contains("[possible values: auto, always, never]"),
        "{wrong:?}"
    );
}
