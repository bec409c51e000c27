//! Whether the program of a process is an MCP server, by what its files say.
//!
//! A pipe whose client is gone does not make a process a server: a test run whose output was piped has lost its pipe, too. So the program must
//! also speak MCP: its script, the package that the script belongs to, or the binary itself. Names of processes and of directories count
//! for nothing, because a path may contain any word.
//!
//! Only files of the process's own program are read, at most `BINARY_BYTES_MAX` of each. A file that cannot be read is no sign.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use memchr::memmem;

/// The largest binary that is searched.
const BINARY_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How much of a script or of a package's description is read.
const TEXT_BYTES_MAX: u64 = 1024 * 1024;
/// A binary is read in pieces of this size.
const PIECE_BYTES: usize = 1024 * 1024;
/// Directories above a script in which its package's description is looked for.
const ABOVE_MAX: usize = 6;

/// A server of any SDK must be able to read one of these words.
const PROTOCOL_WORDS: [&str; 2] = ["notifications/initialized", "tools/list"];
/// What the script of a server imports, or writes itself. A client's script has none of them.
const SERVER_WORDS: [&str; 8] = [
    "StdioServerTransport",
    "McpServer",
    "sdk/server",
    "modelcontextprotocol/server",
    "mcp.server",
    "FastMCP",
    "serverInfo",
    "server/stdio",
];
/// What a Python package needs if it is a server.
const PYTHON_NEEDS: [&str; 2] = ["mcp", "fastmcp"];

/// How much is read for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Scripts and packages.
    Texts,
    /// Binaries, too.
    Binaries,
}

/// A process's program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its arguments.
    pub argv: Vec<String>,
    /// The file that it executes.
    pub exe: Option<PathBuf>,
    /// Its working directory.
    pub cwd: Option<PathBuf>,
}

/// Whether these arguments run a script, a module or a package: of a binary, only [`Depth::Binaries`] tells whether it speaks.
pub fn runs_script(argv: Vec<String>) -> bool {
    let program = Program {
        argv,
        ..Program::default()
    };
    program.form() != Form::Binary
}

/// Whether a process may run a script, or starts a package. One link to read, so it is asked before the arguments are.
pub fn may_run_script(pid: i32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| may_execute_scripts(&exe))
}

fn may_execute_scripts(exe: &Path) -> bool {
    let name = exe.file_name().map(|name| name.to_string_lossy());
    name.is_none_or(|name| {
        let mut all = INTERPRETERS.iter().chain(&["uv", "pipx", "busybox"]);
        all.any(|interpreter| name.contains(interpreter))
    })
}

impl Program {
    /// That of a living process.
    pub fn at(pid: i32) -> Self {
        Self {
            argv: mainstay_os::census::cmdline(pid),
            exe: fs::read_link(format!("/proc/{pid}/exe")).ok(),
            cwd: fs::read_link(format!("/proc/{pid}/cwd")).ok(),
        }
    }

    /// The sign that it is an MCP server: what says so.
    pub fn speaks(&self, depth: Depth) -> Option<String> {
        match self.form() {
            Form::Script(interpreter, path) => self.script_speaks(interpreter, &path),
            Form::Module(name) => is_mcp_name(&name).then(|| format!("the Python module {name}")),
            Form::Code(text) => has_word(text.as_bytes(), &SERVER_WORDS)
                .map(|word| format!("its code has `{word}`")),
            Form::Launcher(package) => {
                is_mcp_name(&package).then(|| format!("the package {package}"))
            }
            Form::Binary => self.binary_speaks(depth),
        }
    }

    /// The file whose code it runs: the script, or the binary.
    pub fn file(&self) -> Option<PathBuf> {
        match self.form() {
            Form::Script(_, path) => Some(self.absolute(&path)),
            Form::Binary => self.exe.clone(),
            Form::Module(_) | Form::Code(_) | Form::Launcher(_) => None,
        }
    }

    /// The binary, if it runs no script: the answer is the same for every process that runs it.
    pub fn binary(&self) -> Option<&Path> {
        let exe = self.exe.as_deref();
        exe.filter(|_| self.form() == Form::Binary)
    }

