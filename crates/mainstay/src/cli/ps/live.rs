//! `ps --watch`: the same view, redrawn every second, until the user ends it.

use mainstay_os::clock;
use mainstay_os::signals::Signals;
use mainstay_report::live::LiveScreen;
use mainstay_report::printer::{Printer, Reader};
use mainstay_report::{Exit, Report, plain};
use mainstay_store::paths::Paths;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::view::{self, Other, Screen};
use super::{Options, chosen, gather, none_found, others};

/// Time between two looks at the links.
const REDRAW_MS: u64 = 1_000;
/// Time between two looks at servers without mainstay, which take longer.
const OTHERS_MS: u64 = 10_000;

/// Redraws until q, Ctrl-C or the end of the terminal.
pub fn watch(options: &Options, paths: &Paths) -> Result<Exit, Report> {
    // A terminal called `dumb` cannot be redrawn.
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if dumb || !Printer::new().terminal() {
        return Err(Report::new(
            Exit::Usage,
            "`ps --watch` needs a terminal that it can redraw",
        )
        .hint(
            "for a program: `mainstay ps --json`, or `mainstay events --follow --json` for changes",
        ));
    }
    let failed = |error: &std::io::Error| {
        Report::new(Exit::Failed, "cannot wait for signals").because(plain(error))
    };
    let signals = Signals::open(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGWINCH])
        .map_err(|error| failed(&error))?;
    let mut screen = LiveScreen::open()?;
    let mut known = Vec::new();
    let mut look_at = clock::now();
    loop {
        let now = clock::now();
        if now >= look_at && options.lease.is_none() {
            known = others().iter().map(Other::from).collect();
            look_at = now.after_ms(OTHERS_MS);
        }
        let (rows, unshown) = chosen(options, gather(paths, options.tree)?);
        let (columns, colour) = screen.measure();
        let style = Screen {
            columns,
            colour,
            wide: false,
            home: paths.home(),
        };
        let mut text = view::render(&rows, &known, style);
        if rows.is_empty() {
            text = mainstay_report::wrap::wrap(&none_found(options, unshown), columns).join("\n")
                + "\n"
                + &text;
        }
        if screen.draw(&text, "redrawn every second; q or Ctrl-C ends it")? == Reader::Gone
            || ended(&signals, &screen).map_err(|error| failed(&error))?
        {
            return Ok(Exit::Ok);
        }
    }
}

/// Waits for the next redraw. Returns whether the user, or the terminal, has ended it.
fn ended(signals: &Signals, screen: &LiveScreen) -> std::io::Result<bool> {
    let until = clock::now().after_ms(REDRAW_MS);
    loop {
        let left_ns = until.0.saturating_sub(clock::now().0);
        let time = Timespec {
            tv_sec: (left_ns / 1_000_000_000) as i64,
            tv_nsec: (left_ns % 1_000_000_000) as i64,
        };
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        let keys = screen.keys();
        fds.extend(keys.map(|keys| PollFd::from_borrowed_fd(keys, PollFlags::IN)));
        match poll(&mut fds, Some(&time)) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let hung_up = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let keyboard = fds.get(1).map_or(PollFlags::empty(), PollFd::revents);
        if keyboard.intersects(hung_up)
            || (keyboard.contains(PollFlags::IN) && screen.asked_to_end())
        {
            return Ok(true);
        }
        if fds[0].revents().contains(PollFlags::IN) {
            // A changed size of the terminal only causes the next redraw.
            let received = signals.read()?;
            return Ok(received.is_some_and(|received| received.number != libc::SIGWINCH));
        }
    }
}
