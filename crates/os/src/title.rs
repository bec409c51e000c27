//! A process's own name, as `ps` and `pkill` see it.
//!
//! Guard and keeper are forks of `mainstay run …` and would carry its command line; `pkill -f mainstay`, or one with
//! the server's name, would then end the very processes that must survive to clean up.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// Gives this process another name, both `comm` and command line. Best effort.
pub fn set(name: &CStr) {
    // SAFETY: PR_SET_NAME reads a NUL-terminated string of any length and keeps 15 bytes of it.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    let Some((first, last)) = *AREA.get_or_init(argument_area) else {
        return;
    };
    // SAFETY: the kernel says that [first, last) is the argument area of this very process: mapped, writable, and
    // used by nobody else any more (the arguments were copied by std at start, and this is the only thread).
    let area = unsafe { std::slice::from_raw_parts_mut(first as *mut u8, last - first) };
    area.fill(0);
    let name = name.to_bytes();
    let len = name.len().min(area.len().saturating_sub(1));
    area[..len].copy_from_slice(&name[..len]);
}

/// Overwrites these words where they stand in this process's command line, which every user of the machine can read.
/// Best effort.
pub fn hide(words: &[&str]) {
    let Some((first, last)) = *AREA.get_or_init(argument_area) else {
        return;
    };
    // SAFETY: as in `set`.
    let area = unsafe { std::slice::from_raw_parts_mut(first as *mut u8, last - first) };
    for word in words.iter().map(|word| word.as_bytes()) {
        if word.is_empty() {
            continue;
        }
        let mut at = 0;
        while let Some(found) = area[at..].windows(word.len()).position(|part| part == word) {
            area[at + found..at + found + word.len()].fill(b'*');
            at += found + word.len();
        }
    }
}

/// Asked for once: a fork has it at the same place.
static AREA: OnceLock<Option<(usize, usize)>> = OnceLock::new();

fn argument_area() -> Option<(usize, usize)> {
    let mut buffer = [0; 1024];
    let len = File::open("/proc/self/stat")
        .and_then(|mut file| file.read(&mut buffer))
        .ok()?;
    let stat = String::from_utf8_lossy(&buffer[..len]);
    let rest = stat.get(stat.rfind(')')? + 2..)?;
    // proc(5): arg_start is field 48, arg_end 49; `rest` begins with field 3.
    let mut fields = rest.split_ascii_whitespace().skip(45);
    let first: usize = fields.next()?.parse().ok()?;
    let last: usize = fields.next()?.parse().ok()?;
    (first != 0 && last > first).then_some((first, last))
}
