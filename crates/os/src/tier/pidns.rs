//! The pidns tier: a PID namespace whose init is ours, so that the kernel itself ends the tree with us. Opt-in.
//!
//! What it costs the server: its pids are not the machine's, and without root it lives in a user namespace, where
//! sudo and other setuid programs do not work. Init dies with the thread that spawned it, and everybody with init.
//!
//! Init is a copy of the caller that never executes anything: it mounts a `/proc` of its own, leaves whoever ends to the
//! kernel, and exits when nobody is left. The server is a child of its child: that one waits for it and passes on how it
//! ended, because the kernel tells an init that leaves it its orphans of nobody. It holds one descriptor, the pipe for that.
//! The server runs while we find out who it is: until we know, its parent does not wait for it, so that nobody else can have
//! its number.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use mainstay_core::event::{Status, Usage};
use mainstay_core::ids::Identity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::census::{self, Stat};
use crate::spawn::child::Image;
use crate::spawn::clone::{self, Born, Side, Work};
use crate::spawn::witness::{self, Witness};
use crate::tier::cgroup::timespec;
use crate::tree::{has_ended, status_of, usage_of};
use crate::{identity, orphans};

const CLONE_NEWNS: u64 = 0x0002_0000;
const CLONE_NEWUSER: u64 = 0x1000_0000;
const CLONE_NEWPID: u64 = 0x2000_0000;

/// The namespace of one tree, as its keeper sees it.
#[derive(Debug)]
pub struct Init {
    /// The first process of the namespace.
    pub who: Identity,
    /// Its child, the server's parent.
    pub parent: Identity,
    /// The server, as it was before anybody could have waited for it.
    pub server: Identity,
    /// Its pidfd: one signal through it ends everybody.
    pub pidfd: OwnedFd,
    /// Whether the server's end was told.
    told: bool,
    words: OwnedFd,
}

impl Init {
    /// How the server, whose pidfd this is, has ended: once, if it has.
    pub fn end_of(&mut self, server: &OwnedFd, who: Identity) -> Option<(Status, Usage)> {
        if self.told || !has_ended(server, 0) {
            return None;
        }
        self.hear_out(server);
        let end = match hear(&self.words) {
            Some((Word::Ended(status), usage)) => (status_of(status), usage_of(&usage)),
            // It has not had its turn yet: its word will come.
            None if identity::alive(self.parent) && !witness::stopped(self.parent.pid) => {
                return None;
            }
            Some((Word::Begins | Word::Ready | Word::Failed(..), _)) | None => {
                witness::unseen(server, who)
            }
        };
        self.told = true;
        Some(end)
    }

    /// Gives its parent a moment to say how a server ended that has ended already.
    pub fn hear_out(&self, server: &OwnedFd) {
        if !self.told && has_ended(server, 0) {
            let mut fds = [PollFd::new(&self.words, PollFlags::IN)];
            // Whatever comes of it, the end goes on.
            poll(&mut fds, Some(&timespec(witness::HEAR_OUT_NS))).ok();
        }
    }
}

/// Why there is no server in a namespace of its own.
#[derive(Debug)]
pub enum Failed {
    /// The namespace is not to be had here; nothing was executed.
    Place(String),
    /// The server may have run for a moment: it is not to be started elsewhere.
    Lost(io::Error),
}

impl From<String> for Failed {
    fn from(reason: String) -> Self {
        Self::Place(reason)
    }
}

/// Starts the server in a namespace of its own, or says why not.
pub fn start(image: &Image, report: &OwnedFd) -> Result<((Born, Witness), Init), Failed> {
    let (words, speak) = pipe_with(PipeFlags::CLOEXEC).map_err(no)?;
    let (wait, gate) = pipe_with(PipeFlags::CLOEXEC).map_err(no)?;
    let ids = Ids::ours();
    let (started, userns) = match clone_init(image, report, &speak, (&wait, &gate), None) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => (
            clone_init(image, report, &speak, (&wait, &gate), Some(&ids)),
            true,
        ),
        other => (other, false),
    };
    let (init, witness) = started.map_err(|error| refusal(&error, userns))?;
    drop((speak, wait));
    match found(init, words, &gate) {
        Ok((born, init)) => Ok(((born, witness), init)),
        Err(failed) => {
            witness.see_off();
            Err(failed)
        }
    }
}

