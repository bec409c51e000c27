//! Whether the code of a server has changed since it was started.
//!
//! Code is what the processes of its tree run: their program files, the scripts, programs and settings among their arguments, and
//! the package directory of each script. Nothing is written down at a start: a file has changed if the kernel changed its inode after that moment (`ctime`, which
//! `touch -d`, `git checkout` and `tar -x` cannot set back).
//!
//! What cannot be told counts as changed: the client then gets a fresh server, as it would without mainstay. What servers
//! write themselves (databases, logs, caches) does not count.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Processes of a tree that are looked at.
const PROCESSES: usize = 64;
/// Files of one package directory that are looked at; a larger one counts as changed.
const FILES: usize = 20_000;
/// Directories above a script in which its package is looked for.
const CLIMB: usize = 4;

/// A moment on the clock that stamps files: seconds and nanoseconds since the epoch.
pub type Stamp = (i64, i64);

/// What has changed since then, if anything, for a tree of these processes.
pub fn changed(members: impl Iterator<Item = i32>, since: Stamp) -> Option<PathBuf> {
    let mut look = Look {
        since,
        seen: Vec::new(),
    };
    members.take(PROCESSES).find_map(|pid| look.process(pid))
}

struct Look {
    since: Stamp,
    /// Package directories that were looked at already.
    seen: Vec<PathBuf>,
}

impl Look {
    fn process(&mut self, pid: i32) -> Option<PathBuf> {
        let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).ok();
        // A process that is gone, or that runs no file, has nothing to be changed.
        let program = link("exe")?;
        if let Some(replaced) = program.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
            return Some(OsStr::from_bytes(replaced).into());
        }
        if fs::metadata(&program).is_ok_and(|found| self.is_new(&found)) {
            return Some(program);
        }
        let cwd = link("cwd")?;
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<OsString> = words
            .split(|&byte| byte == 0)
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect();
        self.command(&words, &cwd)
    }

    /// The files among the words of a command, as far as a server reads them, and where a module of Python's would be.
    fn command(&mut self, words: &[OsString], cwd: &Path) -> Option<PathBuf> {
        let modules = words
            .windows(2)
            .filter(|pair| pair[0] == "-m")
            .filter_map(|pair| pair[1].to_str())
            .map(|module| module.replace('.', "/"));
        for module in modules {
            for base in [cwd.to_owned(), cwd.join("src")] {
                let package = base.join(&module);
                let file = base.join(format!("{module}.py"));
                let found = [package.join("__main__.py"), file].into_iter();
                let mut found = found.filter_map(|file| self.argument(&file, Role::Script));
                if let Some(changed) = found.next() {
                    return Some(changed);
                }
            }
        }
        // An interpreter runs the first file that it is given, whatever the name of that file is.
        let mut role = match words.first() {
            Some(program) if is_interpreter(program) => Role::Script,
            Some(_) | None => Role::Argument,
        };
        let files = words.iter().filter(|word| !word.is_empty()).skip(1);
        for file in files.map(|word| cwd.join(word)) {
            if !file.is_file() {
                continue;
            }
            let role = std::mem::replace(&mut role, Role::Argument);
            if let Some(changed) = self.argument(&file, role) {
                return Some(changed);
            }
        }
        let program = words.first().map(|program| cwd.join(program))?;
        self.argument(&program, Role::Argument)
    }

    fn argument(&mut self, path: &Path, role: Role) -> Option<PathBuf> {
        let found = fs::metadata(path).ok().filter(Metadata::is_file)?;
        let script = fs::canonicalize(path).ok()?;
        let is_script = role == Role::Script || is_script(&script);
        // Any other file may be one that the server is told to write.
        let is_read = is_script || found.mode() & 0o111 != 0 || has_extension(path, &SETTINGS);
        if is_read && self.is_new(&found) {
            return Some(path.into());
        }
        if !is_script {
            return None;
        }
        let package = package(&script)?;
        if self.seen.contains(&package) {
            return None;
        }
        self.seen.push(package.clone());
        if is_common(&package) {
            return self.scripts_beside(&package);
        }
        let mut left = FILES;
        self.directory(&package, &mut left)
    }

    /// In a directory that is not the server's alone, only scripts count, and nothing below it.
    fn scripts_beside(&self, directory: &Path) -> Option<PathBuf> {
        let entries = fs::read_dir(directory).ok()?.flatten();
        let mut scripts = entries
            .map(|entry| entry.path())
            .filter(|path| has_extension(path, &SCRIPTS));
        scripts.find(|path| fs::metadata(path).is_ok_and(|found| self.is_new(&found)))
    }

    fn directory(&self, directory: &Path, left: &mut usize) -> Option<PathBuf> {
        for entry in fs::read_dir(directory).ok()?.flatten() {
            *left = match left.checked_sub(1) {
                Some(left) => left,
                None => return Some(directory.into()),
            };
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                if !is_foreign(&path)
                    && let Some(changed) = self.directory(&path, left)
                {
                    return Some(changed);
                }
            } else if !is_data(&path) && fs::metadata(&path).is_ok_and(|found| self.is_new(&found))
            {
                return Some(path);
            }
        }
        None
    }

    /// The clock that stamps files stands still for a few milliseconds at a time. A file with the stamp of the start may have
    /// been changed before or after it, so it counts as changed.
    fn is_new(&self, found: &Metadata) -> bool {
        found.is_file() && (found.ctime(), found.ctime_nsec()) >= self.since
    }
}

