//! Which process sends which signal to which: the kernel's tracepoint `signal_generate`, in a trace instance of our
//! own.
//!
//! The kernel records the name of a sender when the sender leaves its processor, a little after the signal. A line
//! that is read before that has no name in it, or the name of an earlier process with the same number. The sender may
//! be gone when the caller looks for it, but its end is traced with its name: `sched_process_exit`. It may also run
//! another program by then; that is traced with its earlier name: `task_rename`.
//!
//! The instance has its own buffer, filter and clock; the machine's own buffer and settings are never touched. Its
//! name contains our identity. It is removed when we close it, or by a child of ours that waits for our death, or, if
//! both have been killed, by the next tracer that is opened. The kernel names threads, not processes; the caller
//! finds the process. Root only.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mainstay_protocol::clock::Moment;
use mainstay_protocol::ids::Identity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::{clock, identity, role, title};

/// Where tracefs is usually mounted.
pub const MOUNT: &str = "/sys/kernel/tracing";
/// Where it was mounted on older machines.
const OLD_MOUNT: &str = "/sys/kernel/debug/tracing";
/// The beginning of our instances' names.
const PREFIX: &str = "mainstay-signals-";
/// The inode of the initial pid namespace, whose pids the trace shows.
const FIRST_PIDNS: u64 = 0xEFFF_FFFC;
/// The buffer per processor: more than ten thousand signals.
const BUFFER_KIB: &str = "1024";
/// How often, and how long, a removal is tried while a dying owner still holds its files.
const REMOVE_TRIES: u32 = 100;
const REMOVE_WAIT_MS: u32 = 20;
/// How many of the threads that ended or changed their name last are remembered.
const ENDED: usize = 4096;
/// What the trace shows if the kernel does not know a name.
const UNNAMED: &str = "<...>";
/// The longest line that can be one of ours.
const LINE_BYTES: usize = 4096;

/// A signal, as the kernel saw it being sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When.
    pub at: Moment,
    /// The thread that sent it, or that was running while the kernel itself sent it.
    pub sender: i32,
    /// A short name that the kernel has recorded for the thread, before or after; see [`Tracer::name_of`].
    pub sender_comm: Option<String>,
    /// Which signal.
    pub number: i32,
    /// `si_code`: 0 by `kill`, above 0 by the kernel.
    pub code: i32,
    /// The thread that it was for.
    pub victim: i32,
    /// That thread's short name.
    pub victim_comm: String,
    /// What became of it: 0 delivered, 1 ignored, 2 already pending, 3 and 4 the queue was full.
    pub result: i32,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceRecord {
    /// A signal.
    Sent(Sent),
    /// This many signals were lost because they came faster than they were read.
    Lost(u64),
}

/// A thread that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ended {
    at: Moment,
    thread: i32,
    comm: String,
}

/// A thread that has got another name, by `exec` or by its own wish.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Renamed {
    at: Moment,
    thread: i32,
    /// Its name until then.
    before: String,
}

/// What a line of the trace says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Record(TraceRecord),
    Ended(Ended),
    Renamed(Renamed),
}

/// Why signals cannot be traced.
#[derive(Debug)]
pub enum NoTrace {
    /// Only root may.
    NotRoot,
    /// In a container the kernel's pids and times differ from ours.
    Container,
    /// The kernel has no trace file system, or not that tracepoint.
    NotThere,
    /// The trace file system is not mounted and cannot be mounted.
    NotMounted(io::Error),
    /// This step failed.
    Refused {
        /// Which.
        step: &'static str,
        /// Why.
        error: io::Error,
    },
}

/// An open trace.
#[derive(Debug)]
pub struct Tracer {
    instance: PathBuf,
    pipe: Option<File>,
    pending: Vec<u8>,
    heard: Vec<TraceRecord>,
    ended: VecDeque<Ended>,
    renamed: VecDeque<Renamed>,
    /// Closed when we die, which the remover notices.
    lifeline: Option<OwnedFd>,
    remover: i32,
}

