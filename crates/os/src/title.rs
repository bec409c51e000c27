//! The name of this process, as `ps` and `pkill` see it.
//!
//! Guard and keeper are forks of `mainstay run …` and would show its command line. Then `pkill -f mainstay`, or
//! `pkill -f` with the server's name, would end the very processes that must survive to clean up.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// Changes the name of this process, both `comm` and command line. Best effort.
pub fn set(name: &CStr) {
    set_for(name, "");
}

/// The same, and the command line also shows which link the process belongs to (`mcp-keeper 3f2a`), so that its row can be matched
/// with `mainstay ps`. `comm` has the name alone.
pub fn set_for(name: &CStr, link: &str) {
    // SAFETY: PR_SET_NAME reads a NUL-terminated string of any length and keeps 15 bytes of it.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    let Some((first, last)) = *AREA.get_or_init(argument_area) else {
        return;
    };
    // SAFETY: the kernel says that [first, last) is the argument area of this very process: mapped and writable. No
    // code reads it any more, because std copied the arguments at start, and this is the only thread.
    let area = unsafe { std::slice::from_raw_parts_mut(first as *mut u8, last - first) };
    area.fill(0);
    let space: &[u8] = if link.is_empty() { b"" } else { b" " };
    let text = [name.to_bytes(), space, link.as_bytes()].concat();
    let len = text.len().min(area.len().saturating_sub(1));
    area[..len].copy_from_slice(&text[..len]);
}

/// Overwrites these words in this process's command line, which every user of the machine can read. Best effort.
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

/// Read once: a fork has the area at the same address.
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
