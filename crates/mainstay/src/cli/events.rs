//! `mainstay events`: shows the recorded events, oldest first; with `--follow` also new ones.

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::Args;
use mainstay_os::clock;
use mainstay_protocol::event::Event;
use mainstay_protocol::time::Zone;
use mainstay_report::happening::{Happening, Layout};
use mainstay_report::paint::Tone;
use mainstay_report::{Exit, Report, plain, talk};
use mainstay_store::ledger::follow::{LedgerWatch, Wake};
use mainstay_store::ledger::read::{Events, Filter, Skipped};
use mainstay_store::paths::Paths;
use mainstay_store::since::Since;

use super::{known, timeline};
use mainstay_report::printer::{Printer, Reader};

/// The options of `events`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay events --since yesterday
  mainstay events -n 20
  mainstay events --server playwright --follow
  mainstay events --json | jq 'select(.event == \"exit\")'
  mainstay events --timeline --server playwright --since 10m     also the messages

Times are local. `#2` is the second start of a server; the digits behind a name are the id of its link,
which `mainstay ps` shows too. -v also shows milliseconds, ends of pipes, and why no stronger
containment was possible.")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the command line"
)]
pub struct Options {
    /// Continue with new events as they are written
    #[arg(long, short)]
    pub follow: bool,
    /// Only events of this server
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// Only events of the link with this id (its first digits are enough)
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Only events since then: `10min`, `1d`, `yesterday`, `14:00`, `2026-11-17`
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// Only the last NUMBER events
    #[arg(long, short = 'n', value_name = "NUMBER", conflicts_with = "timeline")]
    pub last: Option<u64>,
    /// Show events and messages in one order of time: the messages of `run --record`, or the last ones before each end
    #[arg(long, conflicts_with = "follow")]
    pub timeline: bool,
    /// With --timeline: also the messages in this file, written by `tap --save`; may be given several times
    #[arg(long, value_name = "FILE", requires = "timeline")]
    pub frames: Vec<PathBuf>,
    /// Show times in UTC
    #[arg(long)]
    pub utc: bool,
    /// Also show milliseconds, ends of pipes and facts about this machine
    #[arg(long, short)]
    pub verbose: bool,
    /// Print one JSON object per event
    #[arg(long)]
    pub json: bool,
}

/// Runs `mainstay events`.
pub fn events(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let unreadable = |error| {
        let what = format!("events in {}", paths.events().display());
        Report::unreadable(what, &error)
    };
    let zone = clock::zone(options.utc);
    let filter = Filter {
        server: options.server.clone(),
        id: options.id.as_ref().map(|id| id.to_lowercase()),
        since_ms: options
            .since
            .map(|since| since.moment(clock::wall_ms(), zone)),
        without: if options.verbose || options.json || options.timeline {
            &[]
        } else {
            &MINOR
        },
    };
    if options.timeline {
        let wish = timeline::Wish {
            files: &options.frames,
            since_ms: filter.since_ms,
            zone,
            json: options.json,
        };
        let events = Events::open(&paths, filter);
        if timeline::show(events, &wish)? == 0 {
            nothing(options, &paths).map_err(unreadable)??;
        }
        return Ok(Exit::Ok);
    }
    // The watch is set before the first read, so that no event is missed.
    let watch = if options.follow {
        paths.make()?;
        Some(LedgerWatch::open(&paths).map_err(|error| unwatchable(&paths, &error))?)
    } else {
        None
    };
    if watch.is_some() && !options.json && rustix::termios::isatty(std::io::stderr()) {
        talk("new events are shown as they happen; Ctrl-C ends it\n");
    }
    let mut events = Events::open(&paths, filter);
    if let Some(count) = options.last {
        events.skip_to_last(count).map_err(unreadable)?;
    }
    let mut show = Show::new(options, zone);
    loop {
        let read = events.read(|event, line| show.take(event, line));
        match read.map(|flow| show.flush_after(flow)) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(Ok(()))) => return Ok(Exit::Ok),
            Ok(ControlFlow::Break(Err(report))) => return Err(report),
            Err(error) => return Err(unreadable(error)),
        }
        let Some(watch) = &watch else { break };
        match watch.wait(show.printer.as_fd()).map_err(unreadable)? {
            Wake::Written => {}
            Wake::ReaderGone => return Ok(Exit::Ok),
            Wake::LedgerGone => {
                return Err(Report::new(Exit::State, "the event directory was removed")
                    .because(paths.events().display()));
            }
        }
    }
    talk(&skipped(events.skipped()));
    if show.shown == 0 {
        nothing(options, &paths).map_err(unreadable)??;
    }
    Ok(Exit::Ok)
}

