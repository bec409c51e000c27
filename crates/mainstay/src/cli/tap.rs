//! `mainstay tap`: shows the messages of a running server as they pass, or those in a file.
//!
//! The keeper sends every frame (one message with its time and direction) as it is. Filtering, redaction and printing happen
//! here, so that a slow terminal or a long pattern does not slow the link.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use mainstay_keeper::recording;
use mainstay_os::clock;
use mainstay_os::signals::Signals;
use mainstay_protocol::frames::{self, Head, Line, Side, Sight};
use mainstay_protocol::limits::{FRAME_BODY_BYTES, KEEPER_MARGIN_MS, TAP_AGAIN_MS};
use mainstay_protocol::message::lines::{self, Lines};
use mainstay_protocol::redact;
use mainstay_report::frames::rows::{FrameRows, Style};
use mainstay_report::measure::count;
use mainstay_report::{Exit, Report, plain, talk};
use mainstay_store::registry::Listed;
use mainstay_store::registry::ask::{Asked, NoAnswer};
use mainstay_store::registry::control::{Answer, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::value::RawValue;

use super::select::{self, Failure};
use mainstay_report::printer::{Printer, Reader};

/// The longest body that is requested for a row: what a row shows is near the beginning of a message, but not at it.
const ROW_BODY_BYTES: u64 = 8_192;
/// The longest line that is read: a body with every byte escaped, and the other fields.
const LINE_BYTES: usize = 8 * FRAME_BODY_BYTES;
/// Time between two attempts to reach the next keeper.
const RETRY_MS: u64 = 20;

/// The options of `tap`.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[command(after_help = "Examples:
  mainstay tap playwright                            until Ctrl-C; client and server are not affected
  mainstay tap playwright --method 'tools/*'         these requests and their answers
  mainstay tap playwright --save session.jsonl       also write a file, secrets hidden
  mainstay tap --from session.jsonl --json | jq -c 'select(.kind == \"error\")'

Send the client's messages of a recording again, to any server:
  mainstay tap --from session.jsonl --direction client --raw | mainstay run -- COMMAND

→ goes to the server, ← to the client. A request shows its method, tool and arguments, an answer its
latency and its text. An answer that does not follow its request at once names it. Messages that mainstay
wrote or kept are marked. -v adds milliseconds, ids and sizes; --raw and --json have the whole messages.
Times are local; in JSON they are UTC. A tap that reads too slowly misses messages and says how many;
the server is never slowed.")]
pub struct Options {
    /// The server's name, or at least four digits of its id
    #[arg(value_name = "NAME|ID")]
    pub target: Option<String>,
    /// Show a file that `--save` or `run --record` wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "save"])]
    pub from: Option<PathBuf>,
    /// Only methods that match (`*` any characters, `?` one), with their answers; may be given several times
    #[arg(long, value_name = "GLOB")]
    pub method: Vec<String>,
    /// Only messages that this side wrote: client, server or mainstay
    #[arg(long, value_name = "SIDE", value_parser = side)]
    pub direction: Option<Side>,
    /// Print only the messages themselves, one per line
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// Print one JSON object per message
    #[arg(long)]
    pub json: bool,
    /// Also show milliseconds, ids and sizes
    #[arg(long, short, conflicts_with_all = ["raw", "json"])]
    pub verbose: bool,
    /// Also append the messages to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Do not hide values that look like a secret
    #[arg(long)]
    pub no_redact: bool,
}

fn side(word: &str) -> Result<Side, UnknownSide> {
    [Side::Client, Side::Server, Side::Mainstay]
        .into_iter()
        .find(|side| side.to_string() == word)
        .ok_or(UnknownSide)
}

/// A word that is no side of a link.
#[derive(Debug)]
struct UnknownSide;

impl fmt::Display for UnknownSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write client, server or mainstay")
    }
}

impl Error for UnknownSide {}

/// Runs `mainstay tap`.
pub fn tap(options: &Options) -> Result<Exit, Report> {
    let mut show = Show::new(options)?;
    if let Some(path) = &options.from {
        return show.file(path);
    }
    let listed = select::choose_one("tap", options.target.as_deref())?;
    let signals = Signals::open(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]).map_err(|error| {
        Report::new(Exit::Failed, "cannot wait for signals").because(plain(&error))
    })?;
    let (stream, first) = attach(&listed, show.body_bytes())?;
    if !options.json && !options.raw {
        let name = select::name(&listed);
        talk(&format!(
            "messages of {name}, as they pass; Ctrl-C ends this and not the server\n"
        ));
    }
    let mut tap = Tap {
        listed,
        stream,
        signals,
    };
    show.watch(&mut tap, first)
}

/// Connects to the keeper; returns the stream and what was read up to the first line.
fn attach(listed: &Listed, body_bytes: u64) -> Result<(UnixStream, Vec<u8>), Report> {
    let refused = |failure: Failure| {
        let name = select::name(listed);
        let report = Report::new(Exit::Stuck, format!("cannot tap {name}")).because(failure.error);
        match failure.hint {
            Some(hint) => report.hint(hint),
            None => report,
        }
    };
    let (stream, first) =
        reach(listed, body_bytes).map_err(|reason| refused(Failure::no_answer(listed, reason)))?;
    match serde_json::from_slice(&first) {
        Ok(Line::Head(_)) => Ok((stream, first)),
        Ok(Line::Frame(_) | Line::Lost(_) | Line::End(_)) | Err(_) => {
            let error = match Answer::parse(&first) {
                Ok(Answer::Refused { error }) => error,
                Ok(Answer::Status(_) | Answer::Stopped { .. } | Answer::Restarted { .. })
                | Err(_) => "its keeper has another version, which cannot show messages".into(),
            };
            Err(refused(Failure::new(error)))
        }
    }
}

