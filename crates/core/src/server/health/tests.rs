//! guards: Only an idle server without output and without processor time is ended for not answering.

use super::*;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use proptest::prelude::*;

/// A server, and what happens around it. Times in milliseconds.
struct Story {
    name: &'static str,
    knows: Knows,
    /// How long it takes to answer a probe.
    answers_in: Option<u64>,
    /// How often it writes something of its own.
    writes_every: Option<u64>,
    /// Processor time that it uses in each second, in microseconds.
    cpu_us_per_s: u64,
    traced: bool,
    /// From when to when a request is in flight.
    busy: Option<(u64, u64)>,
    /// From when to when our process does not run.
    asleep: Option<(u64, u64)>,
    probe_idle_ms: u64,
    probe_lost: u64,
    told: &'static str,
    ends: Knows,
}

const STORY: Story = Story {
    name: "",
    knows: Knows::Answers,
    answers_in: None,
    writes_every: None,
    cpu_us_per_s: 0,
    traced: false,
    busy: None,
    asleep: None,
    probe_idle_ms: 30_000,
    probe_lost: 3,
    told: "",
    ends: Knows::Answers,
};

const END: u64 = 130_000;

fn at(ms: u64) -> Moment {
    Moment(0).after_ms(ms)
}

impl Story {
    /// What the machine wants over 130 s, in steps of 500 ms, as `second:wish`.
    fn tell(&self) -> (String, Knows) {
        let limits = Limits {
            probe_idle_ms: self.probe_idle_ms,
            probe_wait_ms: 10_000,
            probe_lost: self.probe_lost,
            ..Limits::default()
        };
        let mut health = Health::new(&limits, at(0), self.knows);
        let mut told: Vec<String> = Vec::new();
        let mut answers: Vec<(u64, u64)> = Vec::new();
        for ms in (0..END).step_by(500) {
            if self
                .asleep
                .is_some_and(|(from, to)| (from..to).contains(&ms))
            {
                continue;
            }
            let now = at(ms);
            match self.busy {
                Some((from, _)) if ms == from => health.busy(now),
                Some((_, to)) if ms == to => health.idle(now),
                Some(_) | None => {}
            }
            if self.writes_every.is_some_and(|every| ms % every == 0) {
                health.heard(now);
            }
            answers.retain(|&(when, n)| {
                if when <= ms {
                    health.answered(now, n);
                }
                when > ms
            });
            let due = health.wake_at().is_some_and(|wake| wake <= now);
            let mut idle = true;
            while let Some(wish) = health.tick(now) {
                idle = false;
                told.push(match wish {
                    Do::Probe(n) => {
                        answers.extend(self.answers_in.map(|wait| (ms + wait, n)));
                        format!("{}:probe{n}", ms / 1_000)
                    }
                    Do::Measure => {
                        health.measured(now, ms * self.cpu_us_per_s / 1_000_000, self.traced);
                        format!("{}:measure", ms / 1_000)
                    }
                    Do::Restart(Verdict::Unresponsive { lost, silent_ms }) => {
                        format!("{}:restart({lost},{})", ms / 1_000, silent_ms / 1_000)
                    }
                    Do::LeaveAlone => format!("{}:leave", ms / 1_000),
                });
            }
            assert!(idle || due, "{}: not woken for it", self.name);
            assert!(
                health.wake_at().is_none_or(|wake| wake > now),
                "{}",
                self.name
            );
        }
        (told.join(" "), health.knows())
    }
}

