//! The pidns tier: a PID namespace whose init is ours, so that the kernel itself ends the tree with us. Opt-in.
//!
//! What it costs the server: its pids differ from the machine's, and without root it lives in a user namespace, where
//! sudo and other setuid programs do not work. Init dies with the thread that spawned it, and all processes of the
//! namespace die with init.
//!
//! Init is a copy of the caller that never executes anything. It mounts a `/proc` of its own, lets the kernel reap
//! its children, and exits when none is left. The server is a child of init's child. That child waits for the server
//! and passes on how it ended, because an init whose children the kernel reaps gets no exit status. It holds one
//! descriptor, the pipe for that. The server runs while we find out its identity. Until we know it, its parent does
//! not wait for it, so that no other process can get its pid.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use mainstay_protocol::event::{Status, Usage};
use mainstay_protocol::ids::Identity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::census::{self, Stat};
use crate::spawn::child::Image;
use crate::spawn::clone::{self, NewChild, Side, Work};
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
    /// The server, as it was before it could have been reaped.
    pub server: Identity,
    /// Init's pidfd: one SIGKILL through it ends all processes of the namespace.
    pub pidfd: OwnedFd,
    /// Whether the server's end was returned.
    reported: bool,
    messages: OwnedFd,
}

impl Init {
    /// How the server with this pidfd has ended. Returned once, if it has.
    pub fn end_of(&mut self, server: &OwnedFd, who: Identity) -> Option<(Status, Usage)> {
        if self.reported || !has_ended(server, 0) {
            return None;
        }
        self.wait_for_report(server);
        let end = match receive(&self.messages) {
            Some((Message::Ended(status), usage)) => (status_of(status), usage_of(&usage)),
            // The server's parent has not run yet: its message will come.
            None if identity::alive(self.parent) && !witness::stopped(self.parent.pid) => {
                return None;
            }
            Some((Message::Begins | Message::Ready | Message::Failed(..), _)) | None => {
                witness::status_without_witness(server, who)
            }
        };
        self.reported = true;
        Some(end)
    }

    /// Gives the server's parent a moment to report how a server ended that has ended already.
    pub fn wait_for_report(&self, server: &OwnedFd) {
        if !self.reported && has_ended(server, 0) {
            let mut fds = [PollFd::new(&self.messages, PollFlags::IN)];
            // Even if nothing comes, the end goes on.
            poll(&mut fds, Some(&timespec(witness::RECORD_WAIT_NS))).ok();
        }
    }
}

/// Why there is no server in a namespace of its own.
#[derive(Debug)]
pub enum Failed {
    /// The namespace cannot be made here; nothing was executed.
    Place(String),
    /// The server may have run for a moment, so it must not be started elsewhere.
    Lost(io::Error),
}

impl From<String> for Failed {
    fn from(reason: String) -> Self {
        Self::Place(reason)
    }
}

/// Starts the server in a namespace of its own, or returns why not.
pub fn start(image: &Image, report: &OwnedFd) -> Result<((NewChild, Witness), Init), Failed> {
    let (messages, reporter) = pipe_with(PipeFlags::CLOEXEC).map_err(no_pipe)?;
    let (wait, gate) = pipe_with(PipeFlags::CLOEXEC).map_err(no_pipe)?;
    let ids = Ids::ours();
    let (started, userns) = match clone_init(image, report, &reporter, (&wait, &gate), None) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => (
            clone_init(image, report, &reporter, (&wait, &gate), Some(&ids)),
            true,
        ),
        other => (other, false),
    };
    let (init, witness) = started.map_err(|error| refusal(&error, userns))?;
    drop((reporter, wait));
    match admit(init, messages, &gate) {
        Ok((born, init)) => Ok(((born, witness), init)),
        Err(failed) => {
            witness.wait_exit();
            Err(failed)
        }
    }
}

/// Lets init go on, and finds the server's identity.
fn admit(init: NewChild, messages: OwnedFd, gate: &OwnedFd) -> Result<(NewChild, Init), Failed> {
    rustix::io::write(gate, b"!").ok();
    let begun = match receive(&messages) {
        Some((Message::Begins, _)) => Ok(()),
        Some((Message::Failed(step, errno), _)) => Err(Failed::Place(step.reason(errno))),
        Some((Message::Ready | Message::Ended(_), _)) | None => {
            Err(Failed::Place("its init died".into()))
        }
    };
    let ready = begun.and_then(|()| match receive(&messages) {
        Some((Message::Ready, _)) => Ok(()),
        Some((Message::Failed(step, errno), _)) => Err(Failed::Place(step.reason(errno))),
        Some((Message::Begins | Message::Ended(_), _)) | None => Err(Failed::Lost(killed())),
    });
    match ready.and_then(|()| identify(&init, &messages).map_err(Failed::Lost)) {
        Ok((born, parent, server, who)) => {
            // The second byte is for the server's parent, which may wait for it now.
            rustix::io::write(gate, b"!").ok();
            let init = Init {
                who,
                parent,
                server,
                pidfd: init.pidfd,
                reported: false,
                messages,
            };
            Ok((born, init))
        }
        Err(failed) => {
            rustix::process::pidfd_send_signal(&init.pidfd, rustix::process::Signal::KILL).ok();
            Err(failed)
        }
    }
}

