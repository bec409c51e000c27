//! The record: memory that guard and keeper share. It is gone with the last of them.
//!
//! It is a memfd, so that a keeper can pass it to a later shim. If none can be made, because the limit on file sizes
//! applies to a memfd or no descriptor is left, it is shared memory without a file: forks share it as well, but it
//! cannot be passed on.
//!
//! Sparse: only pages that were touched cost memory. The layout is fixed and every field is plain data, so that a
//! keeper can map what its predecessor was writing when it was killed.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use mainstay_core::record::inbox::{self, Inbox};
use mainstay_core::record::{Head, Record, replay_log};
use mainstay_protocol::event::Status;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::{IN_FLIGHT_MAX, WHOLE_LINE_BYTES};
use mainstay_protocol::message::inflight::Slot;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

const PAGE: usize = 4096;
/// The small parts share the first page, because every link touches them.
const SMALL: usize = PAGE / 4;
const HEAD: usize = 0;
const NOTES: usize = SMALL;
const BOARD: usize = 2 * SMALL;
const REPLAY_LOG_BOARD: usize = 3 * SMALL;
const OPENING: usize = PAGE;
const INBOX: usize = OPENING + WHOLE_LINE_BYTES;
const INBOX_BYTES: usize = 2 * WHOLE_LINE_BYTES;
const REPLAY_LOG: usize = INBOX + INBOX_BYTES;
/// Half of it can be used: some thousand subscriptions.
const REPLAY_LOG_BYTES: usize = 2 * 1024 * 1024;
const SLOTS: usize = REPLAY_LOG + REPLAY_LOG_BYTES;
const TOTAL: usize = SLOTS + IN_FLIGHT_MAX * size_of::<Slot>();

/// What guard and keeper tell each other, apart from the link's own memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Notes {
    lost_known: u32,
    lost_pid: i32,
    lost_signal: i32,
    lost_code: i32,
    /// Processes that the guard ended because the last keeper was lost.
    pub lost_ended: u32,
    /// Keepers that were lost so far.
    pub lost_count: u32,
    /// The errno with which the last keeper could not begin; 0 once one has begun.
    unable: i32,
    /// 1 once a keeper has begun: it may have read from the client.
    begun: u32,
    /// The pid of our process that waits for the keeper's server, or 0. It is no member of the tree and is not
    /// counted.
    pub witness: i32,
    shim: OptionalIdentity,
    client: OptionalIdentity,
}

/// An optional identity: pid 0 means none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct OptionalIdentity {
    pid: i32,
    start: u64,
}

impl OptionalIdentity {
    fn who(self) -> Option<Identity> {
        let Self { pid, start } = self;
        (pid > 0).then_some(Identity { pid, start })
    }
}

impl Notes {
    /// Records how a keeper ended.
    pub fn lose(&mut self, who: i32, status: Option<Status>, ended: u32) {
        self.lost_pid = who;
        self.lost_ended = ended;
        self.lost_known = u32::from(status.is_some());
        (self.lost_signal, self.lost_code) = match status {
            Some(Status::Signal { number, core }) => (number, i32::from(core)),
            Some(Status::Code(code)) => (0, code),
            None => (0, 0),
        };
        self.lost_count += 1;
    }

    /// Records that a keeper has begun.
    pub fn begin(&mut self) {
        (self.unable, self.begun) = (0, 1);
    }

    /// Records why a keeper could not begin.
    pub fn set_unable(&mut self, errno: i32) {
        self.unable = errno;
    }

    /// Why no keeper has ever begun, if that is known.
    pub fn unable(&self) -> Option<i32> {
        (self.begun == 0 && self.unable != 0).then_some(self.unable)
    }

    /// Records which keeper is about to be lost.
    pub fn set_lost_pid(&mut self, pid: i32) {
        self.lost_pid = pid;
    }

    /// The keeper that was recorded last.
    pub fn lost_pid(&self) -> i32 {
        self.lost_pid
    }

    /// Records which shim has replaced the first one, and its client.
    pub fn reattach(&mut self, shim: Identity, client: Option<Identity>) {
        let optional = |Identity { pid, start }| OptionalIdentity { pid, start };
        self.client = client.map(optional).unwrap_or_default();
        self.shim = optional(shim);
    }

