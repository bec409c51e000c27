//! Commands that look at every process of the machine: what they cost if there are thousands.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use mainstay_os::{census, clock};
use mainstay_testkit::fork::wait_for_cpu;
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process_group};

use super::{Part, Target};
use crate::args::Effort;
use crate::lane::{Kind, Lane};
use crate::machine;
use crate::place::Place;
use crate::role;
use crate::stats::{Series, ms, ratio};
use crate::table::Table;

/// The size in the target.
const PROCESSES: u64 = 5_000;
/// The time in the target.
const AIM_NS: u64 = 75_000_000;

/// The commands, and whether the target is about them.
const COMMANDS: [(&[&str], bool); 5] = [
    (&["ps"], true),
    (&["ps", "--all"], false),
    (&["reap"], true),
    (&["doctor"], true),
    (&["watch", "--all", "--once"], false),
];

pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    // A link for `ps` to show, and the directories.
    let lane = Lane::start(place, Kind::Mainstay)?;
    let events = effort.pick(10_000, 100);
    write_events(place, events)?;
    let crowd = Crowd::gather(place, effort.pick(PROCESSES as usize, 200))?;
    let found = census::pids()?.len() as u64;
    let outcome = in_turn(place, effort.pick(20, 2));
    crowd.disperse()?;
    lane.end()?;
    let rows = outcome?;
    let mut head = vec!["command", "CPU min, ms", "p50", "p99", "n"];
    if place.has_old() {
        head.extend(["old p50", "new / old"]);
    }
    let mut table = Table::new(1, &head);
    let mut worst = Vec::new();
    for row in &rows {
        let p50 = row.new.p50();
        let mut cells = vec![
            format!("`mainstay {}`", row.words.join(" ")),
            ms(row.new.min()),
            ms(p50),
            ms(row.new.quantile(0.99)),
            row.new.count().to_string(),
        ];
        if place.has_old() {
            cells.extend(if row.old.count() == 0 {
                ["-".into(), "-".into()]
            } else {
                let old = row.old.p50();
                [ms(old), ratio(p50, old)]
            });
        }
        table.row(cells);
        // A machine that allows fewer processes is measured with what it allows.
        let scaled = p50.saturating_mul(PROCESSES) / found.clamp(1, PROCESSES);
        worst.extend(row.aimed.then_some((row.words[0], scaled)));
    }
    let measured: Vec<String> = worst
        .iter()
        .map(|(command, ns)| format!("{command} {} ms", ms(*ns)))
        .collect();
    let target = Target {
        what: "`ps`, `reap`, `doctor` on 5,000 processes, CPU each",
        aim: "≤ 75 ms",
        measured: measured.join(", "),
        met: worst.iter().all(|&(_, ns)| ns <= AIM_NS),
    };
    Ok(Part::new(
        vec![words(found, events).into(), table.into()],
        vec![target],
    ))
}

fn words(found: u64, events: usize) -> String {
    let limit = match getrlimit(Resource::Nproc).current {
        Some(limit) => format!("{limit} processes for this user"),
        None => "any number of processes for this user".into(),
    };
    let mut text = format!(
        "User and system time of the whole command, as the kernel counts it at its end, with {found} processes on the machine, one link, and {events} events \
         of the last day. The processes are idle forks: of 50, one has pipes to its parent as stdin and stdout, ten have `/dev/null` there and four \
         descriptors more, the others only `/dev/null`. This machine allows {limit}."
    );
    if found < PROCESSES {
        write!(
            text,
            " For the target, the times are scaled to {PROCESSES}."
        )
        .ok();
    }
    text
}

/// One command.
struct Row {
    words: &'static [&'static str],
    aimed: bool,
    new: Series,
    old: Series,
}

fn in_turn(place: &Place<'_>, rounds: usize) -> io::Result<Vec<Row>> {
    let mut rows: Vec<Row> = COMMANDS
        .into_iter()
        .map(|(words, aimed)| Row {
            words,
            aimed,
            new: Series::default(),
            old: Series::default(),
        })
        .collect();
    // The first round does not count: the kernel makes its entries for the processes then.
    for round in 0..=rounds {
        for row in &mut rows {
            // Another build is first each time.
            for step in 0..2 {
                let is_old = (round + step) % 2 == 1;
                let Some(program) = place.build(is_old) else {
                    continue;
                };
                let (code, ns) = cpu_of(place, program, row.words)?;
                let series = match code {
                    // 1: `doctor` has found a problem.
                    Some(0 | 1) if is_old => &mut row.old,
                    Some(0 | 1) => &mut row.new,
                    // An old build may not know the command.
                    Some(2) if is_old => continue,
                    _ => {
                        return Err(io::Error::other(format!(
                            "{:?} ended with {code:?}",
                            row.words
                        )));
                    }
                };
                if round > 0 {
                    series.push(ns);
                }
            }
        }
    }
    Ok(rows)
}

/// Runs the command and returns its exit code and its processor time.
fn cpu_of(place: &Place<'_>, program: OsString, words: &[&str]) -> io::Result<(Option<i32>, u64)> {
    let mut argv = vec![program];
    argv.extend(words.iter().map(OsString::from));
    let child = place
        .command(&argv)?
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    wait_for_cpu(child.id() as i32)
}

/// Idle processes in a process group of their own.
struct Crowd {
    leader: Child,
    /// Its end makes them end.
    _stdin: ChildStdin,
    /// Without a reader, the leader would look like a server whose client is half gone, with all of them as its tree.
    stdout: BufReader<ChildStdout>,
}

impl Crowd {
    fn gather(place: &Place<'_>, count: usize) -> io::Result<Self> {
        let mut leader = place
            .command(&place.ours([role::CROWD.to_owned(), count.to_string()]))?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let stdin = leader.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let stdout = leader.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut crowd = Self {
            leader,
            _stdin: stdin,
            stdout: BufReader::new(stdout),
        };
        let mut line = String::new();
        crowd.stdout.read_line(&mut line)?;
        if line.trim().parse::<usize>().is_err() {
            crowd.disperse()?;
            return Err(io::Error::other("the processes could not be made"));
        }
        Ok(crowd)
    }

    /// Ends all of them.
    fn disperse(mut self) -> io::Result<()> {
        kill_process_group(Pid::from_child(&self.leader), Signal::KILL)?;
        self.leader.wait().map(drop)
    }
}

/// Adds events of today, as keepers write them.
fn write_events(place: &Place<'_>, count: usize) -> io::Result<()> {
    let now = clock::wall_ms();
    let name = format!("{}.jsonl", machine::date(now));
    let path = place.path(".local/state/mainstay/events").join(name);
    let at = machine::time(now);
    let mut lines = String::new();
    for number in 0..count {
        let event = format!(
            r#"{{"v":1,"at":"{at}","id":"{number:08x}","server":"busy","event":"opening_silent","ms":{number}}}"#
        );
        lines.push_str(&event);
        lines.push('\n');
    }
    File::options()
        .append(true)
        .open(path)?
        .write_all(lines.as_bytes())
}
