//! MCP servers of this user that were not started through mainstay: found by their pipes, judged by proof.
//!
//! [`survey`] takes the facts from the kernel (`os::wires`, `os::setting`), from the programs (`clients::speaks`) and from the config file, and lets
//! [`mainstay_core::reap`] decide. It signals no process; [`end`] does, after a new proof. Design: `docs/design/reap.md`.

mod conversation;
pub mod end;
pub mod install;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mainstay_clients::behaviour::{self, Signature};
use mainstay_clients::speaks::{Depth, Program, may_run_script, runs_script};
use mainstay_core::reap::{Block, Client, Facts, FarEnd, Verdict, judge};
use mainstay_os::census::{self, Stat};
use mainstay_os::wires::{self, Group, Programs};
use mainstay_os::{clock, identity, setting};
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::{Identity, TAG_VARIABLE};
use mainstay_protocol::limits::REAP_MIN_AGE_MS;
use mainstay_protocol::redact;
use mainstay_report::{Exit, Report, plain};
use mainstay_store::config::Config;
use mainstay_store::paths::Paths;
use serde::Serialize;

use crate::watch::line::{Happened, WatchLine};
use mainstay_keeper::default_name;

/// How long a client without its terminal is looked at, to see whether it works.
const IDLE_LOOK_MS: u32 = 500;
/// CPU ticks in that time of a client that does nothing but wake up.
const IDLE_TICKS: u64 = 2;
/// The processes of mainstay that hold servers.
const OUR_PROCESSES: [&str; 3] = ["mcp-guard", "mcp-keeper", "mcp-witness"];

/// One server.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    /// What it is.
    pub verdict: Verdict,
    /// A name made from its command.
    pub name: String,
    /// The server process.
    #[serde(flatten)]
    pub who: Identity,
    /// Its command, without what looks like a secret.
    pub command: Vec<String>,
    /// The living client, if there is one.
    pub client: Option<Seen>,
    /// The conversation that started it, as far as the client tells.
    pub conversation: Option<String>,
    /// The numbers of the descriptors that its messages pass through.
    pub descriptors: Vec<i32>,
    /// The pids of the server, its launchers and all their descendants.
    pub processes: Vec<i32>,
    /// Resident memory of all of them.
    pub rss_kib: u64,
    /// Swapped-out memory of all of them.
    pub swap_kib: u64,
    /// How long it has run.
    pub age_ms: u64,
    /// Its program file was changed after it started: it runs old code.
    pub old_code: bool,
    /// What the verdict rests on.
    pub evidence: Vec<String>,
    /// Why it is not ended.
    pub blocked: Vec<String>,
    /// Whether there is a sign that it speaks MCP.
    pub speaks_mcp: bool,
    #[serde(skip)]
    group: Group,
}