    /// The shim that has replaced the first one, if any, and its client.
    pub fn reattached(&self) -> Option<(Identity, Option<Identity>)> {
        Some((self.shim.who()?, self.client.who()))
    }

    /// The last keeper that was lost, and how it ended.
    pub fn lost(&self) -> Option<(i32, Option<Status>)> {
        let status = match (self.lost_known, self.lost_signal) {
            (0, _) => None,
            (_, 0) => Some(Status::Code(self.lost_code)),
            (_, number) => Some(Status::Signal {
                number,
                core: self.lost_code != 0,
            }),
        };
        (self.lost_count > 0).then_some((self.lost_pid, status))
    }
}

/// The mapped memory. One per process; forks share it.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    file: Option<OwnedFd>,
}

/// The parts of a [`Region`], for one keeper.
pub struct Parts {
    /// The link's own memory.
    pub record: Record<'static>,
    /// Notes between guard and keeper.
    pub notes: &'static mut Notes,
    /// Bytes from the client.
    pub inbox: Inbox<'static>,
}

impl Region {
    /// A fresh, zeroed record.
    pub fn create() -> io::Result<Self> {
        Self::in_a_file().or_else(|_| Self::map(None))
    }

    fn in_a_file() -> io::Result<Self> {
        let fd = memfd_create("mainstay-record", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, TOTAL as u64)?;
        Self::map(Some(fd))
    }

    /// The file that a keeper can pass on, if there is one.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// The record of a running link, from a file that its keeper has sent us.
    pub fn lent(fd: OwnedFd) -> io::Result<Self> {
        if rustix::fs::fstat(&fd)?.st_size != TOTAL as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(Some(fd))
    }

    /// The size of a record in bytes: two programs with different sizes cannot share one.
    pub const BYTES: usize = TOTAL;

    /// Puts bytes into the inbox that were read from the client before there was a keeper. Only before the first
    /// keeper is started.
    pub fn preload(&self, bytes: &[u8]) {
        // SAFETY: no other process knows this record yet.
        unsafe { self.inbox() }.preload(bytes);
    }

    fn map(file: Option<OwnedFd>) -> io::Result<Self> {
        let (at, access, shared) = (
            ptr::null_mut(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
        );
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe {
            match &file {
                Some(file) => mmap(at, TOTAL, access, shared, file, 0)?,
                None => mmap_anonymous(at, TOTAL, access, shared | MapFlags::NORESERVE)?,
            }
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, file })
    }

    /// Hands out all parts. The mapping is never unmapped, so the references are valid for ever.
    ///
    /// # Safety
    /// At most one process at a time may use the parts (the guard calls this only when no keeper lives), and at most
    /// once in that process's life.
    pub unsafe fn lend(&self) -> Parts {
        // SAFETY: all ranges lie within the mapping, are disjoint and aligned. Every type is plain data for which any
        // bit pattern is valid. The caller promises that no other process uses them.
        unsafe {
            Parts {
                record: Record {
                    head: &mut *self.part::<Head>(HEAD),
                    opening: std::slice::from_raw_parts_mut(
                        self.part::<u8>(OPENING),
                        WHOLE_LINE_BYTES,
                    ),
                    slots: std::slice::from_raw_parts_mut(self.part::<Slot>(SLOTS), IN_FLIGHT_MAX),
                    board: &*self.part::<replay_log::Board>(REPLAY_LOG_BOARD),
                    replay_log: std::slice::from_raw_parts_mut(
                        self.part::<u8>(REPLAY_LOG),
                        REPLAY_LOG_BYTES,
                    ),
                },
                notes: &mut *self.part::<Notes>(NOTES),
                inbox: self.inbox(),
            }
        }
    }

