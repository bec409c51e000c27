//! A client process that the test controls: it starts servers in a chosen way, reports when it is ready, obeys commands, and can
//! be killed.
//!
//! Both halves are here: [`Puppet`] in the test, [`run`] in the program. They exchange lines over the program's own stdin and
//! stdout. Only the program has its ends of the servers.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Signal, getpid, kill_process, set_dumpable_behavior, setsid,
};
use serde_json::{Value, json};

use crate::built;
use crate::client::{Carrier, ends};
use crate::fork::{expire_after, heed, leave};
use crate::killers::Habit;
use crate::stage::Stage;
use crate::terminal::Terminal;
use crate::wire::Wire;

/// After this many seconds a forgotten puppet exits by itself.
const EXPIRE_S: u32 = 300;

/// The process that inherits the client's write end of the first server's stdin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leak {
    /// No process.
    #[default]
    Never,
    /// The command itself, as one more inherited descriptor.
    Command,
    /// Another child of the client, which outlives it.
    Sibling,
}

/// How the client starts its servers.
#[derive(Debug, Default)]
pub struct Plan {
    /// Pipes or sockets.
    pub carrier: Carrier,
    /// Its controlling terminal.
    pub terminal: Option<Terminal>,
    /// How many of the same, 1 by default.
    pub copies: Option<u32>,
    /// Each in its own process group.
    pub own_group: bool,
    /// A leaked write end.
    pub leak: Leak,
    /// Other processes of its user cannot inspect it.
    pub hidden: bool,
    /// Its own command line does not contain its servers' command lines, as with clients that have a config file.
    pub configured: bool,
    /// The file that it is started from, if not its own. The process gets that name.
    pub program: Option<PathBuf>,
    /// The words before the client's own command line, if another program starts the client. Its pids may then have another
    /// meaning.
    pub behind: Vec<OsString>,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No answer in time.
    Silence,
    /// The connection ended.
    Lost,
    /// An error.
    Error,
    /// The tool's answer.
    Answer(Value),
}

/// The test's end of a client process.
#[derive(Debug)]
pub struct Puppet {
    /// The client process.
    pub who: Identity,
    /// The processes that it started, in order.
    pub shims: Vec<Identity>,
    /// The sibling that holds a leaked write end.
    pub sibling: Option<Identity>,
    strings: Wire,
    child: Child,
    terminal: Option<Terminal>,
}

impl Puppet {
    /// Starts the client and returns when every opening exchange is done. The census does not count it.
    pub fn start(stage: &Stage, plan: Plan, argv: &[OsString]) -> Self {
        Self::begin(stage, plan, argv).expect("every server is opened")
    }

    /// Like [`Self::start`]. Returns none if a server could not be opened; the client has exited then.
    pub fn begin(stage: &Stage, plan: Plan, argv: &[OsString]) -> Option<Self> {
        let mut words = plan.behind.clone();
        words.push(plan.program.as_deref().unwrap_or(built::puppet()).into());
        let mut command = stage.command(&words[0]);
        command
            .args(&words[1..])
            .args(["--mark", stage.census.mark()]);
        if plan.carrier == Carrier::Sockets {
            command.arg("--sockets");
        }
        if let Some(terminal) = &plan.terminal {
            command
                .arg("--tty")
                .arg(terminal.path().expect("a terminal has a path"));
        }
        command.args(["--copies", &plan.copies.unwrap_or(1).to_string()]);
        command.args(plan.own_group.then_some("--own-group"));
        command.args(plan.hidden.then_some("--hidden"));
        match plan.leak {
            Leak::Never => {}
            Leak::Command => drop(command.arg("--leak-to-command")),
            Leak::Sibling => drop(command.arg("--leak-to-sibling")),
        }
        let (their_in, our_to) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe is to be had");
        let (our_from, their_out) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe is to be had");
        let log = File::options()
            .create(true)
            .append(true)
            .open(stage.path("client-stderr.log"))
            .expect("the HOME takes a file");
        if plan.configured {
            let file = stage.path("servers");
            let words: Vec<&[u8]> = argv.iter().map(|word| word.as_bytes()).collect();
            std::fs::write(&file, words.join(&0)).expect("the HOME takes a file");
            command.arg("--config").arg(file);
        } else {
            command.arg("--").args(argv);
        }
        let child = command
            .stdin(Stdio::from(their_in))
            .stdout(Stdio::from(their_out))
            .stderr(Stdio::from(log))
            .spawn()
            .expect("the puppet can be started");
        // With our copies of its ends closed, because otherwise its end could not be noticed.
        drop(command);
        let who = identity::of(child.id() as i32).expect("an unreaped child is in the table");
        stage.census.spare(who);
        let mut puppet = Self {
            who,
            shims: Vec::new(),
            sibling: None,
            strings: Wire::new(our_to, our_from),
            child,
            terminal: plan.terminal,
        };
        let Some(ready) = puppet.hear() else {
            puppet.gone();
            return None;
        };
        puppet.shims = ready["shims"]
            .as_array()
            .map(|list| list.iter().filter_map(read_identity).collect())
            .unwrap_or_default();
        puppet.sibling = read_identity(&ready["sibling"]);
        if let Some(sibling) = puppet.sibling {
            stage.census.spare(sibling);
        }
        Some(puppet)
    }