impl Server {
    /// The processes that share its pipes.
    pub fn members(&self) -> Vec<Identity> {
        self.group.members.iter().map(Stat::who).collect()
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// A younger server is no orphan yet.
    pub min_age_ms: u64,
    /// Words of the config file.
    pub protect: Vec<String>,
    /// Only servers with one of these processes; all if empty.
    pub pids: Vec<i32>,
}

/// Every server of this user that mainstay did not start, orphans first, then by memory.
pub fn survey(wanted: &Wanted) -> Result<Vec<Server>, Report> {
    let pids = census::pids().map_err(|error| {
        Report::new(Exit::Failed, "cannot read /proc")
            .because(plain(&error))
            .hint("`mainstay doctor` looks for the reason")
    })?;
    Ok(survey_among(&pids, wanted))
}

/// The same among the processes of this list, which is that of [`census::pids`].
fn survey_among(pids: &[i32], wanted: &Wanted) -> Vec<Server> {
    let mut known = Known::of(&wanted.pids);
    let groups = wires::scan_among(pids, &mut known);
    let callers = callers();
    let mut found: Vec<(Facts, Server)> = Vec::new();
    let related = related(&groups, &wanted.pids);
    for (place, group) in groups.into_iter().enumerate() {
        // To find out what a program is takes time: if some servers are meant, the others are not asked.
        let named = related.contains(&place);
        if named || wanted.pids.is_empty() {
            found.extend(examine(group, wanted, &callers, named, &mut known));
        }
    }
    note_idle(&mut found);
    let facts: Vec<Facts> = found.iter().map(|(facts, _)| facts.clone()).collect();
    let judged = judge(&facts, wanted.min_age_ms);
    let mut servers: Vec<Server> = Vec::new();
    for ((_, mut server), judged) in found.into_iter().zip(judged) {
        server.verdict = judged.verdict;
        server.blocked = judged.blocks.iter().map(ToString::to_string).collect();
        server.evidence.extend(proof(&server.group, judged.verdict));
        servers.push(server);
    }
    if !wanted.pids.is_empty() {
        servers.retain(|server| is_named(&server.group, &wanted.pids));
    }
    servers.sort_by_key(|server| {
        (
            server.verdict,
            std::cmp::Reverse(server.rss_kib + server.swap_kib),
        )
    });
    servers
}

fn is_named(group: &Group, pids: &[i32]) -> bool {
    group.members.iter().any(|stat| pids.contains(&stat.pid))
}

/// The groups with these processes, and all whose verdicts depend on each other: they have the same client, or one holds an end of the other.
fn related(groups: &[Group], pids: &[i32]) -> BTreeSet<usize> {
    let places = 0..groups.len();
    let mut found: BTreeSet<usize> = places
        .clone()
        .filter(|&place| is_named(&groups[place], pids))
        .collect();
    loop {
        let near = |&place: &usize| {
            let one = &groups[place];
            found.contains(&place)
                || found.iter().any(|&other| {
                    let other = &groups[other];
                    let client = one.client.as_ref().map(Stat::who);
                    let same = client.is_some() && client == other.client.as_ref().map(Stat::who);
                    same || holds(one, other) || holds(other, one)
                })
        };
        let more: BTreeSet<usize> = places.clone().filter(near).collect();
        if more.len() == found.len() {
            return found;
        }
        found = more;
    }
}

/// Whether a process of one group holds an end of the other's wire.
fn holds(one: &Group, other: &Group) -> bool {
    [&other.input, &other.output].iter().any(|end| match end {
        FarEnd::Held(by) => by
            .iter()
            .any(|who| one.tree.iter().any(|stat| stat.who() == *who)),
        FarEnd::Gone | FarEnd::OwnTree | FarEnd::Hidden => false,
    })
}

/// What was asked already in this survey.
#[derive(Default)]
struct Known {
    pids: Vec<i32>,
    listening: Option<BTreeSet<u64>>,
    clients: BTreeMap<i32, Seen>,
    binaries: BTreeMap<PathBuf, Option<String>>,
}

impl Known {
    fn of(pids: &[i32]) -> Self {
        Self {
            pids: pids.to_vec(),
            ..Self::default()
        }
    }

    /// Whether other processes can connect to it.
    fn listens(&mut self, group: &Group) -> bool {
        let listening = self.listening.get_or_insert_with(setting::listening);
        let mut pids = group.members.iter().map(|stat| stat.pid);
        pids.any(|pid| setting::holds_one(pid, listening))
    }

    fn speaks(&mut self, program: &Program, depth: Depth) -> Option<String> {
        let binary = program.binary().filter(|_| depth == Depth::Binaries);
        let Some(binary) = binary else {
            return program.speaks(depth);
        };
        let entry = self.binaries.entry(binary.to_owned());
        entry.or_insert_with(|| program.speaks(depth)).clone()
    }
}

impl Programs for Known {
    fn runs_scripts(&self, pid: i32) -> bool {
        self.pids.contains(&pid) || may_run_script(pid)
    }