#[test]
fn stories() {
    let stories = [
        Story {
            name: "a healthy server is asked now and then",
            knows: Knows::Unknown,
            answers_in: Some(500),
            told: "30:probe1 60:probe2 91:probe3 121:probe4",
            ..STORY
        },
        Story {
            name: "a stopped server is given up",
            told: "30:probe1 40:measure 40:probe2 50:probe3 60:measure 60:restart(3,60)",
            ..STORY
        },
        Story {
            name: "a blocking call is never disturbed",
            busy: Some((0, END)),
            told: "",
            ..STORY
        },
        Story {
            name: "a call that comes in the middle ends the doubt",
            busy: Some((55_000, 70_000)),
            told: "30:probe1 40:measure 40:probe2 50:probe3 100:probe4 110:measure 110:probe5 120:probe6",
            ..STORY
        },
        Story {
            name: "a server that works for itself is spared",
            cpu_us_per_s: 1_000_000,
            told: "30:probe1 40:measure 40:probe2 50:probe3 60:measure 90:probe4 100:measure 100:probe5 110:probe6 120:measure",
            ..STORY
        },
        Story {
            name: "an idle event loop that wakes now and then is not at work",
            cpu_us_per_s: 400,
            told: "30:probe1 40:measure 40:probe2 50:probe3 60:measure 60:restart(3,60)",
            ..STORY
        },
        Story {
            name: "silent on ping from the first, it is left alone",
            knows: Knows::Unknown,
            told: "30:probe1 40:probe2 50:probe3 60:leave",
            ends: Knows::Deaf,
            ..STORY
        },
        Story {
            name: "known to be deaf, it is never asked",
            knows: Knows::Deaf,
            told: "",
            ends: Knows::Deaf,
            ..STORY
        },
        Story {
            name: "an answer that comes after the verdict takes it back",
            knows: Knows::Unknown,
            answers_in: Some(32_000),
            told: "30:probe1 40:probe2 50:probe3 60:leave 112:probe4 122:measure 122:probe5",
            ..STORY
        },
        Story {
            name: "dribbling output more often than asked for",
            writes_every: Some(20_000),
            told: "",
            ..STORY
        },
        Story {
            name: "dribbling output now and then",
            writes_every: Some(45_000),
            told: "30:probe1 40:measure 40:probe2 75:probe3 85:measure 85:probe4 120:probe5",
            ..STORY
        },
        Story {
            name: "slow answers in time",
            answers_in: Some(9_500),
            told: "30:probe1 69:probe2 109:probe3",
            ..STORY
        },
        Story {
            name: "a debugger holds it",
            traced: true,
            told: "30:probe1 40:measure 70:probe2 80:measure 110:probe3 120:measure",
            ..STORY
        },
        Story {
            name: "sleep while calm only delays",
            answers_in: Some(500),
            asleep: Some((10_000, 100_000)),
            told: "100:probe1",
            ..STORY
        },
        Story {
            name: "sleep while asking is no loss",
            asleep: Some((35_000, 60_000)),
            told: "30:probe1 70:measure 70:probe2 80:probe3 90:measure 90:restart(3,90)",
            ..STORY
        },
        Story {
            name: "a tick that is a little late counts",
            asleep: Some((35_000, 44_000)),
            told: "30:probe1 44:measure 44:probe2 54:probe3 64:measure 64:restart(3,64)",
            ..STORY
        },
        Story {
            name: "one loss is enough, but processor time needs two looks",
            probe_lost: 1,
            told: "30:probe1 40:measure 40:probe2 50:measure 50:restart(2,50)",
            ..STORY
        },
        Story {
            name: "switched off",
            probe_idle_ms: 0,
            told: "",
            ..STORY
        },
    ];
    for story in stories {
        let (told, knows) = story.tell();
        assert_eq!(told, story.told, "{}", story.name);
        assert_eq!(knows, story.ends, "{}", story.name);
    }
}

#[test]
fn doubt_begins_with_a_loss_and_ends_with_a_sign() {
    let limits = Limits::default();
    let mut health = Health::new(&limits, at(0), Knows::Answers);
    assert_eq!(health.tick(at(30_000)), Some(Do::Probe(1)));
    assert!(!health.doubtful());
    assert_eq!(health.tick(at(40_000)), Some(Do::Measure));
    assert!(health.doubtful());
    health.heard(at(40_001));
    assert!(!health.doubtful());
    assert_eq!(health.wake_at(), Some(at(70_001)));
}

