//! `mainstay tap`: the frames of a running server as they pass, or those of a file.
//!
//! The keeper shows frames as they are; what is chosen, hidden and printed is decided here, so that a slow terminal and a
//! long pattern cost the link nothing.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use mainstay_core::frames::{self, Head, Line, Side, Sight};
use mainstay_core::limits::{FRAME_BODY_BYTES, KEEPER_MARGIN_MS, TAP_AGAIN_MS};
use mainstay_core::message::lines::{self, Lines};
use mainstay_core::redact;
use mainstay_os::clock;
use mainstay_os::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::whom::{self, Trouble};
use crate::exit::Exit;
use crate::keeper::recording;
use crate::registry::Listed;
use crate::registry::ask::{Asked, NoAnswer};
use crate::registry::control::{Answer, Request};
use crate::report::{Report, plain, talk};
use crate::view::frames as words;
use crate::view::measure::count;
use crate::view::printer::{Printer, Reader};

/// The longest body that a row is made of.
const ROW_BODY_BYTES: u64 = 1_024;
/// The longest line that is read: a body whose every byte is escaped, and its head.
const LINE_BYTES: usize = 8 * FRAME_BODY_BYTES;
/// How long the next keeper is given between two looks.
const LOOK_MS: u64 = 20;

/// What `tap` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay tap playwright                            until you press Ctrl-C; nobody notices
  mainstay tap playwright --method 'tools/*'         with the answers to them
  mainstay tap playwright --save session.jsonl       the same into a file, secrets hidden
  mainstay tap --from session.jsonl --json | jq -c 'select(.kind == \"error\")'

What a client said can be said again, to any server:
  mainstay tap --from session.jsonl --direction client --raw | mainstay run -- COMMAND

Each row: when, which way, method, id, size, time since the request, body. c client, s server,
m mainstay: c→s and c←s pass on as they are, m→s and c←m are mainstay's own. Before the method:
· notification, = result, ! error, ? no message. A tap that reads too slowly misses frames and is
told how many; the server is never slowed. Fields of a line in a file: docs/design/frames.md")]
pub struct Options {
    /// The server's name, or the first digits of the link's id
    #[arg(value_name = "NAME|ID", required_unless_present = "from")]
    pub whom: Option<String>,
    /// Show a file that `--save` or `run --record` wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["whom", "save"])]
    pub from: Option<PathBuf>,
    /// Only methods like this (`*` any characters, `?` one), with their answers; may be given several times
    #[arg(long, value_name = "GLOB")]
    pub method: Vec<String>,
    /// Only what this side wrote: client, server or mainstay
    #[arg(long, value_name = "SIDE", value_parser = side)]
    pub direction: Option<Side>,
    /// Only the messages themselves, one per line
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// One frame per line, as JSON
    #[arg(long)]
    pub json: bool,
    /// Also write them to the end of this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Do not hide what looks like a secret
    #[arg(long)]
    pub no_redact: bool,
}

fn side(word: &str) -> Result<Side, String> {
    [Side::Client, Side::Server, Side::Mainstay]
        .into_iter()
        .find(|side| side.to_string() == word)
        .ok_or_else(|| "say client, server or mainstay".into())
}

/// Shows frames.
pub fn tap(options: &Options) -> Result<Exit, Report> {
    let mut show = Show::new(options)?;
    if let Some(path) = &options.from {
        return show.file(path);
    }
    let whom = options.whom.as_deref().unwrap_or_default();
    let listed = one(whom)?;
    let signals = Signals::open(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]).map_err(|error| {
        Report::new(Exit::Failed, "cannot wait for signals").because(plain(&error))
    })?;
    let (stream, first) = attach(&listed, show.body_bytes())?;
    let mut tap = Tap {
        listed,
        stream,
        signals,
    };
    show.watch(&mut tap, first)
}

