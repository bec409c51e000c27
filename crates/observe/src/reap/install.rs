//! `reap --install`: a systemd user timer, or else a line in the user's crontab. What is written is shown.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mainstay_report::{Exit, Report, plain, talk};

use mainstay_report::printer::print_text;

const UNIT: &str = "mainstay-reap";
/// The end of our line in a crontab.
const MARK: &str = "# mainstay reap";

/// Installs the timer. With `dry_run` it only shows what it would write.
pub fn install(act: bool, dry_run: bool) -> Result<Exit, Report> {
    let program = program()?;
    let home = config_home()?;
    if has_user_manager() {
        let files = units(&program, act);
        let dir = unit_dir(&home);
        if dry_run {
            for (name, text) in &files {
                let path = dir.join(name);
                let text = indented(text);
                print_text(&format!("would write {}\n{text}\n", path.display()))?;
            }
            return Ok(Exit::Ok);
        }
        fs::create_dir_all(&dir).map_err(|error| cannot_write(&dir, &error))?;
        for (name, text) in &files {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|error| cannot_write(&path, &error))?;
            print_text(&format!("wrote {}\n{}\n", path.display(), indented(text)))?;
        }
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", "--now", &format!("{UNIT}.timer")])?;
        print_text(&format!(
            "the timer is on; its reports: journalctl --user -u {UNIT}\n"
        ))?;
        talk("note: without `loginctl enable-linger` it does not run while you are logged out\n");
        return Ok(Exit::Ok);
    }
    let old = crontab()?;
    let line = cron_line(&program, act);
    if dry_run {
        print_text(&format!("would add to your crontab:\n{}", indented(&line)))?;
        return Ok(Exit::Ok);
    }
    write_crontab(&with_line(&old, Some(&line)))?;
    print_text(&format!("added to your crontab:\n{}\n", indented(&line)))?;
    talk("note: no systemd user manager answers, so cron was used; it mails its reports to you\n");
    Ok(Exit::Ok)
}

/// Removes the timer, wherever it is. With `dry_run` it only says what it would remove.
pub fn uninstall(dry_run: bool) -> Result<Exit, Report> {
    let dir = unit_dir(&config_home()?);
    let mut removed = Vec::new();
    if dry_run {
        let files = units(Path::new(""), false).map(|(name, _)| dir.join(name));
        let there = files.iter().filter(|path| path.exists());
        removed.extend(there.map(|path| path.display().to_string()));
        if crontab().is_ok_and(|table| table.contains(MARK)) {
            removed.push("the line in your crontab".into());
        }
        print_text(&told("would remove", &removed))?;
        return Ok(Exit::Ok);
    }
    if dir.join(format!("{UNIT}.timer")).exists() && has_user_manager() {
        systemctl(&["disable", "--now", &format!("{UNIT}.timer")])?;
    }
    for (name, _) in units(Path::new(""), false) {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Ok(()) => removed.push(path.display().to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot_write(&path, &error)),
        }
    }
    if !removed.is_empty() && has_user_manager() {
        systemctl(&["daemon-reload"])?;
    }
    // Without cron there is no line of ours.
    if let Ok(old) = crontab()
        && old.contains(MARK)
    {
        write_crontab(&with_line(&old, None))?;
        removed.push("the line in your crontab".into());
    }
    print_text(&told("removed", &removed))?;
    Ok(Exit::Ok)
}

fn told(what: &str, removed: &[String]) -> String {
    if removed.is_empty() {
        return "nothing was installed\n".into();
    }
    format!("{what} {}\n", removed.join(", "))
}

/// The command that a timer or a hook runs.
pub fn command(act: bool) -> Result<String, Report> {
    Ok(format!("{}{}", program()?.display(), words(act)))
}

fn words(act: bool) -> &'static str {
    if act { " reap --yes" } else { " reap" }
}

/// Our own path, which must still be there when the timer runs.
fn program() -> Result<PathBuf, Report> {
    let path = std::env::current_exe().map_err(|error| {
        Report::new(Exit::Failed, "cannot find this program's own path").because(plain(&error))
    })?;
    let text = path.display().to_string();
    let passing = ["/_npx/", "/.cache/", "/uv/archive"];
    if passing.iter().any(|part| text.contains(part)) {
        return Err(Report::new(
            Exit::Usage,
            format!("{text} is in a package cache, which may be emptied at any time"),
        )
        .hint("install mainstay into a directory of your PATH, and run that one"));
    }
    if text.contains(char::is_whitespace) || text.contains(['%', '"', '\\']) {
        return Err(Report::new(
            Exit::Usage,
            format!("the path {text} cannot be written into a timer"),
        )
        .hint("install mainstay into a directory without spaces in its path"));
    }
    Ok(path)
}

