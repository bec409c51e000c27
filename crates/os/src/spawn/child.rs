//! What happens between clone and exec, on the child's side.
//!
//! Everything here was allocated before the clone; the child only makes system calls. If one fails, the child writes
//! which one and why into the report pipe and exits. If the exec succeeds, the pipe closes without a report.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mainstay_protocol::ids::{TAG_VARIABLE, Tag};

use super::{Plan, SpawnError, Stage};
use crate::{descriptors, mark, procfs, turn};

/// Where a command without a slash is looked for if the environment has no PATH (as execvp does).
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";
const SHELL: &CStr = c"/bin/sh";

/// Everything the child needs, laid out as the kernel wants it.
pub struct Image {
    /// Where the command may be, in order.
    candidates: Vec<CString>,
    /// Null-terminated, pointing into the plan's strings.
    argv: Vec<*const c_char>,
    /// `/bin/sh CANDIDATE ARGS…`, for a script without `#!`; the child fills in the second entry.
    script: Vec<Cell<*const c_char>>,
    env: Vec<*const c_char>,
    cwd: Option<CString>,
    stdio: [RawFd; 3],
    oom_score_adj: Vec<u8>,
    mark: Option<u64>,
}

impl Image {
    /// Lays out a plan, which must outlive the image.
    pub fn of(plan: &Plan<'_>) -> Result<Self, i32> {
        let program = plan.argv.first().ok_or(libc::ENOENT)?;
        let own = program.as_bytes().contains(&b'/').then(own_name).flatten();
        let null = std::ptr::null();
        let argv: Vec<_> = plan
            .argv
            .iter()
            .map(|arg| arg.as_ptr())
            .chain([null])
            .collect();
        let script = [SHELL.as_ptr(), null]
            .into_iter()
            .chain(argv.iter().copied().skip(1))
            .map(Cell::new)
            .collect();
        let cwd = plan.cwd.map(|dir| CString::new(dir.as_os_str().as_bytes()));
        Ok(Self {
            candidates: candidates(program.as_bytes(), plan.env, own.as_deref()),
            argv,
            script,
            env: plan
                .env
                .iter()
                .map(|entry| entry.as_ptr())
                .chain([null])
                .collect(),
            cwd: cwd.transpose().map_err(|_| libc::EINVAL)?,
            stdio: [
                plan.stdin.as_raw_fd(),
                plan.stdout.as_raw_fd(),
                plan.stderr.as_raw_fd(),
            ],
            oom_score_adj: oom_score_adj(plan.oom_score_adj_raise),
            mark: mark_of(plan.env),
        })
    }
}

/// A failure, as the child reports it: stage, errno, and which candidate.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    stage: Stage,
    errno: i32,
    candidate: usize,
}

impl Failure {
    /// The same as an error for the caller.
    pub fn into_error(self, image: &Image, program: &Path) -> SpawnError {
        let path = match self.stage {
            Stage::Cwd => image.cwd.as_ref(),
            // Not found in any of several places: the name says more than the last place.
            Stage::Exec if self.errno == libc::ENOENT => None,
            Stage::Exec | Stage::Interpreter => image.candidates.get(self.candidate),
            Stage::Clone | Stage::Place | Stage::Stdio => None,
        };
        SpawnError {
            stage: self.stage,
            errno: self.errno,
            path: path.map_or_else(
                || program.to_owned(),
                |path| PathBuf::from(OsStr::from_bytes(path.as_bytes())),
            ),
            why_not: Vec::new(),
        }
    }
}