/// The one link that is meant.
fn one(whom: &str) -> Result<Listed, Report> {
    let mut chosen = whom::find(whom)?;
    if chosen.len() > 1 {
        let ids: Vec<String> = chosen.iter().map(|listed| listed.id.to_string()).collect();
        return Err(Report::new(
            Exit::NotFound,
            format!("{} servers are called `{whom}`", ids.len()),
        )
        .hint(format!("one of them by its id: {}", ids.join(", "))));
    }
    match chosen.pop() {
        Some(listed) => Ok(listed),
        None => Err(Report::new(
            Exit::NotFound,
            format!("no server is called `{whom}`"),
        )),
    }
}

/// Connects; the stream, and what came with its first line.
fn attach(listed: &Listed, body_bytes: u64) -> Result<(UnixStream, Vec<u8>), Report> {
    let refused = |trouble: Trouble| {
        let name = whom::name(listed);
        let report = Report::new(Exit::Stuck, format!("cannot tap {name}")).because(trouble.error);
        match trouble.hint {
            Some(hint) => report.hint(hint),
            None => report,
        }
    };
    let (stream, first) =
        reach(listed, body_bytes).map_err(|no| refused(Trouble::of(listed, no)))?;
    match serde_json::from_slice(&first) {
        Ok(Line::Head(_)) => Ok((stream, first)),
        Ok(Line::Frame(_) | Line::Lost(_) | Line::End(_)) | Err(_) => {
            let error = match Answer::parse(&first) {
                Ok(Answer::Refused { error }) => error,
                Ok(Answer::Status(_) | Answer::Stopped { .. } | Answer::Restarted { .. })
                | Err(_) => "its keeper is of another version and shows no frames".into(),
            };
            Err(refused(Trouble::new(error)))
        }
    }
}

fn reach(listed: &Listed, body_bytes: u64) -> Result<(UnixStream, Vec<u8>), NoAnswer> {
    let request = Request::Tap { body_bytes };
    Asked::send(&listed.path, &request, KEEPER_MARGIN_MS)?.stream()
}

/// A running server that is watched.
struct Tap {
    listed: Listed,
    stream: UnixStream,
    signals: Signals,
}

/// Why a wait is over.
enum Woken {
    /// There is something to read.
    Frames,
    /// Nobody wants to see more.
    Enough,
    /// The time is up.
    Late,
}

impl Tap {
    /// Waits for the keeper, the user, or the end of whoever reads our output.
    fn wait(&self, printer: &Printer, ms: Option<u64>) -> Result<Woken, Report> {
        let time = ms.map(|ms| Timespec {
            tv_sec: (ms / 1_000) as i64,
            tv_nsec: (ms % 1_000) as i64 * 1_000_000,
        });
        let mut fds = [
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::from_borrowed_fd(printer.as_fd(), PollFlags::empty()),
            PollFd::new(&self.stream, PollFlags::IN),
        ];
        // Who waits for a time waits for no stream: that one is at its end.
        let count = if ms.is_some() { 2 } else { 3 };
        loop {
            match poll(&mut fds[..count], time.as_ref()) {
                Ok(0) => return Ok(Woken::Late),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(Report::new(Exit::Failed, "cannot wait").because(error));
                }
            }
        }
        let gone = PollFlags::ERR | PollFlags::NVAL;
        if fds[0].revents().contains(PollFlags::IN) || fds[1].revents().intersects(gone) {
            return Ok(Woken::Enough);
        }
        Ok(Woken::Frames)
    }

    /// The keeper is gone: does its successor come, or has the link ended?
    fn again(&mut self, printer: &Printer, body_bytes: u64) -> Result<Again, Report> {
        let until = clock::now().after_ms(TAP_AGAIN_MS);
        while self.listed.path.is_there() && clock::now() < until {
            if let Ok((stream, first)) = reach(&self.listed, body_bytes)
                && matches!(serde_json::from_slice(&first), Ok(Line::Head(_)))
            {
                self.stream = stream;
                return Ok(Again::There(first));
            }
            if let Woken::Enough = self.wait(printer, Some(LOOK_MS))? {
                return Ok(Again::Enough);
            }
        }
        Ok(Again::Ended)
    }
}