impl Tracer {
    /// Starts to trace these signals. Only while this process has one thread, because it forks.
    pub fn open(signals: &[i32]) -> Result<Self, NoTrace> {
        if !rustix::process::geteuid().is_root() {
            return Err(NoTrace::NotRoot);
        }
        let refused = |step| move |error| NoTrace::Refused { step, error };
        let realm = identity::realm().map_err(refused("read /proc"))?;
        // In a time namespace the trace would be on another clock, and living owners would look dead.
        if realm.pidns != FIRST_PIDNS || realm.timens.is_some() {
            return Err(NoTrace::Container);
        }
        let root = find()?;
        let instances = root.join("instances");
        sweep(&instances, realm.pidns);
        let me = identity::me().map_err(refused("read /proc"))?;
        let instance = instances.join(name(realm.pidns, me));
        // The remover is started before the instance is made, so that a death in between leaves nothing.
        let (lifeline, remover) = start_remover(&instance).map_err(refused("fork"))?;
        let mut tracer = Self {
            instance,
            pipe: None,
            pending: Vec::new(),
            heard: Vec::new(),
            ended: VecDeque::new(),
            renamed: VecDeque::new(),
            lifeline: Some(lifeline),
            remover,
        };
        // From here on dropping the value undoes everything.
        match fs::create_dir(&tracer.instance) {
            Ok(()) => {}
            // A trace of this very process: it forked from one that traced.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(refused("make an instance")(error)),
        }
        tracer.set_up(signals)?;
        Ok(tracer)
    }

    fn set_up(&mut self, signals: &[i32]) -> Result<(), NoTrace> {
        let event = Path::new("events/signal/signal_generate");
        let filter: Vec<String> = signals.iter().map(|n| format!("sig == {n}")).collect();
        for (step, file, text) in [
            ("choose a clock", Path::new("trace_clock"), "mono"),
            ("size the buffer", Path::new("buffer_size_kb"), BUFFER_KIB),
            ("filter", &event.join("filter"), &filter.join(" || ")),
        ] {
            self.write(file, text)
                .map_err(|error| NoTrace::Refused { step, error })?;
        }
        // Otherwise the kernel would wake us when the buffer is half full. Older kernels wake us at once and have no
        // such file.
        self.write(Path::new("buffer_percent"), "0").ok();
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(self.instance.join("trace_pipe"))
            .map_err(|error| NoTrace::Refused {
                step: "open the trace",
                error,
            })?;
        self.pipe = Some(pipe);
        // Without it a few senders stay without a name.
        self.write(Path::new("events/sched/sched_process_exit/enable"), "1")
            .ok();
        // Without it a sender would be named after the program that it ran later. The tracepoint of signals comes last, so
        // that no signal is older than it.
        for event in [Path::new("events/task/task_rename"), event] {
            self.write(&event.join("enable"), "1")
                .map_err(|error| NoTrace::Refused {
                    step: "enable the tracepoint",
                    error,
                })?;
        }
        Ok(())
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        fs::write(self.instance.join(file), text)
    }

    /// Everything that was sent since the last call.
    pub fn read(&mut self, into: &mut Vec<TraceRecord>) -> io::Result<()> {
        self.gather()?;
        into.append(&mut self.heard);
        Ok(())
    }

    /// Whether signals were read that `poll` no longer reports.
    pub fn has_heard(&self) -> bool {
        !self.heard.is_empty()
    }

    /// The name of a sender that is gone. It has ended before this call, so the line about its end has been written
    /// by now. If that line was lost, the name that the kernel has recorded is used.
    pub fn name_of(&mut self, sent: &Sent) -> Option<String> {
        self.gather().ok();
        let mut ended = self.ended.iter();
        let its = ended.find(|ended| ended.thread == sent.sender && ended.at >= sent.at);
        its.map(|ended| ended.comm.clone())
            .or_else(|| sent.sender_comm.clone())
    }

