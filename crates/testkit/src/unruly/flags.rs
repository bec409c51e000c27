//! The flags of the unruly server. They can be combined, and each is one kind of misbehaviour.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// All flags, one field each.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line, and they compose freely"
)]
pub struct Flags {
    /// `--mark TOKEN`: the census mark.
    pub mark: String,
    /// `--role idle`: no server at all, only a process that lives on.
    pub role_idle: bool,
    /// `--ignore-eof`: lives on after its stdin ended.
    pub ignore_eof: bool,
    /// `--ignore-term`: ignores SIGTERM, SIGINT and SIGHUP, and so do all processes that it makes.
    pub ignore_term: bool,
    /// `--exit-code N`: at EOF, or at once with `--exit-after-start`.
    pub exit_code: Option<u8>,
    /// `--exit-after-start`: ends before it reads anything.
    pub exit_after_start: bool,
    /// `--silent`: reads, never answers.
    pub silent: bool,
    /// `--deaf`: answers the opening, then never reads again (and so never sees EOF either).
    pub deaf: bool,
    /// `--slow-exit 1500ms`: takes that long after EOF.
    pub slow_exit: Option<Duration>,
    /// `--marker FILE`: gets "saved" as the last act of an orderly end.
    pub marker: Option<PathBuf>,
    /// `--stderr-flood BYTES`: before anything else.
    pub stderr_flood: u64,
    /// `--stderr LINE`: before anything else.
    pub stderr: Option<String>,
    /// `--grandchild`: a child that reads nothing and holds the server's pipes.
    pub grandchild: bool,
    /// `--setsid-child`: the same in its own session.
    pub setsid_child: bool,
    /// `--daemon`: double fork, own session, /dev/null as stdio.
    pub daemon: bool,
    /// `--daemon-clean-env`: the same, executed again with an empty environment.
    pub daemon_clean_env: bool,
    /// `--launcher N`: that many waiting launchers before the server.
    pub launcher: u32,
    /// `--comets W`: fork-and-exit chains.
    pub comets: u32,
    /// `--comet-life 10s`: when the chains expire by themselves.
    pub comet_life: Option<Duration>,
    /// `--stopped-child`: a child that has got SIGSTOP.
    pub stopped_child: bool,
    /// `--tree N`: a third plain, a third with own sessions, a third daemons; all ignore SIGTERM and SIGHUP.
    pub tree: u32,
    /// `--orphans N`: grandchildren that are orphaned and exit at once.
    pub orphans: u32,
    /// `--die-mid-line`: at the first tool call, half an answer, then SIGKILL to itself.
    pub die_mid_line: bool,
    /// `--junk-lines`: three lines that are no messages before each answer.
    pub junk_lines: bool,
    /// `--big-result BYTES`: every answer of `echo` is padded to that size.
    pub big_result: u64,
    /// `--keep-fds`: says on stderr which descriptors it was given.
    pub keep_fds: bool,
    /// `--record FILE`: everything read from stdin, byte by byte.
    pub record: Option<PathBuf>,
    /// `--replay FILE`: written to stdout as it is, at the first message from the client.
    pub replay: Option<PathBuf>,
    /// `--start-and-idle COMMAND…`: starts it with our own stdio, then lives on and never reaps a child, like a bad init.
    pub start_and_idle: Vec<OsString>,
    /// `--generations FILE`: counts the starts there, so that a server knows which generation it is.
    pub generations: Option<PathBuf>,
    /// The number of this generation, or 0 if generations are not counted.
    pub generation: u32,
    /// `--dies-of WORD`: exits with `--exit-code` (or 1) when this method or tool comes.
    pub dies_of: Vec<String>,
    /// `--start-when FILE`: does nothing before this file exists.
    pub start_when: Option<PathBuf>,
    /// `--version VERSION`: the protocol version that it answers with, if not the client's.
    pub version: Option<String>,
    /// `--capabilities JSON`: the capabilities that it reports, `{"tools":{}}` by default.
    pub capabilities: Option<String>,
    /// `--extra-tool NAME`: one more tool in the list.
    pub extra_tool: Vec<String>,
    /// `--extra-prompt NAME`: one more prompt in the list.
    pub extra_prompt: Vec<String>,
    /// `--big-list BYTES`: one more tool, with a description of that many bytes.
    pub big_list: u64,
    /// `--refuses METHOD`: answers it with an error.
    pub refuses: Vec<String>,
    /// `--asks-first`: answers the opening when the client has answered a ping.
    pub asks_first: bool,
    /// `--modern`: of the era without `initialize`.
    pub modern: bool,
    /// `--grants KEY,KEY`: the most that a listening request is granted.
    pub grants: Option<String>,
    /// `--in 2 FLAGS`, `--in 2.. FLAGS`, `--in 1..3 FLAGS`: flags of these generations only.
    within: Vec<(OsString, OsString)>,
    args: Vec<OsString>,
}

