//! One event as one line of bounded length.
//!
//! A line that is too long is cut inside its fields, so that it stays valid JSON of the same shape: long texts end
//! in a mark, long lists lose their tail, and a field `cut` tells the length it would have had.

use mainstay_protocol::event::Event;
use serde_json::Value;

/// The longest line, its newline included.
pub const LINE_BYTES: usize = 64 * 1024;

/// The event as a line with its newline.
pub fn line(event: &Event) -> Vec<u8> {
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    let whole = line.len();
    // 8 KiB for a text is generous; below 64 bytes, no list of a known event is too long.
    let mut cap = 8 * 1024;
    while line.len() >= LINE_BYTES && cap >= 64 {
        if let Ok(mut value) = serde_json::to_value(event) {
            shorten(&mut value, cap);
            if let Value::Object(fields) = &mut value {
                fields.insert("cut".into(), whole.into());
            }
            line = serde_json::to_vec(&value).unwrap_or_default();
        }
        cap /= 2;
    }
    line.push(b'\n');
    line
}

/// Caps each text at `cap` bytes and each list at `cap / 16` entries.
fn shorten(value: &mut Value, cap: usize) {
    match value {
        Value::String(text) => {
            if text.len() > cap {
                let whole = text.len();
                text.truncate(text.floor_char_boundary(cap));
                *text = format!("{text}… [cut, {whole} bytes]");
            }
        }
        Value::Array(list) => {
            let keep = cap / 16;
            if list.len() > keep {
                let gone = list.len() - keep;
                let texts = list.iter().all(Value::is_string);
                list.truncate(keep);
                if texts {
                    list.push(Value::String(format!("… [cut, {gone} more]")));
                }
            }
            for entry in list {
                shorten(entry, cap);
            }
        }
        Value::Object(fields) => {
            for field in fields.values_mut() {
                shorten(field, cap);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_protocol::event::{Cause, Rung, Seen};
    use mainstay_protocol::event::{StartFailed, Teardown, What};
    use mainstay_protocol::ids::{Identity, LinkId};

    fn event(what: What) -> Event {
        Event {
            v: 1,
            at: "2026-11-15T22:31:07.123Z".into(),
            id: LinkId(7),
            server: "demo".into(),
            what,
        }
    }

    #[test]
    fn a_short_event_is_not_touched() {
        let event = event(What::Junk(mainstay_protocol::event::Junk {
            lines: 1,
            sample: "x".into(),
        }));
        let line = line(&event);
        assert_eq!(line.last(), Some(&b'\n'));
        assert_eq!(serde_json::from_slice::<Event>(&line).unwrap(), event);
        assert!(!String::from_utf8(line).unwrap().contains("cut"));
    }

    #[test]
    fn a_long_event_stays_an_event_of_its_kind() {
        let argv: Vec<String> = (0..5_000).map(|n| format!("é{n}").repeat(50)).collect();
        let long = event(What::StartFailed(StartFailed {
            argv,
            cwd: "/".repeat(100_000),
            problem: "\u{1}".repeat(200_000),
            hint: String::new(),
        }));
        let written = line(&long);
        assert!(written.len() <= LINE_BYTES, "{}", written.len());
        assert_eq!(written.split(|&b| b == b'\n').count(), 2);
        let read: Event = serde_json::from_slice(&written).unwrap();
        let What::StartFailed(failed) = read.what else {
            panic!("another kind")
        };
        assert!(failed.cwd.ends_with("… [cut, 100000 bytes]"));
        assert!(failed.argv.last().unwrap().starts_with("… [cut, "));
        assert!(failed.argv[0].starts_with("é0é0"));
    }

    #[test]
    fn a_long_list_of_processes_stays_a_list_of_processes() {
        let left = (0..10_000)
            .map(|pid| Seen {
                who: Identity {
                    pid,
                    start: u64::MAX,
                },
                comm: "x".repeat(15),
            })
            .collect();
        let long = event(What::Teardown(Teardown {
            cause: Cause::Asked,
            rungs: vec![Rung::Eof, Rung::Term, Rung::Kill],
            ms: 1,
            ended: 0,
            left,
        }));
        let written = line(&long);
        assert!(written.len() <= LINE_BYTES);
        let read: Event = serde_json::from_slice(&written).unwrap();
        let What::Teardown(teardown) = read.what else {
            panic!("another kind")
        };
        assert_eq!(teardown.rungs.len(), 3);
        assert!(!teardown.left.is_empty());
    }
}
