//! `reap --install --hook`: a `SessionEnd` hook in Claude Code's settings, written as `adopt` writes configs, and taken out again.

use std::path::{Path, PathBuf};

use mainstay_clients::explain::Explain;
use mainstay_clients::plan::Plan;
use mainstay_clients::plan::hook::{self, Unhook};
use mainstay_clients::write::{self, WriteError};
use mainstay_observe::reap::install;
use mainstay_report::printer::Printer;
use mainstay_report::{Exit, Report, talk};
use mainstay_store::paths::Paths;

use crate::cli::adopt::Here;

/// Where the settings are, and where their backups go.
struct Place {
    paths: Paths,
    here: Here,
    settings: PathBuf,
}

/// Puts the hook there; with `act` one that ends orphans.
pub fn install(act: bool, dry_run: bool) -> Result<Exit, Report> {
    let command = install::command(act)?;
    let place = Place::find()?;
    let shown = place.here.show(&place.settings);
    let old = place.read()?;
    let Some(old) = old else {
        let new = hook::new_settings(&command);
        let text = String::from_utf8_lossy(&new).into_owned();
        if !dry_run {
            write::create(&place.settings, &place.backups()?, &new).map_err(|why| report(&why))?;
        }
        let did = if dry_run { "would write" } else { "wrote" };
        let indented: String = text.lines().flat_map(|line| ["  ", line, "\n"]).collect();
        Printer::new().text(&format!("{did} {shown}\n{indented}"))?;
        place.tell_whether_hooks_run(&new, dry_run);
        return Ok(Exit::Ok);
    };
    let mut planner = |bytes: &[u8]| hook::hook(bytes, &command);
    let plan = planner(&old).map_err(|refusal| place.refused(refusal))?;
    if !plan.changes() {
        Printer::new().text(&format!("{shown} has this hook already\n"))?;
        place.tell_whether_hooks_run(&old, dry_run);
        return Ok(Exit::Ok);
    }
    place.edit(&plan, &mut planner, dry_run)?;
    place.tell_whether_hooks_run(&old, dry_run);
    Ok(Exit::Ok)
}

/// Takes the hook out.
pub fn uninstall(dry_run: bool) -> Result<Exit, Report> {
    let place = Place::find()?;
    let shown = place.here.show(&place.settings);
    let nothing = || {
        let text = format!("{shown} has no hook of mainstay\n");
        Printer::new().text(&text).map(drop)
    };
    let Some(old) = place.read()? else {
        nothing()?;
        return Ok(Exit::Ok);
    };
    match hook::unhook(&old).map_err(|refusal| place.refused(refusal))? {
        Unhook::RemoveFile => {
            let may = |bytes: &[u8]| matches!(hook::unhook(bytes), Ok(Unhook::RemoveFile));
            let text = if dry_run {
                format!("would remove {shown}, which holds nothing but the hook\n")
            } else {
                let backup = write::remove(&place.settings, &place.backups()?, &may);
                let backup = place.here.show(&backup.map_err(|why| report(&why))?);
                format!("removed {shown}, which held nothing but the hook\n  as it was: {backup}\n")
            };
            Printer::new().text(&text)?;
        }
        Unhook::Edit(plan) if !plan.changes() => nothing()?,
        Unhook::Edit(plan) => {
            let mut planner = |bytes: &[u8]| match hook::unhook(bytes)? {
                Unhook::Edit(plan) => Ok(plan),
                Unhook::RemoveFile => Err(mainstay_clients::refusal::Refusal::Drifted),
            };
            place.edit(&plan, &mut planner, dry_run)?;
        }
    }
    Ok(Exit::Ok)
}

impl Place {
    fn find() -> Result<Self, Report> {
        let paths = Paths::find()?;
        let here = Here::find(&paths, None)?;
        let settings = here.around.places(hook::SETTINGS).remove(0);
        let directory = settings.parent().unwrap_or(Path::new("/"));
        if !directory.is_dir() {
            let shown = here.show(directory);
            return Err(Report::new(
                Exit::NotFound,
                format!("Claude Code has no settings here: there is no directory {shown}"),
            )
            .hint("start Claude Code once, or set CLAUDE_CONFIG_DIR as it has it"));
        }
        Ok(Self {
            paths,
            here,
            settings,
        })
    }

    /// The bytes of the settings; none if there is no file.
    fn read(&self) -> Result<Option<Vec<u8>>, Report> {
        match write::read(&self.settings) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(WriteError::Missing { .. }) => Ok(None),
            Err(why) => Err(report(&why)),
        }
    }

    fn backups(&self) -> Result<PathBuf, Report> {
        self.paths.make_one(&self.paths.state())?;
        let backups = self.paths.backups();
        self.paths.make_one(&backups)?;
        Ok(backups.path())
    }

    /// Writes what was planned, and shows it.
    fn edit(&self, plan: &Plan, planner: write::Planner<'_>, dry_run: bool) -> Result<(), Report> {
        let shown = self.here.show(&self.settings);
        let mut printer = Printer::new();
        printer.text(&plan.diff(&shown))?;
        if dry_run {
            talk("nothing was changed: --dry-run\n");
            return Ok(());
        }
        let written = write::write(&self.settings, &self.backups()?, planner);
        let written = written.map_err(|why| report(&why))?;
        let backup = written.last_backup.map(|path| self.here.show(&path));
        let backup = backup.map_or(String::new(), |path| format!("  as it was: {path}\n"));
        printer.text(&format!("changed {shown}\n{backup}"))?;
        Ok(())
    }

    fn refused(&self, refusal: mainstay_clients::refusal::Refusal) -> Report {
        report(&WriteError::Refused {
            path: self.settings.clone(),
            refusal,
        })
    }

    /// Settings may say that hooks do not run.
    fn tell_whether_hooks_run(&self, own: &[u8], dry_run: bool) {
        let managed = self.here.around.places(hook::MANAGED).into_iter();
        let managed = managed.filter_map(|path| write::read(&path).ok());
        let off = hook::are_off(own) || managed.into_iter().any(|bytes| hook::are_off(&bytes));
        if off {
            talk("note: your settings, or those of this machine, say that hooks do not run\n");
        } else if !dry_run {
            talk("Claude Code runs it at the end of each session that starts from now on\n");
        }
    }
}

fn report(why: &impl Explain) -> Report {
    let why = why.explain();
    Report::new(Exit::Unhealthy, why.what)
        .because(why.why)
        .hint(why.hint)
}
