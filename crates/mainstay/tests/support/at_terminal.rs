//! A command whose stderr is a terminal.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use mainstay_testkit::terminal::Terminal;

/// A running command.
pub struct AtTerminal {
    child: Child,
    terminal: Terminal,
    said: String,
}

impl AtTerminal {
    /// Starts it with a terminal as stderr; the caller has chosen the other two.
    pub fn start(command: &mut Command) -> Self {
        Self::with(command, Terminal::open().unwrap())
    }

    /// Starts it with a terminal as stdin and stderr.
    pub fn typed(command: &mut Command) -> Self {
        let terminal = Terminal::open().unwrap();
        command.stdin(Stdio::from(terminal.slave().unwrap()));
        Self::with(command, terminal)
    }

    fn with(command: &mut Command, terminal: Terminal) -> Self {
        let slave = terminal.slave().unwrap();
        let child = command.stderr(Stdio::from(slave)).spawn().unwrap();
        Self {
            child,
            terminal,
            said: String::new(),
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Reads until this was printed.
    pub fn wait_for(&mut self, text: &str) {
        let mut screen = File::from(self.terminal.keyboard().unwrap());
        while !self.said.contains(text) {
            let mut buffer = [0; 4096];
            let length = screen.read(&mut buffer).unwrap();
            self.said += &String::from_utf8_lossy(&buffer[..length]);
        }
    }

    /// What was printed so far.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Waits for the end.
    pub fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}
