//! What a server finds when it starts, seen by real children, and what a failed start reports.
//! guards: A server gets exactly what the client gave it and nothing of ours, and a failed start says why and leaves no process.

use mainstay_os::spawn::Stage;
use mainstay_os::{census, identity, role};
use mainstay_protocol::event::Status;
use mainstay_protocol::tier::Tier;

use crate::common::{Server, alone, refuse, tiers};
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicI32, Ordering};

/// Starts it, returns what it wrote, and confirms its end.
fn says(server: &Server) -> String {
    let mut running = server.start().unwrap();
    let text = running.output();
    running.wait();
    let mut ends = Vec::new();
    let ended = running
        .spawned
        .tree
        .kill(5_000, &mut |pid, status, _| ends.push((pid, status)));
    assert!(ended.left.is_empty());
    assert_eq!(
        ends,
        [(running.spawned.who.pid, Status::Code(0))],
        "it said: {text}"
    );
    text
}

#[test]
fn arguments_environment_and_directory_are_exactly_those_given() {
    alone(
        this_test!("arguments_environment_and_directory_are_exactly_those_given"),
        || {
            for tier in tiers() {
                let mut server = Server::new(&["/usr/bin/env", "-0"]).on(tier);
                server.env.push(c"EMPTY=".to_owned());
                let env = says(&server);
                let given: Vec<_> = server.env.iter().map(|e| e.to_str().unwrap()).collect();
                let got: Vec<_> = env.split_terminator('\0').collect();
                assert_eq!(got, given);

                let mut server = Server::new(&[
                    "/bin/sh",
                    "-c",
                    "pwd; printf '<%s>' \"$@\"",
                    "x",
                    "a b",
                    "",
                    "ü",
                ]);
                server.cwd = Some("/usr".into());
                assert_eq!(says(&server.on(tier)), "/usr\n<a b><><ü>");
            }
        },
    );
}

#[test]
fn the_umask_and_the_limits_are_ours_and_the_oom_score_is_raised() {
    alone(
        this_test!("the_umask_and_the_limits_are_ours_and_the_oom_score_is_raised"),
        || {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
            let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            let ours: i32 = std::fs::read_to_string("/proc/self/oom_score_adj")
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            let text = says(&Server::sh(
                "umask; ulimit -n; read o < /proc/self/oom_score_adj; echo $o",
            ));
            let want = format!("0027\n{}\n{}\n", files.unwrap(), (ours + 200).min(1000));
            assert_eq!(text, want);
        },
    );
}

#[test]
fn signal_mask_and_dispositions_are_the_defaults() {
    alone(
        this_test!("signal_mask_and_dispositions_are_the_defaults"),
        || {
            // SAFETY: changes this process's own signal state only; the test has the process for itself.
            unsafe {
                let ours = [
                    libc::SIGPIPE,
                    libc::SIGXFSZ,
                    libc::SIGHUP,
                    libc::SIGUSR1,
                    libc::SIGCHLD,
                ];
                for signal in ours {
                    libc::signal(signal, libc::SIG_IGN);
                }
                let mut some: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&raw mut some, libc::SIGTERM);
                libc::sigaddset(&raw mut some, libc::SIGRTMIN());
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const some, std::ptr::null_mut());
                libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            }
            let text = says(&Server::new(&["/bin/cat", "/proc/self/status"]));
            for field in ["SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"] {
                assert!(
                    text.contains(&format!("{field}:\t0000000000000000\n")),
                    "{text}"
                );
            }
            // And our own mask is as it was.
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(status.contains("SigBlk:\t0000000200004000"), "{status}");
        },
    );
}

#[test]
fn a_server_has_three_descriptors_and_a_session_of_its_own() {
    alone(
        this_test!("a_server_has_three_descriptors_and_a_session_of_its_own"),
        || {
            // A descriptor without close-on-exec, as a careless library would leave it.
            let (leaky, _other) = rustix::pipe::pipe().unwrap();
            for tier in tiers() {
                let text = says(&Server::python("import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:3]); print([n for n in os.listdir('/proc/self/fd') if int(n) > 3]); print(os.getsid(0) == os.getpid() == os.getpgrp())").on(tier));
                // 3 is the directory that it is reading.
                assert_eq!(text, "[0, 1, 2]\n[]\nTrue\n");
            }
            drop(leaky);
        },
    );
}

