//! Names whose changes do not matter to the author of a server: files of version control, build tools, caches and
//! editors.

/// Names of files and directories that are ignored, with everything below them.
const NAMES: [&[u8]; 22] = [
    b".git",
    b".hg",
    b".svn",
    b".jj",
    b"node_modules",
    b"target",
    b"__pycache__",
    b".venv",
    b".tox",
    b".nox",
    b".mypy_cache",
    b".pytest_cache",
    b".ruff_cache",
    b".hypothesis",
    b".cache",
    b".parcel-cache",
    b".turbo",
    b".idea",
    b".vscode",
    b".DS_Store",
    // The file that vim makes to find out whether it may write here.
    b"4913",
    b".tmp",
];

/// Beginnings and ends of names that are ignored.
const SHAPES: [(&[u8], &[u8]); 15] = [
    (b"", b"~"),
    (b".#", b""),
    (b"#", b"#"),
    (b"", b".swp"),
    (b"", b".swx"),
    (b"", b".swo"),
    (b"", b".crswap"),
    (b"", b".kate-swp"),
    (b".goutputstream-", b""),
    (b"", b"___jb_tmp___"),
    (b"", b"___jb_old___"),
    (b"", b".tmp"),
    (b"", b".pyc"),
    (b"", b".log"),
    (b".nfs", b""),
];

/// Whether a name, one part of a path, is ignored.
pub(super) fn noise(name: &[u8]) -> bool {
    NAMES.contains(&name)
        || SHAPES.iter().any(|(begin, end)| {
            name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_no_noise() {
        for name in [
            "server.py",
            "dist",
            "build",
            "index.js",
            ".env",
            "#",
            "git",
            "targets",
            "log",
            "a.log.py",
            "tmp",
            "cache",
            "swp",
        ] {
            assert!(!noise(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn files_of_tools_are_noise() {
        for name in [
            ".git",
            "node_modules",
            "server.py~",
            ".#server.py",
            "#server.py#",
            ".server.py.swp",
            "4913",
            "x.pyc",
            "debug.log",
            "a.tmp",
            ".tmp",
            "##",
        ] {
            assert!(noise(name.as_bytes()), "{name}");
        }
    }
}