/// Lets init go on, and learns who the server is.
fn found(init: Born, words: OwnedFd, gate: &OwnedFd) -> Result<(Born, Init), Failed> {
    rustix::io::write(gate, b"!").ok();
    let begun = match hear(&words) {
        Some((Word::Begins, _)) => Ok(()),
        Some((Word::Failed(step, errno), _)) => Err(Failed::Place(step.words(errno))),
        Some((Word::Ready | Word::Ended(_), _)) | None => {
            Err(Failed::Place("its init died".into()))
        }
    };
    let ready = begun.and_then(|()| match hear(&words) {
        Some((Word::Ready, _)) => Ok(()),
        Some((Word::Failed(step, errno), _)) => Err(Failed::Place(step.words(errno))),
        Some((Word::Begins | Word::Ended(_), _)) | None => Err(Failed::Lost(killed())),
    });
    match ready.and_then(|()| known(&init, &words).map_err(Failed::Lost)) {
        Ok((born, parent, server, who)) => {
            // The second byte is for the server's parent, who may wait for it now.
            rustix::io::write(gate, b"!").ok();
            let init = Init {
                who,
                parent,
                server,
                pidfd: init.pidfd,
                told: false,
                words,
            };
            Ok((born, init))
        }
        Err(failed) => {
            rustix::process::pidfd_send_signal(&init.pidfd, rustix::process::Signal::KILL).ok();
            Err(failed)
        }
    }
}

/// The server, its parent, itself once more, and init, none of whom anybody has waited for yet.
fn known(init: &Born, words: &OwnedFd) -> io::Result<(Born, Identity, Identity, Identity)> {
    let parent = child_of(init.pid)?;
    let pid = child_of(parent.pid)?.pid;
    let known = Pid::from_raw(pid).ok_or_else(killed)?;
    let pidfd = pidfd_open(known, PidfdFlags::empty())?;
    let server = census::stat(pid)?;
    // Whoever was somebody else's has come to init because that one was killed, and is dying of it.
    let ours = parent.comm.as_bytes() == witness::NAME.to_bytes() && server.ppid == parent.pid;
    if !ours {
        return Err(killed());
    }
    wake_by_signal(words)?;
    let who = identity::of(init.pid)?;
    Ok((Born { pid, pidfd }, parent.who(), server.who(), who))
}

/// The first child of one of ours, before which there was none.
fn child_of(pid: i32) -> io::Result<Stat> {
    let children = census::children(pid)?;
    census::stat(*children.first().ok_or_else(killed)?)
}

fn killed() -> io::Error {
    io::Error::from_raw_os_error(witness::KILLED)
}

/// From now on a word of init's makes a SIGCHLD, as a child's end would: one reason to call [`crate::tree::Tree::reap`].
fn wake_by_signal(words: &OwnedFd) -> io::Result<()> {
    let fd = words.as_raw_fd();
    let me = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: changes the state of a descriptor that is ours.
    let done = unsafe {
        libc::fcntl(fd, libc::F_SETOWN, me) != -1
            && libc::fcntl(fd, F_SETSIG, libc::SIGCHLD) != -1
            && libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) != -1
    };
    if done {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

const F_SETSIG: i32 = 10;

fn no(errno: rustix::io::Errno) -> String {
    format!("no descriptor ({errno})")
}

fn refusal(error: &io::Error, userns: bool) -> String {
    match (error.raw_os_error(), userns) {
        (Some(libc::EPERM | libc::EACCES), true) => {
            "unprivileged user namespaces are not allowed here".into()
        }
        (Some(libc::ENOSPC | libc::EUSERS), _) => {
            "no more namespaces are allowed (see /proc/sys/user)".into()
        }
        (Some(libc::ENOSYS), _) => "the container does not allow namespaces (no clone3)".into(),
        (Some(_) | None, _) => format!("no new namespace ({error})"),
    }
}

/// What init writes before it forks the server, in a user namespace: it is the same user inside.
struct Ids {
    uid_map: Vec<u8>,
    gid_map: Vec<u8>,
}

impl Ids {
    fn ours() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        Self {
            uid_map: format!("{uid} {uid} 1").into_bytes(),
            gid_map: format!("{gid} {gid} 1").into_bytes(),
        }
    }
}