    /// The name that a thread had at this time, if it has had another since. Call it after the thread was looked at:
    /// every change of its name that the look could show has been written by then.
    pub fn earlier_name(&mut self, thread: i32, at: Moment) -> Option<String> {
        self.gather().ok();
        let renamed = self.renamed.iter();
        let first = renamed
            .filter(|renamed| renamed.thread == thread && renamed.at > at)
            .min_by_key(|renamed| renamed.at);
        first.map(|renamed| renamed.before.clone())
    }

    fn gather(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        let mut bytes = [0u8; 8192];
        loop {
            match pipe.read(&mut bytes) {
                Ok(0) => break,
                Ok(len) => self.pending.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut done = 0;
        while let Some(len) = self.pending[done..].iter().position(|&b| b == b'\n') {
            match parse(&self.pending[done..done + len]) {
                Some(Line::Record(heard)) => self.heard.push(heard),
                Some(Line::Ended(ended)) => remember(&mut self.ended, ended),
                Some(Line::Renamed(renamed)) => remember(&mut self.renamed, renamed),
                None => {}
            }
            done += len + 1;
        }
        self.pending.drain(..done);
        if self.pending.len() > LINE_BYTES {
            self.pending.clear();
        }
        Ok(())
    }

    /// The directory of the instance.
    pub fn instance(&self) -> &Path {
        &self.instance
    }
}

impl AsFd for Tracer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.pipe {
            Some(pipe) => pipe.as_fd(),
            // Only between making and setting up, where no caller can ask.
            None => role::standard(0),
        }
    }
}

impl Drop for Tracer {
    /// All of it is synchronous. If it fails, the remover and the next tracer try again.
    fn drop(&mut self) {
        self.pipe = None;
        fs::remove_dir(&self.instance).ok();
        self.lifeline = None;
        role::wait(self.remover).ok();
    }
}

/// The directory of the trace file system. If it is not mounted, it is mounted for us alone.
fn find() -> Result<PathBuf, NoTrace> {
    let has = |root: &Path| root.join("events/signal/signal_generate/enable").exists();
    for root in [MOUNT, OLD_MOUNT] {
        if has(Path::new(root)) {
            return Ok(root.into());
        }
    }
    if !Path::new(MOUNT).is_dir() {
        return Err(NoTrace::NotThere);
    }
    mount().map_err(NoTrace::NotMounted)?;
    if has(Path::new(MOUNT)) {
        return Ok(MOUNT.into());
    }
    Err(NoTrace::NotThere)
}

/// Mounts it in a mount namespace of our own: no other process sees it, and it goes with us.
fn mount() -> io::Result<()> {
    let checked = |done: libc::c_int| match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: plain integers, and pointers to constant NUL-terminated strings or null where the calls allow it.
    unsafe {
        checked(libc::unshare(libc::CLONE_NEWNS))?;
        let none = c"none".as_ptr();
        let null = std::ptr::null();
        let private = libc::MS_REC | libc::MS_PRIVATE;
        checked(libc::mount(none, c"/".as_ptr(), null, private, null.cast()))?;
        let (at, kind) = (c"/sys/kernel/tracing".as_ptr(), c"tracefs".as_ptr());
        checked(libc::mount(none, at, kind, 0, null.cast()))
    }
}

/// Starts a child that removes the instance when we are gone.
fn start_remover(instance: &Path) -> io::Result<(OwnedFd, i32)> {
    let (closed, lifeline) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = role::start(|| {
        role::own_session();
        title::set(c"mainstay-trace");
        role::release_stdio();
        role::close_all_but(&mut [closed.as_raw_fd()]);
        wait_closed(&closed);
        remove(instance);
        0
    })?;
    Ok((lifeline, child))
}

