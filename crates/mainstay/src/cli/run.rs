//! `mainstay run`: a server that cannot outlive its client.
//!
//! This process becomes the shim. Everything that can fail for a reason of ours fails here, before the first fork.
//!
//! Shim, guard and keeper stand on this stack for the whole life of the link, so what is needed only to come this far is
//! in functions that are never inlined: their frames are gone before the fork.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use mainstay_core::event::{Detached, Lost, Seen, Status, What};
use mainstay_core::ids::LinkId;
use mainstay_os::record::Region;
use mainstay_os::shim::{self, Detach, Ending};
use mainstay_os::tier::Wish;
use mainstay_os::{adopter, census, descriptors, identity, role, signals, title};

use super::run_options::RunOptions;
use super::run_refused::Refusal;
use super::run_unmanned;
use crate::config::{Config, Settings, Settled, name_of, resolve};
use crate::exit::Exit;
use crate::http::target::Target;
use crate::keeper::plan::{Plan, Refused};
use crate::keeper::recording;
use crate::keeper::session::Session;
use crate::ledger::append::Ledger;
use crate::paths::Paths;
use crate::profile;
use crate::report::{Report, plain};
use crate::warm::{self, Meeting, Welcome};

/// Runs a server.
#[inline(never)]
pub fn run(options: Box<RunOptions>) -> Result<Exit, Report> {
    let (mut plan, detach) = prepare(options)?;
    if let Err(error) = run_unmanned::room() {
        return Err(run_unmanned::serve(&plan, &error, &[]));
    }
    let meeting = match &plan.refused {
        Some(_) => Meeting::Nobody(Vec::new()),
        None => warm::meet(&plan),
    };
    let ending = match meeting {
        Meeting::Over => return Ok(Exit::Server(Status::Code(0))),
        Meeting::Nobody(read) => {
            let region = match Region::create() {
                Ok(region) => region,
                Err(error) => return Err(run_unmanned::serve(&plan, &error, &read)),
            };
            if region.file().is_none() {
                // A client that comes back could not be lent the record.
                plan.linger = Some(0);
            }
            match start(&plan, &region, detach, &read) {
                Ok(Ending::Unmanned(errno)) => {
                    let error = io::Error::from_raw_os_error(errno);
                    return Err(run_unmanned::serve(&plan, &error, &read));
                }
                ending => ending,
            }
        }
        Meeting::Warm(welcome) => go_on(plan, detach, welcome),
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
            "our keepers were killed again and again; the server is ended, nobody of it is left",
        )
        .hint("see what was seen of it: mainstay events --since 5m; as root, `mainstay trace-signals` names who kills")),
    }
}

/// All that is known before anybody is started. What stands against it is told to the client by a link without a server,
/// because nobody reads the stderr of a server that did not come up.
#[inline(never)]
fn prepare(options: Box<RunOptions>) -> Result<(Box<Plan>, Detach), Report> {
    role::close_inherited();
    descriptors::raise();
    let name = name_of(&options)?;
    // Without a place for the state there is no registry and no event; the server runs all the same.
    let (paths, nowhere) = Paths::find_or_nowhere();
    if let Some(report) = nowhere.or_else(|| paths.detour()) {
        report.warn();
    }
    let config = Config::load_for(&paths, &name);
    if let Err(report) = namespace() {
        hide_secrets(&options);
        return Err(refuse(&paths, &bare(&options, name), report));
    }
    let (settled, refused) = match settled(&options, config) {
        Ok(settled) => (settled, None),
        Err(report) => (bare(&options, name), Some(refused(&report))),
    };
    hide_secrets(&options);
    drop(options);
    let verdict = adopter::judge(adopter::INIT);
    let mut plan = plan(&settled, &paths, &verdict)
        .map_err(|error| refuse(&paths, &settled, failed(&error)))?;
    plan.refused = refused;
    let detach = if verdict.reaps {
        Detach::Yes
    } else {
        Detach::No
    };
    Ok((Box::new(plan), detach))
}

/// Tells the client why nothing is started.
fn refuse(paths: &Paths, settled: &Settled, report: Report) -> Report {
    let refusal = Refusal {
        paths,
        name: &settled.name,
        argv: &settled.argv,
        read: &[],
    };
    refusal.tell(report)
}