/// What init could not do.
#[derive(Clone, Copy)]
enum Step {
    Ids,
    Mounts,
    Proc,
    Fork,
}

impl Step {
    fn words(self, errno: i32) -> String {
        let reason = io::Error::from_raw_os_error(errno);
        match self {
            Self::Ids => format!("unprivileged user namespaces have no rights here ({reason})"),
            Self::Mounts => format!("mounts cannot be made private ({reason})"),
            Self::Proc => format!("no /proc of its own can be mounted ({reason})"),
            Self::Fork => format!("no process in the namespace ({reason})"),
        }
    }
}

/// What init says: three numbers and what the server used.
enum Word {
    /// All is there for the server, which is next.
    Begins,
    /// The server has executed, or could not.
    Ready,
    Failed(Step, i32),
    Ended(i32),
}

#[repr(C)]
struct Letter {
    kind: i32,
    step: i32,
    number: i32,
    pad: i32,
    usage: libc::rusage,
}

fn hear(words: &OwnedFd) -> Option<(Word, libc::rusage)> {
    // SAFETY: zeroed numbers are numbers.
    let mut letter: Letter = unsafe { std::mem::zeroed() };
    let len = size_of::<Letter>();
    let got = loop {
        // SAFETY: the place is valid for a letter. It is shorter than PIPE_BUF, so it comes whole or not at all.
        let got = unsafe { libc::read(words.as_raw_fd(), (&raw mut letter).cast(), len) };
        if got != -1 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break got;
        }
    };
    if got != len as isize {
        return None;
    }
    let word = match (letter.kind, letter.step) {
        (0, 0) => Word::Begins,
        (0, _) => Word::Ready,
        (1, 0) => Word::Failed(Step::Ids, letter.number),
        (1, 1) => Word::Failed(Step::Mounts, letter.number),
        (1, 2) => Word::Failed(Step::Proc, letter.number),
        (1, _) => Word::Failed(Step::Fork, letter.number),
        (_, _) => Word::Ended(letter.number),
    };
    Some((word, letter.usage))
}

fn clone_init(
    image: &Image,
    report: &OwnedFd,
    speak: &OwnedFd,
    gate: (&OwnedFd, &OwnedFd),
    ids: Option<&Ids>,
) -> io::Result<(Born, Witness)> {
    let mut flags = CLONE_NEWPID | CLONE_NEWNS;
    if ids.is_some() {
        flags |= CLONE_NEWUSER;
    }
    let gate = (gate.0.as_raw_fd(), gate.1.as_raw_fd());
    Witness::start(|| match clone::clone(flags, None)? {
        Side::Parent(born) => Ok(born),
        Side::Child => be_init(image, report.as_raw_fd(), speak.as_raw_fd(), gate, ids),
    })
}

/// Init's whole life. Only system calls, on memory that was prepared before the clone.
fn be_init(
    image: &Image,
    report: RawFd,
    speak: RawFd,
    gate: (RawFd, RawFd),
    ids: Option<&Ids>,
) -> ! {
    // SAFETY: system calls on valid memory; this process is a copy that nobody else knows of.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // Our parent is outside, so getppid() cannot tell whether it lives: the gate can.
        libc::close(gate.1);
        let mut go = 0u8;
        if libc::read(gate.0, (&raw mut go).cast(), 1) != 1 {
            libc::_exit(1);
        }
        libc::setsid();
        if let Some(ids) = ids
            && !(put(c"/proc/self/setgroups", b"deny")
                && put(c"/proc/self/uid_map", &ids.uid_map)
                && put(c"/proc/self/gid_map", &ids.gid_map))
        {
            fail(speak, Step::Ids);
        }
        let null = std::ptr::null();
        let slave = libc::MS_REC | libc::MS_SLAVE;
        if libc::mount(null, c"/".as_ptr(), null, slave, null.cast()) == -1 {
            fail(speak, Step::Mounts);
        }
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let proc = c"proc".as_ptr();
        if libc::mount(proc, c"/proc".as_ptr(), proc, flags, null.cast()) == -1 {
            fail(speak, Step::Proc);
        }
        orphans::leave_to_the_kernel();
        match fork() {
            0 => {
                // A witness, as whoever waits for us is, and called like that.
                orphans::as_usual();
                say(speak, &std::mem::zeroed());
                match start_server(image, report) {
                    -1 => fail(speak, Step::Fork),
                    server => watch(server, speak, gate.0),
                }
            }
            -1 => fail(speak, Step::Fork),
            _ => {
                libc::prctl(libc::PR_SET_NAME, c"mcp-init".as_ptr());
                rest()
            }
        }
    }
}