/// An unknown flag, or a flag without its value.
#[derive(Debug)]
pub struct FlagError(String);

impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Flags {
    /// Reads the arguments after the program name.
    pub fn parse(args: Vec<OsString>) -> Result<Self, FlagError> {
        let mut flags = Self {
            args: args.clone(),
            ..Self::default()
        };
        let mut args = args.into_iter();
        while let Some(flag) = args.next() {
            let flag = flag.to_string_lossy().into_owned();
            let mut value = || {
                args.next()
                    .ok_or_else(|| FlagError(format!("{flag} needs a value")))
            };
            match flag.as_str() {
                "--mark" => flags.mark = text(value()?)?,
                "--role" => flags.role_idle = text(value()?)? == "idle",
                "--ignore-eof" => flags.ignore_eof = true,
                "--ignore-term" => flags.ignore_term = true,
                "--exit-code" => flags.exit_code = Some(number(value()?)?),
                "--exit-after-start" => flags.exit_after_start = true,
                "--silent" => flags.silent = true,
                "--deaf" => flags.deaf = true,
                "--slow-exit" => flags.slow_exit = Some(time(value()?)?),
                "--marker" => flags.marker = Some(value()?.into()),
                "--stderr-flood" => flags.stderr_flood = number(value()?)?,
                "--stderr" => flags.stderr = Some(text(value()?)?),
                "--grandchild" => flags.grandchild = true,
                "--setsid-child" => flags.setsid_child = true,
                "--daemon" => flags.daemon = true,
                "--daemon-clean-env" => flags.daemon_clean_env = true,
                "--launcher" => flags.launcher = number(value()?)?,
                "--comets" => flags.comets = number(value()?)?,
                "--comet-life" => flags.comet_life = Some(time(value()?)?),
                "--stopped-child" => flags.stopped_child = true,
                "--tree" => flags.tree = number(value()?)?,
                "--orphans" => flags.orphans = number(value()?)?,
                "--die-mid-line" => flags.die_mid_line = true,
                "--junk-lines" => flags.junk_lines = true,
                "--big-result" => flags.big_result = number(value()?)?,
                "--keep-fds" => flags.keep_fds = true,
                "--record" => flags.record = Some(value()?.into()),
                "--replay" => flags.replay = Some(value()?.into()),
                "--generations" => flags.generations = Some(value()?.into()),
                "--in" => flags.within.push((value()?, value()?)),
                "--dies-of" => flags.dies_of.push(text(value()?)?),
                "--start-when" => flags.start_when = Some(value()?.into()),
                "--version" => flags.version = Some(text(value()?)?),
                "--capabilities" => flags.capabilities = Some(text(value()?)?),
                "--extra-tool" => flags.extra_tool.push(text(value()?)?),
                "--extra-prompt" => flags.extra_prompt.push(text(value()?)?),
                "--big-list" => flags.big_list = number(value()?)?,
                "--refuses" => flags.refuses.push(text(value()?)?),
                "--asks-first" => flags.asks_first = true,
                "--modern" => flags.modern = true,
                "--grants" => flags.grants = Some(text(value()?)?),
                "--start-and-idle" => flags.start_and_idle = args.by_ref().collect(),
                unknown => return Err(FlagError(format!("unknown flag {unknown}"))),
            }
        }
        Ok(flags)
    }

    /// These flags together with those of this generation.
    pub fn in_generation(&self, generation: u32) -> Result<Self, FlagError> {
        let mut args = self.args.clone();
        for (range, words) in &self.within {
            if holds(&text(range.clone())?, generation)? {
                let words = text(words.clone())?;
                args.extend(words.split_whitespace().map(Into::into));
            }
        }
        Ok(Self {
            generation,
            ..Self::parse(args)?
        })
    }

    /// The arguments of the next launcher, or of the server itself when none is left.
    pub fn relaunch(&self, launchers: u32) -> Vec<OsString> {
        let mut args = self.args.clone();
        if let Some(at) = args.iter().position(|arg| arg == "--launcher") {
            args[at + 1] = launchers.to_string().into();
        }
        args
    }
}

