//! The write: one file is replaced as a whole, or not at all.
//!
//! It is a sequence of [`Step`]s, so that a test can end it after each. The new bytes go to a file beside the old one, which then takes its place by
//! an exchange of names: whatever the client wrote in the last moment is in our hands after it, and is put back before we plan again. Mode, group, extended
//! attributes and symbolic links stay. The file before the first and before the last write is kept in a directory of the caller.
//!
//! Invariants: at every moment the path holds a complete file, the old or the new one. Bytes that are replaced are in a backup before. Two writes of one file do not overlap.

mod backup;
mod error;
mod file;
mod whole;

pub use backup::written_before;
pub use error::WriteError;
pub use file::read;
pub use whole::{create, remove};

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::limits::WRITE_ATTEMPTS_MAX;
use crate::plan::Plan;
use crate::refusal::Refusal;
use backup::Backups;
use file::Snapshot;

/// What makes a plan from the bytes of the file. It is asked again if the client changed them.
pub type Planner<'p> = &'p mut dyn FnMut(&[u8]) -> Result<Plan, Refusal>;

/// One step of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Keep other writes of mainstay away.
    Lock,
    /// Read the file.
    Read,
    /// Plan from what was read.
    Plan,
    /// Keep the file as it was before the first write.
    KeepFirst,
    /// Keep the file as it is now.
    KeepLast,
    /// Make the new file beside the old one.
    Create,
    /// Write the new bytes.
    Fill,
    /// Give it mode, group and attributes of the old one.
    CopyAttributes,
    /// Bring it to the disk.
    Sync,
    /// Read the file again: is it still what was planned from?
    Compare,
    /// Exchange the names of both.
    Exchange,
    /// Is what was taken away what was planned from? Else put it back.
    CheckOld,
    /// Remove the old file.
    RemoveOld,
    /// Bring the directory to the disk.
    SyncDirectory,
    /// Read the file: is it what was written?
    ReadBack,
}

/// What a write did.
#[derive(Clone, Debug)]
pub struct Written {
    /// The last plan; what it says of each entry holds now.
    pub plan: Plan,
    /// Whether the file was changed.
    pub changed: bool,
    /// The file itself, behind all links.
    pub target: PathBuf,
    /// The file as it was before mainstay wrote it for the first time.
    pub first_backup: Option<PathBuf>,
    /// The file as it was before this write.
    pub last_backup: Option<PathBuf>,
    /// How often it was planned.
    pub attempts: u32,
}

/// Writes what the planner says into a file.
pub fn write(path: &Path, backups: &Path, plan: Planner<'_>) -> Result<Written, WriteError> {
    let mut writing = Writing::new(path, backups);
    loop {
        match writing.step(plan) {
            Ok(Progress::Did(_)) => {}
            Ok(Progress::Finished(written)) => return Ok(*written),
            Err(error) => {
                writing.abandon();
                return Err(error);
            }
        }
    }
}

/// What a step came to.
#[derive(Debug)]
pub enum Progress {
    /// This step is done; there are more.
    Did(Step),
    /// All is done.
    Finished(Box<Written>),
}

/// A write under way. Dropping it leaves everything as a killed process would.
#[derive(Debug)]
pub struct Writing {
    path: PathBuf,
    backup_directory: PathBuf,
    next: Step,
    attempts: u32,
    changed: bool,
    /// Whether names are exchanged; else the new file is renamed over the old one.
    exchanges: bool,
    lock: Option<Locked>,
    old: Option<Snapshot>,
    plan: Option<Plan>,
    new: Option<New>,
}

/// What is known once the file is locked.
#[derive(Debug)]
struct Locked {
    target: PathBuf,
    beside: PathBuf,
    backups: Backups,
    first: Option<PathBuf>,
    last: Option<PathBuf>,
}

/// The new file.
#[derive(Debug)]
struct New {
    file: OwnedFd,
    inode: u64,
    /// Whether the old file has its name now.
    exchanged: bool,
}

impl Writing {
    /// A write that has not begun.
    pub fn new(path: &Path, backups: &Path) -> Self {
        Self {
            path: path.to_owned(),
            backup_directory: backups.to_owned(),
            next: Step::Lock,
            attempts: 0,
            changed: false,
            exchanges: true,
            lock: None,
            old: None,
            plan: None,
            new: None,
        }
    }

    /// The same as on a file system that cannot exchange names.
    #[must_use]
    pub fn without_exchange(self) -> Self {
        Self {
            exchanges: false,
            ..self
        }
    }

    /// The step that comes next.
    pub fn next(&self) -> Step {
        self.next
    }