fn reach(listed: &Listed, body_bytes: u64) -> Result<(UnixStream, Vec<u8>), NoAnswer> {
    let request = Request::Tap { body_bytes };
    Asked::send(&listed.path, &request, KEEPER_MARGIN_MS)?.stream()
}

/// The connection to the keeper of a running server.
struct Tap {
    listed: Listed,
    stream: UnixStream,
    signals: Signals,
}

/// Why a wait ended.
enum Woken {
    /// The keeper has sent something, or has closed the connection.
    Frames,
    /// The user has interrupted us, or the reader of our output has ended.
    Stop,
    /// The time is up.
    TimeUp,
}

impl Tap {
    /// Waits for the keeper, a signal, or the end of the reader of our output.
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
        // With a time limit the stream is left out, because it is at its end and would wake at once.
        let count = if ms.is_some() { 2 } else { 3 };
        loop {
            match poll(&mut fds[..count], time.as_ref()) {
                Ok(0) => return Ok(Woken::TimeUp),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(Report::new(Exit::Failed, "cannot wait").because(error));
                }
            }
        }
        let gone = PollFlags::ERR | PollFlags::NVAL;
        if fds[0].revents().contains(PollFlags::IN) || fds[1].revents().intersects(gone) {
            return Ok(Woken::Stop);
        }
        Ok(Woken::Frames)
    }

    /// After the keeper is gone: waits for its successor, or for the end of the link.
    fn reconnect(&mut self, printer: &Printer, body_bytes: u64) -> Result<Reconnected, Report> {
        let until = clock::now().after_ms(TAP_AGAIN_MS);
        while self.listed.path.is_there() && clock::now() < until {
            if let Ok((stream, first)) = reach(&self.listed, body_bytes)
                && matches!(serde_json::from_slice(&first), Ok(Line::Head(_)))
            {
                self.stream = stream;
                return Ok(Reconnected::Yes(first));
            }
            if let Woken::Stop = self.wait(printer, Some(RETRY_MS))? {
                return Ok(Reconnected::Stop);
            }
        }
        Ok(Reconnected::LinkEnded)
    }
}

enum Reconnected {
    /// With what was read up to the first line.
    Yes(Vec<u8>),
    Stop,
    LinkEnded,
}

/// Filters and prints frames.
struct Show<'o> {
    options: &'o Options,
    printer: Printer,
    save: Option<(File, &'o Path)>,
    shown: u64,
    lost: u64,
    /// Frames left out under `--raw`, because their body was not kept whole.
    cut: u64,
    /// Lines that could not be parsed.
    skipped: u64,
    rows: FrameRows,
}

/// A frame as `--json` prints it.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    line: &'a Line,
    /// The body as JSON, if it is JSON and not cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a RawValue>,
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
            rows: FrameRows::default(),
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

    /// Prints frames until the user stops it or the link ends.
    fn watch(&mut self, tap: &mut Tap, first: Vec<u8>) -> Result<Exit, Report> {
        let mut lines = Lines::new(LINE_BYTES);
        let mut read = first;
        loop {
            if let Reader::Gone = self.lines(&mut lines, &read)? {
                return Ok(Exit::Ok);
            }
            read.clear();
            if let Woken::Stop = tap.wait(&self.printer, None)? {
                break self.summary("detached");
            }
            read.resize(FRAME_BODY_BYTES, 0);
            match tap.stream.read(&mut read) {
                Ok(len) if len > 0 => read.truncate(len),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => read.clear(),
                Ok(_) | Err(_) => match tap.reconnect(&self.printer, self.body_bytes())? {
                    Reconnected::Yes(first) => {
                        talk("note: the keeper was replaced; messages in between are missing\n");
                        lines = Lines::new(LINE_BYTES);
                        read = first;
                    }
                    Reconnected::Stop => break self.summary("detached"),
                    Reconnected::LinkEnded => break self.summary("the link has ended"),
                },
            }
        }
        Ok(Exit::Ok)
    }

    /// Handles every line that is complete with this piece.
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
                .hint("name a file that `mainstay tap --save` or `mainstay run --record` wrote")
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
        self.summary("");
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
            let body = sight.body.clone();
            let line = Line::Frame(sight.into());
            self.write(&line)?;
            let message = body.and_then(|body| serde_json::from_str::<Box<RawValue>>(&body).ok());
            return self.printer.json_line(&Shown {
                line: &line,
                message: message.as_deref(),
            });
        }
        let style = Style {
            columns: self.printer.columns(),
            colour: self.printer.colour(),
            zone: clock::local_offset_s,
            verbose: self.options.verbose,
        };
        let row = self.rows.row(&sight, style);
        self.write(&Line::Frame(sight.into()))?;
        self.printer.text(&row)
    }

    /// Prints a line that is not a frame.
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

    /// Prints the summary on stderr.
    fn summary(&self, why: &str) {
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
        .hint("--save FILE needs a regular file that can be written")
}
