//! Buffers of whole pages, and returning unused memory to the kernel, because a link is idle most of its life.

use std::ffi::c_void;
use std::{io, ptr, slice};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::thread::gettid;

const PAGE: usize = 4096;
/// How much of the stack below the current frame is returned.
const STACK_REACH: usize = 64 * PAGE;

/// A buffer that lives as long as the process. Pages that were never touched cost nothing, and the kernel copies to
/// and from whole pages faster than to an arbitrary place in the heap.
pub fn buffer(bytes: usize) -> io::Result<&'static mut [u8]> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing. It is zeroed, no other reference
    // to it exists, and it is never unmapped.
    unsafe {
        let start = mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE)?;
        Ok(slice::from_raw_parts_mut(start.cast(), bytes))
    }
}

/// Returns the free heap and the stack below the current frame: before a fork, so that it is not copied, and when a
/// role has nothing else to do.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time; it only gives back pages that hold nothing.
    unsafe {
        libc::malloc_trim(0);
    }
    trim_stack();
}

/// Returns the stack that deeper calls have used.
#[inline(never)]
pub fn trim_stack() {
    // The first thread's stack has only free space below it, far more than we return. Another thread's stack may not.
    if gettid() != rustix::process::getpid() {
        return;
    }
    let here = 0u8;
    // One whole page below this frame stays: more than the calls from here need.
    let end = ((&raw const here as usize) & !(PAGE - 1)) - PAGE;
    // SAFETY: the range is below the frame of the innermost function, except for the page that stays, so no live
    // value is in it. Returned pages read as zero when the stack grows into them again.
    unsafe {
        libc::madvise(
            (end - STACK_REACH) as *mut _,
            STACK_REACH,
            libc::MADV_DONTNEED,
        )
    };
}

/// Unmaps the pages of the program's own file that this process has touched so far: code and constants, most of which
/// only a start needs. They stay in the kernel's page cache, so using them again costs one fault without I/O per 64
/// KB. For a role that is about to wait for a long time.
pub fn unmap_code() {
    // SAFETY: the callback has the signature that is asked for, and nothing is passed to it.
    unsafe { libc::dl_iterate_phdr(Some(unmap_code_of), ptr::null_mut()) };
}

/// The first object is the program itself; returning 1 ends the iteration there.
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
        // SAFETY: a segment that cannot be written contains exactly the bytes of the file. A page that is unmapped is
        // read from there again, also the one with this very instruction.
        unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_DONTNEED) };
    }
    1
}

/// Empties a buffer of our own. Its whole pages are returned and read as zero; the rest keeps its bytes.
pub fn give_back(bytes: &mut [u8]) {
    release(bytes, libc::MADV_DONTNEED);
}

/// The same for a buffer in shared memory: the pages become zero for all processes that map it.
pub fn give_back_shared(bytes: &mut [u8]) {
    release(bytes, libc::MADV_REMOVE);
}

fn release(bytes: &mut [u8], advice: i32) {
    let range = bytes.as_mut_ptr_range();
    let first = (range.start as usize).next_multiple_of(PAGE);
    let end = range.end as usize & !(PAGE - 1);
    if first < end {
        // SAFETY: whole pages within a buffer that only we use now; any bytes are valid in it, also zeros.
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
        assert!(
            super::buffer(usize::MAX / 2).is_err(),
            "too large is an error"
        );
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
    fn deep_calls_work_after_a_trim() {
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
