//! Every limit of this crate, with its unit.

/// The largest config file that is read. Claude Code's own file reaches a few megabytes, because it holds history.
pub const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How deep lists and tables may be nested in a config file.
pub const DEPTH_LEVELS_MAX: usize = 128;

/// How often one write is planned again because the client wrote to the file in between.
pub const WRITE_ATTEMPTS_MAX: u32 = 8;

/// The longest name of a server that `mainstay run --name` takes.
pub const NAME_CHARS_MAX: usize = 64;

/// Lines that the preview shows before and after each change.
pub const DIFF_CONTEXT_LINES: usize = 3;

/// The longest line that the preview shows as a whole. Of a longer one it shows what is around its changes.
pub const DIFF_LINE_BYTES_MAX: usize = 400;

/// How much of a long line the preview shows before and after each change.
pub const DIFF_AROUND_BYTES: usize = 60;

/// How many files of one folder are looked at (Continue keeps one server per file).
pub const FOLDER_FILES_MAX: usize = 256;

/// How many directories above the project are searched for a config file.
pub const PARENT_DIRECTORIES_MAX: usize = 64;

/// How many config files that mainstay has written before are looked at.
pub const BACKUPS_MAX: usize = 4096;

/// The longest path, as Linux has it.
pub const PATH_BYTES_MAX: u64 = 4096;

/// How many directories above a config file may be its project: Junie's file is `.junie/mcp/mcp.json`.
pub const PROJECT_DEPTH_MAX: usize = 3;
