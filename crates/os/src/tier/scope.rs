//! The scope tier: a leaf that the systemd user manager makes, watched by a guardian that outlives all of us.
//!
//! All scopes are in one slice, `app-mainstay.slice`, together with the guardian's service. So the guardian has one
//! directory to watch, and each leaf's name contains its owner. The tier is in force only if the scope was made, the
//! server was seen in it, we may write its `cgroup.kill`, and the guardian runs. Without the guardian such a leaf is
//! no better than a cgroup leaf, and is reported as one.
//!
//! It never starts a server and never judges a leaf.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_protocol::ids::Tag;
use mainstay_protocol::limits;
use rustix::fs::{FlockOperation, flock};

use super::cgroup::{self, Leaf};
use super::refusal::Refusal;
use crate::cap;
use crate::clock;
use crate::dbus::{self, Address, Args, Body, Connection, Error, Method, Value};

/// The slice that holds the scopes and the guardian.
pub const SLICE: &str = "app-mainstay.slice";
/// The guardian's unit.
pub const GUARDIAN: &str = "mainstay-guardian.service";
/// The guardian's short name once it has decided to exit.
pub const LEAVING: &str = "leaving";

/// How often the manager may restart the guardian within 10 s: more often than a user can kill it, but no endless
/// loop.
const RESTARTS_IN_10_S: u32 = 100;

const MANAGER: &str = "org.freedesktop.systemd1";
const OBJECT: &str = "/org/freedesktop/systemd1";

/// The program that the guardian's unit runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file.
    pub exe: PathBuf,
    /// Its arguments, the first included.
    pub argv: Vec<String>,
}

impl Program {
    /// This very program, as `mainstay guardian`.
    pub fn ours() -> Result<Self, Refusal> {
        let exe = fs::read_link("/proc/self/exe")
            .map_err(|error| Refusal::OwnProgram(error.to_string()))?;
        // After an upgrade the old file is gone; the new one in its place works too.
        let text = exe
            .to_str()
            .ok_or_else(|| Refusal::OwnProgram("its path is not valid UTF-8".into()))?;
        Ok(Self {
            exe: text.strip_suffix(" (deleted)").unwrap_or(text).into(),
            argv: vec!["mainstay".into(), "guardian".into()],
        })
    }
}

/// A manager that is ready to make a scope.
#[derive(Debug)]
pub struct Pending {
    connection: Connection,
    /// The call that asks where the manager's cgroups are.
    root: u32,
    /// The directory of scopes and guardian, now or later, in our own view; known once that call is answered.
    slice: PathBuf,
    unit: String,
    program: Program,
    finished: BTreeMap<String, Finished>,
}

/// The result of a job of the manager.
#[derive(Debug)]
struct Finished {
    unit: String,
    result: String,
}

impl Finished {
    fn read(mut body: Body) -> Result<(String, Self), Error> {
        body.u32()?;
        let job = body.str()?;
        let unit = body.str()?;
        let result = body.str()?;
        Ok((job, Self { unit, result }))
    }
}

/// A server in its scope.
#[derive(Debug)]
pub struct Adopted {
    /// The scope's cgroup.
    pub leaf: Leaf,
    guardian: GuardianState,
}

/// What is known of the guardian.
#[derive(Debug)]
enum GuardianState {
    /// It was already running. It cannot exit, because we hold its lock.
    Running { _lock: File },
    /// We asked for it; this is the job.
    Asked { job: String },
    /// Another process asked for it a moment before us.
    Starting,
    /// It could not be started.
    Refused(String),
}

impl Pending {
    /// Connects to the user manager, or returns why there is none. Whether it answers shows at [`Self::adopt`].
    pub fn open(tag: &Tag, program: Program) -> Result<Self, Refusal> {
        if tag.realm.timens.is_some() {
            return Err(Refusal::TimeNamespace);
        }
        let uid = rustix::process::geteuid().as_raw();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let session = std::env::var("DBUS_SESSION_BUS_ADDRESS").ok();
        let addresses = dbus::candidates(uid, runtime.as_deref(), session.as_deref());
        let mut connection = connect(&addresses)?;
        if connection.is_bus() {
            listen(&mut connection).map_err(|error| Refusal::NoManager(error.to_string()))?;
        }
        // Asked now, read when the server exists: the manager works while we clone.
        let root =
            ask_root(&mut connection).map_err(|error| Refusal::SilentManager(error.to_string()))?;
        Ok(Self {
            connection,
            root,
            slice: PathBuf::new(),
            unit: unit(tag, MADE.fetch_add(1, Ordering::Relaxed)),
            program,
            finished: BTreeMap::new(),
        })
    }

