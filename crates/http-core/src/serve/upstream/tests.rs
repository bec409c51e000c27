//! guards: Each session behind `serve --upstream` is ended there once, and never a newer one with the same name.

use super::*;
use crate::serve::front::Front;
use crate::serve::limits::ServeLimits;
use alloc::string::ToString;

const TTL_MS: u64 = 1_000;

fn at(ms: u64) -> Moment {
    Moment::default().after_ms(ms)
}

struct Scene {
    front: Front,
    path: u64,
    outputs: Vec<Output>,
}

impl Scene {
    fn new() -> Self {
        let limits = ServeLimits {
            session_ttl_ms: TTL_MS,
            session_cap: 2,
            ..ServeLimits::default()
        };
        let mut front = Front::new(limits, || 1);
        let path = front.add_path("/mcp".into(), false);
        Self {
            front,
            path,
            outputs: Vec::new(),
        }
    }

    fn perform(&mut self) {
        while let Some(output) = self.front.next_output() {
            self.outputs.push(output);
        }
        self.front.check();
    }

    fn try_pass(
        &mut self,
        kind: PassKind,
        session: Option<&str>,
        token: &str,
    ) -> Result<u64, Refused> {
        let headers = Headers::from([
            ("content-type".to_string(), b"application/json".to_vec()),
            ("authorization".to_string(), token.as_bytes().to_vec()),
        ]);
        let pass = Pass {
            path: self.path,
            session,
            kind,
            headers,
        };
        let number = self.front.pass(at(0), pass);
        self.perform();
        number
    }

    fn pass(&mut self, kind: PassKind, session: Option<&str>) -> u64 {
        self.try_pass(kind, session, "a").unwrap()
    }

    fn answer(&mut self, number: u64, status: u16, session: Option<&str>) -> PassAnswer {
        let answer = self.front.pass_answered(at(0), number, status, session);
        self.perform();
        answer
    }

    fn noted(&mut self, number: u64, noted: bool) -> bool {
        let passes = self.front.pass_noted(at(0), number, noted);
        self.perform();
        passes
    }

    fn left(&mut self, number: u64) {
        self.front.pass_left(at(0), number);
        self.perform();
    }

    /// Opens a session of this name: its key.
    fn open(&mut self, name: &str) -> u64 {
        let number = self.pass(PassKind::Open, None);
        let PassAnswer::Note(key) = self.answer(number, 200, Some(name)) else {
            panic!("a session began and is not written down");
        };
        assert!(self.noted(number, true));
        self.left(number);
        key
    }

    fn over(&self) -> Vec<(u64, SessionEnd, bool)> {
        let mut must_close = BTreeMap::new();
        let mut all = Vec::new();
        for output in &self.outputs {
            match output {
                Output::EndUpstream {
                    session,
                    must_close: is,
                    ..
                } => drop(must_close.insert(*session, *is)),
                Output::Over(ended) => {
                    all.push((ended.session, ended.why, must_close[&ended.session]));
                }
                Output::Start { .. }
                | Output::Write(_)
                | Output::Wake(_)
                | Output::Began { .. }
                | Output::Count(_)
                | Output::CloseConnections => {}
            }
        }
        all
    }
}

#[test]
fn an_idle_session_is_ended_upstream_and_its_name_is_not_found_afterwards() {
    let mut scene = Scene::new();
    let key = scene.open("one");
    let reading = scene.pass(PassKind::Get, Some("one"));
    scene.front.tick(at(TTL_MS));
    scene.perform();
    assert_eq!(scene.over(), [], "a session in use does not end");
    scene.left(reading);
    scene.front.tick(at(TTL_MS));
    scene.perform();
    assert_eq!(scene.over(), [(key, SessionEnd::Idle, true)]);
    let refused = scene.try_pass(PassKind::Post, Some("one"), "a");
    assert_eq!(refused, Err(Refused::NoSession));
    assert_eq!(
        scene.front.upstream().end_attempt(key),
        EndAttempt::After(0)
    );
    let headers = scene.front.upstream().delete_headers(key).unwrap();
    assert!(headers.contains(&(SESSION.into(), b"one".to_vec())));
    assert!(headers.contains(&("authorization".into(), b"a".to_vec())));
    assert!(!headers.iter().any(|(name, _)| name == "content-type"));
    scene.front.upstream().told(key);
    assert_eq!(scene.front.unclosed(), 0);
}

#[test]
fn a_name_that_is_given_again_is_a_new_session_and_is_not_deleted() {
    let mut scene = Scene::new();
    let first = scene.open("one");
    let second = scene.open("one");
    assert_eq!(scene.over(), [(first, SessionEnd::ServerGone, false)]);
    scene.front.tick(at(TTL_MS));
    scene.perform();
    assert_eq!(
        scene.front.upstream().end_attempt(second),
        EndAttempt::After(0)
    );
    assert!(scene.front.upstream().delete_headers(second).is_some());
    let third = scene.open("one");
    assert_eq!(
        scene.front.upstream().delete_headers(second),
        None,
        "the DELETE would end the third"
    );
    let number = scene.pass(PassKind::Post, Some("one"));
    assert_eq!(scene.answer(number, 404, None), PassAnswer::PassOn);
    assert_eq!(
        scene.over().last(),
        Some(&(third, SessionEnd::ServerGone, false))
    );
}