/// The server, on our memory until it has executed, or on a copy where that is refused; or -1.
unsafe fn start_server(image: &Image, report: RawFd) -> i32 {
    let work = Work {
        image,
        report,
        gate: None,
        // SAFETY: a system call without arguments.
        parent: unsafe { libc::getpid() },
    };
    // SAFETY: one thread, and the child does nothing but its work.
    work.lend([0; 11], 64)
        .unwrap_or_else(|_| match unsafe { fork() } {
            0 => work.perform(),
            forked => forked,
        })
}

/// Not libc's fork: it would run handlers of the caller's. `clone` with nothing but the signal for the parent is fork on
/// every architecture.
unsafe fn fork() -> i32 {
    // SAFETY: one thread; the child goes on with a copy of it.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
}

/// Init, from now on: until nobody is left.
unsafe fn rest() -> ! {
    // SAFETY: system calls on valid memory. Whatever was open is closed: pipes must have one holder.
    unsafe {
        close_from(0);
        libc::chdir(c"/".as_ptr());
        // The kernel reaps, so this comes back only when there is nobody to wait for, or for a signal.
        while libc::wait4(-1, std::ptr::null_mut(), libc::__WALL, std::ptr::null_mut()) != -1
            || *libc::__errno_location() == libc::EINTR
        {}
        libc::_exit(0)
    }
}

/// The server's parent, from now on: until the server's end. It waits for it once the keeper, at the gate, knows who it is.
unsafe fn watch(server: i32, speak: RawFd, gate: RawFd) -> ! {
    // SAFETY: as above. Neither is 0 or 1, which every process of ours has.
    unsafe {
        libc::dup2(speak, 0);
        libc::dup2(gate, 1);
        close_from(2);
        libc::chdir(c"/".as_ptr());
        let mut letter: Letter = std::mem::zeroed();
        letter.step = 1;
        say(0, &letter);
        let mut go = 0u8;
        if libc::read(1, (&raw mut go).cast(), 1) != 1 {
            libc::_exit(1);
        }
        libc::close(1);
        let (status, usage) = (&raw mut letter.number, &raw mut letter.usage);
        while libc::wait4(server, status, libc::__WALL, usage) != server {}
        letter.kind = 2;
        say(0, &letter);
        libc::_exit(0)
    }
}

unsafe fn close_from(first: RawFd) {
    // SAFETY: nothing in this process owns a descriptor any more.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, RawFd::MAX, 0u32) == -1 {
            for fd in first..1024 {
                libc::close(fd);
            }
        }
    }
}

unsafe fn fail(speak: RawFd, step: Step) -> ! {
    // SAFETY: system calls on valid memory.
    unsafe {
        let mut letter: Letter = std::mem::zeroed();
        letter.kind = 1;
        letter.step = step as i32;
        letter.number = *libc::__errno_location();
        say(speak, &letter);
        libc::_exit(1)
    }
}

unsafe fn say(speak: RawFd, letter: &Letter) {
    // SAFETY: the letter is plain numbers without gaps.
    unsafe { libc::write(speak, (&raw const *letter).cast(), size_of::<Letter>()) };
}

unsafe fn put(path: &CStr, text: &[u8]) -> bool {
    // SAFETY: system calls on valid memory.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        let done =
            fd != -1 && libc::write(fd, text.as_ptr().cast(), text.len()) == text.len() as isize;
        let errno = *libc::__errno_location();
        if fd != -1 {
            libc::close(fd);
        }
        *libc::__errno_location() = errno;
        done
    }
}