    /// Whether a scope would have the memory controller. Only a probe: nothing can be adopted after it.
    pub fn memory_cap(mut self) -> Result<(), Refusal> {
        let slice = slice_of(&mut self.connection, self.root)?;
        cap::possible_in(&slice)
    }

    /// Lets the manager put a process into the scope, and waits until it is there.
    pub fn adopt(&mut self, pid: i32) -> Result<Adopted, Refusal> {
        self.connection.deadline = clock::now().after_ms(limits::SCOPE_MAKE_MS);
        // The scope is asked for first, then the guardian, so that the server need not wait for the guardian.
        let scope = self
            .ask_scope(pid)
            .map_err(|error| Refusal::scope(&error))?;
        self.slice = slice_of(&mut self.connection, self.root)?;
        let lock = self.lock_guardian();
        let call = lock.is_none().then(|| self.ask_guardian());
        let answer = self.connection.answer(scope);
        let guardian = match (lock, call) {
            (Some(lock), _) => GuardianState::Running { _lock: lock },
            (None, Some(Ok(serial))) => self.guardian_answer(serial),
            (None, Some(Err(error))) => GuardianState::Refused(error.to_string()),
            (None, None) => GuardianState::Starting,
        };
        let job = answer
            .and_then(|mut body| body.str())
            .map_err(|error| Refusal::scope(&error))?;
        self.until_done(&job)?;
        let leaf = self.slice.join(&self.unit);
        if cgroup::of_process(pid).as_deref() != Some(&leaf) {
            return Err(Refusal::NotInScope);
        }
        let leaf =
            Leaf::open(leaf).map_err(|error| Refusal::ScopeNotWritable(error.to_string()))?;
        Ok(Adopted { leaf, guardian })
    }

    /// Whether the guardian runs, waiting for one that is just starting. Returns the reason if not.
    pub fn confirm_guardian(&mut self, adopted: &Adopted) -> Result<(), Refusal> {
        self.connection.deadline = clock::now().after_ms(limits::SCOPE_MAKE_MS);
        match &adopted.guardian {
            GuardianState::Running { .. } => Ok(()),
            GuardianState::Refused(reason) => Err(Refusal::NoGuardian(reason.clone())),
            GuardianState::Asked { job } => {
                self.until_done(job)?;
                if running(&self.slice) {
                    Ok(())
                } else {
                    Err(Refusal::GuardianEnded)
                }
            }
            GuardianState::Starting => {
                while !running(&self.slice) {
                    self.connection
                        .notice()
                        .map_err(|error| Refusal::NoGuardian(error.to_string()))?;
                }
                Ok(())
            }
        }
    }

    /// The slice's directory, locked so that the guardian cannot exit; `None` if no guardian runs or it is exiting.
    fn lock_guardian(&self) -> Option<File> {
        let lock = File::open(&self.slice).ok()?;
        // Held exclusively only by a guardian that exits at this very moment: then we need the next one.
        flock(lock.as_fd(), FlockOperation::NonBlockingLockShared).ok()?;
        running(&self.slice).then_some(lock)
    }

    fn ask_scope(&mut self, pid: i32) -> Result<u32, Error> {
        let unit = self.unit.clone();
        self.start(
            &unit,
            &[
                (
                    "Description",
                    Value::Str("MCP server held by mainstay".into()),
                ),
                ("Slice", Value::Str(SLICE.into())),
                ("PIDs", Value::U32s(vec![pid as u32])),
                ("Delegate", Value::Bool(true)),
                ("CollectMode", Value::Str("inactive-or-failed".into())),
            ],
        )
    }

    fn ask_guardian(&mut self) -> Result<u32, Error> {
        let command = Value::Command {
            exe: self.program.exe.to_string_lossy().into_owned(),
            argv: self.program.argv.clone(),
        };
        self.start(
            GUARDIAN,
            &[
                (
                    "Description",
                    Value::Str("mainstay: ends servers whose owner was killed".into()),
                ),
                ("Slice", Value::Str(SLICE.into())),
                ("Type", Value::Str("exec".into())),
                ("ExecStart", command),
                ("Restart", Value::Str("on-failure".into())),
                // At once: for any other time the manager allows itself a quarter of a second more.
                ("RestartUSec", Value::U64(0)),
                ("StartLimitIntervalUSec", Value::U64(10_000_000)),
                ("StartLimitBurst", Value::U32(RESTARTS_IN_10_S)),
                ("CollectMode", Value::Str("inactive-or-failed".into())),
            ],
        )
    }