    fn form(&self) -> Form {
        let words: Vec<&str> = self
            .argv
            .iter()
            .flat_map(|word| title_words(word))
            .collect();
        let [program, rest @ ..] = words.as_slice() else {
            return Form::Binary;
        };
        let program = base(program);
        if ["npm", "npx", "pnpm", "bunx", "uvx", "uv", "pipx"].contains(&program) {
            return Form::Launcher(launched(rest).unwrap_or_default().to_owned());
        }
        let interprets = |name: &&&str| program.strip_prefix(**name).is_some_and(is_version);
        let Some(interpreter) = INTERPRETERS.iter().find(interprets) else {
            return Form::Binary;
        };
        let mut rest = rest.iter();
        while let Some(&word) = rest.next() {
            match (word, *interpreter) {
                ("-m", "python") => {
                    return Form::Module(rest.next().copied().unwrap_or_default().to_owned());
                }
                ("-c", "python" | "bash" | "sh") | ("-e" | "--eval", "node" | "bun" | "deno") => {
                    return Form::Code(rest.copied().collect::<Vec<_>>().join(" "));
                }
                // These take a value of their own.
                ("-W" | "-X", "python") | ("-r" | "--require" | "--import", "node") => {
                    rest.next();
                }
                ("run" | "x", "deno" | "bun") => {}
                _ if word.starts_with('-') => {}
                _ => return Form::Script(interpreter, word.into()),
            }
        }
        Form::Binary
    }

    fn script_speaks(&self, interpreter: &str, path: &Path) -> Option<String> {
        let path = self.absolute(path);
        let path = path.canonicalize().unwrap_or(path);
        let text = text_of(&path).unwrap_or_default();
        if let Some(word) = has_word(&text, &SERVER_WORDS) {
            return Some(format!("{} has `{word}`", path.display()));
        }
        match interpreter {
            "python" => python_package(&path, &text),
            "node" | "bun" | "deno" => node_package(&path),
            _ => None,
        }
    }

    fn binary_speaks(&self, depth: Depth) -> Option<String> {
        let exe = self.exe.as_ref()?;
        let interpreter = |name: &str| base(&exe.to_string_lossy()).starts_with(name);
        if depth == Depth::Texts || INTERPRETERS.iter().any(|name| interpreter(name)) {
            return None;
        }
        let found = binary_has(exe, &PROTOCOL_WORDS).ok()??;
        Some(format!("{} has `{found}`", exe.display()))
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        match &self.cwd {
            Some(cwd) if path.is_relative() => cwd.join(path),
            Some(_) | None => path.to_owned(),
        }
    }
}

/// What a process runs.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    /// An interpreter, with the script.
    Script(&'static str, PathBuf),
    Module(String),
    Code(String),
    /// A package runner, with the package.
    Launcher(String),
    Binary,
}

const INTERPRETERS: [&str; 9] = [
    "node",
    "bun",
    "deno",
    "python",
    "ruby",
    "bash",
    "sh",
    "dash",
    "MainThread",
];

/// Nothing, or the version behind an interpreter's name: `3.11` of `python3.11`.
fn is_version(rest: &str) -> bool {
    rest.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// A process title (`npm exec @x/y`) is one word with spaces in it. The code of `sh -c` is one word, too, but never the first.
fn title_words(word: &str) -> Vec<&str> {
    if word.starts_with("npm ") {
        word.split(' ').collect()
    } else {
        vec![word]
    }
}

/// The package that a package runner starts.
fn launched<'a>(words: &[&'a str]) -> Option<&'a str> {
    let verbs = ["exec", "dlx", "run", "tool", "x"];
    let mut words = words.iter();
    let package = words.find(|word| !word.starts_with('-') && !verbs.contains(word))?;
    Some(package)
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a package or module calls itself an MCP program: `mcp` is one of its words, or begins or ends one.
fn is_mcp_name(name: &str) -> bool {
    let version = name.strip_prefix('@').and_then(|name| name.split_once('@'));
    let name = version.map_or(name, |(name, _)| name);
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| {
        let word = word.to_ascii_lowercase();
        word.starts_with("mcp") || word.ends_with("mcp") || word == "modelcontextprotocol"
    })
}

fn text_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let file = File::open(path)?;
    // A named pipe or a device would block, or never end.
    if file.metadata()?.is_file() {
        file.take(TEXT_BYTES_MAX).read_to_end(&mut text)?;
    }
    Ok(text)
}

fn has_word<'a>(text: &[u8], words: &[&'a str]) -> Option<&'a str> {
    let has = |word: &&&str| memmem::find(text, word.as_bytes()).is_some();
    words.iter().find(has).copied()
}

/// The same for a file that is too large to be read at once.
fn binary_has<'a>(path: &Path, words: &[&'a str]) -> io::Result<Option<&'a str>> {
    let longest = words.iter().map(|word| word.len()).max().unwrap_or(0);
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut file = file.take(BINARY_BYTES_MAX);
    let mut piece = vec![0; PIECE_BYTES + longest];
    let mut kept = 0;
    loop {
        let read = file.read(&mut piece[kept..])?;
        if read == 0 {
            return Ok(None);
        }
        let len = kept + read;
        if let Some(word) = has_word(&piece[..len], words) {
            return Ok(Some(word));
        }
        // A word may be cut by the end of a piece.
        kept = longest.min(len);
        piece.copy_within(len - kept..len, 0);
    }
}