fn config_home() -> Result<PathBuf, Report> {
    let own = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
    own.or_else(home).ok_or_else(|| {
        Report::new(Exit::Usage, "HOME is not set").hint("set HOME to your home directory")
    })
}

fn unit_dir(config_home: &Path) -> PathBuf {
    config_home.join("systemd/user")
}

fn units(program: &Path, act: bool) -> [(String, String); 2] {
    let command = format!("{}{}", program.display(), words(act));
    [
        (
            format!("{UNIT}.service"),
            format!("[Unit]\nDescription=MCP servers without a client\n\n[Service]\nType=oneshot\nExecStart={command}\nNice=10\n"),
        ),
        (
            format!("{UNIT}.timer"),
            "[Unit]\nDescription=Looks for MCP servers without a client\n\n[Timer]\nOnBootSec=10min\nOnUnitActiveSec=30min\n\n[Install]\nWantedBy=timers.target\n".into(),
        ),
    ]
}

fn cron_line(program: &Path, act: bool) -> String {
    format!("*/30 * * * * {}{} {MARK}", program.display(), words(act))
}

/// A crontab without our old line, and with the new one.
fn with_line(old: &str, line: Option<&str>) -> String {
    let others = old.lines().filter(|line| !line.trim_end().ends_with(MARK));
    let lines = others.chain(line);
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Whether systemd runs for this user.
fn has_user_manager() -> bool {
    let answer = run("systemctl", &["--user", "show-environment"], None);
    answer.is_ok_and(|output| output.status.success())
}

fn systemctl(words: &[&str]) -> Result<(), Report> {
    let all: Vec<&str> = ["--user"].iter().chain(words).copied().collect();
    let output = run("systemctl", &all, None);
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(
            Report::new(Exit::Failed, format!("systemctl {} failed", all.join(" ")))
                .because(said(&output)),
        ),
        Err(error) => Err(Report::new(Exit::Failed, "cannot run systemctl").because(plain(&error))),
    }
}

fn crontab() -> Result<String, Report> {
    let output = run("crontab", &["-l"], None).map_err(|error| {
        Report::new(
            Exit::Failed,
            "neither a systemd user manager nor cron is here",
        )
        .because(plain(&error))
        .hint("run `mainstay reap --yes` from a timer of your own")
    })?;
    // A user without a crontab gets an error, and has an empty one.
    Ok(if output.status.success() {
        String::from_utf8_lossy(&output.stdout).into_owned()
    } else {
        String::new()
    })
}

fn write_crontab(text: &str) -> Result<(), Report> {
    let failed = |why: String| Report::new(Exit::Failed, "cannot write your crontab").because(why);
    let output = run("crontab", &["-"], Some(text)).map_err(|error| failed(plain(&error)))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}

#[expect(
    clippy::disallowed_methods,
    reason = "systemctl and crontab, no server"
)]
fn run(program: &str, words: &[&str], input: Option<&str>) -> io::Result<Output> {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Some(input) = input else {
        return command.stdin(Stdio::null()).output();
    };
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    child.wait_with_output()
}

fn cannot_write(path: &Path, error: &io::Error) -> Report {
    Report::new(Exit::Failed, format!("cannot write {}", path.display())).because(plain(error))
}

fn indented(text: &str) -> String {
    text.lines().flat_map(|line| ["  ", line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_line_of_a_crontab_is_replaced_and_others_stay() {
        let program = Path::new("/usr/bin/mainstay");
        let old = "0 3 * * * backup\n*/5 * * * * /old/mainstay reap # mainstay reap\n";
        let line = cron_line(program, false);
        assert_eq!(line, "*/30 * * * * /usr/bin/mainstay reap # mainstay reap");
        assert_eq!(
            with_line(old, Some(&line)),
            format!("0 3 * * * backup\n{line}\n")
        );
        assert_eq!(with_line(old, None), "0 3 * * * backup\n");
        assert_eq!(with_line("", None), "");
    }

    #[test]
    fn the_timer_only_reports_unless_it_is_told_to_act() {
        let text = |act| units(Path::new("/usr/bin/mainstay"), act)[0].1.clone();
        assert!(text(false).contains("ExecStart=/usr/bin/mainstay reap\n"));
        assert!(text(true).contains("ExecStart=/usr/bin/mainstay reap --yes\n"));
    }
}
