//! `mainstay run`: runs a server that ends with its client.
//!
//! This process becomes the shim. Everything that can fail on our side fails here, before the first fork.
//!
//! Shim, guard and keeper keep this stack for the whole life of the link. So code that only prepares the link is in functions
//! that are never inlined: their stack frames are gone before the fork.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use mainstay_clients::behaviour;
use mainstay_http::unclosed::background;
use mainstay_keeper::plan::{CommandLine, LinkOrigin, Plan, RecordingFile, Refused};
use mainstay_keeper::recording;
use mainstay_keeper::session::Session;
use mainstay_keeper::warm::{self, AttachedLink, Search};
use mainstay_os::record::Region;
use mainstay_os::shim::{self, Detach, Ending};
use mainstay_os::tier::Wish;
use mainstay_os::{adopter, census, descriptors, identity, role, signals, title};
use mainstay_protocol::event::{ConfigMistake, Detached, Lost, Seen, Status, What};
use mainstay_protocol::ids::LinkId;
use mainstay_report::{Exit, Report, plain, talk};
use mainstay_store::config::target::Target;
use mainstay_store::config::{Config, Ignored, Settings};
use mainstay_store::ledger::append::Ledger;
use mainstay_store::paths::Paths;

use super::mistaken;
use super::run_options::RunOptions;
use super::run_refused::Refusal;
use super::run_resolve::{ResolvedRun, name_of, resolve};
use super::run_without_keeper;

/// For users who type the command, because it is silent until a client speaks.
const AT_TERMINAL: &str = "mainstay waits for an MCP client on stdin. A client starts this command from its config, which `mainstay adopt` can edit. Ctrl-C ends it\n";

/// Runs `mainstay run`.
#[inline(never)]
pub fn run(options: Box<RunOptions>) -> Result<Exit, Report> {
    let (mut plan, detach) = prepare(options)?;
    if let Err(error) = run_without_keeper::check_limits() {
        return Err(run_without_keeper::run_or_refuse(&plan, &error, &[]));
    }
    let meeting = match &plan.refused {
        Some(_) => Search::NotFound(Vec::new()),
        None => warm::find_warm_server(&plan),
    };
    let ending = match meeting {
        Search::ClientLeft => return Ok(Exit::Server(Status::Code(0))),
        Search::NotFound(read) => {
            let region = match Region::create() {
                Ok(region) => region,
                Err(error) => return Err(run_without_keeper::run_or_refuse(&plan, &error, &read)),
            };
            if region.file().is_none() {
                // The shared memory cannot be passed to a client that reconnects, so the server cannot be kept for it.
                plan.linger = Some(0);
            }
            match start(&plan, &region, detach, &read) {
                Ok(Ending::Unmanned(errno)) => {
                    let error = io::Error::from_raw_os_error(errno);
                    return Err(run_without_keeper::run_or_refuse(&plan, &error, &read));
                }
                ending => ending,
            }
        }
        Search::Attached(welcome) => go_on(plan, detach, welcome),
    }
    .map_err(|error| failed(&error))?;
    match ending {
        Ending::Code(code) => Ok(Exit::Server(Status::Code(i32::from(code)))),
        Ending::Signal(number) => {
            signals::die_by(number);
            Ok(Exit::Server(Status::Signal {
                number,
                core: false,
            }))
        }
        Ending::Lost | Ending::Unmanned(_) => Err(Report::new(
            Exit::Failed,
            "the keeper processes of mainstay were killed too often; the server was ended, and no process of it is left",
        )
        .hint("`mainstay events --since 5m` shows what was seen; `sudo mainstay trace-signals` shows which process kills them")),
    }
}

/// Prepares the plan of the link. An error in the options or the config becomes a link without a server, which answers the
/// client's requests with the reason, because clients do not show the stderr of a server that failed to start.
#[inline(never)]
fn prepare(options: Box<RunOptions>) -> Result<(Box<Plan>, Detach), Report> {
    role::close_inherited();
    descriptors::raise();
    let name = name_of(&options).map_err(mistaken::no_command)?;
    // Without a state directory there is no registry and there are no events, but the server runs.
    let (paths, nowhere) = Paths::find_or_nowhere();
    if let Some(report) = nowhere.or_else(|| paths.detour()) {
        report.warn();
    }
    let config = Config::load_for(&paths, &name);
    if let Err(report) = namespace() {
        hide_secrets(&options);
        return Err(refuse(&paths, &bare(&options, name), report));
    }
    let mut ignored = Vec::new();
    let (resolved, refused) = match resolve_options(&options, config, &mut ignored) {
        Ok(resolved) => (resolved, None),
        Err(report) => (bare(&options, name), Some(refused(&report))),
    };
    hide_secrets(&options);
    drop(options);
    let verdict = adopter::judge(adopter::INIT);
    let mut plan = plan(&resolved, &paths, &verdict)
        .map_err(|error| refuse(&paths, &resolved, failed(&error)))?;
    plan.refused = refused;
    record_ignored(&plan, ignored);
    if plan.refused.is_none() && rustix::termios::isatty(role::standard(0)) {
        talk(AT_TERMINAL);
    }
    let detach = if verdict.reaps {
        Detach::Yes
    } else {
        Detach::No
    };
    Ok((Box::new(plan), detach))
}