    /// Makes it call a tool of its first server, which may never answer. Returns the outcome within that time.
    pub fn ask(&mut self, limit: Duration, tool: &str, arguments: &Value) -> Reply {
        let said = self.tell(&format!("ask {} {tool} {arguments}", limit.as_millis()));
        match said["how"].as_str() {
            Some("answer") => Reply::Answer(said["said"].clone()),
            Some("error") => Reply::Error,
            Some("lost") => Reply::Lost,
            _ => Reply::Silence,
        }
    }

    /// Makes it end its servers like a client of that kind. It lives on.
    pub fn end(&mut self, habit: Habit) {
        self.tell(&format!("end {}", habit.word()));
    }

    /// Makes it start the same servers once more. Returns whether they could be opened. None of the earlier ones may be in use.
    pub fn reconnect(&mut self) -> bool {
        let said = self.tell("again");
        if let Some(shims) = said["shims"].as_array() {
            self.shims = shims.iter().filter_map(read_identity).collect();
        }
        said["shims"].is_array()
    }

    /// Makes it call the tool `pid` on every server. Returns the pids, `None` where no answer came.
    pub fn call_pids(&mut self) -> Vec<Option<i32>> {
        let said = self.tell("call");
        said["pids"]
            .as_array()
            .map(|pids| {
                pids.iter()
                    .map(|pid| pid.as_i64().map(|pid| pid as i32))
                    .collect()
            })
            .unwrap_or_default()
    }

    /// Makes it close its write ends.
    pub fn close(&mut self) {
        self.tell("close");
    }

    /// Makes it send EOF on its sockets and keep them.
    pub fn half_close(&mut self) {
        self.tell("half-close");
    }

    /// Makes it wait for the processes that it started. Returns their exit codes, 128 + n for signals.
    pub fn wait_shims(&mut self) -> Vec<i64> {
        let said = self.tell("wait");
        said["codes"]
            .as_array()
            .map(|codes| codes.iter().filter_map(Value::as_i64).collect())
            .unwrap_or_default()
    }

    /// Makes it start the same servers once more, after [`Self::wait_shims`].
    pub fn again(&mut self) {
        assert!(self.reconnect(), "every server is opened again");
    }

    /// Makes it exit at once without closing anything itself, and waits for its end.
    pub fn exit(mut self) -> ExitStatus {
        drop(self.strings.send_bytes(b"exit\n"));
        self.gone()
    }

    /// Makes it die by SIGABRT, like a crashing runtime, and waits for its end.
    pub fn crash(mut self) -> ExitStatus {
        drop(self.strings.send_bytes(b"crash\n"));
        self.gone()
    }

    /// Kills it with SIGKILL, and waits for its end.
    pub fn kill(mut self) -> ExitStatus {
        if let Ok(handle) = Handle::open(self.who) {
            handle.signal(Signal::KILL).ok();
        }
        self.gone()
    }

    /// Hangs up its terminal, and waits for its end.
    pub fn hang_up(mut self) -> ExitStatus {
        self.terminal
            .take()
            .expect("a terminal was given")
            .hang_up();
        self.gone()
    }

    fn tell(&mut self, command: &str) -> Value {
        self.strings
            .send_bytes(format!("{command}\n").as_bytes())
            .expect("the puppet listens");
        self.hear().expect("the puppet speaks before it ends")
    }