    /// Does one step.
    pub fn step(&mut self, planner: Planner<'_>) -> Result<Progress, WriteError> {
        let step = self.next;
        self.next = match step {
            Step::Lock => self.lock()?,
            Step::Read => self.read()?,
            Step::Plan => match self.make_plan(planner)? {
                Some(next) => next,
                None => return Ok(Progress::Finished(Box::new(self.written()?))),
            },
            Step::KeepFirst => {
                let (locked, old) = (self.locked()?, self.old()?);
                let first = locked.backups.keep_first(&old.bytes)?;
                self.locked_mut()?.first = Some(first);
                Step::KeepLast
            }
            Step::KeepLast => {
                let (locked, old) = (self.locked()?, self.old()?);
                let last = locked.backups.keep("last", &old.bytes)?;
                self.locked_mut()?.last = Some(last);
                Step::Create
            }
            Step::Create => self.create()?,
            Step::Fill => self.fill()?,
            Step::CopyAttributes => {
                let old = self.old()?;
                file::copy_attributes(old, &self.new_file()?.file, &self.locked()?.target)?;
                Step::Sync
            }
            Step::Sync => {
                let beside = &self.locked()?.beside;
                rustix::fs::fsync(&self.new_file()?.file)
                    .map_err(|error| WriteError::io("sync", beside, error))?;
                Step::Compare
            }
            Step::Compare => self.compare()?,
            Step::Exchange => self.exchange()?,
            Step::CheckOld => self.check_old()?,
            Step::RemoveOld => self.remove_old()?,
            Step::SyncDirectory => {
                file::sync_directory(&self.locked()?.target)?;
                Step::ReadBack
            }
            Step::ReadBack => {
                let now = file::snapshot(&self.locked()?.target)?;
                if now.bytes == self.plan()?.new_bytes() {
                    return Ok(Progress::Finished(Box::new(self.written()?)));
                }
                // The client wrote since then. What it wrote is planned from next.
                self.again()?
            }
        };
        Ok(Progress::Did(step))
    }

    /// Removes the new file, if it has not taken its place yet.
    pub fn abandon(self) {
        if let (Some(new), Some(locked)) = (&self.new, &self.lock)
            && !new.exchanged
            && file::inode_of(&locked.beside) == Some(new.inode)
        {
            // It is a copy of what was planned; if it cannot be removed, the next write does it.
            let _left = std::fs::remove_file(&locked.beside);
        }
    }

    fn lock(&mut self) -> Result<Step, WriteError> {
        let target = file::resolve(&self.path)?;
        let backups = Backups::open(&self.backup_directory, &self.path, &target)?;
        self.lock = Some(Locked {
            beside: file::beside(&target)?,
            first: None,
            last: None,
            target,
            backups,
        });
        Ok(Step::Read)
    }

    fn read(&mut self) -> Result<Step, WriteError> {
        self.attempts += 1;
        let old = file::snapshot(&self.locked()?.target)?;
        old.check_replaceable(&self.locked()?.target)?;
        self.old = Some(old);
        Ok(Step::Plan)
    }

    fn make_plan(&mut self, planner: Planner<'_>) -> Result<Option<Step>, WriteError> {
        let target = self.locked()?.target.clone();
        let plan = planner(&self.old()?.bytes).map_err(|refusal| WriteError::Refused {
            path: target.clone(),
            refusal,
        })?;
        if plan.old() != self.old()?.bytes {
            return Err(WriteError::Refused {
                path: target,
                refusal: Refusal::Mismatch,
            });
        }
        let changes = plan.changes();
        self.plan = Some(plan);
        Ok(changes.then_some(Step::KeepFirst))
    }

    fn create(&mut self) -> Result<Step, WriteError> {
        let locked = self.locked()?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let made = match rustix::fs::open(&locked.beside, flags, mode) {
            Err(Errno::EXIST) => {
                // We hold the lock, so it is what a killed write left. It may hold what a client wrote.
                let left = file::snapshot(&locked.beside)?;
                locked.backups.keep("left", &left.bytes)?;
                std::fs::remove_file(&locked.beside)
                    .map_err(|error| WriteError::io("remove", &locked.beside, error))?;
                rustix::fs::open(&locked.beside, flags, mode)
            }
            made => made,
        };
        let file = made.map_err(|error| WriteError::directory(&locked.target, error))?;
        let stat = rustix::fs::fstat(&file)
            .map_err(|error| WriteError::io("look at", &locked.beside, error))?;
        self.new = Some(New {
            file,
            inode: stat.st_ino,
            exchanged: false,
        });
        Ok(Step::Fill)
    }

    fn fill(&mut self) -> Result<Step, WriteError> {
        let beside = self.locked()?.beside.clone();
        let failed = |error: std::io::Error| WriteError::io("write", &beside, error);
        let file = self.new_file()?.file.try_clone().map_err(failed)?;
        let mut file = std::fs::File::from(file);
        file.write_all(self.plan()?.new_bytes()).map_err(failed)?;
        Ok(Step::CopyAttributes)
    }

