//! `mainstay demo` on a terminal: colours, a progress line that is overwritten, and no line that wraps.
//! guards: No line of the demo wraps on a terminal of 80 columns.

use std::fs::File;
use std::io::Read;

use mainstay_testkit::built::under_test;
use mainstay_testkit::stage::Stage;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

#[test]
fn the_demo_fits_80_columns() {
    let stage = Stage::new();
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let mut demo = stage
        .command(under_test(env!("CARGO_BIN_EXE_mainstay")))
        .arg("demo")
        .env("TMPDIR", stage.home())
        .env("TERM", "xterm")
        .stdin(slave.try_clone().unwrap())
        .stdout(slave.try_clone().unwrap())
        .stderr(slave)
        .spawn()
        .unwrap();
    let mut text = Vec::new();
    // A terminal without a slave reports its end as an error, not as end of file.
    drop(File::from(master).read_to_end(&mut text));
    let status = demo.wait().unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(status.code(), Some(0), "{text}");
    assert!(text.contains("\u{1b}[1mmainstay demo"), "{text:?}");
    assert!(
        text.contains("s after the kill: 13 alive without mainstay"),
        "{text:?}"
    );
    let shown = without_escapes(&text);
    for line in shown.split(['\r', '\n']) {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
}

fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| {
        let rest = part.split_once(|c: char| c.is_ascii_alphabetic());
        shown + rest.map_or("", |(_, rest)| rest)
    })
}