    fn may_move(&self, pid: i32) -> bool {
        self.pids.contains(&pid) || runs_script(census::cmdline(pid))
    }

    fn is_meant(&mut self, members: &[Stat], client: Option<&Stat>, half_gone: bool) -> bool {
        // If some servers are named, the verdict about them may depend on any other.
        let depth = if half_gone {
            Depth::Binaries
        } else {
            Depth::Texts
        };
        !self.pids.is_empty()
            || client.is_some_and(|client| known_client(client).is_some())
            || members
                .iter()
                .any(|stat| self.speaks(&Program::at(stat.pid), depth).is_some())
    }
}

/// We and our ancestors.
fn callers() -> BTreeSet<Identity> {
    let Ok(me) = identity::me() else {
        return BTreeSet::new();
    };
    let mut callers = BTreeSet::from([me]);
    if let Ok(stat) = census::stat(me.pid) {
        callers.extend(census::ancestors(&stat));
    }
    callers
}

/// The facts about one group; none if it is no server, or one of ours.
fn examine(
    group: Group,
    wanted: &Wanted,
    callers: &BTreeSet<Identity>,
    named: bool,
    asked: &mut Known,
) -> Option<(Facts, Server)> {
    if is_ours(&group) {
        return None;
    }
    let known = group.client.as_ref().and_then(known_client);
    // To search a binary takes long. It is done only where a process would otherwise be taken for an orphan.
    let lost = [&group.input, &group.output]
        .iter()
        .all(|end| matches!(end, FarEnd::Gone | FarEnd::OwnTree))
        && !group.wire.moved();
    let depth = if lost || named {
        Depth::Binaries
    } else {
        Depth::Texts
    };
    let programs: Vec<Program> = group
        .members
        .iter()
        .map(|stat| Program::at(stat.pid))
        .collect();
    let sign = programs
        .iter()
        .rev()
        .find_map(|program| asked.speaks(program, depth));
    if sign.is_none() && !lost && !named && known.is_none() {
        return None;
    }
    let program = programs.last()?;
    let stat = group.server();
    let age_ms = clock::since_boot_ms().saturating_sub(clock::ticks_ms(stat.start));
    let client = group.client.as_ref().map(|client| {
        let seen = asked.clients.entry(client.pid).or_insert_with(|| {
            behaviour::called(Seen {
                who: client.who(),
                comm: client.comm.clone(),
            })
        });
        seen.clone()
    });
    let lost_terminal = |client: &Stat| known.is_some() && setting::lost_terminal(client.pid);
    let stale = group.client.iter().filter(|client| lost_terminal(client));
    let stale: Vec<Stat> = stale.cloned().collect();
    let mut shields = shields(&group, &stale, &programs, wanted, callers);
    if group.client.is_none() && sign.is_some() {
        shields.extend(group.may_be_own_pipes().then_some(Block::OwnPipes));
        shields.extend(asked.listens(&group).then_some(Block::Listens));
    }
    let facts = Facts {
        server: group.first(),
        tree: group.tree.iter().map(Stat::who).collect(),
        command: program.argv.clone(),
        input: group.input.clone(),
        output: group.output.clone(),
        speaks: sign.is_some(),
        age_ms,
        shields,
        client: group.client.as_ref().map(|client| Client {
            who: client.who(),
            lost_terminal: !stale.is_empty(),
            idle: false,
        }),
    };
    let memory: Vec<census::Memory> = group
        .tree
        .iter()
        .map(|stat| census::memory(stat.pid))
        .collect();
    let words: Vec<OsString> = program.argv.iter().map(OsString::from).collect();
    let server = Server {
        verdict: Verdict::Unsure,
        name: default_name::of(&words),
        who: stat.who(),
        command: redact::words(&program.argv),
        conversation: conversation::of(client.as_ref().map(|seen| seen.who), stat.pid),
        client,
        descriptors: vec![group.wire.fds.0, group.wire.fds.1],
        processes: group.tree.iter().map(|stat| stat.pid).collect(),
        rss_kib: memory.iter().map(|memory| memory.rss_kib).sum(),
        swap_kib: memory.iter().map(|memory| memory.swap_kib).sum(),
        age_ms,
        old_code: program
            .file()
            .is_some_and(|file| changed_since(&file, age_ms)),
        evidence: sign.into_iter().collect(),
        blocked: Vec::new(),
        speaks_mcp: facts.speaks,
        group,
    };
    Some((facts, server))
}

/// Whether it belongs to mainstay: `ps` lists those.
fn is_ours(group: &Group) -> bool {
    let holder = group.client.as_ref();
    let processes = group.members.iter().chain(holder);
    let ours = |stat: &Stat| {
        OUR_PROCESSES.contains(&stat.comm.as_str())
            || census::variable(stat.pid, TAG_VARIABLE).is_some()
            || is_mainstay(stat)
    };
    processes.into_iter().any(ours)
}

/// Whether it is a shim, a bridge or a front. The servers of `mainstay demo` are this program, too, but servers.
fn is_mainstay(stat: &Stat) -> bool {
    let words = || census::cmdline(stat.pid);
    let holds = ["run", "serve", "bridge", "guardian"];
    stat.comm == "mainstay"
        && words()
            .get(1)
            .is_some_and(|verb| holds.contains(&verb.as_str()))
}

fn known_client(stat: &Stat) -> Option<&'static str> {
    let signature = Signature::at(stat.pid, &stat.comm);
    behaviour::known(&signature).map(|profile| profile.name)
}

