//! The preview: a unified diff made from the splices, with masked bytes shown as their masks. No bytes are compared, because it is known what changed.

use std::fmt::Write as _;
use std::ops::Range;

use crate::format::{Document, Splice, in_order};
use crate::limits::{DIFF_AROUND_BYTES, DIFF_CONTEXT_LINES, DIFF_LINE_BYTES_MAX};

type Masks = [(Range<usize>, String)];

/// Lines of both texts that differ.
struct Hunk {
    old: Range<usize>,
    new: Range<usize>,
}

/// A text with what is masked and what has changed in it.
struct Side<'a> {
    lines: Lines<'a>,
    masks: &'a Masks,
    /// Changed bytes, in order. A long line is shown around them only.
    changed: Vec<Range<usize>>,
}

pub(crate) fn unified(
    name: &str,
    old: &Document<'_>,
    old_masks: &Masks,
    new: &Document<'_>,
    new_masks: &Masks,
    splices: &[Splice],
) -> String {
    if splices.is_empty() {
        return String::new();
    }
    let (old_changed, new_changed) = changed(splices);
    let old = Side {
        lines: Lines::of(old.text),
        masks: old_masks,
        changed: old_changed,
    };
    let new = Side {
        lines: Lines::of(new.text),
        masks: new_masks,
        changed: new_changed,
    };
    let mut text = format!("--- {name}\n+++ {name}\n");
    let mut group: Vec<Hunk> = Vec::new();
    for hunk in hunks(&old, &new) {
        if group
            .last()
            .is_some_and(|last| hunk.old.start > last.old.end + 2 * DIFF_CONTEXT_LINES)
        {
            show(&mut text, &group, &old, &new);
            group.clear();
        }
        group.push(hunk);
    }
    show(&mut text, &group, &old, &new);
    text
}

/// The places of splices in the old and in the new text.
fn changed(splices: &[Splice]) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let mut shift: isize = 0;
    let both = in_order(splices).into_iter().map(|splice| {
        let start = splice.span.start.saturating_add_signed(shift);
        shift += splice.text.len() as isize - splice.span.len() as isize;
        (splice.span.clone(), start..start + splice.text.len())
    });
    both.unzip()
}

/// Changed lines, in order, without overlap.
fn hunks(old: &Side<'_>, new: &Side<'_>) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let lines = |side: &Lines<'_>, span: &Range<usize>| side.at(span.start)..side.at(span.end) + 1;
    for (before, after) in old.changed.iter().zip(&new.changed) {
        let hunk = Hunk {
            old: lines(&old.lines, before),
            new: lines(&new.lines, after),
        };
        match hunks.last_mut() {
            Some(last) if hunk.old.start <= last.old.end || hunk.new.start <= last.new.end => {
                last.old.end = last.old.end.max(hunk.old.end);
                last.new.end = last.new.end.max(hunk.new.end);
            }
            Some(_) | None => hunks.push(hunk),
        }
    }
    let (old, new) = (&old.lines, &new.lines);
    for hunk in &mut hunks {
        while !hunk.old.is_empty()
            && !hunk.new.is_empty()
            && old.raw(hunk.old.end - 1) == new.raw(hunk.new.end - 1)
        {
            hunk.old.end -= 1;
            hunk.new.end -= 1;
        }
        while !hunk.old.is_empty()
            && !hunk.new.is_empty()
            && old.raw(hunk.old.start) == new.raw(hunk.new.start)
        {
            hunk.old.start += 1;
            hunk.new.start += 1;
        }
    }
    hunks
}