    fn start(&mut self, unit: &str, properties: &[(&str, Value)]) -> Result<u32, Error> {
        let args = Args::new()
            .str(unit)
            .str("fail")
            .properties(properties)
            .no_units();
        self.connection.post(&manager("StartTransientUnit"), &args)
    }

    fn guardian_answer(&mut self, serial: u32) -> GuardianState {
        match self
            .connection
            .answer(serial)
            .and_then(|mut body| body.str())
        {
            Ok(job) => GuardianState::Asked { job },
            Err(Error::Refused { name, .. }) if name.ends_with(".UnitExists") => {
                GuardianState::Starting
            }
            Err(error) => GuardianState::Refused(error.to_string()),
        }
    }

    /// Waits until a job is over. Other jobs that end meanwhile are remembered.
    fn until_done(&mut self, job: &str) -> Result<(), Refusal> {
        loop {
            if let Some(Finished { unit, result }) = self.finished.remove(job) {
                return if result == "done" {
                    Ok(())
                } else {
                    Err(Refusal::JobFailed { unit, result })
                };
            }
            let notice = self
                .connection
                .notice()
                .map_err(|error| Refusal::scope(&error))?;
            if notice.member == "JobRemoved" {
                let (job, finished) =
                    Finished::read(notice.body).map_err(|error| Refusal::scope(&error))?;
                self.finished.insert(job, finished);
            }
        }
    }
}

/// How many scopes this process has asked for. Each generation's scope has a name of its own, because the manager
/// takes some 30 ms to forget the last one.
static MADE: AtomicU32 = AtomicU32::new(0);

fn unit(tag: &Tag, made: u32) -> String {
    let leaf = tag.leaf();
    match made {
        0 => format!("{leaf}.scope"),
        n => format!("{leaf}.{n}.scope"),
    }
}

fn connect(addresses: &[Address]) -> Result<Connection, Refusal> {
    let mut reason = None;
    for address in addresses {
        match Connection::open(address, clock::now().after_ms(limits::SCOPE_KNOCK_MS)) {
            Ok(connection) => return Ok(connection),
            Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                reason.get_or_insert(format!("{address}: {error}"));
            }
        }
    }
    let first = addresses.first().map(ToString::to_string);
    Err(match reason {
        Some(reason) => Refusal::SilentManager(reason),
        None => Refusal::NoManager(format!("no socket at {}", first.unwrap_or_default())),
    })
}

/// On a bus, signals must be asked for: at the bus, and at the manager.
fn listen(connection: &mut Connection) -> Result<(), Error> {
    let rule = format!("type='signal',sender='{MANAGER}',path='{OBJECT}'");
    connection.call(
        &Method {
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "AddMatch",
        },
        &Args::new().str(&rule),
    )?;
    connection.call(&manager("Subscribe"), &Args::new())?;
    Ok(())
}

/// Asks the manager where its cgroups are.
fn ask_root(connection: &mut Connection) -> Result<u32, Error> {
    let get = Method {
        destination: MANAGER,
        path: OBJECT,
        interface: "org.freedesktop.DBus.Properties",
        member: "Get",
    };
    let args = Args::new()
        .str("org.freedesktop.systemd1.Manager")
        .str("ControlGroup");
    connection.post(&get, &args)
}

/// The directory of the slice, now or later, in our own view of the cgroups.
fn slice_of(connection: &mut Connection, call: u32) -> Result<PathBuf, Refusal> {
    let root = connection
        .answer(call)
        .and_then(|mut body| body.variant_str())
        .map_err(|error| Refusal::SilentManager(error.to_string()))?;
    let dir = cgroup::visible(&root)?;
    if !dir.is_dir() {
        return Err(Refusal::ManagerInvisible(root));
    }
    Ok(dir.join("app.slice").join(SLICE))
}

/// Whether a guardian is in the slice and is not exiting.
fn running(slice: &Path) -> bool {
    cgroup::procs(&slice.join(GUARDIAN)).iter().any(|pid| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() != LEAVING)
    })
}

fn manager(member: &str) -> Method<'_> {
    Method {
        destination: MANAGER,
        path: OBJECT,
        interface: "org.freedesktop.systemd1.Manager",
        member,
    }
}