/// The server, its parent's identity, its own identity, and init's. None of them can have been reaped yet.
fn identify(
    init: &NewChild,
    messages: &OwnedFd,
) -> io::Result<(NewChild, Identity, Identity, Identity)> {
    let parent = child_of(init.pid)?;
    let pid = child_of(parent.pid)?.pid;
    let known = Pid::from_raw(pid).ok_or_else(killed)?;
    let pidfd = pidfd_open(known, PidfdFlags::empty())?;
    let server = census::stat(pid)?;
    // If the process found first is not the server's parent, it became init's child because its own parent was
    // killed, and dies with it.
    let ours = parent.comm.as_bytes() == witness::NAME.to_bytes() && server.ppid == parent.pid;
    if !ours {
        return Err(killed());
    }
    wake_by_signal(messages)?;
    let who = identity::of(init.pid)?;
    Ok((NewChild { pid, pidfd }, parent.who(), server.who(), who))
}

/// The first child of one of our processes; it had none before.
fn child_of(pid: i32) -> io::Result<Stat> {
    let children = census::children(pid)?;
    census::stat(*children.first().ok_or_else(killed)?)
}

fn killed() -> io::Error {
    io::Error::from_raw_os_error(witness::KILLED)
}

/// From now on a message makes the kernel send us SIGCHLD, as a child's end would: one reason to call
/// [`crate::tree::Tree::reap`].
fn wake_by_signal(messages: &OwnedFd) -> io::Result<()> {
    let fd = messages.as_raw_fd();
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

fn no_pipe(errno: rustix::io::Errno) -> String {
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

/// What init writes before it forks the server, in a user namespace: the user is the same inside.
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
    fn reason(self, errno: i32) -> String {
        let reason = io::Error::from_raw_os_error(errno);
        match self {
            Self::Ids => format!("unprivileged user namespaces have no rights here ({reason})"),
            Self::Mounts => format!("mounts cannot be made private ({reason})"),
            Self::Proc => format!("no /proc of its own can be mounted ({reason})"),
            Self::Fork => format!("no process in the namespace ({reason})"),
        }
    }
}

/// What init and the server's parent report.
enum Message {
    /// All is prepared; the server is started next.
    Begins,
    /// The server has executed, or could not.
    Ready,
    Failed(Step, i32),
    Ended(i32),
}

#[repr(C)]
struct Packet {
    kind: i32,
    step: i32,
    number: i32,
    pad: i32,
    usage: libc::rusage,
}

fn receive(messages: &OwnedFd) -> Option<(Message, libc::rusage)> {
    // SAFETY: zeroed integers are valid.
    let mut packet: Packet = unsafe { std::mem::zeroed() };
    let len = size_of::<Packet>();
    let got = loop {
        // SAFETY: the buffer is valid for a packet. A packet is shorter than PIPE_BUF, so it arrives whole or not at
        // all.
        let got = unsafe { libc::read(messages.as_raw_fd(), (&raw mut packet).cast(), len) };
        if got != -1 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break got;
        }
    };
    if got != len as isize {
        return None;
    }
    let word = match (packet.kind, packet.step) {
        (0, 0) => Message::Begins,
        (0, _) => Message::Ready,
        (1, 0) => Message::Failed(Step::Ids, packet.number),
        (1, 1) => Message::Failed(Step::Mounts, packet.number),
        (1, 2) => Message::Failed(Step::Proc, packet.number),
        (1, _) => Message::Failed(Step::Fork, packet.number),
        (_, _) => Message::Ended(packet.number),
    };
    Some((word, packet.usage))
}

fn clone_init(
    image: &Image,
    report: &OwnedFd,
    reporter: &OwnedFd,
    gate: (&OwnedFd, &OwnedFd),
    ids: Option<&Ids>,
) -> io::Result<(NewChild, Witness)> {
    let mut flags = CLONE_NEWPID | CLONE_NEWNS;
    if ids.is_some() {
        flags |= CLONE_NEWUSER;
    }
    let gate = (gate.0.as_raw_fd(), gate.1.as_raw_fd());
    Witness::start(|| match clone::clone(flags, None)? {
        Side::Parent(born) => Ok(born),
        Side::Child => be_init(image, report.as_raw_fd(), reporter.as_raw_fd(), gate, ids),
    })
}