/// Waits for the child's report: none if it was executed.
pub fn read_failure(verdict: OwnedFd) -> Option<Failure> {
    let mut words = Vec::with_capacity(12);
    // A read error is impossible on our own pipe; an incomplete report counts as none.
    if File::from(verdict).read_to_end(&mut words).is_err() {
        words.clear();
    }
    let word = |at: usize| {
        words
            .get(at * 4..at * 4 + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(i32::from_ne_bytes)
    };
    let stage = match word(0)? {
        0 => Stage::Stdio,
        1 => Stage::Cwd,
        2 => Stage::Interpreter,
        3 => Stage::Exec,
        _ => Stage::Clone,
    };
    Some(Failure {
        stage,
        errno: word(1)?,
        candidate: word(2)? as usize,
    })
}

/// Turns this process, a fresh clone, into the server. `gate` is the pipe to wait at first: its read end, and its
/// write end, which belongs to the parent.
pub fn become_server(image: &Image, report: RawFd, gate: Option<(RawFd, RawFd)>, parent: i32) -> ! {
    let failure = match prepare(image, report, gate, parent) {
        Ok(report) => (report, execute(image)),
        Err(failure) => (report, failure),
    };
    let (
        report,
        Failure {
            stage,
            errno,
            candidate,
        },
    ) = failure;
    let stage = match stage {
        Stage::Stdio => 0i32,
        Stage::Cwd => 1,
        Stage::Interpreter => 2,
        Stage::Exec => 3,
        Stage::Clone | Stage::Place => 4,
    };
    let words = [stage, errno, candidate as i32];
    // SAFETY: plain system calls on valid memory; `_exit` runs no code of the parent.
    unsafe {
        libc::write(report, words.as_ptr().cast(), size_of_val(&words));
        libc::_exit(127)
    }
}

/// All but the exec. Returns the new number of the report pipe.
fn prepare(
    image: &Image,
    report: RawFd,
    gate: Option<(RawFd, RawFd)>,
    parent: i32,
) -> Result<RawFd, Failure> {
    // SAFETY: only system calls, on memory that was prepared before the clone and that only we use now.
    unsafe {
        // First of all. If our parent has already died, the kernel would never send the signal, so check the parent
        // too.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(127);
        }
        if let Some((wait, open)) = gate {
            libc::close(open);
            let mut go = 0u8;
            if libc::read(wait, (&raw mut go).cast(), 1) != 1 {
                libc::_exit(127);
            }
        }
        libc::setsid();
        turn::as_usual();
        default_signals();
        raise_oom_score(&image.oom_score_adj);
        if let Some(mark) = image.mark {
            mark::set(mark);
        }

        // First move all above 2, so that putting one in place cannot overwrite another.
        let report = above_stdio(report)?;
        let stdio = [
            above_stdio(image.stdio[0])?,
            above_stdio(image.stdio[1])?,
            above_stdio(image.stdio[2])?,
        ];
        for (at, fd) in stdio.into_iter().enumerate() {
            if libc::dup2(fd, at as RawFd) == -1 {
                return Err(failure(Stage::Stdio));
            }
        }
        close_at_exec();

        if let Some(cwd) = &image.cwd
            && libc::chdir(cwd.as_ptr()) == -1
        {
            return Err(failure(Stage::Cwd));
        }
        // Last, because under a lower limit no further descriptor could be opened.
        descriptors::restore_limit();
        Ok(report)
    }
}

/// Tries each candidate as execvpe does. Returns only if none could be executed.
fn execute(image: &Image) -> Failure {
    let mut worst = Failure {
        stage: Stage::Exec,
        errno: libc::ENOENT,
        candidate: 0,
    };
    // SAFETY: all pointers were prepared before the clone and end with null. The signal mask is opened last, when
    // every disposition is the default.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());

        for (candidate, path) in image.candidates.iter().enumerate() {
            libc::execve(path.as_ptr(), image.argv.as_ptr(), image.env.as_ptr());
            let mut errno = *libc::__errno_location();
            if errno == libc::ENOEXEC {
                if let Some(slot) = image.script.get(1) {
                    slot.set(path.as_ptr());
                }
                libc::execve(
                    SHELL.as_ptr(),
                    image.script.as_ptr().cast(),
                    image.env.as_ptr(),
                );
                errno = libc::ENOEXEC;
            }
            let stage = if errno == libc::ENOENT && libc::access(path.as_ptr(), libc::F_OK) == 0 {
                Stage::Interpreter
            } else {
                Stage::Exec
            };
            let found = Failure {
                stage,
                errno,
                candidate,
            };
            match errno {
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {
                    if stage == Stage::Interpreter && worst.errno == libc::ENOENT {
                        worst = found;
                    }
                }
                // A file that we may not execute is remembered, and the search goes on.
                libc::EACCES => worst = found,
                _ => return found,
            }
        }
    }
    worst
}

/// Resets every signal that is ignored or handled; ignored ones would survive the exec.
unsafe fn default_signals() {
    // The kernel's own structure: handler (0 is the default), flags, restorer, mask.
    let default = [0u64; 4];
    for signal in 1..=64 {
        // SAFETY: the structure is valid for reading. libc's wrapper would hide the two signals it uses itself.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                8usize,
            );
        }
    }
}