fn shields(
    group: &Group,
    stale: &[Stat],
    programs: &[Program],
    wanted: &Wanted,
    callers: &BTreeSet<Identity>,
) -> Vec<Block> {
    // What has a client is ended only with a stale client, so nothing else has to be asked.
    let asked = if group.client.is_some() {
        stale
    } else {
        &group.tree
    };
    let mut shields = Vec::new();
    if group
        .tree
        .iter()
        .chain(stale)
        .any(|stat| callers.contains(&stat.who()))
    {
        shields.push(Block::Caller);
    }
    let service = asked
        .iter()
        .find_map(|stat| setting::other_service(stat.pid));
    shields.extend(service.map(Block::Service));
    if asked.iter().any(|stat| setting::in_container(stat.pid)) {
        shields.push(Block::Container);
    }
    let client = asked
        .iter()
        .filter(|_| stale.is_empty())
        .find_map(known_client);
    shields.extend(client.map(|name| Block::IsClient(name.into())));
    let words = || programs.iter().flat_map(|program| &program.argv);
    let protected = wanted
        .protect
        .iter()
        .find(|word| words().any(|said| said.contains(word.as_str())));
    shields.extend(protected.cloned().map(Block::Protected));
    shields
}

/// Looks twice at clients that have lost their terminal.
fn note_idle(found: &mut [(Facts, Server)]) {
    let lost: BTreeMap<Identity, u64> = found
        .iter()
        .filter_map(|(facts, _)| facts.client.as_ref())
        .filter(|client| client.lost_terminal)
        .filter_map(|client| Some((client.who, ticks(client.who)?)))
        .collect();
    if lost.is_empty() {
        return;
    }
    clock::nap(IDLE_LOOK_MS);
    let idle: BTreeSet<Identity> = lost
        .into_iter()
        .filter(|(who, before)| ticks(*who).is_some_and(|now| now - before <= IDLE_TICKS))
        .map(|(who, _)| who)
        .collect();
    for client in found
        .iter_mut()
        .filter_map(|(facts, _)| facts.client.as_mut())
    {
        client.idle = idle.contains(&client.who);
    }
}