#[test]
fn descriptors_that_are_in_each_others_place_arrive_right() {
    alone(
        this_test!("descriptors_that_are_in_each_others_place_arrive_right"),
        || {
            use mainstay_os::spawn::{OOM_RAISE, Plan, spawn};
            use mainstay_os::tier::{Wish, choose};
            use std::io::{Read, Write};
            use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
            let (into, feed) = rustix::pipe::pipe().unwrap();
            let (read, out) = rustix::pipe::pipe().unwrap();
            let (read_err, err) = rustix::pipe::pipe().unwrap();
            // stdin of the server is our 1, stdout our 2, stderr our 0.
            // SAFETY: the test has the process for itself; its own output is restored below.
            let saved: Vec<i32> = unsafe {
                let saved = (0..3)
                    .map(|fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 10))
                    .collect();
                libc::dup2(into.as_raw_fd(), 1);
                libc::dup2(out.as_raw_fd(), 2);
                libc::dup2(err.as_raw_fd(), 0);
                saved
            };
            let argv = [
                c"/bin/sh".to_owned(),
                c"-c".to_owned(),
                c"cat; echo err >&2".to_owned(),
            ];
            // SAFETY: 0, 1 and 2 are open.
            let fds = unsafe { [0, 1, 2].map(|fd| BorrowedFd::borrow_raw(fd)) };
            let spawned = spawn(Plan {
                argv: &argv,
                env: &[],
                cwd: None,
                stdin: fds[1].as_fd(),
                stdout: fds[2].as_fd(),
                stderr: fds[0].as_fd(),
                choice: choose(Wish::Exactly(Tier::Subreaper), &crate::common::tag()).unwrap(),
                oom_score_adj_raise: OOM_RAISE,
            });
            // SAFETY: restores the descriptors.
            unsafe {
                for (fd, saved) in saved.into_iter().enumerate() {
                    libc::dup2(saved, fd as i32);
                    drop(OwnedFd::from_raw_fd(saved));
                }
            }
            drop((into, out, err));
            let mut spawned = spawned.unwrap();
            std::fs::File::from(feed).write_all(b"through\n").unwrap();
            let (mut text, mut talk) = (String::new(), String::new());
            std::fs::File::from(read).read_to_string(&mut text).unwrap();
            std::fs::File::from(read_err)
                .read_to_string(&mut talk)
                .unwrap();
            assert_eq!((text.as_str(), talk.as_str()), ("through\n", "err\n"));
            let mut fds = [rustix::event::PollFd::new(
                spawned.tree.pidfd().unwrap(),
                rustix::event::PollFlags::IN,
            )];
            assert_eq!(rustix::event::poll(&mut fds, None), Ok(1));
            spawned.tree.kill(5_000, &mut |_, status, _| {
                assert_eq!(status, Status::Code(0));
            });
        },
    );
}

#[test]
fn a_server_dies_with_the_process_that_spawned_it() {
    alone(
        this_test!("a_server_dies_with_the_process_that_spawned_it"),
        || {
            // The kernel watches the spawning thread: a thread that ends stands for a keeper that is killed.
            let running = std::thread::scope(|scope| {
                let spawner = scope.spawn(|| {
                    let mut running = Server::sh("echo $$; exec sleep 600").start().unwrap();
                    let pid: i32 = running.line().parse().unwrap();
                    assert_eq!(identity::of(pid).unwrap(), running.spawned.who);
                    running
                });
                spawner.join().unwrap()
            });
            running.wait();
            let mut ends = Vec::new();
            let mut tree = running.spawned.tree;
            tree.kill(5_000, &mut |_, status, _| ends.push(status));
            assert_eq!(
                ends,
                [Status::Signal {
                    number: libc::SIGKILL,
                    core: false
                }]
            );
        },
    );
}

#[test]
fn scripts_without_a_first_line_run_as_execvp_runs_them() {
    alone(
        this_test!("scripts_without_a_first_line_run_as_execvp_runs_them"),
        || {
            let dir = scratch("plain-script");
            let file = dir.join("tool");
            std::fs::write(&file, "echo \"$0 $1\"\n").unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
            let mut server = Server::new(&["tool", "one"]);
            server.env =
                vec![CString::new(format!("PATH=/nowhere:{}:/bin", dir.display())).unwrap()];
            assert_eq!(says(&server), format!("{} one\n", file.display()));
            std::fs::remove_dir_all(dir).unwrap();
        },
    );
}

