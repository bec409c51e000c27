//! Work that recurs while a link lives: watched files, the memory limit, the list of the tree's processes, the cache.
//!
//! It knows what is due and what has changed; what follows from that is decided by the link.

use std::path::Path;

use mainstay_os::watch_files::FileWatcher;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::{MEMORY_EVERY_MS, NOTE_AGAIN_MS, NOTE_FIRST_MS};
use mainstay_protocol::message::remembered::Remembered;
use mainstay_store::cache::{CacheFile, Configuration};

use super::plan::Plan;
use super::watched::Watched;

/// The recurring work of one link.
pub struct Maintenance {
    files: Option<Watched<FileWatcher>>,
    /// The first file that has changed, and until when no other may change before it counts.
    changed: Option<(Moment, String)>,
    /// When the memory of the server is measured, if it has a limit.
    memory_at: Option<Moment>,
    /// When the processes of the tree are written down.
    members_at: Option<Moment>,
    members_written: Moment,
    /// What earlier sessions of this configuration saw.
    cache: Option<CacheFile>,
}

impl Maintenance {
    /// Begins to watch the files of the plan.
    pub fn new(plan: &Plan) -> Self {
        let files = match plan.watch.as_slice() {
            [] => None,
            // Without inotify nothing is reloaded; `doctor` says so.
            paths => FileWatcher::open(paths).and_then(Watched::new).ok(),
        };
        Self {
            files,
            changed: None,
            memory_at: None,
            members_at: None,
            members_written: Moment(0),
            cache: None,
        }
    }

    /// When something is due.
    pub fn due(&self) -> Option<Moment> {
        let changed = self.changed.as_ref().map(|(until, _)| *until);
        let all = [changed, self.memory_at, self.members_at];
        all.into_iter().flatten().min()
    }

    /// Reads which files have changed. A change counts once no other has followed for `quiet_ms`. True if there was anything.
    pub fn poll_files(&mut self, now: Moment, quiet_ms: u64) -> bool {
        let Some(files) = &mut self.files else {
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
        let (_, path) = self.changed.take().unwrap_or((now, path));
        self.changed = Some((now.after_ms(quiet_ms), path));
        true
    }

    /// A file that has changed, once the files are quiet.
    pub fn take_changed(&mut self, now: Moment) -> Option<String> {
        let (_, path) = self.changed.take_if(|(until, _)| now >= *until)?;
        Some(path)
    }

    /// From now on the memory of the server is measured.
    pub fn measure_memory(&mut self, now: Moment) {
        self.memory_at = Some(now.after_ms(MEMORY_EVERY_MS));
    }

    /// True if the memory is to be measured now.
    pub fn memory_is_due(&mut self, now: Moment) -> bool {
        let due = self.memory_at.is_some_and(|at| now >= at);
        if due {
            self.measure_memory(now);
        }
        due
    }

    /// A server was started: its processes are written down soon.
    pub fn server_started(&mut self, now: Moment) {
        self.members_at = Some(now.after_ms(NOTE_FIRST_MS));
    }

    /// Messages pass: the server may have other processes by now.
    pub fn messages_passed(&mut self) {
        if self.members_at.is_none() {
            self.members_at = Some(self.members_written.after_ms(NOTE_AGAIN_MS));
        }
    }

    pub fn members_are_due(&self, now: Moment) -> bool {
        self.members_at.is_some_and(|at| now >= at)
    }

    pub fn members_written(&mut self, now: Moment) {
        self.members_at = None;
        self.members_written = now;
    }

    /// Reads what earlier sessions of this configuration saw; only the first call does it.
    pub fn recall(&mut self, plan: &Plan, keeper: Identity) -> Option<Remembered> {
        if !plan.cache || self.cache.is_some() {
            return None;
        }
        let env = plan.env_c(&plan.tag(keeper));
        let cwd = plan.directory();
        let configuration = Configuration {
            argv: &plan.command.argv,
            cwd: Path::new(&cwd),
            env: &env,
        };
        let cache = CacheFile::of(&plan.paths.cache(), &plan.name, &configuration);
        let cache = if plan.learns { cache.of_learn() } else { cache };
        let remembered = cache.load();
        self.cache = Some(cache);
        Some(remembered)
    }

    /// Saves what this session has learned, if it is new. False if the cache is off.
    pub fn remember(&mut self, plan: &Plan, keeper: Identity, learned: &Remembered) -> bool {
        let Some(cache) = &mut self.cache else {
            return false;
        };
        let env = plan.env_c(&plan.tag(keeper));
        // Best effort: the next session asks the server.
        drop(cache.save(&env, learned));
        true
    }
}