/// Answers the client's requests with the reason why no server is started.
fn refuse(paths: &Paths, resolved: &ResolvedRun, report: Report) -> Report {
    let refusal = Refusal {
        paths,
        name: &resolved.name,
        argv: &resolved.argv,
        read: &[],
    };
    refusal.answer_client(report)
}

/// Fails if `/proc` shows the pids of another namespace: then no process can be found, watched or confirmed to be gone.
fn namespace() -> Result<(), Report> {
    match identity::misnamed() {
        None => Ok(()),
        Some(why) => Err(Report::new(Exit::Failed, "nothing can be contained here")
            .because(why)
            .hint(identity::MISNAMED_HINT)),
    }
}

/// Combines the options and the config file. Mistakes that concern this server and do not stop it are added to `ignored`.
fn resolve_options(
    options: &RunOptions,
    config: Result<(Config, Vec<Ignored>), Report>,
    ignored: &mut Vec<Report>,
) -> Result<ResolvedRun, Report> {
    let (config, mistakes) = config?;
    for Ignored { concerns, mistake } in mistakes {
        mistake.warn();
        ignored.extend(concerns.then_some(mistake));
    }
    let resolved = resolve(options, &config)?;
    for path in &resolved.watch {
        let Err(report) = watchable(path, resolved.cwd.as_deref()) else {
            continue;
        };
        if !options.watch.is_empty() {
            return Err(report);
        }
        // A default that does not fit this server must not stop it.
        report.warn();
        ignored.push(report);
    }
    if let Some(path) = &resolved.frames {
        recording::open(path).map_err(|error| unrecordable(path, &error))?;
    }
    Ok(resolved)
}

/// Fails if there is no such file or directory: its changes would never be seen.
fn watchable(path: &Path, cwd: Option<&Path>) -> Result<(), Report> {
    let base = cwd.map_or_else(std::env::current_dir, |cwd| Ok(cwd.to_owned()));
    let base = base.unwrap_or_default();
    let Err(error) = base.join(path).metadata() else {
        return Ok(());
    };
    Err(
        Report::new(Exit::Usage, format!("cannot watch {}", path.display()))
            .because(plain(&error))
            .hint(format!(
                "name a file or directory that exists; a relative path begins in {}",
                base.display()
            )),
    )
}

/// Records the mistakes that the server runs without.
fn record_ignored(plan: &Plan, ignored: Vec<Report>) {
    if ignored.is_empty() {
        return;
    }
    let mut ledger = Ledger::open(&plan.paths);
    for mistake in ignored {
        let what = What::ConfigMistake(ConfigMistake {
            problem: mistake.problem(),
            hint: mistake.advice().unwrap_or_default().into(),
        });
        ledger.record(plan.id, &plan.name, what);
    }
}

/// The settings without the options and the config file that had an error.
fn bare(options: &RunOptions, name: String) -> ResolvedRun {
    let argv = if options.command.is_empty() {
        let words = ["mainstay", "run", "--name", &name];
        words.map(OsString::from).into()
    } else {
        options.command.clone()
    };
    let settings = Settings::default();
    ResolvedRun {
        name,
        argv,
        env: BTreeMap::new(),
        cwd: None,
        limits: settings.limits(),
        tier: None,
        require_tier: None,
        policy: settings.policy(),
        watch: Vec::new(),
        cache: false,
        learns: false,
        lease: None,
        frames: None,
        secrets: false,
        notify: Vec::new(),
        linger: Some(0),
    }
}

fn refused(report: &Report) -> Refused {
    Refused {
        problem: report.problem(),
        hint: report
            .advice()
            .unwrap_or("correct the options or the config file of this server")
            .into(),
        code: report.exit().code(),
    }
}

/// Removes headers and secrets in the URL from our command line, which every user can see in the process list.
fn hide_secrets(options: &RunOptions) {
    let mut words: Vec<&str> = options
        .header
        .iter()
        .map(|(_, value)| value.as_str())
        .collect();
    let target = options.url.as_deref().map(Target::parse);
    if let Some(Ok(target)) = &target {
        words.extend(target.secrets());
    }
    if !words.is_empty() {
        title::hide(&words);
    }
}