/// Init's whole life. Only system calls, on memory that was prepared before the clone.
fn be_init(
    image: &Image,
    report: RawFd,
    reporter: RawFd,
    gate: (RawFd, RawFd),
    ids: Option<&Ids>,
) -> ! {
    // SAFETY: system calls on valid memory; this process is a copy of its own.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // Our parent is outside the namespace, so getppid() cannot tell whether it lives: the gate can.
        libc::close(gate.1);
        let mut go = 0u8;
        if libc::read(gate.0, (&raw mut go).cast(), 1) != 1 {
            libc::_exit(1);
        }
        libc::setsid();
        if let Some(ids) = ids
            && !(write_file(c"/proc/self/setgroups", b"deny")
                && write_file(c"/proc/self/uid_map", &ids.uid_map)
                && write_file(c"/proc/self/gid_map", &ids.gid_map))
        {
            fail(reporter, Step::Ids);
        }
        let null = std::ptr::null();
        let slave = libc::MS_REC | libc::MS_SLAVE;
        if libc::mount(null, c"/".as_ptr(), null, slave, null.cast()) == -1 {
            fail(reporter, Step::Mounts);
        }
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let proc = c"proc".as_ptr();
        if libc::mount(proc, c"/proc".as_ptr(), proc, flags, null.cast()) == -1 {
            fail(reporter, Step::Proc);
        }
        orphans::leave_to_the_kernel();
        match fork() {
            0 => {
                // A witness like the process that waits for us, with the same name.
                orphans::as_usual();
                send(reporter, &std::mem::zeroed());
                match start_server(image, report) {
                    -1 => fail(reporter, Step::Fork),
                    server => wait_for_server(server, reporter, gate.0),
                }
            }
            -1 => fail(reporter, Step::Fork),
            _ => {
                libc::prctl(libc::PR_SET_NAME, c"mcp-init".as_ptr());
                init_loop()
            }
        }
    }
}

/// The server, in our memory until it has executed, or in a copy if that is refused; or -1.
unsafe fn start_server(image: &Image, report: RawFd) -> i32 {
    let work = Work {
        image,
        report,
        gate: None,
        // SAFETY: a system call without arguments.
        parent: unsafe { libc::getpid() },
    };
    // SAFETY: one thread, and the child does nothing but its work.
    work.vfork([0; 11], 64)
        .unwrap_or_else(|_| match unsafe { fork() } {
            0 => work.perform(),
            forked => forked,
        })
}

/// Not libc's fork, which would run the caller's fork handlers. `clone` with nothing but the exit signal is fork on
/// every architecture.
unsafe fn fork() -> i32 {
    // SAFETY: one thread; the child goes on with a copy of it.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
}

/// Init from now on: waits until no process is left.
unsafe fn init_loop() -> ! {
    // SAFETY: system calls on valid memory. All descriptors are closed, because each pipe must have one holder.
    unsafe {
        close_from(0);
        libc::chdir(c"/".as_ptr());
        // The kernel reaps, so this returns only when there is no child left, or for a signal.
        while libc::wait4(-1, std::ptr::null_mut(), libc::__WALL, std::ptr::null_mut()) != -1
            || *libc::__errno_location() == libc::EINTR
        {}
        libc::_exit(0)
    }
}

/// The server's parent from now on, until the server's end. It waits for the server once the keeper, at the gate,
/// knows its identity.
unsafe fn wait_for_server(server: i32, reporter: RawFd, gate: RawFd) -> ! {
    // SAFETY: as above. Neither is 0 or 1, which every process of ours has.
    unsafe {
        libc::dup2(reporter, 0);
        libc::dup2(gate, 1);
        close_from(2);
        libc::chdir(c"/".as_ptr());
        let mut packet: Packet = std::mem::zeroed();
        packet.step = 1;
        send(0, &packet);
        let mut go = 0u8;
        if libc::read(1, (&raw mut go).cast(), 1) != 1 {
            libc::_exit(1);
        }
        libc::close(1);
        let (status, usage) = (&raw mut packet.number, &raw mut packet.usage);
        while libc::wait4(server, status, libc::__WALL, usage) != server {}
        packet.kind = 2;
        send(0, &packet);
        libc::_exit(0)
    }
}

unsafe fn close_from(first: RawFd) {
    // SAFETY: no value in this process owns a descriptor now.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, RawFd::MAX, 0u32) == -1 {
            for fd in first..1024 {
                libc::close(fd);
            }
        }
    }
}

unsafe fn fail(reporter: RawFd, step: Step) -> ! {
    // SAFETY: system calls on valid memory.
    unsafe {
        let mut packet: Packet = std::mem::zeroed();
        packet.kind = 1;
        packet.step = step as i32;
        packet.number = *libc::__errno_location();
        send(reporter, &packet);
        libc::_exit(1)
    }
}

unsafe fn send(reporter: RawFd, packet: &Packet) {
    // SAFETY: the packet is plain numbers without gaps.
    unsafe { libc::write(reporter, (&raw const *packet).cast(), size_of::<Packet>()) };
}

unsafe fn write_file(path: &CStr, text: &[u8]) -> bool {
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