#[test]
fn an_opening_whose_client_left_is_ended_when_its_session_is_there() {
    let mut scene = Scene::new();
    let number = scene.pass(PassKind::Open, None);
    scene.left(number);
    assert_eq!(scene.front.open_sessions(), 1, "its place is still taken");
    let PassAnswer::Note(key) = scene.answer(number, 200, Some("one")) else {
        panic!("a session began and is not written down");
    };
    assert!(scene.noted(number, true));
    assert_eq!(scene.over(), [(key, SessionEnd::OpeningFailed, true)]);
    assert_eq!(scene.front.open_sessions(), 0);
}

#[test]
fn an_opening_that_cannot_be_written_down_is_ended_and_not_passed_on() {
    let mut scene = Scene::new();
    let number = scene.pass(PassKind::Open, None);
    assert!(matches!(
        scene.answer(number, 200, Some("one")),
        PassAnswer::Note(_)
    ));
    assert!(!scene.noted(number, false));
    assert_eq!(scene.over().len(), 1);
    scene.left(number);
    let silent = scene.pass(PassKind::Open, None);
    scene.front.pass_failed(at(0), silent);
    scene.left(silent);
    assert_eq!(scene.front.open_sessions(), 0);
}

#[test]
fn a_session_of_before_our_time_is_adopted_and_used_by_all_that_wait_in_it() {
    let mut scene = Scene::new();
    let (one, other) = (
        scene.pass(PassKind::Get, Some("old")),
        scene.pass(PassKind::Post, Some("old")),
    );
    let made_up = scene.pass(PassKind::Post, Some("made up"));
    assert_eq!(scene.answer(made_up, 404, None), PassAnswer::PassOn);
    scene.left(made_up);
    assert_eq!(scene.front.open_sessions(), 0);
    let PassAnswer::Note(key) = scene.answer(other, 200, None) else {
        panic!("a session that the server knows is not adopted");
    };
    assert!(
        scene.noted(other, false),
        "it is passed on even if it cannot be written down"
    );
    scene.left(other);
    scene.front.tick(at(TTL_MS));
    scene.perform();
    assert_eq!(scene.over(), [], "the other client still waits in it");
    scene.left(one);
    scene.front.tick(at(TTL_MS));
    scene.perform();
    assert_eq!(scene.over(), [(key, SessionEnd::Idle, true)]);
}

#[test]
fn a_late_answer_to_a_delete_does_not_end_a_newer_session_of_that_name() {
    let mut scene = Scene::new();
    let late = scene.pass(PassKind::Delete, Some("one"));
    scene.open("one");
    assert_eq!(scene.answer(late, 200, None), PassAnswer::PassOn);
    scene.left(late);
    assert_eq!(scene.over(), []);
    assert_eq!(scene.front.open_sessions(), 1);
}

#[test]
fn an_unknown_session_evicts_no_other() {
    let mut scene = Scene::new();
    scene.open("one");
    scene.open("two");
    let number = scene.pass(PassKind::Post, Some("old"));
    assert_eq!(scene.answer(number, 200, None), PassAnswer::PassOn);
    scene.left(number);
    assert_eq!(scene.over(), []);
    let third = scene.open("three");
    assert_eq!(scene.over().len(), 1, "an opening does");
    assert_eq!(scene.front.upstream().name(third), Some("three"));
}

#[test]
fn what_the_server_says_to_another_account_ends_nothing() {
    let mut scene = Scene::new();
    let key = scene.open("one");
    for (kind, token) in [(PassKind::Post, "b"), (PassKind::Delete, "b")] {
        let number = scene.try_pass(kind, Some("one"), token).unwrap();
        scene.answer(number, 404, None);
        scene.left(number);
    }
    assert_eq!(scene.over(), []);
    let number = scene.try_pass(PassKind::Post, Some("one"), "new").unwrap();
    scene.answer(number, 200, None);
    scene.left(number);
    let number = scene.pass(PassKind::Post, Some("one"));
    scene.answer(number, 404, None);
    scene.left(number);
    assert_eq!(
        scene.over(),
        [],
        "the first token is of no account any more"
    );
    let number = scene
        .try_pass(PassKind::Delete, Some("one"), "new")
        .unwrap();
    scene.answer(number, 204, None);
    scene.left(number);
    assert_eq!(scene.over(), [(key, SessionEnd::Deleted, false)]);
}

#[test]
fn a_stop_waits_for_posts_and_ends_an_opening_that_comes_too_late() {
    let mut scene = Scene::new();
    let number = scene.pass(PassKind::Open, None);
    let reading = scene.pass(PassKind::Get, None);
    scene.front.stop(at(0), 0);
    scene.perform();
    assert!(!scene.front.is_closing());
    scene.front.tick(at(ServeLimits::default().stop_wait_ms));
    scene.perform();
    assert!(scene.front.is_closing());
    let PassAnswer::Note(key) = scene.front.pass_answered(at(1), number, 200, Some("late")) else {
        panic!("a session began and is not written down");
    };
    assert!(scene.noted(number, true));
    assert_eq!(scene.over(), [(key, SessionEnd::Shutdown, true)]);
    scene.left(number);
    scene.left(reading);
    assert_eq!(scene.front.open_sessions(), 0);
}

#[test]
fn a_delete_is_tried_a_few_times() {
    let mut scene = Scene::new();
    let key = scene.open("one");
    scene.front.tick(at(TTL_MS));
    let tries: Vec<EndAttempt> = (0..5)
        .map(|_| scene.front.upstream().end_attempt(key))
        .collect();
    let after = EndAttempt::After;
    assert_eq!(
        tries,
        [
            after(0),
            after(500),
            after(1_000),
            after(2_000),
            EndAttempt::GiveUp
        ]
    );
}
