//! The scope tier: a leaf that the systemd user manager makes, watched by a guardian that outlives all of us.
//!
//! All scopes are in one slice, `app-mainstay.slice`, together with the guardian's service: so the guardian has one
//! directory to watch, and each leaf's name says who owns it. The tier is in force only if the scope was made, the
//! server was seen in it, its `cgroup.kill` is ours to write, and the guardian runs. Without the guardian such a leaf
//! is worth what a cgroup leaf is, and is called so.
//!
//! It never starts a server and never judges a leaf.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_core::ids::Tag;
use mainstay_core::limits;
use rustix::fs::{FlockOperation, flock};

use super::cgroup::{self, Leaf};
use crate::cap;
use crate::clock;
use crate::dbus::{self, Address, Args, Body, Connection, Error, Method, Value};

/// The slice that holds scopes and guardian.
pub const SLICE: &str = "app-mainstay.slice";
/// The guardian's unit.
pub const GUARDIAN: &str = "mainstay-guardian.service";
/// The guardian's short name once it has decided to leave.
pub const LEAVING: &str = "leaving";

/// How often it may start the guardian again within 10 s; more than anybody can kill it, less than a loop.
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
    pub fn ours() -> Result<Self, String> {
        let exe = fs::read_link("/proc/self/exe")
            .map_err(|error| format!("our own program cannot be found ({error})"))?;
        // After an upgrade the old file is gone; the new one at its place will do.
        let text = exe.to_str().ok_or("our own program's path is no text")?;
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
    /// Where scopes and guardian are or will be, in our own view; known once that call is answered.
    slice: PathBuf,
    unit: String,
    program: Program,
    finished: BTreeMap<String, Finished>,
}

/// How a job of the manager came out.
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
    guardian: Watch,
}

/// What is known of the guardian.
#[derive(Debug)]
enum Watch {
    /// It was there already; it cannot have left, because we hold its door.
    There { _door: File },
    /// We asked for it; this is the job.
    Asked { job: String },
    /// Somebody else did, a moment before us.
    Coming,
    /// It could not be had.
    Refused(String),
}

impl Pending {
    /// Finds and greets the user manager, or says why there is none. Whether it answers is seen at [`Self::adopt`].
    pub fn open(tag: &Tag, program: Program) -> Result<Self, String> {
        if tag.realm.timens.is_some() {
            return Err("in a time namespace the guardian could not tell whether we live".into());
        }
        let uid = rustix::process::geteuid().as_raw();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let session = std::env::var("DBUS_SESSION_BUS_ADDRESS").ok();
        let addresses = dbus::candidates(uid, runtime.as_deref(), session.as_deref());
        let mut connection = connect(&addresses)?;
        if connection.is_bus() {
            listen(&mut connection)
                .map_err(|error| format!("no systemd user manager ({error})"))?;
        }
        // Asked now, read when the server is there: the manager works while we clone.
        let root = ask_root(&mut connection)
            .map_err(|error| format!("no systemd user manager that answers ({error})"))?;
        Ok(Self {
            connection,
            root,
            slice: PathBuf::new(),
            unit: unit(tag, MADE.fetch_add(1, Ordering::Relaxed)),
            program,
            finished: BTreeMap::new(),
        })
    }

    /// Whether a scope would have the memory controller; for a look only, nothing can be adopted after it.
    pub fn memory_cap(mut self) -> Result<(), String> {
        let slice = slice_of(&mut self.connection, self.root)?;
        cap::possible_in(&slice)
    }

    /// Has the manager put a process into the scope, and waits until it is there.
    pub fn adopt(&mut self, pid: i32) -> Result<Adopted, String> {
        self.connection.deadline = clock::now().after_ms(limits::SCOPE_MAKE_MS);
        // The scope is asked for first, then the guardian: the server need not wait for it.
        let scope = self.ask_scope(pid).map_err(|e| refused(&e))?;
        self.slice = slice_of(&mut self.connection, self.root)?;
        let door = self.door();
        let call = door.is_none().then(|| self.ask_guardian());
        let answer = self.connection.answer(scope);
        let guardian = match (door, call) {
            (Some(door), _) => Watch::There { _door: door },
            (None, Some(Ok(serial))) => self.guardian_answer(serial),
            (None, Some(Err(error))) => Watch::Refused(error.to_string()),
            (None, None) => Watch::Coming,
        };
        let job = answer
            .and_then(|mut body| body.str())
            .map_err(|e| refused(&e))?;
        self.until_done(&job)?;
        let leaf = self.slice.join(&self.unit);
        if cgroup::of_process(pid).as_deref() != Some(&leaf) {
            return Err("the server was not seen in its scope".into());
        }
        let leaf = Leaf::open(leaf)
            .map_err(|error| format!("the scope's cgroup.kill cannot be written ({error})"))?;
        Ok(Adopted { leaf, guardian })
    }