    fn compare(&mut self) -> Result<Step, WriteError> {
        let now = file::snapshot(&self.locked()?.target)?;
        now.check_replaceable(&self.locked()?.target)?;
        if now.same_as(self.old()?) {
            return Ok(Step::Exchange);
        }
        self.again()
    }

    fn exchange(&mut self) -> Result<Step, WriteError> {
        let locked = self.locked()?;
        let exchanged = if self.exchanges {
            file::rename(&locked.beside, &locked.target, RenameFlags::EXCHANGE)
        } else {
            Err(Errno::NOSYS)
        };
        match exchanged {
            Ok(()) => {
                self.new_mut()?.exchanged = true;
                self.changed = true;
                Ok(Step::CheckOld)
            }
            // This file system knows no exchange: the last moment is not guarded, as with every other program.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                file::rename(&locked.beside, &locked.target, RenameFlags::empty())
                    .map_err(|error| WriteError::io("replace", &locked.target, error))?;
                self.new = None;
                self.changed = true;
                Ok(Step::SyncDirectory)
            }
            // The client removed it just now.
            Err(Errno::NOENT) => self.again(),
            Err(error) => Err(WriteError::io("replace", &locked.target, error)),
        }
    }

    fn check_old(&mut self) -> Result<Step, WriteError> {
        let locked = self.locked()?;
        let taken = file::snapshot(&locked.beside)?;
        if taken.bytes == self.old()?.bytes {
            return Ok(Step::RemoveOld);
        }
        // The client wrote between the comparison and the exchange. Its bytes go back, unless it has written again since: into a file of its
        // own, or into ours.
        let ours = self.new_file()?.inode;
        let written = self.plan()?.new_bytes();
        let is_ours = |path: &Path| {
            let now = file::snapshot(path);
            now.is_ok_and(|now| now.inode() == ours && now.bytes == written)
        };
        let back = || {
            file::rename(&locked.beside, &locked.target, RenameFlags::EXCHANGE)
                .map_err(|error| WriteError::io("put back", &locked.target, error))
        };
        if is_ours(&locked.target) {
            back()?;
            if !is_ours(&locked.beside) {
                back()?;
                locked.backups.keep("left", &taken.bytes)?;
            }
        } else {
            locked.backups.keep("left", &taken.bytes)?;
        }
        self.changed = false;
        self.new_mut()?.exchanged = false;
        let beside = self.locked()?.beside.clone();
        std::fs::remove_file(&beside).map_err(|error| WriteError::io("remove", &beside, error))?;
        self.again()
    }

    fn remove_old(&mut self) -> Result<Step, WriteError> {
        let locked = self.locked()?;
        rustix::fs::unlinkat(rustix::fs::CWD, &locked.beside, AtFlags::empty())
            .map_err(|error| WriteError::io("remove", &locked.beside, error))?;
        self.new = None;
        Ok(Step::SyncDirectory)
    }

    /// From the start, because the client wrote; not for ever.
    fn again(&mut self) -> Result<Step, WriteError> {
        let locked = self.locked()?;
        if let Some(new) = &self.new
            && file::inode_of(&locked.beside) == Some(new.inode)
        {
            std::fs::remove_file(&locked.beside)
                .map_err(|error| WriteError::io("remove", &locked.beside, error))?;
        }
        self.new = None;
        if self.attempts >= WRITE_ATTEMPTS_MAX {
            return Err(WriteError::KeepsChanging {
                path: self.locked()?.target.clone(),
                attempts: self.attempts,
            });
        }
        Ok(Step::Read)
    }

    fn written(&mut self) -> Result<Written, WriteError> {
        let plan = self.plan.take().ok_or_else(out_of_order)?;
        let locked = self.locked()?;
        Ok(Written {
            plan,
            changed: self.changed,
            target: locked.target.clone(),
            first_backup: locked.first.clone(),
            last_backup: locked.last.clone(),
            attempts: self.attempts,
        })
    }

    fn locked(&self) -> Result<&Locked, WriteError> {
        self.lock.as_ref().ok_or_else(out_of_order)
    }

    fn locked_mut(&mut self) -> Result<&mut Locked, WriteError> {
        self.lock.as_mut().ok_or_else(out_of_order)
    }

    fn old(&self) -> Result<&Snapshot, WriteError> {
        self.old.as_ref().ok_or_else(out_of_order)
    }

    fn plan(&self) -> Result<&Plan, WriteError> {
        self.plan.as_ref().ok_or_else(out_of_order)
    }

    fn new_file(&self) -> Result<&New, WriteError> {
        self.new.as_ref().ok_or_else(out_of_order)
    }

    fn new_mut(&mut self) -> Result<&mut New, WriteError> {
        self.new.as_mut().ok_or_else(out_of_order)
    }
}

/// A step was taken after the end.
fn out_of_order() -> WriteError {
    WriteError::OutOfOrder
}
