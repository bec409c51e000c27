//! The pidns tier: a PID namespace whose init is ours, so that the kernel itself ends the tree with us. Opt-in.
//!
//! What it costs the server: its pids are not the machine's, and without root it lives in a user namespace, where
//! sudo and other setuid programs do not work. Init dies with the thread that spawned it, and everybody with init.
//!
//! Init is a copy of the caller that never executes anything: it mounts a `/proc` of its own, forks the server,
//! reaps whoever ends, and passes on how the server ended, because an init cannot die by a signal of its own. It
//! holds one descriptor, the pipe for that, and exits when nobody is left.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use mainstay_core::event::{Status, Usage};
use mainstay_core::ids::Identity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::spawn::child::{self, Image};
use crate::spawn::clone::{self, Born, Closed, Side};
use crate::tier::cgroup::timespec;
use crate::tree::{status_of, usage_of};
use crate::{census, identity};

const CLONE_NEWNS: u64 = 0x0002_0000;
const CLONE_NEWUSER: u64 = 0x1000_0000;
const CLONE_NEWPID: u64 = 0x2000_0000;

/// How long init may take to tell of an end that has happened.
const HEAR_OUT_NS: u64 = 100_000_000;

/// The namespace of one tree, as its keeper sees it.
#[derive(Debug)]
pub struct Init {
    /// Our child, the first process of the namespace.
    pub who: Identity,
    /// Its pidfd: one signal through it ends everybody.
    pub pidfd: OwnedFd,
    /// The server, in our own pid namespace.
    pub server: Identity,
    /// Whether the server's end was told.
    told: bool,
    words: OwnedFd,
}

impl Init {
    /// How the server ended, once, if init has said so by now.
    pub fn server_end(&mut self) -> Option<(Status, Usage)> {
        if self.told {
            return None;
        }
        let (word, usage) = hear(&self.words)?;
        let Word::Ended(status) = word else {
            return None;
        };
        self.told = true;
        Some((status_of(status), usage_of(&usage)))
    }

    /// Gives init a moment to say how a server ended that has ended already.
    pub fn hear_out(&self) {
        if !self.told && !identity::alive(self.server) {
            let mut fds = [PollFd::new(&self.words, PollFlags::IN)];
            // Whatever comes of it, the end goes on.
            poll(&mut fds, Some(&timespec(HEAR_OUT_NS))).ok();
        }
    }

    /// How the server ended if init is gone: what it said last, or with init by SIGKILL.
    pub fn last_word(&mut self, usage: Usage) -> Option<(Status, Usage)> {
        let end = self.server_end();
        if end.is_some() || self.told {
            return end;
        }
        self.told = true;
        let number = libc::SIGKILL;
        Some((
            Status::Signal {
                number,
                core: false,
            },
            usage,
        ))
    }
}

/// Starts the server in a namespace of its own, or says why that is not to be had here.
pub fn start(image: &Image, report: &OwnedFd) -> Result<(Born, Init), String> {
    let (words, speak) = pipe_with(PipeFlags::CLOEXEC).map_err(no)?;
    let (wait, gate) = pipe_with(PipeFlags::CLOEXEC).map_err(no)?;
    let ids = Ids::ours();
    let (born, userns) = match clone_init(image, report, &speak, (&wait, &gate), None) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => (
            clone_init(image, report, &speak, (&wait, &gate), Some(&ids)),
            true,
        ),
        other => (other, false),
    };
    let born = born.map_err(|error| refusal(&error, userns))?;
    drop((speak, wait));
    let founded = found(born, words, &gate);
    if founded.is_ok() {
        // The second byte is the server's: it runs from here on.
        rustix::io::write(&gate, b"!").ok();
    }
    founded
}

/// Lets init go on, and learns who the server is, which waits meanwhile.
fn found(init: Born, words: OwnedFd, gate: &OwnedFd) -> Result<(Born, Init), String> {
    rustix::io::write(gate, b"!").ok();
    let server = match hear(&words) {
        Some((Word::Ready, _)) => census::children(init.pid).map_err(|e| e.to_string()),
        Some((Word::Failed(step, errno), _)) => Err(step.words(errno)),
        Some((Word::Ended(_), _)) | None => Err("its init died".into()),
    };
    let known = server.and_then(|children| {
        let pid = children.first().copied().ok_or("its init has no child")?;
        let known = Pid::from_raw(pid).ok_or("no pid")?;
        let pidfd = pidfd_open(known, PidfdFlags::empty()).map_err(no)?;
        let server = identity::of(pid).map_err(|e| e.to_string())?;
        let who = identity::of(init.pid).map_err(|e| e.to_string())?;
        wake_by_signal(&words).map_err(|e| e.to_string())?;
        Ok((server, who, pidfd))
    });
    match known {
        Ok((server, who, pidfd)) => Ok((
            Born {
                pid: server.pid,
                pidfd,
            },
            Init {
                who,
                pidfd: init.pidfd,
                server,
                told: false,
                words,
            },
        )),
        Err(reason) => {
            rustix::process::pidfd_send_signal(&init.pidfd, rustix::process::Signal::KILL).ok();
            crate::spawn::reap_now(init.pid);
            Err(reason)
        }
    }
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
) -> io::Result<Born> {
    let mut flags = CLONE_NEWPID | CLONE_NEWNS;
    if ids.is_some() {
        flags |= CLONE_NEWUSER;
    }
    let gate = (gate.0.as_raw_fd(), gate.1.as_raw_fd());
    let closed = Closed::now();
    let side = clone::clone(flags, None);
    if let Ok(Side::Child) = side {
        be_init(image, report.as_raw_fd(), speak.as_raw_fd(), gate, ids);
    }
    drop(closed);
    match side? {
        Side::Parent(born) => Ok(born),
        Side::Child => Err(io::ErrorKind::Other.into()),
    }
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
        // Not libc's fork: it would run handlers of the caller's.
        match libc::syscall(SYS_FORK.0, SYS_FORK.1, 0, 0, 0, 0) {
            0 => {
                libc::close(speak);
                child::become_server(image, report, Some((gate.0, -1)), 1);
            }
            -1 => fail(speak, Step::Fork),
            server => watch(server as i32, speak),
        }
    }
}

/// `clone` with nothing but the signal for the parent is fork on every architecture.
const SYS_FORK: (libc::c_long, libc::c_long) = (libc::SYS_clone, libc::SIGCHLD as libc::c_long);

/// Reaps until nobody is left.
unsafe fn watch(server: i32, speak: RawFd) -> ! {
    // SAFETY: system calls on valid memory. Whatever was open is closed: the server's pipes must have one holder.
    unsafe {
        libc::dup2(speak, 0);
        if libc::syscall(libc::SYS_close_range, 1u32, u32::MAX, 0u32) == -1 {
            for fd in 1..1024 {
                libc::close(fd);
            }
        }
        libc::chdir(c"/".as_ptr());
        let mut letter: Letter = std::mem::zeroed();
        say(0, &letter);
        loop {
            let pid = libc::wait4(
                -1,
                &raw mut letter.number,
                libc::__WALL,
                &raw mut letter.usage,
            );
            if pid == server {
                letter.kind = 2;
                say(0, &letter);
            } else if pid == -1 && *libc::__errno_location() != libc::EINTR {
                libc::_exit(0);
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
