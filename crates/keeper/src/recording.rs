//! The recording: every frame of a session in one file, secrets hidden, for as long as disk and limit allow.
//!
//! Lines wait in a bounded buffer and are written between two turns. A write may take its time on a slow disk, so the disk
//! is used for a small part of the time only; what does not fit meanwhile is lost and counted. Nothing that goes wrong
//! here reaches the link: it is told once, in an event.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mainstay_os::clock;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::RecordingIncomplete;
use mainstay_protocol::frames::{End, Head, Line, Lost, Sight};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits::{RECORDING_AFTER_ERROR_MS, RECORDING_BYTES, RECORDING_RESTS};
use mainstay_protocol::redact;
use mainstay_protocol::time;
use mainstay_report::plain;
use rustix::process::{Resource, getrlimit};

/// Room that is kept for the last line.
const END_BYTES: u64 = 512;

/// A recording.
pub struct Recording {
    link: LinkId,
    path: PathBuf,
    /// None: it could not be opened, or has reached its size.
    file: Option<File>,
    secrets: bool,
    limit: u64,
    size: u64,
    waiting: Vec<u8>,
    /// The file ends within a line.
    torn: bool,
    lost: u64,
    lost_in_all: u64,
    rests_until: Moment,
    hurt: Hurt,
}

/// What is wrong with it, and whether that was reported.
enum Hurt {
    No,
    Untold(String),
    Told,
}

/// Opens the file of a recording: a private, regular one, to be appended to.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        // A pipe without a reader must not keep us waiting.
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

impl Recording {
    /// Goes on at the end of the file, or begins it.
    pub fn new(link: LinkId, path: &Path, limit: u64, secrets: bool) -> Self {
        let (file, hurt) = match open(path) {
            Ok(file) => (Some(file), Hurt::No),
            Err(error) => (None, Hurt::Untold(plain(&error))),
        };
        let size = file.as_ref().and_then(|file| file.metadata().ok());
        // A write beyond the limit of the process would be refused, or torn.
        let of_process = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        Self {
            link,
            path: path.into(),
            file,
            secrets,
            limit: limit.min(of_process).saturating_sub(END_BYTES),
            size: size.map_or(0, |meta| meta.len()),
            waiting: Vec::new(),
            torn: false,
            lost: 0,
            lost_in_all: 0,
            rests_until: Moment(0),
            hurt,
        }
    }

    /// Says what follows. What a killed keeper wrote last may be half a line.
    pub fn begin(&mut self, head: Head) {
        self.torn = self.size > 0;
        let redacted = !self.secrets;
        self.put(&Line::Head(Head { redacted, ..head }).text());
    }

    /// One more frame.
    pub fn push(&mut self, sight: Sight) {
        let body = match sight.body {
            Some(body) if !self.secrets => Some(redact::body(&body).into_owned()),
            other => other,
        };
        let line = Line::Frame(Sight { body, ..sight }.into()).text();
        self.put(&line);
    }

    /// Writes what waits, unless the disk has its rest.
    pub fn write(&mut self, now: Moment) {
        if now < self.rests_until || self.waiting.is_empty() {
            return;
        }
        let Some(file) = &mut self.file else {
            return;
        };
        let begun = clock::now();
        let written = file.write(&self.waiting);
        let ended = clock::now();
        self.rests_until = Moment(ended.0 + RECORDING_RESTS * (ended - begun));
        match written {
            Ok(len) => {
                let last = self.waiting.drain(..len).next_back();
                self.torn = last.is_some_and(|byte| byte != b'\n');
                self.size += len as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                // What waits is gone, and with it the rest of a line that is half there.
                self.give_up_waiting();
                self.rests_until = ended.after_ms(RECORDING_AFTER_ERROR_MS);
                self.complain(plain(&error));
            }
        }
    }

    /// When it can be written again, if something waits.
    pub fn due(&self) -> Option<Moment> {
        (self.file.is_some() && !self.waiting.is_empty()).then_some(self.rests_until)
    }

