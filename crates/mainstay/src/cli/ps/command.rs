//! The part of a command that tells servers apart: not the launcher, but what it launches, with its arguments.

use std::ffi::OsString;
use std::path::Path;

use mainstay_keeper::default_name;

/// `server-filesystem ~/data` of `npx -y @modelcontextprotocol/server-filesystem /home/ann/data`.
pub fn telling(argv: &[String], home: Option<&Path>) -> String {
    let Some((program, rest)) = argv.split_first() else {
        return String::new();
    };
    // Mainstay's own process for a server behind a URL.
    if let (true, [verb, url]) = (base(program).starts_with("mainstay"), rest)
        && verb == "bridge"
    {
        return url.clone();
    }
    let words: Vec<OsString> = argv.iter().map(OsString::from).collect();
    let name = default_name::of(&words);
    let named = rest.iter().position(|word| dashed(word).contains(&name));
    let (first, arguments) = match named {
        // A line for a shell tells more than the name that was taken from it.
        Some(at) if rest[at].contains(' ') => (rest[at].as_str(), &rest[at + 1..]),
        Some(at) => (name.as_str(), &rest[at + 1..]),
        None => (base(program), rest),
    };
    let arguments = arguments.iter().map(|word| short_path(word, home));
    std::iter::once(first.to_owned())
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A path below the home directory with `~`.
pub fn short_path(path: &str, home: Option<&Path>) -> String {
    let below = home.and_then(|home| path.strip_prefix(home.to_str()?));
    match below {
        Some("") => "~".into(),
        Some(below) if below.starts_with('/') => format!("~{below}"),
        Some(_) | None => path.into(),
    }
}

/// As a name is made of it.
fn dashed(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    word.chars()
        .map(|c| if plain(c) { c } else { '-' })
        .collect()
}

fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_is_left_out_and_home_is_short() {
        let home = Some(Path::new("/home/ann"));
        for (command, shown) in [
            (
                "npx -y @modelcontextprotocol/server-filesystem /home/ann/data",
                "server-filesystem ~/data",
            ),
            (
                "uvx mcp-server-time --local-timezone UTC",
                "mcp-server-time --local-timezone UTC",
            ),
            ("python3 -m mcp_server_time --x", "mcp_server_time --x"),
            (
                "npx -y @playwright/mcp --headless",
                "playwright-mcp --headless",
            ),
            (
                "/home/ann/bin/my-server /home/annex",
                "my-server /home/annex",
            ),
            ("cat", "cat"),
            (
                "/usr/bin/mainstay bridge https://example.com/mcp",
                "https://example.com/mcp",
            ),
            ("", ""),
        ] {
            let argv: Vec<String> = command.split_whitespace().map(Into::into).collect();
            assert_eq!(telling(&argv, home), shown, "{command}");
        }
        let script = ["sh", "-c", "cat; echo x"].map(String::from);
        assert_eq!(telling(&script, home), "cat; echo x");
        assert_eq!(short_path("/home/ann", home), "~");
        assert_eq!(short_path("/srv", None), "/srv");
    }
}