#[test]
fn failed_start_reports_why_and_leaves_nothing() {
    alone(
        this_test!("failed_start_reports_why_and_leaves_nothing"),
        || {
            let dir = scratch("failures");
            let write = |name: &str, text: &str, mode: u32| {
                let file = dir.join(name);
                std::fs::write(&file, text).unwrap();
                std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
                file.to_str().unwrap().to_owned()
            };
            let plain = write("plain", "text", 0o644);
            let lost = write("lost", "#!/no/such/interpreter\n", 0o755);
            let missing = format!("{}/missing", dir.display());
            for tier in tiers() {
                let try_it = |argv: &[&str], path: Option<&str>, cwd: Option<&str>| {
                    let mut server = Server::new(argv).on(tier);
                    if let Some(path) = path {
                        server.env = vec![CString::new(format!("PATH={path}")).unwrap()];
                    }
                    server.cwd = cwd.map(Into::into);
                    let Err(error) = server.start() else {
                        panic!("{argv:?} was started")
                    };
                    (
                        error.stage,
                        error.errno,
                        error.path.to_str().unwrap().to_owned(),
                    )
                };
                let text = |s: &str| s.to_owned();
                assert_eq!(
                    try_it(&[&missing], None, None),
                    (Stage::Exec, libc::ENOENT, missing.clone())
                );
                assert_eq!(
                    try_it(&["no-such-command"], None, None),
                    (Stage::Exec, libc::ENOENT, text("no-such-command"))
                );
                assert_eq!(
                    try_it(&[&plain], None, None),
                    (Stage::Exec, libc::EACCES, plain.clone())
                );
                let here = dir.to_str().unwrap();
                assert_eq!(
                    try_it(&["plain"], Some(&format!("/nowhere:{here}:/bin")), None),
                    (Stage::Exec, libc::EACCES, plain.clone())
                );
                assert_eq!(
                    try_it(&[&lost], None, None),
                    (Stage::Interpreter, libc::ENOENT, lost.clone())
                );
                assert_eq!(
                    try_it(&["/bin/true"], None, Some(&missing)),
                    (Stage::Cwd, libc::ENOENT, missing.clone())
                );
                assert_eq!(
                    try_it(&["/bin/true"], None, Some(&plain)),
                    (Stage::Cwd, libc::ENOTDIR, plain.clone())
                );
                assert_eq!(
                    try_it(&[""], None, None),
                    (Stage::Exec, libc::ENOENT, text(""))
                );
                assert_eq!(
                    try_it(&[], None, None),
                    (Stage::Exec, libc::ENOENT, text(""))
                );
            }
            // No zombie of a failed child either.
            let me = std::process::id() as i32;
            assert!(mainstay_os::census::children(me).unwrap().is_empty());
            std::fs::remove_dir_all(dir).unwrap();
        },
    );
}