#[test]
fn output_saves_it_at_the_last_moment_and_nothing_later() {
    let limits = Limits::default();
    for saved in [false, true] {
        let mut health = Health::new(&limits, at(0), Knows::Answers);
        assert_eq!(health.tick(at(30_000)), Some(Do::Probe(1)));
        assert_eq!(health.tick(at(40_000)), Some(Do::Measure));
        health.measured(at(40_000), 100, false);
        assert_eq!(health.tick(at(40_000)), Some(Do::Probe(2)));
        assert_eq!(health.tick(at(50_000)), Some(Do::Probe(3)));
        assert_eq!(health.tick(at(60_000)), Some(Do::Measure));
        assert_eq!(health.tick(at(60_000)), None);
        health.measured(at(60_000), 100 + ALIVE_CPU_MS - 1, false);
        assert_eq!(health.wake_at(), Some(at(60_000)));
        if saved {
            health.heard(at(60_000));
            assert_eq!(health.tick(at(60_000)), None);
            continue;
        }
        let verdict = Verdict::Unresponsive {
            lost: 3,
            silent_ms: 60_000,
        };
        assert_eq!(health.tick(at(60_000)), Some(Do::Restart(verdict)));
        health.heard(at(60_001));
        health.busy(at(60_001));
        health.idle(at(60_002));
        assert_eq!((health.tick(at(600_000)), health.wake_at()), (None, None));
    }
}

#[test]
fn a_tree_that_was_never_measured_is_never_given_up() {
    let limits = Limits::default();
    let mut health = Health::new(&limits, at(0), Knows::Answers);
    for second in 0..10_000 {
        while let Some(wish) = health.tick(at(second * 1_000)) {
            assert!(matches!(wish, Do::Probe(_) | Do::Measure));
        }
    }
}

/// Work is taken back at 10 s, and the tree uses no processor time. What is wanted from then on, second by second.
fn after_work_was_taken_back(knows: Knows, mut then: impl FnMut(&mut Health, u64)) -> String {
    let mut health = Health::new(&Limits::default(), at(0), knows);
    let mut told: Vec<String> = Vec::new();
    for second in 10..=TAKEN_BACK_MS / 1_000 + 120 {
        let now = at(second * 1_000);
        if second == 10 {
            health.taken_back(now);
            health.idle(now);
        }
        then(&mut health, second);
        while let Some(wish) = health.tick(now) {
            told.push(match wish {
                Do::Probe(n) => format!("{second}:probe{n}"),
                Do::Measure => {
                    health.measured(now, 0, false);
                    format!("{second}:measure")
                }
                Do::Restart(_) => format!("{second}:restart"),
                Do::LeaveAlone => format!("{second}:leave"),
            });
        }
    }
    told.join(" ")
}

#[test]
fn cancelled_work_may_keep_a_server_busy_for_an_hour() {
    // It is asked once, and that is waited for; after the hour it is as any other.
    assert_eq!(
        after_work_was_taken_back(Knows::Answers, |_, _| {}),
        "40:probe1 3610:probe2 3620:measure 3620:probe3 3630:probe4 3640:measure 3640:restart"
    );
    assert_eq!(
        after_work_was_taken_back(Knows::Unknown, |_, _| {}),
        "40:probe1 3610:probe2 3620:probe3 3630:probe4 3640:leave"
    );
    // More of it does not begin the hour anew, unless it has said something meanwhile.
    let more = |health: &mut Health, second| {
        if second == 1_000 {
            health.taken_back(at(1_000_000));
            health.idle(at(1_000_000));
        }
    };
    assert_eq!(
        after_work_was_taken_back(Knows::Answers, more),
        "40:probe1 1030:probe2 3610:probe3 3620:measure 3620:probe4 3630:probe5 3640:measure 3640:restart"
    );
}

#[test]
fn only_an_answer_to_a_later_question_shows_that_it_is_free() {
    // Output that answers nothing comes from the very work, too.
    let chatter = |health: &mut Health, second: u64| {
        if second.is_multiple_of(300) {
            health.heard(at(second * 1_000));
        }
    };
    assert_eq!(
        after_work_was_taken_back(Knows::Answers, chatter),
        "40:probe1"
    );
    let answers = |health: &mut Health, second: u64| {
        if second == 500 {
            health.answered(at(500_000), 1);
        }
    };
    assert_eq!(
        after_work_was_taken_back(Knows::Answers, answers),
        "40:probe1 530:probe2 540:measure 540:probe3 550:probe4 560:measure 560:restart"
    );
}

#[test]
fn answers_to_probes_that_were_never_sent_prove_nothing() {
    let mut health = Health::new(&Limits::default(), at(0), Knows::Unknown);
    for n in [0, 1, u64::MAX] {
        health.answered(at(1), n);
    }
    assert_eq!(health.knows(), Knows::Unknown);
}