/// Whether a generation is in `2`, `2..` or `1..3`, both ends included.
fn holds(range: &str, generation: u32) -> Result<bool, FlagError> {
    let number = |word: &str| number::<u32>(word.into());
    Ok(match range.split_once("..") {
        Some((first, "")) => generation >= number(first)?,
        Some((first, last)) => (number(first)?..=number(last)?).contains(&generation),
        None => generation == number(range)?,
    })
}

fn text(value: OsString) -> Result<String, FlagError> {
    value
        .into_string()
        .map_err(|value| FlagError(format!("{} is not UTF-8", value.display())))
}

fn number<T: std::str::FromStr>(value: OsString) -> Result<T, FlagError> {
    let value = text(value)?;
    value
        .parse()
        .map_err(|_| FlagError(format!("{value} is not a number that fits")))
}

/// `1500ms` or `2s`.
fn time(value: OsString) -> Result<Duration, FlagError> {
    let value = text(value)?;
    let parsed = match value.strip_suffix("ms") {
        Some(ms) => ms.parse().map(Duration::from_millis),
        None => value
            .strip_suffix('s')
            .unwrap_or(&value)
            .parse()
            .map(Duration::from_secs),
    };
    parsed.map_err(|_| FlagError(format!("{value} is not a time")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, FlagError> {
        Flags::parse(line.split(' ').map(Into::into).collect())
    }

    #[test]
    fn flags_compose() {
        let flags = parse("--mark abc --ignore-eof --slow-exit 1500ms --tree 30").unwrap();
        assert_eq!(flags.mark, "abc");
        assert!(flags.ignore_eof && !flags.ignore_term);
        assert_eq!(flags.slow_exit, Some(Duration::from_millis(1500)));
        assert_eq!(flags.tree, 30);
    }

    #[test]
    fn a_launcher_passes_on_everything_but_its_own_count() {
        let flags = parse("--mark abc --launcher 2 --grandchild").unwrap();
        let next = Flags::parse(flags.relaunch(1)).unwrap();
        assert_eq!((next.launcher, next.grandchild), (1, true));
    }

    #[test]
    fn each_generation_has_its_own_flags() {
        let args = ["--in", "2..3", "--silent --tree 4", "--in", "3..", "--deaf"];
        let flags = Flags::parse(args.map(Into::into).into()).unwrap();
        let habits = [1, 2, 3, 4].map(|generation| {
            let flags = flags.in_generation(generation).unwrap();
            (flags.generation, flags.silent, flags.tree, flags.deaf)
        });
        assert_eq!(
            habits,
            [
                (1, false, 0, false),
                (2, true, 4, false),
                (3, true, 4, true),
                (4, false, 0, true)
            ]
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--tree",
            "--tree many",
            "--no-such-habit",
            "--slow-exit soon",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