enum Again {
    There(Vec<u8>),
    Enough,
    Ended,
}

/// What is shown, and where.
struct Show<'o> {
    options: &'o Options,
    printer: Printer,
    save: Option<(File, &'o Path)>,
    shown: u64,
    lost: u64,
    /// Messages that are not whole and so are no messages.
    cut: u64,
    /// Lines that could not be read.
    skipped: u64,
}

impl<'o> Show<'o> {
    fn new(options: &'o Options) -> Result<Self, Report> {
        let save = match &options.save {
            Some(path) => Some((
                recording::open(path).map_err(|error| unsaved(path, &error))?,
                path.as_path(),
            )),
            None => None,
        };
        Ok(Self {
            options,
            printer: Printer::new(),
            save,
            shown: 0,
            lost: 0,
            cut: 0,
            skipped: 0,
        })
    }

    fn body_bytes(&self) -> u64 {
        let Options {
            raw, json, save, ..
        } = self.options;
        if *raw || *json || save.is_some() {
            FRAME_BODY_BYTES as u64
        } else {
            ROW_BODY_BYTES
        }
    }

    /// Until somebody has enough, or the link ends.
    fn watch(&mut self, tap: &mut Tap, first: Vec<u8>) -> Result<Exit, Report> {
        let mut lines = Lines::new(LINE_BYTES);
        let mut read = first;
        loop {
            if let Reader::Gone = self.lines(&mut lines, &read)? {
                return Ok(Exit::Ok);
            }
            read.clear();
            if let Woken::Enough = tap.wait(&self.printer, None)? {
                break self.farewell("detached");
            }
            read.resize(FRAME_BODY_BYTES, 0);
            match tap.stream.read(&mut read) {
                Ok(len) if len > 0 => read.truncate(len),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => read.clear(),
                Ok(_) | Err(_) => match tap.again(&self.printer, self.body_bytes())? {
                    Again::There(first) => {
                        talk("note: the keeper was replaced; frames in between are missing\n");
                        lines = Lines::new(LINE_BYTES);
                        read = first;
                    }
                    Again::Enough => break self.farewell("detached"),
                    Again::Ended => break self.farewell("the link has ended"),
                },
            }
        }
        Ok(Exit::Ok)
    }

    /// Shows every line that ends here.
    fn lines(&mut self, lines: &mut Lines, mut piece: &[u8]) -> Result<Reader, Report> {
        let too_long = || {
            let what = format!("the keeper has sent a line of more than {LINE_BYTES} bytes");
            Err(Report::new(Exit::Failed, what))
        };
        while let Some(line) = lines.next(&mut piece) {
            let lines::Line::Whole(line) = line else {
                return too_long();
            };
            if let Reader::Gone = self.line(&line)? {
                return Ok(Reader::Gone);
            }
        }
        if lines.is_too_long() {
            return too_long();
        }
        Ok(Reader::There)
    }

