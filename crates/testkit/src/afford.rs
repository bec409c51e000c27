//! Which tiers this machine affords, found with the machine's own tools and without mainstay. A tier that the machine affords but
//! that does not open is broken, so it must not be skipped.
//!
//! The tests of `os` include this file too, so it uses nothing of the testkit but `skip`, which they include as well.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_protocol::tier::Tier;

/// Whether a tier must work on this machine, and if not, why.
pub fn affords(tier: Tier) -> Result<(), String> {
    match tier {
        Tier::Subreaper => Ok(()),
        Tier::Cgroup => cgroup(),
        Tier::Scope => {
            Err("whether a user manager may move a server is only seen when it does".into())
        }
        Tier::Pidns => pidns(),
    }
}

/// The tiers that are tested right here: all that the machine affords except `scope`, which needs a user manager and has its own
/// tests next to a private one. A missing tier is noted as skipped.
pub fn afforded() -> Vec<Tier> {
    let mut tiers = Tier::ALL.to_vec();
    tiers.retain(|&tier| {
        if tier == Tier::Scope {
            return false;
        }
        let missing = affords(tier).err();
        if let Some(why) = &missing {
            super::skip::skip(&format!("tier {tier}: {why}"));
        }
        missing.is_none()
    });
    tiers
}

/// Moves a process into a cgroup below ours that can be killed as a whole.
fn cgroup() -> Result<(), String> {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let own = own_cgroup()?;
    let number = ASKED.fetch_add(1, Ordering::Relaxed);
    let trial = own.join(format!("afford-{}-{number}", std::process::id()));
    fs::create_dir(&trial)
        .map_err(|error| format!("no cgroup can be made below ours ({error})"))?;
    let entered = enter(&trial);
    // No process is left in it. If it stays, it is an empty directory.
    drop(fs::remove_dir(&trial));
    entered
}

fn enter(trial: &Path) -> Result<(), String> {
    let kill = File::options().write(true).open(trial.join("cgroup.kill"));
    kill.map_err(|error| format!("cgroup.kill cannot be written ({error})"))?;
    let procs = trial.join("cgroup.procs");
    let procs = procs.to_str().ok_or("our cgroup has a strange name")?;
    succeeds(&["sh", "-c", "echo $$ > \"$1\"", "sh", procs])
}

fn own_cgroup() -> Result<PathBuf, String> {
    let read = |file: &str| fs::read_to_string(file).map_err(|error| format!("{file}: {error}"));
    let mounts = read("/proc/self/mounts")?;
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let dir = words.next()?;
        (words.next()? == "cgroup2").then_some(dir)
    });
    let mount = mount.ok_or("no cgroup2 is mounted")?;
    let cgroups = read("/proc/self/cgroup")?;
    let within = cgroups.lines().find_map(|line| line.strip_prefix("0::/"));
    let within = within.ok_or("this process is in no cgroup2")?;
    Ok(Path::new(mount).join(within))
}

/// A PID namespace with its own `/proc`. Without root it is made in a user namespace.
fn pidns() -> Result<(), String> {
    let mut words = vec!["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    if !rustix::process::geteuid().is_root() {
        words.extend(["--user", "--map-current-user"]);
    }
    words.push("true");
    succeeds(&words)
}

fn succeeds(words: &[&str]) -> Result<(), String> {
    match output(words) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("{} cannot be started ({error})", words[0])),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "asks a tool of the machine, starts no server"
)]
fn output(words: &[&str]) -> io::Result<Output> {
    Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output()
}