/// The hint names the inotify limits, because the kernel's error text is about disks and open files.
fn unwatchable(paths: &Paths, error: &std::io::Error) -> Report {
    Report::new(
        Exit::State,
        format!("cannot watch {}", paths.events().display()),
    )
    .because(plain(error))
    .hint("the limits are /proc/sys/fs/inotify/max_user_{instances,watches}")
}

/// Kinds of events that explain nothing to most users.
const MINOR: [&str; 1] = ["pipe_end"];
/// So many events are read before the columns are laid out.
const TOGETHER: usize = 1_000;

/// Prints events, many at a time, so that their columns are aligned.
struct Show {
    printer: Printer,
    json: bool,
    zone: Zone,
    layout: Layout,
    waiting: Vec<Happening>,
    date: String,
    shown: u64,
}

impl Show {
    fn new(options: &Options, zone: Zone) -> Self {
        let printer = Printer::new();
        let layout = Layout {
            columns: printer.columns(),
            verbose: options.verbose,
            colour: printer.colour(),
            ..Layout::default()
        };
        Self {
            printer,
            json: options.json,
            zone,
            layout,
            waiting: Vec::new(),
            date: String::new(),
            shown: 0,
        }
    }

    fn take(&mut self, event: &Event, line: &str) -> ControlFlow<Result<(), Report>> {
        if self.json {
            self.shown += 1;
            let printed = self.printer.message(&format!("{line}\n"));
            return went_on(printed);
        }
        let happening = Happening::of(event, self.zone);
        self.shown += 1;
        self.waiting.push(happening);
        if self.waiting.len() >= TOGETHER {
            return self.flush();
        }
        ControlFlow::Continue(())
    }

    /// Prints what waits, unless the reader is gone.
    fn flush_after(
        &mut self,
        flow: ControlFlow<Result<(), Report>>,
    ) -> ControlFlow<Result<(), Report>> {
        match flow {
            ControlFlow::Continue(()) => self.flush(),
            ControlFlow::Break(_) => flow,
        }
    }

    fn flush(&mut self) -> ControlFlow<Result<(), Report>> {
        for happening in &self.waiting {
            self.layout.make_room(happening);
        }
        for happening in std::mem::take(&mut self.waiting) {
            let mut text = String::new();
            if happening.date != self.date {
                text = Tone::Faint.paint(&happening.date, self.layout.colour) + "\n";
                self.date.clone_from(&happening.date);
            }
            let printed = self.printer.text(&(text + &happening.render(&self.layout)));
            went_on(printed)?;
        }
        ControlFlow::Continue(())
    }
}

/// Whether there is still a reader.
fn went_on(printed: Result<Reader, Report>) -> ControlFlow<Result<(), Report>> {
    match printed {
        Ok(Reader::There) => ControlFlow::Continue(()),
        Ok(Reader::Gone) => ControlFlow::Break(Ok(())),
        Err(report) => ControlFlow::Break(Err(report)),
    }
}

/// Explains on stderr why no event was shown. An error if the user names a server that is not known.
fn nothing(options: &Options, paths: &Paths) -> std::io::Result<Result<(), Report>> {
    let files = Events::open(paths, Filter::default()).files()?;
    if let Some(server) = &options.server {
        let filter = Filter {
            server: Some(server.clone()),
            ..Filter::default()
        };
        let is_known = Events::open(paths, filter)
            .read(|_, _| ControlFlow::Break(()))?
            .is_break();
        if !is_known {
            return Ok(Err(known::unknown(server, &known::servers(&files)?)));
        }
    }
    let any = Events::open(paths, Filter::default())
        .read(|_, _| ControlFlow::Break(()))?
        .is_break();
    if !options.json {
        talk(if any {
            "no event matches; `mainstay events` shows all of them\n"
        } else {
            "no events yet: they are written when a server runs under `mainstay run -- COMMAND`\n"
        });
    }
    Ok(Ok(()))
}

/// The text on stderr about lines that could not be read.
fn skipped(skipped: Skipped) -> String {
    match skipped {
        Skipped {
            torn: 0,
            unknown: 0,
        } => String::new(),
        Skipped { torn, unknown } => format!(
            "note: skipped {torn} incomplete and {unknown} unknown lines (unknown ones were written by a newer version)\n"
        ),
    }
}