#[derive(Clone, Debug)]
enum Step {
    Busy,
    Idle,
    TakenBack,
    Heard,
    Answered(u64),
    Measured(u64, bool),
    Tick,
}

proptest! {
    #[test]
    fn whatever_happens_the_rules_hold(
        knows in prop::sample::select(&[Knows::Unknown, Knows::Answers, Knows::Deaf][..]),
        steps in prop::collection::vec((prop::sample::select(&[0, 1, 10_000, 30_000][..]), prop_oneof![
            1 => Just(Step::Busy),
            1 => Just(Step::Idle),
            1 => Just(Step::TakenBack),
            1 => Just(Step::Heard),
            1 => (0..6u64).prop_map(Step::Answered),
            6 => (prop::sample::select(&[0, 9, 9_999][..]), prop::bool::weighted(0.1)).prop_map(|(cpu, traced)| Step::Measured(cpu, traced)),
            20 => Just(Step::Tick),
        ]), 0..120),
    ) {
        let limits = Limits::default();
        let mut health = Health::new(&limits, at(0), knows);
        // The last sign of life, whether it is busy, the probe that is out, probes since the last sign of life.
        let (mut ms, mut sign, mut busy, mut out, mut asked) = (0, 0, false, None, 0);
        let mut over = false;
        // Since when, and after which probe, what was taken back may hold it.
        let mut held: Option<(u64, u64)> = None;
        for (pause, step) in steps {
            ms += pause;
            let now = at(ms);
            match step {
                Step::Busy => {
                    busy = true;
                    health.busy(now);
                    (sign, out, asked) = (ms, None, 0);
                }
                Step::Idle => {
                    if busy {
                        (sign, asked) = (ms, 0);
                    }
                    busy = false;
                    health.idle(now);
                }
                Step::TakenBack => {
                    busy = true;
                    health.taken_back(now);
                    (sign, out, asked) = (ms, None, 0);
                    held = Some((held.map_or(ms, |(since, _)| since), health.probes));
                }
                Step::Heard => {
                    health.heard(now);
                    held = held.map(|(_, probe)| (ms, probe));
                    (sign, out, asked) = (ms, None, 0);
                }
                Step::Answered(n) => {
                    health.answered(now, n);
                    if (1..=health.probes).contains(&n) {
                        (sign, out, asked) = (ms, None, 0);
                        held = held.filter(|&(_, probe)| n <= probe).map(|(_, probe)| (ms, probe));
                    }
                }
                Step::Measured(cpu, traced) => health.measured(now, cpu, traced),
                Step::Tick => {
                    let mut wishes = 0;
                    while let Some(wish) = health.tick(now) {
                        wishes += 1;
                        prop_assert!(wishes < 4 && !busy && !over);
                        prop_assert!(ms - sign >= limits.probe_idle_ms);
                        match wish {
                            Do::Probe(_) => {
                                let free = out.is_none_or(|sent| ms - sent >= limits.probe_wait_ms);
                                prop_assert!(free);
                                out = Some(ms);
                                asked += 1;
                            }
                            Do::Measure => prop_assert_eq!(health.knows(), Knows::Answers),
                            Do::Restart(Verdict::Unresponsive { lost, silent_ms }) => {
                                prop_assert!(held.is_none_or(|(since, _)| ms - since >= TAKEN_BACK_MS));
                                prop_assert_eq!(health.knows(), Knows::Answers);
                                prop_assert!(u64::from(lost) >= limits.probe_lost && asked >= limits.probe_lost);
                                prop_assert!(silent_ms >= limits.probe_idle_ms + limits.probe_lost * limits.probe_wait_ms);
                                over = true;
                            }
                            Do::LeaveAlone => {
                                prop_assert!(held.is_none_or(|(since, _)| ms - since >= TAKEN_BACK_MS));
                                prop_assert!(knows == Knows::Unknown && asked >= limits.probe_lost);
                                prop_assert_eq!(health.knows(), Knows::Deaf);
                            }
                        }
                    }
                    prop_assert!(health.wake_at().is_none_or(|wake| wake > now));
                }
            }
            if busy || over {
                prop_assert_eq!(health.wake_at(), None);
            }
        }
    }
}