fn scratch(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("mainstay-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn server_in_a_pid_namespace_has_its_own_pids_and_proc() {
    alone(
        this_test!("server_in_a_pid_namespace_has_its_own_pids_and_proc"),
        || {
            if !tiers().contains(&Tier::Pidns) {
                return;
            }
            let mut running = Server::sh(
            "read pid rest < /proc/self/stat; echo $$ $PPID $pid; kill -9 1; echo still here; ulimit -c 0; kill -SEGV $$",
        )
        .on(Tier::Pidns)
        .start()
        .unwrap();
            // Its own pid is 3, as its own /proc says; the process that reports its end has 2; init is out of its
            // reach.
            assert_eq!(running.output(), "3 2 3\nstill here\n");
            running.wait();
            let who = running.spawned.who;
            assert_ne!(who.pid, 3, "outside it has another");
            let mut ends = Vec::new();
            let tree = &mut running.spawned.tree;
            let ended = tree.kill(5_000, &mut |pid, status, _| ends.push((pid, status)));
            let segv = Status::Signal {
                number: libc::SIGSEGV,
                core: false,
            };
            assert_eq!((ended.left.len(), ends), (0, vec![(who.pid, segv)]));
        },
    );
}

static BELL: AtomicI32 = AtomicI32::new(-1);

extern "C" fn ring(_: i32) {
    // SAFETY: one system call, on a descriptor that stays open.
    unsafe { libc::write(BELL.load(Ordering::Relaxed), b"!".as_ptr().cast(), 1) };
}

#[test]
fn namespace_reports_its_servers_end_by_sigchld_while_others_live() {
    alone(
        this_test!("namespace_reports_its_servers_end_by_sigchld_while_others_live"),
        || {
            if !tiers().contains(&Tier::Pidns) {
                return;
            }
            let (news, bell) = rustix::pipe::pipe().unwrap();
            BELL.store(bell.as_raw_fd(), Ordering::Relaxed);
            // SAFETY: the handler makes one system call.
            unsafe { libc::signal(libc::SIGCHLD, ring as *const () as libc::sighandler_t) };
            let mut running = Server::sh("setsid sleep 600 & echo ok; exit 5")
                .on(Tier::Pidns)
                .start()
                .unwrap();
            let mut ends = Vec::new();
            while ends.is_empty() {
                assert_eq!(
                    rustix::io::read(&news, &mut [0u8; 64][..]).map(|n| n > 0),
                    Ok(true)
                );
                let tree = &mut running.spawned.tree;
                tree.reap(&mut |pid, status, _| ends.push((pid, status)));
            }
            assert_eq!(ends, [(running.spawned.who.pid, Status::Code(5))]);
            let tree = &mut running.spawned.tree;
            assert_eq!(tree.members().len(), 1);
            assert_eq!(tree.kill(5_000, &mut |_, _, _| ()).left.len(), 0);
        },
    );
}

#[test]
fn without_clone3_fork_and_a_gate_are_used() {
    alone(
        this_test!("without_clone3_fork_and_a_gate_are_used"),
        || {
            let tiers: Vec<Tier> = tiers();
            refuse(libc::SYS_clone3);
            for tier in [Tier::Subreaper, Tier::Cgroup] {
                if !tiers.contains(&tier) {
                    continue;
                }
                let mut running = Server::sh("cat /proc/self/cgroup; exit 4")
                    .on(tier)
                    .start()
                    .unwrap();
                assert_eq!(running.spawned.tier, tier);
                let inside = running.output().contains(&crate::common::tag().leaf());
                assert_eq!(inside, tier == Tier::Cgroup);
                running.wait();
                let mut ends = Vec::new();
                let tree = &mut running.spawned.tree;
                tree.kill(5_000, &mut |_, status, _| ends.push(status));
                assert_eq!(ends, [Status::Code(4)]);
                let Err(error) = Server::new(&["/no/such"]).on(tier).start() else {
                    panic!("started")
                };
                assert_eq!((error.stage, error.errno), (Stage::Exec, libc::ENOENT));
            }
            let Err(error) = Server::new(&["/bin/true"]).on(Tier::Pidns).start() else {
                panic!("started")
            };
            assert_eq!(error.stage, Stage::Place);
            assert!(error.problem().contains("namespace"), "{error}");
            assert_adopted();
        },
    );
}

#[test]
fn child_without_a_pidfd_is_ended() {
    alone(this_test!("child_without_a_pidfd_is_ended"), || {
        refuse(libc::SYS_clone3);
        refuse(libc::SYS_pidfd_open);
        let Err(error) = Server::sh("exec sleep 600").start() else {
            panic!("started")
        };
        assert_eq!((error.stage, error.errno), (Stage::Clone, libc::ENOSYS));
        let me = std::process::id() as i32;
        assert_eq!(census::children(me).unwrap(), Vec::<i32>::new());
    });
}

#[test]
fn a_detached_role_goes_to_the_subreaper() {
    alone(
        this_test!("a_detached_role_goes_to_the_subreaper"),
        assert_adopted,
    );
}

/// Starts a role that reports its own pid and its parent's, once its first parent has exited. Here we are the
/// subreaper that adopts it. What it was given is closed on our side.
fn assert_adopted() {
    let (mut from, mut to) = std::io::pipe().unwrap();
    let (mut wait, mut go) = std::io::pipe().unwrap();
    role::start_detached(move || {
        wait.read_exact(&mut [0]).ok();
        let ids = [std::process::id(), std::os::unix::process::parent_id()];
        to.write_all(ids.map(u32::to_ne_bytes).as_flattened()).ok();
        3
    })
    .unwrap();
    go.write_all(b"!").unwrap();
    let mut ids = [[0; 4]; 2];
    from.read_exact(ids.as_flattened_mut()).unwrap();
    let [pid, parent] = ids.map(u32::from_ne_bytes);
    assert_eq!(parent, std::process::id());
    assert_eq!(from.read(&mut [0]).unwrap(), 0, "its end is still open");
    assert_eq!(role::wait(pid as i32).unwrap(), Some(3));
}