    /// # Safety
    /// At most one process at a time may use it.
    unsafe fn inbox(&self) -> Inbox<'static> {
        // SAFETY: both lie within the mapping, are aligned and disjoint; any bit pattern is valid; the caller
        // promises the rest.
        unsafe {
            Inbox::over(
                &*self.part::<inbox::Board>(BOARD),
                std::slice::from_raw_parts_mut(self.part::<u8>(INBOX), INBOX_BYTES),
            )
        }
    }

    /// A part at an aligned offset.
    fn part<T>(&self, offset: usize) -> *mut T {
        self.base.as_ptr().wrapping_add(offset).cast()
    }

    /// A copy of the fixed part, for a guard that only reads.
    pub fn head(&self) -> Head {
        // SAFETY: within the mapping, aligned, any bit pattern is valid; a torn read is possible and harmless.
        unsafe { ptr::read_volatile(self.part::<Head>(HEAD)) }
    }

    /// A copy of the notes.
    pub fn notes(&self) -> Notes {
        // SAFETY: as for `head`.
        unsafe { ptr::read_volatile(self.part::<Notes>(NOTES)) }
    }

    /// Records that the keeper recorded last was lost, and how many processes of its tree were ended. Only for a
    /// process that outlived it.
    pub(crate) fn note_loss(&self, status: Option<Status>, ended: u32) {
        let mut notes = self.notes();
        notes.lose(notes.lost_pid(), status, ended);
        self.write_notes(notes);
    }

    /// Changes the notes. Only for a guard whose keeper is dead.
    pub fn write_notes(&self, notes: Notes) {
        // SAFETY: within the mapping and aligned; no keeper lives that could hold a reference to it.
        unsafe { ptr::write_volatile(self.part::<Notes>(NOTES), notes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use mainstay_core::record::inbox::Marks;

    #[test]
    fn next_keeper_reads_what_the_last_one_wrote() {
        let region = Region::create().unwrap();
        // SAFETY: the only use in this test.
        let parts = unsafe { region.lend() };
        parts.record.head.generation = 3;
        let mut notes = region.notes();
        assert_eq!(notes.lost(), None);
        notes.lose(
            42,
            Some(Status::Signal {
                number: 9,
                core: false,
            }),
            7,
        );
        region.write_notes(notes);
        assert_eq!(region.head().generation, 3);
        assert_eq!(
            region.notes().lost(),
            Some((
                42,
                Some(Status::Signal {
                    number: 9,
                    core: false
                })
            ))
        );
        assert_eq!(region.notes().lost_ended, 7);
    }

    #[test]
    fn first_keeper_finds_preloaded_bytes_in_its_inbox() {
        let region = Region::create().unwrap();
        region.preload(b"{}\n{\0");
        // SAFETY: the only use in this test.
        let mut inbox = unsafe { region.lend() }.inbox;
        let marks = inbox.recover();
        assert_eq!((marks.start, marks.routed, marks.end), (0, 0, 5));
        assert_eq!(&inbox.bytes()[..5], b"{}\n{\0");
    }

    #[test]
    fn passed_record_is_the_same_and_another_file_is_refused() {
        let region = Region::create().unwrap();
        let mut notes = region.notes();
        assert_eq!(notes.reattached(), None);
        let shim = Identity { pid: 7, start: 8 };
        notes.reattach(shim, None);
        region.write_notes(notes);
        let lent = Region::lent(region.file().unwrap().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(lent.notes().reattached(), Some((shim, None)));
        let other = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        assert!(Region::lent(other).is_err());
    }

    #[test]
    fn memory_without_a_file_is_shared_and_returned_too() {
        let _lock = crate::child_lock::with_children();
        let region = Region::map(None).unwrap();
        assert!(region.file().is_none());
        let child = crate::role::start(|| {
            // SAFETY: the only use in this process; its parent waits.
            let mut inbox = unsafe { region.lend() }.inbox;
            inbox.bytes_mut().fill(b'x');
            inbox.mark(Marks {
                end: 7,
                ..Marks::default()
            });
            0
        });
        assert_eq!(crate::role::wait(child.unwrap()).unwrap(), Some(0));
        // SAFETY: that process has ended.
        let mut inbox = unsafe { region.lend() }.inbox;
        assert_eq!(&inbox.bytes()[..7], b"xxxxxxx");
        memory::give_back_shared(inbox.bytes_mut());
        assert!(inbox.bytes().iter().all(|&b| b == 0));
    }

    #[test]
    fn the_parts_do_not_overlap() {
        const {
            assert!(
                size_of::<Head>() <= SMALL
                    && size_of::<Notes>() <= SMALL
                    && size_of::<inbox::Board>() <= SMALL
                    && size_of::<replay_log::Board>() <= SMALL
                    && size_of::<Slot>() == 128
            );
        };
    }
}