/// What a file among the words of a command is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// What the interpreter runs.
    Script,
    /// Its name and its first bytes tell.
    Argument,
}

/// The directory whose files a script may read: the nearest one above it that a manifest calls a package, else its own. None for
/// a script among other commands, which has no package that could be told.
fn package(script: &Path) -> Option<PathBuf> {
    let own = script.parent()?;
    let above = own
        .ancestors()
        .take(CLIMB)
        .take_while(|directory| !is_common(directory));
    let is_package = |directory: &&Path| MANIFESTS.iter().any(|name| directory.join(name).exists());
    let found = above.into_iter().find(is_package);
    let alone = || {
        let name = own.file_name()?.to_str()?;
        (!COMMANDS.contains(&name)).then_some(own)
    };
    found.or_else(alone).map(Path::to_owned)
}

/// Whether an interpreter runs this file: by its name, or by its first line.
fn is_script(path: &Path) -> bool {
    has_extension(path, &SCRIPTS) || first_bytes(path).is_some_and(|bytes| bytes == *b"#!")
}

/// Whether this program runs a script, by its name without a version: `python3.11` is `python`.
fn is_interpreter(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    let name = name.unwrap_or_default();
    INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| extensions.contains(&extension))
}

/// Whether many programs keep their files there.
fn is_common(directory: &Path) -> bool {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    directory.parent().is_none()
        || Some(directory) == home.as_deref()
        || directory == std::env::temp_dir()
}

fn first_bytes(path: &Path) -> Option<[u8; 2]> {
    let mut bytes = [0; 2];
    std::io::Read::read_exact(&mut fs::File::open(path).ok()?, &mut bytes).ok()?;
    Some(bytes)
}

/// Whether a file is one that servers write while they run.
fn is_data(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let extension = name.rsplit('.').next().unwrap_or_default();
    // Hidden files are editors', version control's and caches', but for the environment of a project.
    (name.starts_with('.') && !name.starts_with(".env")) || DATA.contains(&extension)
}

/// Whether a directory holds no code of the package itself.
fn is_foreign(directory: &Path) -> bool {
    let name = directory.file_name().and_then(OsStr::to_str);
    name.is_none_or(|name| name.starts_with('.') || FOREIGN.contains(&name))
}

const INTERPRETERS: [&str; 13] = [
    "bash", "bun", "dash", "deno", "ksh", "lua", "node", "perl", "php", "python", "ruby", "sh",
    "zsh",
];

const MANIFESTS: [&str; 9] = [
    "package.json",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "deno.json",
    "deno.jsonc",
    "Gemfile",
    "composer.json",
    "mix.exs",
];

const SCRIPTS: [&str; 16] = [
    "cjs", "cts", "ex", "exs", "js", "jsx", "lua", "mjs", "mts", "php", "pl", "py", "rb", "sh",
    "ts", "tsx",
];

const SETTINGS: [&str; 11] = [
    "cfg",
    "conf",
    "env",
    "ini",
    "json",
    "json5",
    "jsonc",
    "properties",
    "toml",
    "yaml",
    "yml",
];

const DATA: [&str; 18] = [
    "db",
    "db-journal",
    "db-shm",
    "db-wal",
    "duckdb",
    "jsonl",
    "lock",
    "log",
    "out",
    "pid",
    "pyc",
    "sock",
    "sqlite",
    "sqlite3",
    "swp",
    "tmp",
    "tsbuildinfo",
    "wal",
];

/// Directories of commands that have nothing to do with each other.
const COMMANDS: [&str; 4] = ["bin", "sbin", ".bin", "shims"];

const FOREIGN: [&str; 10] = [
    "__pycache__",
    "cache",
    "coverage",
    "env",
    "log",
    "logs",
    "node_modules",
    "site-packages",
    "target",
    "venv",
];

#[cfg(test)]
mod tests {
    //! guards: A kept server whose code has changed is not handed to a client.

    use super::*;

    use mainstay_os::clock;
    use mainstay_store::scratch::Scratch;