/// The nearest `package.json` above a script, if it names MCP and the script is a program of the package: a test or a build of a server's repository
/// is no server.
fn node_package(script: &Path) -> Option<String> {
    let above = script.ancestors().skip(1).take(ABOVE_MAX);
    let (dir, place, text) = above
        .map(|dir| (dir, dir.join("package.json")))
        .find_map(|(dir, path)| text_of(&path).ok().map(|text| (dir, path, text)))?;
    let text = String::from_utf8_lossy(&text);
    let inside = script.strip_prefix(dir).ok()?.to_string_lossy();
    let is_program = ["", "./"]
        .iter()
        .any(|dot| text.contains(&format!("\"{dot}{inside}\"")));
    if !is_program {
        return None;
    }
    let named = value_of(&text, "name").is_some_and(is_mcp_name);
    let says = named || text.contains("@modelcontextprotocol/") || text.contains("\"mcpName\"");
    says.then(|| format!("{} names MCP", place.display()))
}

/// The first value of this key, if it is a text.
fn value_of<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{key}\""))?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let (value, _) = rest.strip_prefix('"')?.split_once('"')?;
    Some(value)
}

/// The package of a script that pip or uv wrote (`from PACKAGE import main`), if it needs the MCP SDK.
fn python_package(script: &Path, text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let module = text.lines().find_map(|line| {
        let (module, _) = line
            .trim_start()
            .strip_prefix("from ")?
            .split_once(" import ")?;
        Some(module.split('.').next().unwrap_or(module).to_owned())
    })?;
    let lib = script.parent()?.parent()?.join("lib");
    let versions = fs::read_dir(lib).ok()?.flatten();
    let sites = versions.map(|version| version.path().join("site-packages"));
    let metadata = sites
        .filter_map(|site| fs::read_dir(site).ok())
        .flat_map(Iterator::flatten)
        .find(|entry| {
            let name = entry.file_name().to_string_lossy().to_ascii_lowercase();
            let mut parts = name.split('-');
            name.ends_with(".dist-info") && parts.next() == Some(&module.to_ascii_lowercase())
        })?
        .path()
        .join("METADATA");
    let text = text_of(&metadata).ok()?;
    let text = String::from_utf8_lossy(&text);
    let needs = text.lines().any(|line| {
        line.strip_prefix("Requires-Dist: ").is_some_and(|need| {
            let mut words = need.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            words
                .next()
                .is_some_and(|name| PYTHON_NEEDS.contains(&name))
        })
    });
    needs.then(|| format!("the Python package {module} needs the MCP SDK"))
}

#[cfg(test)]
mod tests {
    //! guards: A program counts as an MCP server by what its files say, never by a word in its path.

    use super::*;

    fn program(words: &[&str]) -> Program {
        Program {
            argv: words.iter().map(|&word| word.to_owned()).collect(),
            exe: Some("/usr/bin/env".into()),
            cwd: None,
        }
    }

