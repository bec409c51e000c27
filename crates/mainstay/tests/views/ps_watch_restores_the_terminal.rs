//! `ps --watch` redraws a terminal until q or Ctrl-C, and leaves the terminal as it was.
//! guards: `ps --watch` restores the terminal however it ends, and refuses to redraw a pipe.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::LinkId;
use mainstay_store::registry::Entry;
use mainstay_testkit::terminal::Terminal;
use rustix::process::Signal;
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::support::home::{Home, card};

const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

fn start(home: &Home, terminal: &Terminal) -> Child {
    let slave = terminal.slave().unwrap();
    let size = Winsize {
        ws_row: 12,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&slave, size).unwrap();
    home.command(&["ps", "--watch"])
        .env("TERM", "xterm")
        .stdin(slave.try_clone().unwrap())
        .stdout(slave.try_clone().unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads until the screen shows a text.
fn until_shown(screen: &mut File, wanted: &str) -> String {
    let mut text = String::new();
    let mut bytes = [0; 4096];
    while !text.contains(wanted) {
        let count = screen.read(&mut bytes).unwrap();
        assert!(count > 0, "{text:?}");
        text += &String::from_utf8_lossy(&bytes[..count]);
    }
    text
}

fn is_usual(terminal: &Terminal) -> bool {
    let modes = tcgetattr(terminal.slave().unwrap()).unwrap().local_modes;
    modes.contains(LocalModes::ICANON | LocalModes::ECHO)
}

#[test]
fn a_key_and_a_signal_end_it_and_the_terminal_is_as_before() {
    let home = Home::new();
    let entry = Entry::create(&home.paths(), LinkId(0xab)).unwrap();
    entry.write(&card(0xab, "playwright")).unwrap();
    for end in ["key", "signal"] {
        let terminal = Terminal::open().unwrap();
        // The terminal stays open after the command has closed it.
        let _open = terminal.slave().unwrap();
        let mut screen = File::from(terminal.keyboard().unwrap());
        let mut watch = start(&home, &terminal);
        let shown = until_shown(&mut screen, "q or Ctrl-C ends it");
        assert!(shown.starts_with(ENTER), "{shown:?}");
        assert!(shown.contains("playwright"), "{shown:?}");
        // It is drawn again without being asked.
        until_shown(&mut screen, "q or Ctrl-C ends it");
        assert!(!is_usual(&terminal));
        if end == "key" {
            screen.write_all(b"q").unwrap();
        } else {
            let who = identity::of(watch.id() as i32).unwrap();
            Handle::open(who).unwrap().signal(Signal::INT).unwrap();
        }
        until_shown(&mut screen, LEAVE);
        assert_eq!(watch.wait().unwrap().code(), Some(0), "{end}");
        assert!(is_usual(&terminal), "{end}");
    }
}

#[test]
fn into_a_pipe_it_is_an_error() {
    let home = Home::new();
    let told = home.mainstay(&["ps", "--watch"]);
    assert_eq!((told.stdout.as_str(), told.code), ("", Some(2)));
    assert_eq!(
        told.stderr,
        "error: `ps --watch` needs a terminal that it can redraw\n\
         hint: for a program: `mainstay ps --json`, or `mainstay events --follow --json` for changes\n"
    );
}