    fn file(&mut self, path: &Path) -> Result<Exit, Report> {
        let unreadable = |error: &std::io::Error| {
            Report::new(Exit::NotFound, format!("cannot read {}", path.display()))
                .because(plain(error))
                .hint("a file that `mainstay tap --save` or `mainstay run --record` wrote")
        };
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        let mut file = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let limit = LINE_BYTES as u64;
            let len = file.by_ref().take(limit).read_until(b'\n', &mut line);
            match len {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(unreadable(&error)),
            }
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            if let Reader::Gone = self.line(line)? {
                return Ok(Exit::Ok);
            }
        }
        self.farewell("");
        Ok(Exit::Ok)
    }

    fn line(&mut self, line: &[u8]) -> Result<Reader, Report> {
        if line.is_empty() {
            return Ok(Reader::There);
        }
        match serde_json::from_slice(line) {
            Ok(Line::Frame(sight)) if self.wanted(&sight) => {
                let sight = self.redacted(*sight);
                self.shown += 1;
                self.frame(sight)
            }
            Ok(Line::Frame(_)) => Ok(Reader::There),
            Ok(Line::Head(head)) => {
                let redacted = head.redacted || !self.options.no_redact;
                self.other(&Line::Head(Head { redacted, ..head }), "")
            }
            Ok(Line::Lost(lost)) => {
                self.lost += lost.count;
                let text = format!("… {} lost here\n", count(lost.count, "frame"));
                self.other(&Line::Lost(lost), &text)
            }
            Ok(Line::End(end)) => {
                let text = format!("… the recording ends here: {}\n", end.why);
                self.other(&Line::End(end), &text)
            }
            Err(_) => {
                self.skipped += 1;
                Ok(Reader::There)
            }
        }
    }

    fn wanted(&self, sight: &Sight) -> bool {
        let Options {
            method, direction, ..
        } = self.options;
        let like = |pattern: &String| {
            let name = sight.method.as_deref();
            name.is_some_and(|name| frames::matches(pattern, name))
        };
        direction.is_none_or(|side| sight.from == side)
            && (method.is_empty() || method.iter().any(like))
    }

    fn redacted(&self, sight: Sight) -> Sight {
        if self.options.no_redact {
            return sight;
        }
        let body = sight.body.as_deref();
        let body = body.map(|body| redact::body(body).into_owned());
        Sight { body, ..sight }
    }

    fn frame(&mut self, sight: Sight) -> Result<Reader, Report> {
        if self.options.raw {
            self.write(&Line::Frame(sight.clone().into()))?;
            return match sight.body {
                Some(body) if !sight.cut => self.printer.message(&(body + "\n")),
                Some(_) | None => {
                    self.cut += 1;
                    Ok(Reader::There)
                }
            };
        }
        if self.options.json {
            let line = Line::Frame(sight.into());
            self.write(&line)?;
            return self.printer.json_line(&line);
        }
        let (columns, colour) = (self.printer.columns(), self.printer.colour());
        let row = words::row(&sight, columns, colour);
        self.write(&Line::Frame(sight.into()))?;
        self.printer.text(&row)
    }

    /// A line that is no frame.
    fn other(&mut self, line: &Line, row: &str) -> Result<Reader, Report> {
        self.write(line)?;
        if self.options.json {
            return self.printer.json_line(line);
        }
        if self.options.raw || row.is_empty() {
            return Ok(Reader::There);
        }
        self.printer.text(row)
    }

    fn write(&mut self, line: &Line) -> Result<(), Report> {
        let Some((file, path)) = &mut self.save else {
            return Ok(());
        };
        file.write_all(&line.text())
            .map_err(|error| unsaved(path, &error))
    }

    /// What is said on stderr at the end.
    fn farewell(&self, why: &str) {
        let mut parts = Vec::new();
        if !why.is_empty() {
            parts.push(format!("{why} after {}", count(self.shown, "frame")));
        }
        if self.lost > 0 {
            parts.push(format!("{} lost", count(self.lost, "frame")));
        }
        if self.cut > 0 {
            parts.push(format!(
                "{} left out: too long to be kept whole",
                count(self.cut, "frame")
            ));
        }
        if self.skipped > 0 {
            parts.push(format!(
                "{} lines skipped: torn, or of a newer version",
                self.skipped
            ));
        }
        if !parts.is_empty() {
            talk(&format!("{}\n", parts.join(", ")));
        }
    }
}

fn unsaved(path: &Path, error: &std::io::Error) -> Report {
    Report::new(Exit::Failed, format!("cannot save to {}", path.display()))
        .because(plain(error))
        .hint("--save FILE wants a regular file that can be written")
}