    /// What went wrong, once.
    pub fn hurt(&mut self) -> Option<RecordingIncomplete> {
        let Hurt::Untold(why) = &mut self.hurt else {
            return None;
        };
        let why = std::mem::take(why);
        self.hurt = Hurt::Told;
        Some(RecordingIncomplete {
            path: self.path.to_string_lossy().into_owned(),
            why,
            lost: self.lost_in_all,
        })
    }

    /// The link ends: what waits is written, be it that the disk had earned a rest.
    pub fn close(&mut self) {
        let why = "the link has ended".into();
        if self.file.is_some() {
            self.end(why);
        }
    }

    fn put(&mut self, line: &[u8]) {
        if self.file.is_none() {
            self.lost_in_all += 1;
            return;
        }
        let mut more = Vec::new();
        // With nothing behind it, the half line at the end of the file is all there will be of it.
        let half = self.torn && self.waiting.is_empty();
        if half {
            more.push(b'\n');
        }
        if self.lost > 0 {
            let (link, count) = (self.link, self.lost);
            more.extend(Line::Lost(Lost { link, count }).text());
        }
        let len = (more.len() + line.len()) as u64;
        if self.size + self.waiting.len() as u64 + len > self.limit {
            self.lose(1);
            self.end("it has reached its size (--record-bytes)".into());
            self.complain("it has reached its size (--record-bytes)".into());
            return;
        }
        if self.waiting.len() + more.len() + line.len() > RECORDING_BYTES {
            self.lose(1);
            self.complain("the disk is too slow".into());
            return;
        }
        self.lost = 0;
        self.waiting.extend(more);
        self.waiting.extend_from_slice(line);
    }

    /// The last line.
    fn end(&mut self, why: String) {
        if self.lost > 0 {
            let (link, count) = (self.link, self.lost);
            self.waiting.extend(Line::Lost(Lost { link, count }).text());
            self.lost = 0;
        }
        let at = time::rfc3339(clock::wall_ms());
        let end = End {
            link: self.link,
            at,
            why,
        };
        self.waiting.extend(Line::End(end).text());
        self.rests_until = Moment(0);
        self.write(Moment(0));
        self.file = None;
        self.waiting = Vec::new();
    }

    /// The waiting frames are lost. Their count is reported later, together with earlier losses.
    fn give_up_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for line in waiting.split(|&byte| byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Line::Lost(lost)) => self.lost += lost.count,
                Ok(Line::Head(_) | Line::End(_)) => {}
                // The rest of a half line is a frame as well.
                Ok(Line::Frame(_)) => self.lose(1),
                Err(_) => self.lose(u64::from(!line.is_empty())),
            }
        }
    }

    fn lose(&mut self, count: u64) {
        self.lost += count;
        self.lost_in_all += count;
    }

    fn complain(&mut self, why: String) {
        if let Hurt::No = self.hurt {
            self.hurt = Hurt::Untold(why);
        }
    }
}

#[cfg(test)]
mod tests {
    //! guards: A slow or full disk loses frames of a recording, counts them and never delays the session.

    use super::*;
    use mainstay_protocol::frames::{Kind, Side, VERSION};
    use mainstay_store::scratch::Scratch;
    use std::fs;

    const LINK: LinkId = LinkId(7);

    fn head() -> Head {
        Head {
            v: VERSION,
            link: LINK,
            server: "demo".into(),
            at: String::new(),
            ns: 0,
            keeper: 1,
            generation: 0,
            body_bytes: 9,
            redacted: true,
        }
    }

    fn sight(n: u64, body: &str) -> Sight {
        Sight {
            n,
            at: String::new(),
            ns: 0,
            link: LINK,
            from: Side::Client,
            to: Side::Server,
            generation: 1,
            kind: Kind::Request,
            method: None,
            id: None,
            bytes: 1,
            latency_us: None,
            ours: None,
            body: Some(body.into()),
            cut: false,
        }
    }

    fn begun(path: &Path, limit: u64) -> Recording {
        let mut recording = Recording::new(LINK, path, limit, false);
        recording.begin(head());
        recording
    }