    /// A later stamp than any file has until now.
    fn now(scratch: &Path) -> Stamp {
        let probe = scratch.join(".tick");
        fs::write(&probe, "x").unwrap();
        let last = fs::metadata(&probe).unwrap();
        loop {
            let stamp = clock::wall();
            if stamp > (last.ctime(), last.ctime_nsec()) {
                return stamp;
            }
            clock::nap(1);
        }
    }

    fn look(words: &[&str], cwd: &Path, since: Stamp) -> Option<PathBuf> {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        let mut look = Look {
            since,
            seen: Vec::new(),
        };
        look.command(&words, cwd)
    }

    fn write(root: &Path, name: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }

    #[test]
    fn an_interpreter_runs_its_first_file_whatever_its_name() {
        for (program, changes) in [("sh", true), ("/usr/bin/python3.11", true), ("cat", false)] {
            let scratch = Scratch::new();
            let root = fs::canonicalize(scratch.path()).unwrap();
            write(&root, "app/server");
            write(&root, "app/data");
            let since = now(&root);
            let words = [program, "-u", "app/server", "app/data"];
            assert_eq!(look(&words, &root, since), None);
            write(&root, "app/server");
            let changed = look(&words, &root, since).is_some();
            assert_eq!(changed, changes, "{program}");
        }
    }

    /// What is written after the start, and whether that is a change of `python3 app/server.py data settings.toml`.
    #[test]
    fn what_counts_as_a_change() {
        for (written, changes) in [
            ("app/server.py", true),
            ("app/tools.py", true),
            ("app/deep/er/module.py", true),
            ("app/config.json", true),
            ("app/.env", true),
            ("app/.server.py.swp", false),
            ("app/.git/index", false),
            ("app/__pycache__/server.pyc", false),
            ("app/node_modules/x/index.js", false),
            ("app/server.log", false),
            ("app/state.db", false),
            ("data", false),
            ("settings.toml", true),
            ("other.py", false),
        ] {
            let scratch = Scratch::new();
            let root = fs::canonicalize(scratch.path()).unwrap();
            for name in ["app/server.py", "app/tools.py", "data", "settings.toml"] {
                write(&root, name);
            }
            let since = now(&root);
            let words = ["python3", "app/server.py", "data", "settings.toml"];
            assert_eq!(look(&words, &root, since), None, "{written}");
            write(&root, written);
            let found = look(&words, &root, since);
            assert_eq!(found.is_some(), changes, "{written}: {found:?}");
        }
    }

    /// A manifest above the script makes the package larger; a module is found as Python finds it.
    #[test]
    fn the_package_of_a_script() {
        for (words, written) in [
            (&["node", "dist/index.js"][..], "src/tool.js"),
            (&["node", "dist/index.js"], "package.json"),
            (&["python3", "-m", "weather"], "weather/tools.py"),
            (&["python3", "-m", "weather.cli"], "weather/tools.py"),
            (&["./run"], "src/tool.js"),
        ] {
            let scratch = Scratch::new();
            let root = fs::canonicalize(scratch.path()).unwrap();
            for name in [
                "package.json",
                "dist/index.js",
                "src/tool.js",
                "weather/__main__.py",
                "weather/cli.py",
                "weather/tools.py",
            ] {
                write(&root, name);
            }
            fs::write(root.join("run"), "#!/bin/sh\n").unwrap();
            let since = now(&root);
            assert_eq!(look(words, &root, since), None, "{words:?}");
            write(&root, written);
            assert_eq!(look(words, &root, since), Some(root.join(written)));
        }
    }

    /// An older file that is moved into its place is a change, too.
    #[test]
    fn an_old_file_in_its_place_is_a_change() {
        let scratch = Scratch::new();
        let root = fs::canonicalize(scratch.path()).unwrap();
        for name in ["old/server.py", "app/server.py"] {
            write(&root, name);
        }
        let since = now(&root);
        let words = ["python3", "app/server.py"];
        assert_eq!(look(&words, &root, since), None);
        fs::rename(root.join("old/server.py"), root.join("app/server.py")).unwrap();
        assert!(look(&words, &root, since).is_some());
    }

    #[test]
    fn a_command_among_others_has_no_package() {
        let scratch = Scratch::new();
        let root = fs::canonicalize(scratch.path()).unwrap();
        fs::create_dir(root.join("bin")).unwrap();
        fs::write(root.join("bin/server"), "#!/bin/sh\n").unwrap();
        let since = now(&root);
        write(&root, "bin/other");
        assert_eq!(look(&["bin/server"], &root, since), None);
        fs::write(root.join("bin/server"), "#!/bin/sh\n\n").unwrap();
        assert!(look(&["bin/server"], &root, since).is_some());
    }
}
