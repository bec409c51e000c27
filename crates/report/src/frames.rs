//! Frames as people read them: one row each, in columns that fit a terminal. [`rows`] is what `tap` shows; the rest is for `events
//! --timeline` and `why`.

pub mod gist;
pub mod rows;

use mainstay_protocol::event::Brief;
use mainstay_protocol::frames::{Kind, Side, Sight};

use crate::measure::fine;
use crate::paint::Tone;
use crate::safe::one_line;

/// Columns of the method, the id, the size and the latency.
const METHOD: usize = 22;
const ID: usize = 6;
const SIZE: usize = 8;
const LATENCY: usize = 8;

/// The way of a frame: `c→s` from the client to the server, `c←m` from mainstay to the client.
pub fn way(from: Side, to: Side) -> &'static str {
    match (from, to) {
        (Side::Client, Side::Server | Side::Client) => "c→s",
        (Side::Server, Side::Client | Side::Server) => "c←s",
        (Side::Mainstay, Side::Server) => "m→s",
        (Side::Mainstay, Side::Client | Side::Mainstay) => "c←m",
        (Side::Client, Side::Mainstay) => "c→m",
        (Side::Server, Side::Mainstay) => "m←s",
    }
}

/// The kind of frame, as one character before its method.
fn mark(kind: Kind) -> char {
    match kind {
        Kind::Request => ' ',
        Kind::Notification => '·',
        Kind::Response => '=',
        Kind::Error => '!',
        Kind::Batch => '[',
        Kind::Blank | Kind::Junk => '?',
    }
}

/// Whether it is good or bad news.
pub fn tone(kind: Kind) -> Tone {
    match kind {
        Kind::Error => Tone::Bad,
        Kind::Junk | Kind::Blank => Tone::Warn,
        Kind::Notification => Tone::Faint,
        Kind::Request | Kind::Response | Kind::Batch => Tone::Plain,
    }
}

/// The row without its clock.
pub fn head(sight: &Sight) -> String {
    let latency = sight.latency_us.map_or_else(String::new, latency);
    format!(
        "{}  {} {} {} {}",
        way(sight.from, sight.to),
        method(sight.kind, sight.method.as_deref()),
        padded(sight.id.as_deref().unwrap_or_default(), ID),
        format_args!("{:>SIZE$}", size(sight.bytes)),
        format_args!("{latency:>LATENCY$}"),
    )
}

/// The content of the message, as far as there is room.
pub fn body(sight: &Sight, chars: usize) -> String {
    let ours = sight
        .ours
        .map_or_else(String::new, |ours| format!("({ours}) "));
    let text = sight.body.as_deref().unwrap_or_default();
    one_line(&format!("{ours}{}", gist(text)), chars)
}

/// The message from its request or answer on: the rest is in the other columns.
fn gist(text: &str) -> &str {
    let parts = ["\"params\":", "\"result\":", "\"error\":"];
    let at = |part: &&str| text.find(*part).map(|at| at + part.len());
    let Some(start) = parts.iter().filter_map(at).min() else {
        return text;
    };
    let rest = text[start..].trim_start();
    // If it is the last member, the closing bracket of the message is dropped.
    match rest.strip_suffix('}') {
        Some(inner) if inner.starts_with('{') && inner.ends_with('}') => inner,
        Some(_) | None => rest,
    }
}

/// A frame that is remembered without its body.
pub fn brief(brief: &Brief) -> String {
    let latency = brief
        .latency_ms
        .map_or_else(String::new, |ms| format!(", after {}", fine(ms)));
    let id = brief
        .id
        .as_deref()
        .map_or_else(String::new, |id| format!(" {}", one_line(id, 24)));
    let method = brief.method.as_deref().unwrap_or("-");
    format!(
        "{} before  {}  {} {}{id}, {}{latency}",
        fine(brief.ago_ms),
        way(brief.from, brief.to),
        brief.kind.word(),
        one_line(method, 40),
        size(brief.bytes),
    )
}

fn method(kind: Kind, name: Option<&str>) -> String {
    let name = name.map_or(kind.word(), |name| name);
    padded(
        &format!("{}{}", mark(kind), one_line(name, METHOD - 1)),
        METHOD,
    )
}

fn padded(text: &str, chars: usize) -> String {
    let text = if text.starts_with(' ') {
        let rest = one_line(text, chars - 1);
        format!(" {rest}")
    } else {
        one_line(text, chars)
    };
    format!("{text:chars$}")
}

/// `812 B`, `12.3 KiB`, `1.4 MiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..1_048_576 => format!("{}.{} KiB", bytes / 1024, bytes % 1024 * 10 / 1024),
        1_048_576.. => {
            let tenths = bytes / 104_858;
            format!("{}.{} MiB", tenths / 10, tenths % 10)
        }
    }
}

pub(crate) fn latency(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..100_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        100_000.. => fine(us / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_brief_is_one_line() {
        let told: Vec<String> = samples::standing().frames.iter().map(brief).collect();
        assert_eq!(
            told,
            [
                "841 ms before  c→s  request tools/call 7, 120 B",
                "800 ms before  c←s  response tools/call 7, 120 B, after 41 ms"
            ]
        );
    }
}