fn show(text: &mut String, group: &[Hunk], old: &Side<'_>, new: &Side<'_>) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return;
    };
    let before = first.old.start.min(DIFF_CONTEXT_LINES);
    let after = (old.lines.count() - last.old.end).min(DIFF_CONTEXT_LINES);
    let old_range = first.old.start - before..last.old.end + after;
    let new_range = first.new.start - before..last.new.end + after;
    // Writing to a string cannot fail.
    let _infallible = writeln!(
        text,
        "@@ -{},{} +{},{} @@",
        old_range.start + usize::from(!old_range.is_empty()),
        old_range.len(),
        new_range.start + usize::from(!new_range.is_empty()),
        new_range.len()
    );
    let mut at = old_range.start;
    for hunk in group {
        for line in at..hunk.old.start {
            old.write(text, ' ', line);
        }
        for line in hunk.old.clone() {
            old.write(text, '-', line);
        }
        for line in hunk.new.clone() {
            new.write(text, '+', line);
        }
        at = hunk.old.end;
    }
    for line in at..old_range.end {
        old.write(text, ' ', line);
    }
}

/// A text with the places of its lines.
struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn of(text: &'t str) -> Self {
        let mut starts = vec![0];
        starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        if starts.len() > 1 && starts.last() == Some(&text.len()) {
            starts.pop();
        }
        Self { text, starts }
    }

    fn count(&self) -> usize {
        self.starts.len()
    }

    /// The line of a place.
    fn at(&self, place: usize) -> usize {
        self.starts.partition_point(|start| *start <= place) - 1
    }

    fn span(&self, line: usize) -> Range<usize> {
        let end = self.starts.get(line + 1).copied();
        self.starts[line]..end.unwrap_or(self.text.len())
    }

    fn raw(&self, line: usize) -> &'t str {
        &self.text[self.span(line)]
    }
}

impl Side<'_> {
    /// One line, with masked bytes as their masks and without control characters. A masked value over several lines is shown once.
    fn write(&self, text: &mut String, sign: char, line: usize) {
        let all = self.lines.text;
        let span = self.lines.span(line);
        let ended = all[span.clone()].ends_with('\n');
        let mut shown = String::new();
        let mut at = span.start;
        for part in self.shown_parts(&span) {
            if part.start > at {
                shown.push('…');
            }
            at = at.max(part.start);
            let first = self.masks.partition_point(|(masked, _)| masked.end <= at);
            for (masked, instead) in &self.masks[first..] {
                if masked.start >= part.end {
                    break;
                }
                if masked.start >= at {
                    shown.push_str(&all[at..masked.start]);
                }
                // A mask that was cut at its beginning stands for the whole.
                if masked.start >= at || part.start > span.start {
                    shown.push_str(instead);
                }
                at = masked.end.min(span.end);
            }
            if part.end > at {
                shown.push_str(&all[at..part.end]);
                at = part.end;
            }
        }
        if at < span.end {
            shown.push('…');
        }
        text.push(sign);
        for c in shown.trim_end_matches(['\n', '\r']).chars() {
            if c.is_control() && c != '\t' || is_invisible(c) {
                text.extend(c.escape_unicode());
            } else {
                text.push(c);
            }
        }
        text.push('\n');
        if !ended {
            text.push_str("\\ No newline at end of file\n");
        }
    }

    /// Which bytes of a line are shown: all, or of a long one those around its changes.
    fn shown_parts(&self, line: &Range<usize>) -> Vec<Range<usize>> {
        if line.len() <= DIFF_LINE_BYTES_MAX {
            return vec![line.clone()];
        }
        let all = self.lines.text;
        let around = |change: &Range<usize>| {
            let mut start = change
                .start
                .saturating_sub(DIFF_AROUND_BYTES)
                .max(line.start);
            let mut end = (change.end + DIFF_AROUND_BYTES).min(line.end);
            while !all.is_char_boundary(start) {
                start -= 1;
            }
            while !all.is_char_boundary(end) {
                end += 1;
            }
            start..end
        };
        let first = self
            .changed
            .partition_point(|change| change.end < line.start);
        let changes = self.changed[first..].iter();
        let changes = changes.take_while(|change| change.start < line.end);
        let mut parts: Vec<Range<usize>> = Vec::new();
        for part in changes.map(around) {
            match parts.last_mut() {
                Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
                Some(_) | None => parts.push(part),
            }
        }
        if parts.is_empty() {
            parts.push(around(&(line.start..line.start)));
        }
        parts
    }
}

/// Characters that change the direction of a text or have no width.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{61c}')
}