    /// Whether the guardian runs, waiting for one that is just coming up. Says why if not.
    pub fn confirm_guardian(&mut self, adopted: &Adopted) -> Result<(), String> {
        self.connection.deadline = clock::now().after_ms(limits::SCOPE_MAKE_MS);
        match &adopted.guardian {
            Watch::There { .. } => Ok(()),
            Watch::Refused(reason) => Err(format!("no guardian ({reason})")),
            Watch::Asked { job } => {
                self.until_done(job)?;
                if running(&self.slice) {
                    Ok(())
                } else {
                    Err("the guardian ended at once".into())
                }
            }
            Watch::Coming => {
                while !running(&self.slice) {
                    self.connection
                        .notice()
                        .map_err(|error| format!("no guardian ({error})"))?;
                }
                Ok(())
            }
        }
    }

    /// The slice's directory, locked against the guardian's leaving, if it is there and stays.
    fn door(&self) -> Option<File> {
        let door = File::open(&self.slice).ok()?;
        // Held exclusively only by a guardian that leaves this very moment: then we need the next one.
        flock(door.as_fd(), FlockOperation::NonBlockingLockShared).ok()?;
        running(&self.slice).then_some(door)
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

    fn guardian_answer(&mut self, serial: u32) -> Watch {
        match self
            .connection
            .answer(serial)
            .and_then(|mut body| body.str())
        {
            Ok(job) => Watch::Asked { job },
            Err(Error::Refused { name, .. }) if name.ends_with(".UnitExists") => Watch::Coming,
            Err(error) => Watch::Refused(error.to_string()),
        }
    }

    /// Waits until a job is over; those of others that end meanwhile are remembered.
    fn until_done(&mut self, job: &str) -> Result<(), String> {
        loop {
            if let Some(Finished { unit, result }) = self.finished.remove(job) {
                return if result == "done" {
                    Ok(())
                } else {
                    Err(format!(
                        "the user manager could not start {unit} ({result})"
                    ))
                };
            }
            let notice = self.connection.notice().map_err(|e| refused(&e))?;
            if notice.member == "JobRemoved" {
                let (job, finished) = Finished::read(notice.body).map_err(|e| refused(&e))?;
                self.finished.insert(job, finished);
            }
        }
    }
}

/// How many scopes this process has asked for: each generation's has a name of its own, because the manager takes some
/// 30 ms to forget the last one.
static MADE: AtomicU32 = AtomicU32::new(0);

fn unit(tag: &Tag, made: u32) -> String {
    let leaf = tag.leaf();
    match made {
        0 => format!("{leaf}.scope"),
        n => format!("{leaf}.{n}.scope"),
    }
}

fn connect(addresses: &[Address]) -> Result<Connection, String> {
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
        Some(reason) => format!("no systemd user manager that answers ({reason})"),
        None => format!(
            "no systemd user manager (no socket at {})",
            first.unwrap_or_default()
        ),
    })
}

/// On a bus, signals must be asked for: of the bus, and of the manager.
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

/// Where the slice is or will be, in our own view of the cgroups.
fn slice_of(connection: &mut Connection, call: u32) -> Result<PathBuf, String> {
    let root = connection
        .answer(call)
        .and_then(|mut body| body.variant_str())
        .map_err(|error| format!("no systemd user manager that answers ({error})"))?;
    let dir = cgroup::visible(&root)?;
    if !dir.is_dir() {
        return Err(format!(
            "the user manager's cgroups are not to be seen from here ({root})"
        ));
    }
    Ok(dir.join("app.slice").join(SLICE))
}

/// Whether a guardian is in the slice and means to stay.
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

fn refused(error: &Error) -> String {
    format!("the user manager made no scope ({error})")
}
