//! `mainstay events --timeline`: events and frames on one clock.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;

use mainstay_core::event::What;
use mainstay_core::frames::Line;
use mainstay_core::limits::FRAME_BODY_BYTES;
use mainstay_core::redact;

use crate::exit::Exit;
use crate::ledger::read::Events;
use crate::ledger::time;
use crate::report::{Report, plain, talk};
use crate::view::paint::Tone;
use crate::view::printer::{Printer, Reader};
use crate::view::timeline::{Timeline, width};

/// What is shown beyond the events.
#[derive(Debug)]
pub struct Wish<'o> {
    /// Files of frames beside those that the events name.
    pub files: &'o [PathBuf],
    /// Nothing older.
    pub since_ms: Option<u64>,
    /// As JSON.
    pub json: bool,
}

/// Shows all in one order.
pub fn show(mut events: Events, wish: &Wish<'_>) -> Result<Exit, Report> {
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
                "note: no frames from {}: {}\n",
                path.display(),
                plain(&error)
            ));
        }
    }
    for path in wish.files {
        frames(path, &mut timeline, wish, true).map_err(|error| {
            Report::new(Exit::NotFound, format!("cannot read {}", path.display()))
                .because(plain(&error))
                .hint("a file that `mainstay tap --save` or `mainstay run --record` wrote")
        })?;
    }
    let rows = timeline.rows();
    let mut printer = Printer::new();
    let (columns, colour, wide) = (printer.columns(), printer.colour(), width(&rows));
    let mut date = String::new();
    for row in &rows {
        let shown = if wish.json {
            printer.json_line(row)?
        } else {
            let mut text = String::new();
            if row.date() != date {
                date = row.date().into();
                text = Tone::Faint.paint(&format!("{date} (UTC)"), colour) + "\n";
            }
            printer.text(&(text + &row.render(wide, columns, colour)))?
        };
        if shown == Reader::Gone {
            return Ok(Exit::Ok);
        }
    }
    if rows.is_empty() && !wish.json {
        talk("no such events: `mainstay events` shows all there are\n");
    }
    Ok(Exit::Ok)
}

/// The frames of a file. `named`: the user named it, so frames of links without events are shown, too.
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
                    // Whatever was recorded, a view hides secrets.
                    let body = sight.body.as_deref().map(redact::body);
                    sight.body = body.map(std::borrow::Cow::into_owned);
                    timeline.frame(*sight, &server);
                }
            }
            Ok(Line::Lost(_) | Line::End(_)) | Err(_) => {}
        }
    }
}