fn wait_closed(heard: &OwnedFd) {
    loop {
        let mut fds = [PollFd::new(heard, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Removes an instance; tries again while a dying process holds a file in it.
fn remove(instance: &Path) {
    for _ in 0..REMOVE_TRIES {
        match fs::remove_dir(instance) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                clock::nap(REMOVE_WAIT_MS);
            }
            Ok(()) | Err(_) => return,
        }
    }
}

fn name(pidns: u64, owner: Identity) -> String {
    format!("{PREFIX}{pidns}-{}-{}", owner.pid, owner.start)
}

fn owner(name: &str, pidns: u64) -> Option<Identity> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let (ns, pid, start) = (parts.next()?, parts.next()?, parts.next()?);
    let rest = parts.next();
    (rest.is_none() && ns.parse() == Ok(pidns)).then_some(Identity {
        pid: pid.parse().ok()?,
        start: start.parse().ok()?,
    })
}

/// Removes the instances of dead owners.
fn sweep(instances: &Path, pidns: u64) {
    let Ok(entries) = fs::read_dir(instances) else {
        return;
    };
    for entry in entries.flatten() {
        let named = entry.file_name();
        let owner = named.to_str().and_then(|name| owner(name, pidns));
        if owner.is_some_and(|owner| !identity::alive(owner)) {
            fs::remove_dir(entry.path()).ok();
        }
    }
}

fn remember<T>(last: &mut VecDeque<T>, one: T) {
    if last.len() == ENDED {
        last.pop_front();
    }
    last.push_back(one);
}

/// One line of the trace. A short name may contain any byte, so the numbers are taken from both ends. A line without
/// all of them is not the kernel's.
fn parse(line: &[u8]) -> Option<Line> {
    let line = String::from_utf8_lossy(line);
    if let Some((_, rest)) = line.split_once("[LOST ") {
        let count = rest.split(' ').next()?.parse().ok()?;
        return Some(Line::Record(TraceRecord::Lost(count)));
    }
    if let Some((head, rest)) = line.split_once(": signal_generate: ") {
        return sent(head, rest).map(|sent| Line::Record(TraceRecord::Sent(sent)));
    }
    if let Some((head, rest)) = line.split_once(": task_rename: ") {
        return renamed(head, rest).map(Line::Renamed);
    }
    let (head, rest) = line.split_once(": sched_process_exit: comm=")?;
    ended(head, rest).map(Line::Ended)
}

fn sent(head: &str, rest: &str) -> Option<Sent> {
    let (numbers, rest) = rest.split_once(" comm=")?;
    let mut numbers = numbers.split(' ');
    let mut next = |name: &str| -> Option<i32> {
        numbers
            .next()?
            .strip_prefix(name)?
            .strip_prefix('=')?
            .parse()
            .ok()
    };
    let (number, _errno, code) = (next("sig")?, next("errno")?, next("code")?);
    let (rest, result) = rest.rsplit_once(" res=")?;
    let (rest, _group) = rest.rsplit_once(" grp=")?;
    let (victim_comm, victim) = rest.rsplit_once(" pid=")?;
    let (head, at) = head.rsplit_once(' ')?;
    let (who, _cpu_and_flags) = head.rsplit_once(" [")?;
    let (comm, sender) = who.trim().rsplit_once('-')?;
    Some(Sent {
        at: moment(at)?,
        sender: sender.parse().ok()?,
        sender_comm: (comm != UNNAMED && !comm.is_empty()).then(|| comm.to_owned()),
        number,
        code,
        victim: victim.parse().ok()?,
        victim_comm: victim_comm.to_owned(),
        result: result.trim().parse().ok()?,
    })
}

fn ended(head: &str, rest: &str) -> Option<Ended> {
    let (rest, _priority) = rest.rsplit_once(" prio=")?;
    let (comm, thread) = rest.rsplit_once(" pid=")?;
    let (_, at) = head.rsplit_once(' ')?;
    Some(Ended {
        at: moment(at)?,
        thread: thread.parse().ok()?,
        comm: comm.to_owned(),
    })
}

/// Some kernels do not write the pid, because a thread names itself; then the thread that wrote the line is meant.
fn renamed(head: &str, rest: &str) -> Option<Renamed> {
    let (pid, rest) = rest.split_once("oldcomm=")?;
    let (rest, _score) = rest.rsplit_once(" oom_score_adj=")?;
    let (before, _after) = rest.rsplit_once(" newcomm=")?;
    let (head, at) = head.rsplit_once(' ')?;
    let (who, _cpu_and_flags) = head.rsplit_once(" [")?;
    let (_, writer) = who.trim().rsplit_once('-')?;
    let thread = pid.trim().strip_prefix("pid=").unwrap_or(writer);
    Some(Renamed {
        at: moment(at)?,
        thread: thread.parse().ok()?,
        before: before.to_owned(),
    })
}

/// `23675.684681`: seconds with six decimal places.
fn moment(text: &str) -> Option<Moment> {
    let (seconds, rest) = text.split_once('.')?;
    let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, rest.parse().ok()?);
    (rest.len() == 6).then_some(Moment(seconds * 1_000_000_000 + micros * 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_parsed_and_torn_lines_rejected() {
        let line = b"         a-b [x]-10876   [000] d..1. 23675.684681: signal_generate: sig=15 errno=0 code=-6 comm=c pid=1 grp=0 pid=10880 grp=1 res=0";
        let sent = Sent {
            at: Moment(23_675_684_681_000),
            sender: 10_876,
            sender_comm: Some("a-b [x]".into()),
            number: 15,
            code: -6,
            victim: 10_880,
            victim_comm: "c pid=1 grp=0".into(),
            result: 0,
        };
        assert_eq!(parse(line), Some(Line::Record(TraceRecord::Sent(sent))));
        let lost = b"CPU:1 [LOST 12 EVENTS]";
        assert_eq!(parse(lost), Some(Line::Record(TraceRecord::Lost(12))));
        for len in 0..line.len() - 1 {
            assert_eq!(parse(&line[..len]), None, "{len}");
        }
        for junk in [
            &b""[..],
            b"\xff\xfe",
            b": signal_generate: sig=x comm= pid= res=",
            b": sched_process_exit: comm= pid= prio=",
        ] {
            assert_eq!(parse(junk), None);
        }
        // A name that the kernel has forgotten.
        let line = b" <...>-7  [000] d..1. 1.000002: signal_generate: sig=9 errno=0 code=0 comm=x pid=8 grp=1 res=0";
        let Some(Line::Record(TraceRecord::Sent(sent))) = parse(line) else {
            panic!("a line")
        };
        assert_eq!((sent.sender, sent.sender_comm), (7, None));
    }

    #[test]
    fn lines_about_new_names_are_parsed() {
        let renamed = Renamed {
            at: Moment(2_000),
            thread: 7,
            before: "a pid=1 [x]".into(),
        };
        for pid in ["pid=7 ", ""] {
            let line = format!(
                "  sle ep-7  [000] ..... 0.000002: task_rename: {pid}oldcomm=a pid=1 [x] newcomm=sle ep oom_score_adj=-5"
            );
            assert_eq!(parse(line.as_bytes()), Some(Line::Renamed(renamed.clone())));
        }
    }

    #[test]
    fn exit_lines_are_parsed() {
        let ended = Ended {
            at: Moment(2_000),
            thread: 7,
            comm: "a pid=1 prio=".into(),
        };
        for end in ["", " group_dead=true"] {
            let line = format!(
                " <...>-7  [000] ..... 0.000002: sched_process_exit: comm=a pid=1 prio= pid=7 prio=120{end}"
            );
            assert_eq!(parse(line.as_bytes()), Some(Line::Ended(ended.clone())));
        }
    }

    #[test]
    fn an_instance_names_its_owner() {
        let me = identity::me().unwrap();
        let name = name(7, me);
        assert_eq!(owner(&name, 7), Some(me));
        assert_eq!(owner(&name, 8), None, "another namespace");
        for name in ["bh", "mainstay-signals-7-1", "mainstay-signals-7-1-2-3"] {
            assert_eq!(owner(name, 7), None, "{name}");
        }
    }
}