    fn lines(path: &Path) -> Vec<Line> {
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn frames(lines: &[Line]) -> Vec<u64> {
        let number = |line: &Line| match line {
            Line::Frame(sight) => Some(sight.n),
            Line::Head(_) | Line::Lost(_) | Line::End(_) => None,
        };
        lines.iter().filter_map(number).collect()
    }

    #[test]
    fn a_full_disk_is_told_once_and_what_is_missing_is_counted() {
        let scratch = Scratch::new();
        let path = scratch.path().join("frames");
        let mut recording = begun(&path, 1 << 20);
        recording.write(Moment(0));
        // The disk fills up, in the middle of a line.
        let disk = recording.file.take();
        recording.file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        recording.torn = true;
        for n in 1..=3 {
            recording.push(sight(n, "x"));
        }
        recording.write(Moment(u64::MAX / 2));
        let hurt = recording.hurt().unwrap();
        assert_eq!(hurt.lost, 3);
        assert!(
            hurt.why.to_lowercase().contains("no space left"),
            "{}",
            hurt.why
        );
        recording.push(sight(4, "x"));
        assert!(
            recording.due().unwrap() > clock::now(),
            "the disk is left alone"
        );
        recording.write(clock::now());
        recording.write(Moment(u64::MAX / 2));
        assert!(recording.hurt().is_none(), "it is told once");
        // There is room again.
        recording.file = disk;
        recording.push(sight(5, "x"));
        recording.close();
        let all = lines(&path);
        let lost = Line::Lost(Lost {
            link: LINK,
            count: 4,
        });
        assert!(all.contains(&lost), "{all:?}");
        assert_eq!(frames(&all), [5]);
        assert!(matches!(all.last(), Some(Line::End(_))));
    }

    #[test]
    fn a_slow_disk_loses_frames_and_never_more_than_the_buffer_waits() {
        let scratch = Scratch::new();
        let path = scratch.path().join("frames");
        let mut recording = begun(&path, 1 << 30);
        recording.rests_until = Moment(u64::MAX);
        let body = "x".repeat(10_000);
        for n in 1..=100 {
            recording.push(sight(n, &body));
            recording.write(Moment(1));
        }
        assert!(recording.waiting.len() <= RECORDING_BYTES);
        let hurt = recording.hurt().unwrap();
        assert_eq!(hurt.why, "the disk is too slow");
        recording.close();
        let all = lines(&path);
        let kept = frames(&all).len() as u64;
        let told = |line: &Line| matches!(line, Line::Lost(lost) if lost.count + kept == 100);
        assert!(all.iter().any(told), "{kept}");
    }

    #[test]
    fn what_a_killed_keeper_left_half_is_ended_before_a_new_head() {
        let scratch = Scratch::new();
        let path = scratch.path().join("frames");
        fs::write(&path, "{\"line\":\"fra").unwrap();
        let mut recording = begun(&path, 1 << 20);
        recording.push(sight(1, "{\"token\":\"abc\"}"));
        recording.close();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("{\"line\":\"fra\n{\"line\":\"head\""),
            "{text}"
        );
        assert!(text.contains("[hidden]") && !text.contains("abc"), "{text}");
        // A file that is full already is left as it is.
        let before = text.len();
        let mut full = begun(&path, 10);
        assert!(full.hurt().is_some());
        full.push(sight(1, "x"));
        assert!(fs::metadata(&path).unwrap().len() as usize <= before + END_BYTES as usize);
    }

    #[test]
    fn only_a_regular_file_will_do() {
        let scratch = Scratch::new();
        for path in [
            scratch.path(),
            Path::new("/dev/null"),
            Path::new("/no/such/x"),
        ] {
            assert!(open(path).is_err());
            let mut recording = begun(path, 1 << 20);
            recording.push(sight(1, "x"));
            recording.write(Moment(0));
            assert!(recording.hurt().is_some(), "{}", path.display());
        }
    }
}