/// Best effort: if refused, only the kernel's choice of a victim changes.
unsafe fn raise_oom_score(value: &[u8]) {
    // SAFETY: plain system calls on valid memory.
    unsafe {
        let fd = libc::open(
            c"/proc/self/oom_score_adj".as_ptr(),
            libc::O_WRONLY | libc::O_CLOEXEC,
        );
        if fd != -1 {
            libc::write(fd, value.as_ptr().cast(), value.len());
            libc::close(fd);
        }
    }
}

unsafe fn above_stdio(fd: RawFd) -> Result<RawFd, Failure> {
    if fd > 2 {
        return Ok(fd);
    }
    // SAFETY: a plain system call.
    match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) } {
        -1 => Err(failure(Stage::Stdio)),
        fd => Ok(fd),
    }
}

/// Marks whatever is open above 2 as close-on-exec, in case one of our descriptors ever lacks the flag.
unsafe fn close_at_exec() {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    // SAFETY: plain system calls; no descriptor is closed here, only marked.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, CLOSE_RANGE_CLOEXEC) == -1 {
            for fd in 3..1024 {
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
}

fn failure(stage: Stage) -> Failure {
    Failure {
        stage,
        // SAFETY: errno is this thread's own.
        errno: unsafe { *libc::__errno_location() },
        candidate: 0,
    }
}

/// The file that this process runs, whatever has happened to its name since.
const ITSELF: &CStr = c"/proc/self/exe";

/// The name of that file when we were started. The kernel appends a mark if it was removed, or replaced by an
/// upgrade.
fn own_name() -> Option<Vec<u8>> {
    let name = rustix::fs::readlink(ITSELF, Vec::new()).ok()?.into_bytes();
    let plain = name.strip_suffix(b" (deleted)");
    Some(plain.map_or_else(|| name.clone(), <[u8]>::to_vec))
}

/// Where a command may be: the command itself if it has a slash, else in each directory of the *given* PATH. If it is
/// our own file, the one that we run comes first: it exists also after an upgrade or a removal, and has our own
/// version.
fn candidates(program: &[u8], env: &[CString], own: Option<&[u8]>) -> Vec<CString> {
    if program.is_empty() {
        return Vec::new();
    }
    if program.contains(&b'/') {
        let itself = (own == Some(program)).then(|| ITSELF.to_owned());
        return itself.into_iter().chain(CString::new(program)).collect();
    }
    let path = env
        .iter()
        .find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="))
        .unwrap_or(PATH_DEFAULT);
    path.split(|&byte| byte == b':')
        .filter_map(|dir| {
            // An empty element means the current directory, which is the one the server runs in.
            let mut whole = dir.to_vec();
            if !dir.is_empty() {
                whole.push(b'/');
            }
            whole.extend_from_slice(program);
            CString::new(whole).ok()
        })
        .collect()
}

/// The mark of the tag in this environment.
fn mark_of(env: &[CString]) -> Option<u64> {
    let tag = env.iter().rev().find_map(|entry| {
        let value = entry.to_bytes().strip_prefix(TAG_VARIABLE.as_bytes());
        value?.strip_prefix(b"=")
    });
    let tag: Tag = std::str::from_utf8(tag?).ok()?.parse().ok()?;
    Some(tag.mark())
}

fn oom_score_adj(raise: i32) -> Vec<u8> {
    let ours: i32 = procfs::text("/proc/self/oom_score_adj")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    (ours + raise).clamp(ours, 1000).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(found: &[CString]) -> Vec<&str> {
        found.iter().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn a_command_is_looked_for_in_the_given_path_only() {
        let env = [c"A=1".to_owned(), c"PATH=/x::y".to_owned()];
        assert_eq!(
            texts(&candidates(b"tool", &env, None)),
            ["/x/tool", "tool", "y/tool"]
        );
        assert_eq!(texts(&candidates(b"./tool", &env, None)), ["./tool"]);
        assert_eq!(
            texts(&candidates(b"tool", &[], None)),
            ["/bin/tool", "/usr/bin/tool"]
        );
        assert!(candidates(b"", &env, None).is_empty());
    }

    #[test]
    fn our_own_file_is_the_one_that_we_run() {
        let own = own_name().unwrap();
        assert_eq!(own, std::env::current_exe().unwrap().as_os_str().as_bytes());
        let found = candidates(&own, &[], Some(&own));
        assert_eq!(found[0].as_c_str(), ITSELF);
        assert_eq!(found[1].as_bytes(), own);
        assert_eq!(texts(&candidates(b"/x/tool", &[], Some(&own))), ["/x/tool"]);
    }
}
