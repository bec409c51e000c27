//! `mainstay events`: what happened, oldest first, and with `--follow` what happens.

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::Args;
use mainstay_core::event::Event;
use mainstay_os::clock;

use super::timeline;
use crate::config::quantity;
use crate::exit::Exit;
use crate::ledger::follow::{Wake, Watch};
use crate::ledger::read::{Events, Filter, Skipped};
use crate::paths::Paths;
use crate::report::{Report, plain, talk};
use crate::view::happening::Happening;
use crate::view::paint::Tone;
use crate::view::printer::{Printer, Reader};

/// What `events` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay events --since 10m
  mainstay events -n 20
  mainstay events --server playwright --follow
  mainstay events --json | jq 'select(.event == \"exit\")'
  mainstay events --timeline --server playwright --since 10m     with the messages in between

Times are UTC. The fields of each event: docs/reference/events.md")]
pub struct Options {
    /// Go on with new events as they are written
    #[arg(long, short)]
    pub follow: bool,
    /// Of this server only
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// Of the link with this id only (its first digits will do)
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Not older than this, as in `90s`, `10m`, `24h`
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    pub since: Option<u64>,
    /// The last so many of them
    #[arg(long, short = 'n', value_name = "NUMBER", conflicts_with = "timeline")]
    pub last: Option<u64>,
    /// Events and messages on one clock: those of `run --record`, else the last ones before each end
    #[arg(long, conflicts_with = "follow")]
    pub timeline: bool,
    /// With --timeline: also the messages in this file of `tap --save`; may be given several times
    #[arg(long, value_name = "FILE", requires = "timeline")]
    pub frames: Vec<PathBuf>,
    /// One event per line, as JSON
    #[arg(long)]
    pub json: bool,
}

/// Shows events.
pub fn events(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let unreadable = |error: std::io::Error| {
        Report::new(
            Exit::State,
            format!("cannot read events in {}", paths.events().display()),
        )
        .because(plain(&error))
        .hint("`mainstay doctor` looks for the reason")
    };
    let filter = Filter {
        server: options.server.clone(),
        id: options.id.as_ref().map(|id| id.to_lowercase()),
        since_ms: options.since.map(|ms| clock::wall_ms().saturating_sub(ms)),
    };
    if options.timeline {
        let wish = timeline::Wish {
            files: &options.frames,
            since_ms: filter.since_ms,
            json: options.json,
        };
        return timeline::show(Events::open(&paths, filter), &wish);
    }
    // Watched before the first reading, so that nothing falls between.
    let watch = if options.follow {
        paths.make()?;
        Some(Watch::open(&paths).map_err(|error| unwatchable(&paths, &error))?)
    } else {
        None
    };
    let mut events = Events::open(&paths, filter);
    if let Some(count) = options.last {
        events.skip_to_last(count).map_err(unreadable)?;
    }
    let mut show = Show {
        printer: Printer::new(),
        json: options.json,
        date: String::new(),
        shown: 0,
    };
    loop {
        match events.read(|event, line| show.take(event, line)) {
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
    talk(&closing(options, show.shown, events.skipped()));
    Ok(Exit::Ok)
}

/// The kernel's limits on watches have error texts that speak of disks and files.
fn unwatchable(paths: &Paths, error: &std::io::Error) -> Report {
    Report::new(
        Exit::State,
        format!("cannot watch {}", paths.events().display()),
    )
    .because(plain(error))
    .hint("the limits are /proc/sys/fs/inotify/max_user_{instances,watches}")
}

struct Show {
    printer: Printer,
    json: bool,
    date: String,
    shown: u64,
}

impl Show {
    fn take(&mut self, event: &Event, line: &str) -> ControlFlow<Result<(), Report>> {
        self.shown += 1;
        let printed = if self.json {
            self.printer.message(&format!("{line}\n"))
        } else {
            let colour = self.printer.colour();
            let happening = Happening::of(event);
            let mut text = String::new();
            if happening.date != self.date {
                text = Tone::Faint.paint(&format!("{} (UTC)", happening.date), colour) + "\n";
                self.date.clone_from(&happening.date);
            }
            self.printer.text(&(text + &happening.render(colour)))
        };
        match printed {
            Ok(Reader::There) => ControlFlow::Continue(()),
            Ok(Reader::Gone) => ControlFlow::Break(Ok(())),
            Err(report) => ControlFlow::Break(Err(report)),
        }
    }
}

/// What is said on stderr at the end.
fn closing(options: &Options, shown: u64, skipped: Skipped) -> String {
    let narrowed = options.server.is_some()
        || options.id.is_some()
        || options.since.is_some()
        || options.last == Some(0);
    let nothing = match (shown, options.json, narrowed) {
        (1.., _, _) | (_, true, _) => "",
        (0, false, true) => "no such events: `mainstay events` shows all there are\n",
        (0, false, false) => {
            "no events yet: they are written when a server runs under `mainstay run -- COMMAND`\n"
        }
    };
    match skipped {
        Skipped {
            torn: 0,
            unknown: 0,
        } => nothing.into(),
        Skipped { torn, unknown } => format!(
            "{nothing}note: skipped {torn} torn and {unknown} unknown lines (an unknown kind is written by a newer version)\n"
        ),
    }
}
