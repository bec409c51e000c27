//! Turns a hang into an error. Reads and waits of a measurement have no time limit of their own, because a limit would be
//! measured too. If no step is done for too long, the watchdog kills every process with the mark. Then the measurement, which
//! waits for them, goes on, and the section fails with the list of these processes.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mainstay_os::census;
use mainstay_os::identity::Handle;
use mainstay_testkit::census::MARK_VARIABLE;
use rustix::process::Signal;

pub struct Watchdog {
    steps: Option<Sender<()>>,
    barked: Arc<Mutex<Option<String>>>,
    watching: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches the processes with this mark: a step must be done at least once in each `limit`.
    pub fn start(mark: &str, limit: Duration) -> Self {
        let (steps, done) = channel();
        let barked = Arc::new(Mutex::new(None));
        let (told, mark) = (Arc::clone(&barked), mark.to_owned());
        #[expect(
            clippy::disallowed_methods,
            reason = "this is none of the processes that must have one thread only"
        )]
        let watching = thread::spawn(move || watch(&done, &mark, limit, &told));
        Self {
            steps: Some(steps),
            barked,
            watching: Some(watching),
        }
    }

    /// A step is done.
    pub fn step(&self) {
        if let Some(steps) = &self.steps {
            // After a hang, the channel is closed.
            steps.send(()).ok();
        }
    }

    /// The list of processes, if it has found a hang.
    pub fn barked(&self) -> Option<String> {
        let told = self.barked.lock().unwrap_or_else(PoisonError::into_inner);
        told.clone()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.steps = None;
        if let Some(watching) = self.watching.take() {
            watching.join().ok();
        }
    }
}

fn watch(steps: &Receiver<()>, mark: &str, limit: Duration, told: &Mutex<Option<String>>) {
    loop {
        match steps.recv_timeout(limit) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    let mut there = Vec::new();
    for stat in census::all().unwrap_or_default() {
        if census::variable(stat.pid, MARK_VARIABLE).as_deref() == Some(mark) {
            there.push(format!("{} {} (parent {})", stat.pid, stat.comm, stat.ppid));
        }
    }
    // Stored before any process is killed, so that the measurement finds the reason as soon as its wait ends.
    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!(
        "nothing moved for {} s; ended because of it:\n  {}",
        limit.as_secs(),
        there.join("\n  ")
    ));
    end(mark);
}

/// Kills the processes with the mark until a scan finds none that can be killed.
fn end(mark: &str) {
    loop {
        let ended = census::all()
            .unwrap_or_default()
            .into_iter()
            .filter(|stat| !stat.dead())
            .filter(|stat| census::variable(stat.pid, MARK_VARIABLE).as_deref() == Some(mark))
            .filter_map(|stat| Handle::open(stat.who()).ok())
            .filter(|handle| handle.signal(Signal::KILL).is_ok() && handle.wait_ended(1_000))
            .count();
        if ended == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_hangs_is_named_and_ended() {
        let mark = format!("watchdog-{}", std::process::id());
        #[expect(clippy::disallowed_methods, reason = "a process must hang")]
        let mut hanging = Command::new("cat")
            .env(MARK_VARIABLE, &mark)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // A wait would close it.
        let held = hanging.stdin.take();
        let watchdog = Watchdog::start(&mark, Duration::from_millis(300));
        assert!(!hanging.wait().unwrap().success());
        drop(held);
        let told = watchdog.barked().unwrap();
        assert!(told.contains(&hanging.id().to_string()), "{told}");
    }

    #[test]
    fn a_measurement_that_goes_on_is_left_alone() {
        let watchdog = Watchdog::start("no-process", Duration::from_mins(1));
        watchdog.step();
        assert_eq!(watchdog.barked(), None);
    }
}