    fn hear(&mut self) -> Option<Value> {
        let line = self.strings.line().expect("the puppet speaks")?;
        Some(serde_json::from_slice(&line).expect("the puppet speaks JSON"))
    }

    fn gone(&mut self) -> ExitStatus {
        self.child.wait().expect("a child can be waited for")
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if let Some(handle) = self.sibling.and_then(|who| Handle::open(who).ok()) {
            handle.signal(Signal::KILL).ok();
        }
    }
}

/// The program, with the arguments after its name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    expire_after(EXPIRE_S);
    heed(libc::SIGHUP);
    match play(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use io::Write as _;
            drop(writeln!(io::stderr(), "puppet: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct Part {
    carrier: Carrier,
    tty: Option<PathBuf>,
    copies: u32,
    own_group: bool,
    leak: Leak,
    hidden: bool,
    mark: OsString,
    argv: Vec<OsString>,
}

struct Running {
    wire: Wire,
    child: Child,
}

fn parse(args: Vec<OsString>) -> io::Result<Part> {
    let mut part = Part {
        copies: 1,
        ..Part::default()
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let lacks = || io::Error::other("a flag lacks its value");
        match arg.to_str().unwrap_or_default() {
            "--mark" => part.mark = args.next().ok_or_else(lacks)?,
            "--sockets" => part.carrier = Carrier::Sockets,
            "--tty" => part.tty = Some(args.next().ok_or_else(lacks)?.into()),
            "--copies" => {
                let text = args.next().ok_or_else(lacks)?;
                part.copies = text
                    .to_str()
                    .and_then(|text| text.parse().ok())
                    .ok_or_else(lacks)?;
            }
            "--own-group" => part.own_group = true,
            "--hidden" => part.hidden = true,
            "--leak-to-command" => part.leak = Leak::Command,
            "--leak-to-sibling" => part.leak = Leak::Sibling,
            "--config" => {
                let text = std::fs::read(args.next().ok_or_else(lacks)?)?;
                let words = text.split(|&byte| byte == 0);
                part.argv = words.map(|word| OsString::from_vec(word.into())).collect();
            }
            "--" => part.argv = args.by_ref().collect(),
            unknown => return Err(io::Error::other(format!("unknown flag {unknown}"))),
        }
    }
    Ok(part)
}

fn play(args: Vec<OsString>) -> io::Result<()> {
    let part = parse(args)?;
    if part.hidden {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    // Stays open for ever, because it makes the terminal ours.
    let terminal = part
        .tty
        .as_ref()
        .map(|path| {
            setsid()?;
            File::options().read(true).write(true).open(path)
        })
        .transpose()?;
    let mut strings = Wire::new(
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?,
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?,
    );
    let (mut running, sibling) = start_all(&part)?;
    let shims = identities(&running);
    let sibling = sibling.and_then(|child| identity::of(child.id() as i32).ok());
    strings.send(&json!({"shims": shims, "sibling": sibling.map(write_identity)}))?;
    while let Some(command) = strings.line_within(Duration::from_secs(EXPIRE_S.into()))? {
        if command == b"again" {
            running.clear();
            let opened = start_all(&part);
            running = opened.map(|(all, _)| all).unwrap_or_default();
            let shims = identities(&running);
            strings.send(&json!({"shims": (!shims.is_empty()).then_some(shims)}))?;
            continue;
        }
        let said = obey(&String::from_utf8_lossy(&command), &mut running)?;
        strings.send(&said)?;
    }
    drop(terminal);
    Ok(())
}

fn identities(running: &[Running]) -> Vec<Value> {
    running
        .iter()
        .filter_map(|one| identity::of(one.child.id() as i32).ok())
        .map(write_identity)
        .collect()
}

/// Starts every server and does the opening exchanges.
fn start_all(part: &Part) -> io::Result<(Vec<Running>, Option<Child>)> {
    let mut sibling = None;
    let mut running = Vec::new();
    for _ in 0..part.copies {
        let (wire, their_in, their_out) = ends(part.carrier)?;
        let leaked = match (part.leak, wire.writer()) {
            (Leak::Command | Leak::Sibling, Some(writer)) => Some(rustix::io::dup(writer)?),
            (Leak::Never, _) | (_, None) => None,
        };
        if part.leak == Leak::Sibling {
            sibling = Some(start_sibling(&part.mark)?);
            drop(leaked);
            running.push(start(part, wire, their_in, their_out)?);
        } else {
            running.push(start(part, wire, their_in, their_out)?);
            drop(leaked);
        }
    }
    for one in &mut running {
        one.wire.initialize()?;
    }
    Ok((running, sibling))
}

fn obey(command: &str, running: &mut [Running]) -> io::Result<Value> {
    if let Some(words) = command.strip_prefix("ask ") {
        return ask(words, running);
    }
    if let Some(word) = command.strip_prefix("end ") {
        let habit = Habit::ALL.into_iter().find(|habit| habit.word() == word);
        let habit = habit.ok_or_else(|| io::Error::other("an unknown habit"))?;
        for one in running {
            let shim = identity::of(one.child.id() as i32)?;
            habit.end(shim, &mut one.wire);
            one.wire.close_write();
            one.child.wait()?;
        }
        return Ok(json!({}));
    }
    Ok(match command {
        "call" => {
            let pids: Vec<Value> = running
                .iter_mut()
                .map(|one| {
                    one.wire
                        .call("pid", &json!({}))
                        .map_or(Value::Null, |said| said["pid"].clone())
                })
                .collect();
            json!({"pids": pids})
        }
        "close" => {
            for one in running {
                one.wire.close_write();
            }
            json!({})
        }
        "half-close" => {
            running.iter().try_for_each(|one| one.wire.half_close())?;
            json!({})
        }
        "wait" => {
            let mut codes = Vec::new();
            for one in running {
                let status = one.child.wait()?;
                codes.push(
                    status
                        .code()
                        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
                );
            }
            json!({"codes": codes})
        }
        "exit" => leave(0),
        "crash" => {
            kill_process(getpid(), Signal::ABORT)?;
            json!({})
        }
        unknown => return Err(io::Error::other(format!("unknown command {unknown}"))),
    })
}

/// Reads a time limit in milliseconds, a tool and its arguments. Returns the outcome of the call.
fn ask(words: &str, running: &mut [Running]) -> io::Result<Value> {
    let lacks = || io::Error::other("ask takes a limit, a tool and arguments");
    let (limit, words) = words.split_once(' ').ok_or_else(lacks)?;
    let (tool, arguments) = words.split_once(' ').ok_or_else(lacks)?;
    let limit = Duration::from_millis(limit.parse().map_err(|_| lacks())?);
    let arguments: Value = serde_json::from_str(arguments)?;
    let wire = &mut running.first_mut().ok_or_else(lacks)?.wire;
    let params = json!({"name": tool, "arguments": arguments});
    let answer = wire
        .ask("tools/call", &params)
        .and_then(|id| wire.answer_within(id, limit));
    Ok(match answer {
        Ok(answer) => match answer.pointer("/result/structuredContent") {
            Some(said) => json!({"how": "answer", "said": said}),
            None => json!({"how": "error"}),
        },
        Err(error) if error.kind() == io::ErrorKind::TimedOut => json!({"how": "silence"}),
        Err(_) => json!({"how": "lost"}),
    })
}

fn start(part: &Part, wire: Wire, their_in: Stdio, their_out: Stdio) -> io::Result<Running> {
    let [program, args @ ..] = part.argv.as_slice() else {
        return Err(io::Error::other("no command was given"));
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "a client starts servers: that is its part"
    )]
    let mut command = Command::new(program);
    if part.own_group {
        command.process_group(0);
    }
    let child = command
        .args(args)
        .stdin(their_in)
        .stdout(their_out)
        .spawn()?;
    Ok(Running { wire, child })
}

/// A process that inherits all descriptors that are inheritable now, and lives on.
fn start_sibling(mark: &OsString) -> io::Result<Child> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the sibling that a descriptor leaks to"
    )]
    let mut command = Command::new(built_beside()?);
    command
        .arg("--mark")
        .arg(mark)
        .args(["--role", "idle"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn built_beside() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("unruly"))
}

fn write_identity(who: Identity) -> Value {
    json!({"pid": who.pid, "start": who.start})
}

fn read_identity(value: &Value) -> Option<Identity> {
    Some(Identity {
        pid: value.get("pid")?.as_i64()? as i32,
        start: value.get("start")?.as_u64()?,
    })
}