/// Nobody can be found, watched or confirmed to be gone in a table that counts differently than the kernel does for us, not
/// even those who would hold a link without a server.
fn namespace() -> Result<(), Report> {
    match identity::misnamed() {
        None => Ok(()),
        Some(why) => Err(Report::new(Exit::Failed, "nothing can be contained here")
            .because(why)
            .hint(identity::MISNAMED_HINT)),
    }
}

fn settled(
    options: &RunOptions,
    config: Result<(Config, Vec<Report>), Report>,
) -> Result<Settled, Report> {
    let (config, elsewhere) = config?;
    for mistake in elsewhere {
        mistake.warn();
    }
    let settled = resolve(options, &config)?;
    if let Some(path) = &settled.frames {
        recording::open(path).map_err(|error| unrecordable(path, &error))?;
    }
    Ok(settled)
}

/// What is known without any of what was wrong.
fn bare(options: &RunOptions, name: String) -> Settled {
    let argv = if options.command.is_empty() {
        let words = ["mainstay", "run", "--name", &name];
        words.map(OsString::from).into()
    } else {
        options.command.clone()
    };
    let settings = Settings::default();
    Settled {
        name,
        argv,
        env: BTreeMap::new(),
        cwd: None,
        limits: settings.limits(),
        tier: None,
        require_tier: None,
        policy: settings.policy(),
        watch: Vec::new(),
        record: false,
        lease: None,
        frames: None,
        secrets: false,
        linger: Some(0),
    }
}

fn refused(report: &Report) -> Refused {
    Refused {
        problem: report.problem(),
        hint: report.advice().unwrap_or("correct that").into(),
        code: report.exit().code(),
    }
}

/// What a client wrote into our command line for an HTTP server is not for everybody who looks at the process list.
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

/// A link of its own; the client may have said something already.
fn start(plan: &Plan, region: &Region, detach: Detach, read: &[u8]) -> io::Result<Ending> {
    if !read.is_empty() {
        region.preload(read);
    }
    let ending = shim::run(region, detach, &mut Session::new(plan))?;
    tell_loss(plan, region, ending);
    Ok(ending)
}

/// A link that was kept for our client.
fn go_on(mut plan: Box<Plan>, detach: Detach, welcome: Welcome) -> io::Result<Ending> {
    let Welcome {
        link,
        region,
        channel,
        pair,
    } = welcome;
    plan.id = link;
    let ending = shim::go_on(&region, detach, channel, pair, &mut Session::new(&plan))?;
    tell_loss(&plan, &region, ending);
    Ok(ending)
}

/// A keeper's loss is told by its successor. If it has none, nobody but us is left to do it.
fn tell_loss(plan: &Plan, region: &Region, ending: Ending) {
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

fn plan(settled: &Settled, paths: &Paths, verdict: &adopter::Verdict) -> io::Result<Plan> {
    let Settled {
        name,
        argv,
        env,
        cwd,
        limits,
        tier,
        require_tier,
        policy,
        watch,
        record,
        lease,
        frames,
        secrets,
        linger,
    } = settled.clone();
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
        profile::called(Seen {
            who: stat.who(),
            comm: stat.comm.clone(),
        })
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
        argv,
        env: env.into_iter().collect(),
        cwd,
        limits,
        policy,
        watch,
        record,
        lease,
        frames,
        secrets,
        wish,
        paths: paths.clone(),
        realm: identity::realm()?,
        started_at: crate::ledger::time::rfc3339(mainstay_os::clock::wall_ms()),
        shim: identity::me()?,
        ancestors: parent.as_ref().map(census::ancestors).unwrap_or_default(),
        client,
        // A guard that is our child cannot outlive us without leaving a zombie.
        linger: if verdict.reaps { linger } else { Some(0) },
        detached,
        refused: None,
    })
}

fn unrecordable(path: &Path, error: &io::Error) -> Report {
    Report::new(Exit::Failed, format!("cannot record in {}", path.display()))
        .because(plain(error))
        .hint("--record FILE wants a regular file that can be written")
}

/// The id of a new link.
pub fn random_id() -> io::Result<LinkId> {
    let mut bytes = [0u8; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(LinkId(u32::from_ne_bytes(bytes)))
}

fn failed(error: &io::Error) -> Report {
    Report::new(Exit::Failed, "cannot set up the guard")
        .because(plain(error))
        .hint("mainstay doctor looks for the reason")
}
