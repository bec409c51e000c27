//! `mainstay events --timeline`: events and messages in one order of time.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;

use mainstay_protocol::event::What;
use mainstay_protocol::frames::Line;
use mainstay_protocol::limits::FRAME_BODY_BYTES;
use mainstay_protocol::redact;
use mainstay_protocol::time::{self, Zone};
use mainstay_report::paint::Tone;
use mainstay_report::timeline::{Timeline, width};
use mainstay_report::{Exit, Report, plain, talk};
use mainstay_store::ledger::read::Events;

use mainstay_report::printer::{Printer, Reader};

/// The options of the timeline.
#[derive(Debug)]
pub struct Wish<'o> {
    /// Recordings that the user names, in addition to those that the events name.
    pub files: &'o [PathBuf],
    /// Only what is not older than this time.
    pub since_ms: Option<u64>,
    /// The zone of the times that are shown.
    pub zone: Zone,
    pub json: bool,
}

/// Prints events and frames, sorted by time. Returns how many there were.
pub fn show(mut events: Events, wish: &Wish<'_>) -> Result<usize, Report> {
    let mut timeline = Timeline::default();
    let mut files: Vec<PathBuf> = Vec::new();
    let read = events.read(|event, _| {
        if let What::Start(start) = &event.what
            && let Some(path) = &start.recording
            && !files.iter().any(|known| known.as_os_str() == path.as_str())
        {
            files.push(path.into());
        }
        timeline.event(event.clone());
        ControlFlow::<()>::Continue(())
    });
    if let Err(error) = read {
        return Err(Report::new(Exit::State, "cannot read the events").because(plain(&error)));
    }
    for path in &files {
        // A recording may have been moved or removed since.
        if let Err(error) = frames(path, &mut timeline, wish, false) {
            talk(&format!(
                "note: cannot read the recording {}: {}\n",
                path.display(),
                plain(&error)
            ));
        }
    }
    for path in wish.files {
        frames(path, &mut timeline, wish, true).map_err(|error| {
            Report::new(Exit::NotFound, format!("cannot read {}", path.display()))
                .because(plain(&error))
                .hint("name a file that `mainstay tap --save` or `mainstay run --record` wrote")
        })?;
    }
    let rows = timeline.rows();
    let mut printer = Printer::new();
    let (columns, colour) = (printer.columns(), printer.colour());
    let wide = width(&rows, columns);
    let mut date = String::new();
    for row in &rows {
        let shown = if wish.json {
            printer.json_line(row)?
        } else {
            let mut text = String::new();
            if row.date(wish.zone) != date {
                date = row.date(wish.zone);
                text = Tone::Faint.paint(&date, colour) + "\n";
            }
            printer.text(&(text + &row.render(wide, columns, wish.zone, colour)))?
        };
        if shown == Reader::Gone {
            return Ok(rows.len());
        }
    }
    Ok(rows.len())
}

/// Reads the frames of a file. `named`: the user named the file, so frames of links without events are shown too.
fn frames(
    path: &PathBuf,
    timeline: &mut Timeline,
    wish: &Wish<'_>,
    named: bool,
) -> std::io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    let mut server = String::new();
    loop {
        line.clear();
        let limit = 8 * FRAME_BODY_BYTES as u64;
        if file.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        match serde_json::from_slice(&line) {
            Ok(Line::Head(head)) => server = head.server,
            Ok(Line::Frame(mut sight)) => {
                let ms = time::parse(&sight.at).unwrap_or(0);
                let young = wish.since_ms.is_none_or(|since| ms >= since);
                if young && (named || timeline.knows(sight.link)) {
                    // Secrets are hidden here even if they were recorded.
                    let body = sight.body.as_deref().map(redact::body);
                    sight.body = body.map(std::borrow::Cow::into_owned);
                    timeline.frame(*sight, &server);
                }
            }
            Ok(Line::Lost(_) | Line::End(_)) | Err(_) => {}
        }
    }
}
