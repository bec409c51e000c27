//! What a link needs while it lives: its files watched, its memory looked at, its record on disk kept, restarts answered.
//!
//! It only brings news to the link; what follows from them is decided there.

use std::path::Path;

use mainstay_core::clock::Moment;
use mainstay_core::event::Renewing;
use mainstay_core::limits::MEMORY_EVERY_MS;
use mainstay_core::link::Input;
use mainstay_os::watch_files::FileWatcher;

use super::watch::Watched;
use super::{Keeper, Plan};
use crate::recollection::{Configuration, Recollection};
use crate::registry::control::Answer;

/// The state of all that.
#[derive(Default)]
pub struct Upkeep {
    files: Option<Watched<FileWatcher>>,
    /// What has changed, and until when it must be left alone.
    changed: Option<(Moment, String)>,
    memory_at: Option<Moment>,
    record: Option<Recollection>,
    /// The generation that somebody wants to see replaced.
    replacing: Option<u32>,
    /// The guard has been told that it may go on.
    pub guard_told: bool,
}

impl Upkeep {
    /// Begins to watch what is to be watched.
    pub fn new(plan: &Plan) -> Self {
        let files = match plan.watch.as_slice() {
            [] => None,
            // Without inotify nothing is reloaded; `doctor` says so.
            paths => FileWatcher::open(paths).and_then(Watched::new).ok(),
        };
        Self {
            files,
            ..Self::default()
        }
    }

    /// When something is due.
    pub fn due(&self) -> Option<Moment> {
        let changed = self.changed.as_ref().map(|(until, _)| *until);
        changed.into_iter().chain(self.memory_at).min()
    }
}

impl Keeper<'_> {
    /// Looks for changed files and whatever is due; whether there was anything.
    pub(super) fn poll_upkeep(&mut self) -> bool {
        let mut any = self.poll_files();
        if let Some((until, path)) = &self.upkeep.changed
            && self.now >= *until
        {
            let path = path.clone();
            self.upkeep.changed = None;
            self.handle(Input::Renew(Renewing::Changed { path }));
            any = true;
        }
        if self.upkeep.memory_at.is_some_and(|at| self.now >= at) {
            self.look_at_memory();
        }
        self.answer_restarts();
        any
    }

    fn poll_files(&mut self) -> bool {
        let quiet = self.plan.limits.watch_quiet_ms;
        let Some(files) = &mut self.upkeep.files else {
            return false;
        };
        if !files.poll_ready() {
            return false;
        }
        let changes = files.get_mut().read();
        if !changes.again {
            files.clear();
        }
        if changes.is_empty() {
            return changes.again;
        }
        let first = changes.paths.first();
        let path = first.map_or("a watched file".into(), |path| path.display().to_string());
        let (_, path) = self.upkeep.changed.take().unwrap_or((self.now, path));
        self.upkeep.changed = Some((self.now.after_ms(quiet), path));
        true
    }

    /// A generation was started: it is held to its memory, as far as the kernel helps.
    pub(super) fn limit_memory(&mut self) {
        let limit = self.plan.limits.memory_max_bytes;
        if let (Some(server), 1..) = (&self.server, limit) {
            // Where the kernel refuses, looking must do; `doctor` says which it is.
            drop(server.tree.limit_memory(limit));
            self.upkeep.memory_at = Some(self.now.after_ms(MEMORY_EVERY_MS));
        }
    }

    /// Asked to give way before the kernel has to kill it.
    fn look_at_memory(&mut self) {
        self.upkeep.memory_at = Some(self.now.after_ms(MEMORY_EVERY_MS));
        let limit = self.plan.limits.memory_max_bytes;
        let above = self
            .server
            .as_ref()
            .filter(|server| server.exit.is_none())
            .and_then(|server| server.tree.memory_above(limit - limit / 10));
        if let Some(bytes) = above {
            self.handle(Input::Renew(Renewing::Memory { bytes }));
        }
    }

    /// Lends the link what an earlier session of this configuration saw.
    pub(super) fn recall(&mut self) {
        if !self.plan.record || self.upkeep.record.is_some() {
            return;
        }
        let env = self.plan.env_c(&self.plan.tag(self.me));
        let cwd = self.plan.directory();
        let configuration = Configuration {
            argv: &self.plan.argv,
            cwd: Path::new(&cwd),
            env: &env,
        };
        let record = Recollection::of(&self.plan.paths.record(), &self.plan.name, &configuration);
        self.relay.recall(record.load());
        self.upkeep.record = Some(record);
    }

    /// Writes down what this session has learned, if that is new.
    pub(super) fn remember(&mut self) {
        if let Some(record) = &mut self.upkeep.record {
            let env = self.plan.env_c(&self.plan.tag(self.me));
            // Best effort: the next session asks the server.
            drop(record.save(&env, self.relay.link().remembered()));
            self.relay.remembered_written();
        }
    }

    /// Somebody asks for another generation.
    pub(super) fn restart(&mut self) {
        self.upkeep.replacing = Some(self.relay.link().generation());
        self.handle(Input::Renew(Renewing::Asked));
    }

    /// Answers whoever asked for one as soon as it is there, or will not be.
    fn answer_restarts(&mut self) {
        let Some(replaced) = self.upkeep.replacing else {
            return;
        };
        let generation = self.relay.link().generation();
        let answer = match self.relay.link().word() {
            "ready" | "opening" | "doubtful" if generation > replaced => Answer::Restarted {
                generation,
                pid: self.server.as_ref().map(|server| server.who.pid),
            },
            "abandoned" => Answer::Refused {
                error: format!(
                    "the server does not stay up; `mainstay why {}` tells how it ended",
                    self.plan.name
                ),
            },
            "stopping" | "failed" | "gone" => Answer::Refused {
                error: "the link is ending".into(),
            },
            _ => return,
        };
        self.upkeep.replacing = None;
        self.control.answer_restarts(&answer);
    }
}
