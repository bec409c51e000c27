//! The table of `adopt` and `release`: each client, its files, and what becomes of each server. It fits its terminal.

use mainstay_report::paint::Tone;
use mainstay_report::safe::visible;

use super::file::{File, Server};

/// The widest table; longer lines are hard to read.
const WIDEST: usize = 120;
/// A name of a server is cut beyond this.
const NAME_CHARS: usize = 24;
const INDENT: &str = "  ";

/// The table. Every line is at most `columns` wide.
pub fn render(files: &[&File], columns: usize, colour: bool) -> String {
    let columns = columns.min(WIDEST);
    let shown = || {
        files
            .iter()
            .filter(|file| file.error.is_some() || !file.servers.is_empty())
    };
    let servers = shown().flat_map(|file| &file.servers);
    let name_width = servers.map(|server| label(server).chars().count()).max();
    let width = name_width.unwrap_or(0).clamp("SERVER".len(), NAME_CHARS);
    let mut out = Tone::Strong.paint("CLIENT  FILE", colour);
    out.push('\n');
    let head = format!("{INDENT}{:<width$}  WHAT WILL HAPPEN", "SERVER");
    out.push_str(&Tone::Strong.paint(&head, colour));
    out.push('\n');
    for file in shown() {
        out.push_str(&Tone::Strong.paint(&visible(&file.client), colour));
        let rest = columns.saturating_sub(file.client.chars().count() + 2);
        out.extend(["  ", &cut_start(&file.shown, rest), "\n"]);
        if !file.also_read_by.is_empty() {
            let also = format!("also read by {}", file.also_read_by.join(", "));
            push_wrapped(&mut out, &also, INDENT, columns, Tone::Faint, colour);
        }
        if let Some(error) = &file.error {
            let text = format!("cannot be changed: {error}");
            push_wrapped(&mut out, &text, INDENT, columns, Tone::Bad, colour);
            if let Some(hint) = &file.hint {
                push_wrapped(
                    &mut out,
                    &format!("hint: {hint}"),
                    INDENT,
                    columns,
                    Tone::Faint,
                    colour,
                );
            }
        }
        for server in &file.servers {
            let name = cut_end(&label(server), width);
            let tone = if server.changes {
                Tone::Good
            } else {
                Tone::Plain
            };
            let indent = " ".repeat(INDENT.len() + width + 2);
            let mut lines = lines(&server.what, columns.saturating_sub(indent.len())).into_iter();
            let first = lines.next().unwrap_or_default();
            let name = format!("{INDENT}{name:<width$}  ");
            out.extend([name.as_str(), &tone.paint(&first, colour), "\n"]);
            for line in lines {
                out.extend([indent.as_str(), tone.paint(&line, colour).as_str(), "\n"]);
            }
            if let Some(project) = &server.project {
                let text = format!("in {project}");
                push_wrapped(&mut out, &text, &indent, columns, Tone::Faint, colour);
            }
        }
    }
    out
}

fn label(server: &Server) -> String {
    visible(&server.name).into_owned()
}

fn push_wrapped(
    out: &mut String,
    text: &str,
    indent: &str,
    columns: usize,
    tone: Tone,
    colour: bool,
) {
    for line in lines(text, columns.saturating_sub(indent.len())) {
        out.extend([indent, tone.paint(&line, colour).as_str(), "\n"]);
    }
}

/// A text in lines of at most this width, broken between words; a word that is too long is broken, too.
fn lines(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let text = visible(text);
    let mut lines = Vec::new();
    let (mut line, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        } else if used > 0 {
            line.push(' ');
            used += 1;
        }
        while word.len() > width - used {
            let rest = word.split_off(width - used);
            line.extend(word);
            lines.push(std::mem::take(&mut line));
            used = 0;
            word = rest;
        }
        used += word.len();
        line.extend(word);
    }
    lines.push(line);
    lines
}

/// A text in lines, with an end.
pub fn wrapped(text: &str, width: usize) -> String {
    lines(text, width).join("\n") + "\n"
}

fn cut_end(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// Of a path that is too long, its end.
fn cut_start(text: &str, width: usize) -> String {
    let text = visible(text);
    let count = text.chars().count();
    if count <= width {
        return text.into_owned();
    }
    let kept: String = text.chars().skip(count - width.saturating_sub(1)).collect();
    format!("…{kept}")
}

/// A diff with its lines in colour.
pub fn coloured(diff: &str, colour: bool) -> String {
    let mut out = String::new();
    for line in diff.lines() {
        let tone = match line.as_bytes().first() {
            Some(b'+') => Tone::Good,
            Some(b'-') => Tone::Bad,
            Some(b'@') => Tone::Faint,
            Some(_) | None => Tone::Plain,
        };
        out.push_str(&tone.paint(line, colour));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, changes: bool, what: &str) -> Server {
        Server {
            name: name.into(),
            project: None,
            command: String::new(),
            action: String::new(),
            changes,
            what: what.into(),
            hint: None,
        }
    }

    #[test]
    fn the_table_fits_eighty_columns() {
        let mut local = server("orders-db", true, "will go through mainstay");
        local.project = Some("~/shop".into());
        let claude = File {
            client: "Claude Code".into(),
            shown: "~/.claude.json".into(),
            servers: vec![
                server(
                    "playwright",
                    true,
                    "will go through mainstay, always running: a browser keeps state",
                ),
                server(
                    "a-server-with-quite-a-long-name",
                    false,
                    "left alone: may need a login: it has no credentials, so the client may log in by OAuth when the server asks",
                ),
                local,
            ],
            ..File::default()
        };
        let broken = File {
            client: "Zed".into(),
            shown: "~/.config/zed/settings.json".into(),
            error: Some("~/.config/zed/settings.json: line 3, column 1: expected a comma: the client cannot read the file either".into()),
            hint: Some("correct that line, then try again".into()),
            ..File::default()
        };
        let empty = File {
            client: "Warp".into(),
            shown: "~/.warp/.mcp.json".into(),
            ..File::default()
        };
        let text = render(&[&claude, &broken, &empty], 80, false);
        assert_eq!(
            text,
            "\
CLIENT  FILE
  SERVER                    WHAT WILL HAPPEN
Claude Code  ~/.claude.json
  playwright                will go through mainstay, always running: a browser
                            keeps state
  a-server-with-quite-a-l…  left alone: may need a login: it has no credentials,
                            so the client may log in by OAuth when the server
                            asks
  orders-db                 will go through mainstay
                            in ~/shop
Zed  ~/.config/zed/settings.json
  cannot be changed: ~/.config/zed/settings.json: line 3, column 1: expected a
  comma: the client cannot read the file either
  hint: correct that line, then try again
"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn long_words_are_broken() {
        assert_eq!(lines("aa bb", 8), ["aa bb"]);
        assert_eq!(
            lines("aaaa bbbbbbbbbbbb c", 8),
            ["aaaa", "bbbbbbbb", "bbbb c"]
        );
        assert_eq!(
            cut_start("/home/ann/x.json", 7),
            "….json".replace("….", "…x.")
        );
    }
}
