//! Buffers of whole pages, and giving memory back that is not needed any more: a link is idle most of its life.

use std::ffi::c_void;
use std::{io, ptr, slice};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::thread::gettid;

const PAGE: usize = 4096;
/// How much of the stack below us is looked at.
const STACK_REACH: usize = 64 * PAGE;

/// A buffer for the rest of this process's life. What was not touched yet costs nothing; and the kernel copies to and from
/// whole pages faster than to where the heap happens to have room.
pub fn buffer(bytes: usize) -> io::Result<&'static mut [u8]> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing; it is zero, nobody else knows it, and
    // it is never undone.
    unsafe {
        let start = mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE)?;
        Ok(slice::from_raw_parts_mut(start.cast(), bytes))
    }
}

/// Gives back what is free in the heap, and what deeper calls have left on the stack: before a fork, so that it is not
/// copied, and when a role has nothing else to do.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time; it only gives back pages that hold nothing.
    unsafe {
        libc::malloc_trim(0);
    }
    trim_stack();
}

/// Gives back what deeper calls have left on the stack.
#[inline(never)]
pub fn trim_stack() {
    // The stack of the first thread has nothing but free space below it, far beyond our reach; another one's may have.
    if gettid() != rustix::process::getpid() {
        return;
    }
    let here = 0u8;
    // A whole page below this frame is left alone: more than the calls from here need.
    let end = ((&raw const here as usize) & !(PAGE - 1)) - PAGE;
    // SAFETY: the range is below the frame of the innermost function but for the page left alone, so nothing in it is
    // alive; pages that are given back read as zero when the stack grows into them again.
    unsafe {
        libc::madvise(
            (end - STACK_REACH) as *mut _,
            STACK_REACH,
            libc::MADV_DONTNEED,
        )
    };
}

/// Unmaps the pages of the program's own file that this process has touched so far: code and constants, most of which are
/// needed only at a start. They stay in the kernel's page cache, so whatever is needed again costs a fault without I/O for each
/// 64 KB. For a role that is about to wait for long.
pub fn unmap_code() {
    // SAFETY: the callback has the signature that is asked for, and nothing is passed to it.
    unsafe { libc::dl_iterate_phdr(Some(unmap_code_of), ptr::null_mut()) };
}

/// The first object is the program itself; the answer 1 ends the iteration there.
unsafe extern "C" fn unmap_code_of(
    object: *mut libc::dl_phdr_info,
    _: usize,
    _: *mut c_void,
) -> i32 {
    // SAFETY: the C library passes a valid object with its table of program headers.
    let (base, headers) = unsafe {
        let object = &*object;
        let headers = slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum));
        (object.dlpi_addr, headers)
    };
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let start = (base + header.p_vaddr) as usize & !(PAGE - 1);
        let end = ((base + header.p_vaddr + header.p_memsz) as usize).next_multiple_of(PAGE);
        // SAFETY: a segment that cannot be written to has the bytes of the file, and nothing else: a page that is unmapped is
        // read from there again, also the one with this very instruction.
        unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_DONTNEED) };
    }
    1
}

/// Empties a buffer of our own: its whole pages are given back and read as zero, the rest stays as it is.
pub fn give_back(bytes: &mut [u8]) {
    release(bytes, libc::MADV_DONTNEED);
}

/// The same for a buffer in shared memory: for everybody who maps it.
pub fn give_back_shared(bytes: &mut [u8]) {
    release(bytes, libc::MADV_REMOVE);
}

fn release(bytes: &mut [u8], advice: i32) {
    let range = bytes.as_mut_ptr_range();
    let first = (range.start as usize).next_multiple_of(PAGE);
    let end = range.end as usize & !(PAGE - 1);
    if first < end {
        // SAFETY: whole pages within a buffer that is ours alone for now; any bytes are valid in it, zeros too.
        unsafe { libc::madvise(first as *mut _, end - first, advice) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_with_a_page_and_is_ours() {
        let buffer = buffer(2 * PAGE).unwrap();
        assert_eq!(buffer.as_ptr().align_offset(PAGE), 0);
        assert!(buffer.iter().all(|&b| b == 0));
        buffer.fill(7);
        give_back(buffer);
        assert!(buffer.iter().all(|&b| b == 0));
        assert!(super::buffer(usize::MAX / 2).is_err(), "too much is told");
    }

    #[test]
    fn whole_pages_are_emptied_and_nothing_else() {
        let mut room = vec![7u8; 4 * PAGE];
        let skip = room.as_ptr().align_offset(PAGE);
        give_back(&mut room[skip + 1..=skip + 2 * PAGE]);
        assert!(room[..skip + PAGE].iter().all(|&b| b == 7));
        assert!(room[skip + PAGE..skip + 2 * PAGE].iter().all(|&b| b == 0));
        assert!(room[skip + 2 * PAGE..].iter().all(|&b| b == 7));
    }

    #[test]
    fn unmapped_code_is_mapped_again_when_it_is_needed() {
        let mapped = || {
            let rollup = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let program = std::env::current_exe().unwrap();
            let mut ours = false;
            let mut kib = 0;
            for line in rollup.lines() {
                if line.contains('-') && line.contains(' ') && !line.contains("kB") {
                    ours = line.contains(" r-xp ") && line.ends_with(program.to_str().unwrap());
                }
                let rss = line.strip_prefix("Rss:").filter(|_| ours);
                kib += rss.map_or(0, |rss| {
                    rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
                });
            }
            kib
        };
        let before = mapped();
        unmap_code();
        let after = mapped();
        assert!(0 < after && after < before, "{before} KiB, then {after}");
    }

    #[test]
    fn a_trimmed_stack_goes_on() {
        fn deep(n: usize) -> usize {
            let room = std::hint::black_box([n; 512]);
            if n == 0 {
                room[0]
            } else {
                room[n] + deep(n - 1)
            }
        }
        let before = deep(20);
        trim();
        assert_eq!(deep(20), before);
    }
}