    fn place(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("mainstay-speaks-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn what_a_command_runs() {
        for (words, form) in [
            (
                &["node", "/x/server.js", "stdio"][..],
                Form::Script("node", "/x/server.js".into()),
            ),
            (
                &["node", "--import", "tsx", "a.ts"],
                Form::Script("node", "a.ts".into()),
            ),
            (
                &["/v/bin/python3.11", "-u", "server.py"],
                Form::Script("python", "server.py".into()),
            ),
            (
                &["python", "-m", "mcp_server_time"],
                Form::Module("mcp_server_time".into()),
            ),
            (
                &["python3", "-c", "import x"],
                Form::Code("import x".into()),
            ),
            (&["sh", "-c", "node x"], Form::Code("node x".into())),
            (
                &["npm exec @playwright/mcp@latest"],
                Form::Launcher("@playwright/mcp@latest".into()),
            ),
            (
                &["uv", "tool", "run", "mcp-server-time"],
                Form::Launcher("mcp-server-time".into()),
            ),
            (&["/usr/bin/npx", "-y", "y"], Form::Launcher("y".into())),
            (&["/opt/github-mcp-server", "stdio"], Form::Binary),
            (&["nodemon", "x.js"], Form::Binary),
            (&[], Form::Binary),
        ] {
            assert_eq!(program(words).form(), form, "{words:?}");
        }
    }

    #[test]
    fn files_that_may_run_scripts() {
        for (file, may) in [
            ("/usr/bin/python3.11", true),
            ("/usr/bin/node (deleted)", true),
            ("/opt/.python3-wrapped", true),
            ("/bin/dash", true),
            ("/bin/busybox", true),
            ("/home/a/.local/bin/uvx", true),
            ("/usr/sbin/nginx", false),
            ("/opt/node/github-mcp-server", false),
            ("/", true),
        ] {
            assert_eq!(may_execute_scripts(Path::new(file)), may, "{file}");
        }
    }

    #[test]
    fn names_of_packages() {
        for (name, is) in [
            ("@playwright/mcp@latest", true),
            ("mcp-server-time", true),
            ("mcp_server_time", true),
            ("fastmcp", true),
            ("@modelcontextprotocol/server-everything", true),
            ("pytest", false),
            ("claude", false),
            ("comcp2", false),
            ("", false),
        ] {
            assert_eq!(is_mcp_name(name), is, "{name}");
        }
    }

    #[test]
    fn scripts_speak_by_their_text_or_package_and_not_by_their_path() {
        let dir = place("claude-mcp");
        let script = dir.join("mcp-server.js");
        fs::write(&script, "require('./lib')").unwrap();
        let node = program(&["node", script.to_str().unwrap()]);
        assert_eq!(node.speaks(Depth::Binaries), None, "only its path says mcp");
        let package = dir.join("package.json");
        let needs = r#""dependencies": {"@modelcontextprotocol/sdk": "1"}"#;
        fs::write(&package, format!("{{\"name\": \"x\", {needs}}}")).unwrap();
        assert_eq!(
            node.speaks(Depth::Texts),
            None,
            "a build script is no server"
        );
        fs::write(
            &package,
            format!("{{\"bin\": {{\"x\": \"./mcp-server.js\"}}, {needs}}}"),
        )
        .unwrap();
        assert!(
            node.speaks(Depth::Texts)
                .unwrap()
                .ends_with("package.json names MCP")
        );
        fs::write(
            &script,
            "import { Server } from '@modelcontextprotocol/sdk/server'",
        )
        .unwrap();
        assert!(
            node.speaks(Depth::Texts)
                .unwrap()
                .ends_with("has `sdk/server`")
        );
        let tests = dir.join("test_claude.py");
        fs::write(&tests, "def test_x(): pass").unwrap();
        fs::remove_file(package).unwrap();
        assert_eq!(
            program(&["python3", "-m", "pytest", tests.to_str().unwrap()]).speaks(Depth::Binaries),
            None
        );
        assert_eq!(
            program(&["python3", tests.to_str().unwrap()]).speaks(Depth::Binaries),
            None
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_script_of_pip_speaks_if_its_package_needs_the_sdk() {
        let venv = place("venv");
        let site = venv.join("lib/python3.11/site-packages");
        let info = site.join("clock_server-1.0.dist-info");
        fs::create_dir_all(&info).unwrap();
        fs::create_dir_all(venv.join("bin")).unwrap();
        let script = venv.join("bin/clock");
        fs::write(
            &script,
            "import sys\nfrom clock_server.cli import main\nmain()\n",
        )
        .unwrap();
        let clock = program(&["/v/bin/python", script.to_str().unwrap()]);
        fs::write(
            info.join("METADATA"),
            "Name: clock-server\nRequires-Dist: mcpx>=1\n",
        )
        .unwrap();
        assert_eq!(clock.speaks(Depth::Texts), None);
        fs::write(
            info.join("METADATA"),
            "Requires-Dist: pydantic\nRequires-Dist: mcp<2,>=1.0\n",
        )
        .unwrap();
        assert!(clock.speaks(Depth::Texts).is_some());
        fs::remove_dir_all(venv).unwrap();
    }

    #[test]
    fn a_binary_speaks_by_a_word_also_across_two_pieces() {
        let dir = place("binary");
        let file = dir.join("server");
        for at in [10, PIECE_BYTES - 3, PIECE_BYTES + 13] {
            let mut bytes = vec![b'x'; at];
            bytes.extend(b"tools/list");
            bytes.extend(vec![b'x'; 100]);
            fs::write(&file, bytes).unwrap();
            let server = Program {
                argv: vec!["server".into()],
                exe: Some(file.clone()),
                cwd: None,
            };
            assert!(server.speaks(Depth::Binaries).is_some(), "{at}");
            assert_eq!(server.speaks(Depth::Texts), None);
        }
        fs::write(&file, "tools/lis").unwrap();
        assert_eq!(binary_has(&file, &PROTOCOL_WORDS).unwrap(), None);
        fs::remove_dir_all(dir).unwrap();
    }
}