/// Starts a new link. `read` was read from the client already.
fn start(plan: &Plan, region: &Region, detach: Detach, read: &[u8]) -> io::Result<Ending> {
    if !read.is_empty() {
        region.preload(read);
    }
    let ending = shim::run(region, detach, &mut Session::new(plan))?;
    record_loss(plan, region, ending);
    Ok(ending)
}

/// Continues a link that was kept for this client.
fn go_on(mut plan: Box<Plan>, detach: Detach, welcome: AttachedLink) -> io::Result<Ending> {
    let AttachedLink {
        link,
        region,
        channel,
        pair,
    } = welcome;
    plan.id = link;
    let ending = shim::go_on(&region, detach, channel, pair, &mut Session::new(&plan))?;
    record_loss(&plan, &region, ending);
    Ok(ending)
}

/// Records that the keeper was killed. Its successor does that; without a successor, the shim does.
fn record_loss(plan: &Plan, region: &Region, ending: Ending) {
    if ending != Ending::Lost {
        return;
    }
    let notes = region.notes();
    let (pid, status) = notes.lost().unwrap_or_default();
    let lost = Lost {
        pid,
        status,
        ended: notes.lost_ended,
        settled: 0,
        successor: None,
    };
    Ledger::open(&plan.paths).record(plan.id, &plan.name, What::KeeperLost(lost));
}

fn plan(resolved: &ResolvedRun, paths: &Paths, verdict: &adopter::Verdict) -> io::Result<Plan> {
    let ResolvedRun {
        name,
        argv,
        env,
        cwd,
        mut limits,
        tier,
        require_tier,
        mut policy,
        watch,
        cache,
        learns,
        lease,
        frames,
        secrets,
        notify,
        mut linger,
    } = resolved.clone();
    if learns {
        // `learn` asks the server itself, and needs it no longer than that.
        limits.instant_opening_ms = 0;
        limits.hibernate_ms = 0;
        policy.lazy = false;
        linger = Some(0);
    }
    let frames = frames.map(std::path::absolute).transpose()?;
    let watch = if watch.is_empty() {
        watch
    } else {
        let base = cwd.clone().map_or_else(std::env::current_dir, Ok)?;
        watch.iter().map(|path| base.join(path)).collect()
    };
    let wish = match (tier, require_tier) {
        (Some(tier), _) => Wish::Exactly(tier),
        (None, Some(tier)) => Wish::AtLeast(tier),
        (None, None) => Wish::Strongest,
    };
    let parent =
        rustix::process::getppid().and_then(|pid| census::stat(pid.as_raw_nonzero().get()).ok());
    let client = parent.as_ref().map(|stat| {
        let seen = Seen {
            who: stat.who(),
            comm: stat.comm.clone(),
        };
        if learns {
            // `why` and `events` tell these sessions from those of clients by this name.
            let comm = "mainstay learn".into();
            return Seen { comm, ..seen };
        }
        behaviour::called(seen)
    });
    let detached = if verdict.reaps {
        Detached::Yes
    } else {
        Detached::No {
            why: verdict.why.clone(),
        }
    };
    Ok(Plan {
        id: random_id()?,
        name,
        command: CommandLine {
            argv,
            env: env.into_iter().collect(),
            cwd,
        },
        limits,
        policy,
        watch,
        cache,
        learns,
        lease,
        recording: frames.map(|path| RecordingFile { path, secrets }),
        notify,
        wish,
        paths: paths.clone(),
        origin: LinkOrigin {
            started_at: mainstay_protocol::time::rfc3339(mainstay_os::clock::wall_ms()),
            realm: identity::realm()?,
            shim: identity::me()?,
            client,
            ancestors: parent.as_ref().map(census::ancestors).unwrap_or_default(),
            detached,
        },
        // If init does not reap, the guard is our child and would leave a zombie after our end.
        linger: if verdict.reaps { linger } else { Some(0) },
        close_sessions: background::close_due,
        refused: None,
    })
}

fn unrecordable(path: &Path, error: &io::Error) -> Report {
    Report::new(Exit::Failed, format!("cannot record in {}", path.display()))
        .because(plain(error))
        .hint("--record FILE needs a regular file that can be written")
}

/// A random id for a new link.
pub fn random_id() -> io::Result<LinkId> {
    let mut bytes = [0u8; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(LinkId(u32::from_ne_bytes(bytes)))
}

fn failed(error: &io::Error) -> Report {
    Report::new(Exit::Failed, "cannot set up the guard")
        .because(plain(error))
        .hint("run `mainstay doctor` to find the reason")
}