/// Whether a client, by now, has lost its terminal and does nothing.
pub(crate) fn is_stale(who: Identity) -> bool {
    let Some(before) = ticks(who).filter(|_| setting::lost_terminal(who.pid)) else {
        return false;
    };
    clock::nap(IDLE_LOOK_MS);
    ticks(who).is_some_and(|now| now - before <= IDLE_TICKS)
}

fn ticks(who: Identity) -> Option<u64> {
    let stat = census::stat(who.pid).ok()?;
    (stat.who() == who && !stat.dead()).then_some(stat.cpu_ticks)
}

fn proof(group: &Group, verdict: Verdict) -> Vec<String> {
    let end = |name: &str, end: &FarEnd| match end {
        FarEnd::Gone => Some(format!("no process holds the other end of its {name}")),
        FarEnd::OwnTree => Some(format!(
            "only its own processes hold the other end of its {name}"
        )),
        FarEnd::Held(by) if verdict == Verdict::Orphan => Some(format!(
            "only orphans hold the other end of its {name}: {}",
            by.iter()
                .map(|who| who.pid.to_string())
                .collect::<Vec<_>>()
                .join(", ")
        )),
        FarEnd::Held(_) | FarEnd::Hidden => None,
    };
    [end("input", &group.input), end("output", &group.output)]
        .into_iter()
        .flatten()
        .collect()
}

fn changed_since(file: &Path, age_ms: u64) -> bool {
    let started_s = clock::wall_ms().saturating_sub(age_ms) / 1_000;
    fs::metadata(file)
        .is_ok_and(|meta| u64::try_from(meta.mtime()).is_ok_and(|changed| changed > started_s + 1))
}

/// The orphans, with the settings that `mainstay reap` has without options.
pub fn orphans() -> Result<Vec<Server>, Report> {
    let mut servers = survey(&Wanted::usual())?;
    servers.retain(|server| server.verdict == Verdict::Orphan);
    Ok(servers)
}

/// The same among the processes of this list, which is that of [`census::pids`].
pub fn orphans_among(pids: &[i32]) -> Vec<Server> {
    let mut servers = survey_among(pids, &Wanted::usual());
    servers.retain(|server| server.verdict == Verdict::Orphan);
    servers
}

impl Wanted {
    /// The settings without options. A config file with mistakes protects nothing here, because nothing is ended.
    pub fn usual() -> Self {
        let config = Paths::find().and_then(|paths| Config::load(&paths));
        Self {
            min_age_ms: REAP_MIN_AGE_MS,
            protect: config.map(|config| config.protect).unwrap_or_default(),
            pids: Vec::new(),
        }
    }
}

impl Server {
    /// It as `watch` shows it.
    pub fn line(&self, at: String) -> WatchLine {
        WatchLine {
            at,
            what: Happened::Orphan,
            who: self.who,
            command: self.command.clone(),
            client: None,
            stdin: self.group.wire.input.word(),
            stdout: self.group.wire.output.word(),
            age_ms: self.age_ms,
            rss_kib: self.rss_kib,
            launchers: Vec::new(),
            launcher: false,
            from: None,
            ours: None,
            status: None,
            unknown: None,
            sender: None,
        }
    }
}

/// What orphans take, for views that only name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Servers.
    pub servers: usize,
    /// Processes of them.
    pub processes: usize,
    /// Resident memory.
    pub rss_kib: u64,
    /// Swapped-out memory.
    pub swap_kib: u64,
}

impl Total {
    /// The sum of the servers with this verdict.
    pub fn of<'a>(servers: impl IntoIterator<Item = &'a Server>, verdict: Verdict) -> Self {
        let mut total = Self::default();
        for server in servers
            .into_iter()
            .filter(|server| server.verdict == verdict)
        {
            total.servers += 1;
            total.processes += server.processes.len();
            total.rss_kib += server.rss_kib;
            total.swap_kib += server.swap_kib;
        }
        total
    }
}
