//! guards: The table of requests, read by a successor from any bytes, closes each request once and none of another client.

use super::*;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use proptest::prelude::*;

fn table(slots: usize) -> Inflight<Vec<Slot>> {
    Inflight::new(vec![Slot::free(); slots])
}

fn ids<S: AsRef<[Slot]> + AsMut<[Slot]>>(table: &Inflight<S>) -> Vec<String> {
    table
        .iter()
        .map(|(id, _)| String::from_utf8_lossy(id).into_owned())
        .collect()
}

const NOW: Moment = Moment(5);

#[test]
fn an_answer_closes_what_was_opened() {
    let mut table = table(4);
    assert_eq!(table.open(b"1", Tracked::ToolsCall, 2, NOW), Opened::New);
    assert_eq!(table.open(b"\"1\"", Tracked::Ping, 2, NOW), Opened::New);
    assert_eq!(table.len(), 2);
    assert_eq!(table.oldest().map(|(id, _)| id), Some(&b"1"[..]));
    let entry = Entry {
        method: Tracked::ToolsCall,
        sent_to: Some(2),
        opened: NOW,
    };
    assert_eq!(table.get(b"1"), Some(entry));
    assert_eq!(table.close(b"1.0"), Some(entry));
    assert_eq!(table.close(b"1"), None);
    assert_eq!(ids(&table), ["\"1\""]);
}

#[test]
fn a_full_table_and_an_untracked_id_are_reported() {
    let mut table = table(2);
    table.open(b"1", Tracked::Other, 1, NOW);
    table.open(b"2", Tracked::Other, 1, NOW);
    assert_eq!(table.open(b"3", Tracked::Other, 1, NOW), Opened::Full);
    assert_eq!(table.open(b"2", Tracked::Other, 1, NOW), Opened::Again);
    assert_eq!(table.open(b"", Tracked::Other, 1, NOW), Opened::Untracked);
    let long = [b'9'; ID_BYTES + 1];
    assert_eq!(table.open(&long, Tracked::Other, 1, NOW), Opened::Untracked);
    table.close(b"1");
    let fits = [b'9'; ID_BYTES];
    assert_eq!(table.open(&fits, Tracked::Other, 1, NOW), Opened::New);
    assert_eq!(table.len(), 2);
}

#[test]
fn an_id_opened_again_moves_to_the_end() {
    let mut table = table(4);
    for id in ["1", "2", "3"] {
        table.open(id.as_bytes(), Tracked::Other, 1, NOW);
    }
    assert_eq!(table.open(b"1", Tracked::Ping, 2, NOW), Opened::Again);
    assert_eq!(ids(&table), ["2", "3", "1"]);
    assert_eq!(
        table.get(b"1").map(|e| (e.method, e.sent_to)),
        Some((Tracked::Ping, Some(2)))
    );
}

#[test]
fn a_late_answer_is_swallowed_once_or_until_its_generation_is_gone() {
    let mut table = table(4);
    for id in ["1", "2", "3"] {
        table.open(id.as_bytes(), Tracked::Other, 1, NOW);
        assert!(table.settle(id.as_bytes()));
    }
    assert!(!table.settle(b"1"), "no request waits");
    assert!(!table.settle(b"9"));
    assert_eq!((table.len(), table.settled()), (0, 3));
    assert_eq!(table.close(b"1"), None);
    assert!(table.is_settled(b"1"));
    assert!(table.swallow(b"1"));
    assert!(!table.swallow(b"1"));
    table.open(b"2", Tracked::Other, 2, NOW);
    assert!(!table.is_settled(b"2"));
    table.forget_settled(1);
    assert!(!table.is_settled(b"3"));
    assert_eq!((table.len(), table.settled()), (1, 0));
}

#[test]
fn a_slot_that_was_freed_is_taken_before_a_new_one() {
    let mut table = table(300);
    for n in 0..200 {
        table.open(n.to_string().as_bytes(), Tracked::Other, 1, NOW);
    }
    for n in [150, 3, 70] {
        table.close(n.to_string().as_bytes());
    }
    for (id, slot) in [("a", 70), ("b", 3), ("c", 150), ("d", 200)] {
        table.open(id.as_bytes(), Tracked::Other, 1, NOW);
        let (_, held, _) = table.slots[slot].read().expect("an entry");
        assert_eq!(held, id.as_bytes());
    }
    assert!(table.slots[201..].iter().all(|slot| !slot.touched()));
}

#[test]
fn an_answer_on_its_way_to_a_reused_id_frees_only_its_own_slot() {
    let mut table = table(4);
    table.open(b"1", Tracked::Other, 1, NOW);
    table.answered(b"1");
    table.open(b"1", Tracked::Other, 1, NOW);
    table.close(b"1");
    // The same slot, with an answer that goes another way.
    table.open(b"2", Tracked::Other, 1, NOW);
    table.answered_by_us(b"2");
    table.delivered();
    let successor = Inflight::new(table.slots().to_vec());
    assert_eq!(ids(&successor), ["2"], "its answer was not written yet");
    table.written();
    assert!(Inflight::new(table.slots().to_vec()).is_empty());
}

#[test]
fn a_request_has_its_place_while_it_waits() {
    let mut table = table(4);
    table.open(b"1", Tracked::Other, 1, NOW);
    table.open(b"2", Tracked::Other, 1, NOW);
    assert_eq!((table.place(b"1"), table.place(b"2.0")), (Some(0), Some(1)));
    table.open(b"1.0", Tracked::Ping, 2, NOW);
    assert_eq!(table.place(b"1"), Some(0), "the later one takes its place");
    table.settle(b"2");
    table.close(b"1");
    assert_eq!((table.place(b"1"), table.place(b"2")), (None, None));
    table.open(b"3", Tracked::Other, 1, NOW);
    assert_eq!(table.place(b"3"), Some(0));
}

#[test]
fn draining_goes_in_the_order_of_opening() {
    let mut table = table(8);
    for id in ["3", "1", "2"] {
        table.open(id.as_bytes(), Tracked::Other, 1, NOW);
    }
    table.settle(b"1");
    let drained: Vec<String> = table.drain().map(|(id, _)| format!("{id:?}")).collect();
    assert_eq!(drained, ["3", "2"]);
    assert!(table.is_empty());
    assert!(table.is_settled(b"1"));
}

#[test]
fn of_two_slots_with_one_id_the_later_stays() {
    let mut slots = vec![Slot::free(); 3];
    for (slot, (id, sequence)) in slots.iter_mut().zip([("7", 9), ("7.0", 4)]) {
        let entry = Entry {
            method: Tracked::Other,
            sent_to: Some(sequence),
            opened: NOW,
        };
        slot.publish(id.as_bytes(), entry, u64::from(sequence));
    }
    let mut table = Inflight::new(slots);
    assert_eq!(table.len(), 1);
    for (id, expected) in [("a", Opened::New), ("b", Opened::New), ("c", Opened::Full)] {
        assert_eq!(table.open(id.as_bytes(), Tracked::Other, 1, NOW), expected);
    }
    assert_eq!(table.close(b"7").map(|e| e.sent_to), Some(Some(9)));
    assert_eq!(table.close(b"7"), None);
}

#[test]
fn more_slots_than_the_limit_are_not_used() {
    let mut table = table(IN_FLIGHT_MAX + 5);
    for n in 0..IN_FLIGHT_MAX {
        assert_eq!(
            table.open(n.to_string().as_bytes(), Tracked::Other, 1, NOW),
            Opened::New
        );
    }
    assert_eq!(table.open(b"x", Tracked::Other, 1, NOW), Opened::Full);
    let table = Inflight::new(table.slots);
    assert_eq!(table.len(), IN_FLIGHT_MAX);
    assert!(
        table.iter().map(|(id, _)| id).eq((0..IN_FLIGHT_MAX)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .iter()
            .map(String::as_bytes))
    );
}

#[test]
fn answers_on_their_way_close_their_own_requests_only() {
    let mut table = table(8);
    for id in ["1", "2", "3", "4"] {
        table.open(id.as_bytes(), Tracked::ToolsCall, 1, NOW);
    }
    assert!(table.answered_if(b"9", Tracked::ToolsCall).is_none());
    assert!(table.answered_if(b"1", Tracked::Ping).is_none());
    assert!(table.answered_if(b"1", Tracked::ToolsCall).is_some());
    assert!(table.answered_if(b"1", Tracked::ToolsCall).is_none());
    assert_eq!(table.answered(b"2").map(|e| e.sent_to), Some(Some(1)));
    assert_eq!(table.answered(b"2"), None);
    assert!(table.answered_by_us(b"3").is_some());
    table.goes_with_ours(b"2");
    table.goes_with_ours(b"4");
    table.goes_with_ours(b"9");
    let left = |table: &Inflight<Vec<Slot>>| ids(&Inflight::new(table.slots().to_vec()));
    assert_eq!((ids(&table), table.len()), (vec!["4".to_string()], 1));
    assert!(!table.is_empty());
    assert_eq!(left(&table), ["1", "2", "3", "4"]);
    table.delivered();
    assert_eq!(left(&table), ["2", "3", "4"]);
    assert!(!table.knows(b"1") && table.knows(b"2"));
    table.written();
    assert_eq!((left(&table), table.room()), (vec!["4".to_string()], 7));
}

#[test]
fn a_request_that_waits_within_us_is_no_late_answer() {
    let mut table = table(2);
    assert_eq!(table.hold(b"1", Tracked::ToolsCall, NOW), Opened::New);
    let held = table.get(b"1").expect("an entry");
    assert!(held.is_held());
    assert_eq!(table.open(b"1", Tracked::ToolsCall, 1, NOW), Opened::Again);
    assert!(!table.get(b"1").expect("an entry").is_held());
    let successor = Inflight::new(table.slots().to_vec());
    assert_eq!(successor.get(b"1").and_then(|e| e.sent_to), Some(1));
}

/// What the table must do, told with plain collections.
#[derive(Default)]
struct Model {
    open: VecDeque<(String, Entry)>,
    settled: Vec<(String, Entry)>,
}

#[derive(Clone, Debug)]
enum Step {
    Open(u8, u32),
    Close(u8),
    Settle(u8),
    Swallow(u8),
    Forget(u32),
    TakeOldest,
    Takeover,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..40u8, 0..4u32).prop_map(|(id, generation)| Step::Open(id, generation)),
        5 => (0..40u8).prop_map(Step::Close),
        2 => (0..40u8).prop_map(Step::Settle),
        1 => (0..40u8).prop_map(Step::Swallow),
        1 => (0..4u32).prop_map(Step::Forget),
        1 => Just(Step::TakeOldest),
        1 => Just(Step::Takeover),
    ]
}

/// Bytes that are no slot, some of them close to one.
fn garbage() -> impl Strategy<Value = Slot> {
    let head = (
        0..4u8,
        0..13u8,
        0..120u8,
        prop_oneof![Just(0x5Eu8), any::<u8>()],
    );
    (head, prop::array::uniform32(any::<u8>())).prop_map(|(head, bytes)| {
        let mut all = bytes.repeat(4);
        all[..4].copy_from_slice(&[head.0, head.1, head.2, head.3]);
        Slot::of_bytes(all.try_into().expect("128 bytes"))
    })
}

proptest! {
    #[test]
    fn garbage_is_taken_over_without_harm(slots in prop::collection::vec(garbage(), 0..40)) {
        let room = slots.len();
        let mut table = Inflight::new(slots);
        prop_assert!(table.len() + table.settled() <= room);
        prop_assert_eq!(table.iter().count(), table.len());
        table.forget_settled(u32::MAX);
        prop_assert_eq!(table.settled(), 0);
        let held = table.len();
        prop_assert_eq!(table.drain().count(), held);
        for n in 0..room {
            prop_assert_eq!(table.open(n.to_string().as_bytes(), Tracked::Other, 1, NOW), Opened::New);
        }
        prop_assert_eq!(table.open(b"x", Tracked::Other, 1, NOW), Opened::Full);
        let table = Inflight::new(table.slots);
        prop_assert_eq!(table.len(), room);
    }

    #[test]
    fn the_table_does_what_plain_collections_do(steps in prop::collection::vec(step(), 0..200)) {
        const ROOM: usize = 16;
        let mut table = table(ROOM);
        let mut model = Model::default();
        for (n, step) in steps.into_iter().enumerate() {
            let now = Moment(n as u64);
            match step {
                Step::Open(id, generation) => {
                    let id = id.to_string();
                    let entry = Entry { method: Tracked::List, sent_to: Some(generation), opened: now };
                    let was_open = model.open.iter().any(|(held, _)| *held == id);
                    let was_settled = model.settled.iter().any(|(held, _)| *held == id);
                    let full = model.open.len() + model.settled.len() == ROOM;
                    if full && !was_open && !was_settled {
                        // The late answer that is waited for longest is given up for it.
                        let opened = model.settled.iter().map(|(_, entry)| entry.opened).min();
                        model.settled.retain(|(_, entry)| Some(entry.opened) != opened);
                    }
                    let full = model.open.len() + model.settled.len() == ROOM;
                    let expected = if was_open { Opened::Again } else if full && !was_settled { Opened::Full } else { Opened::New };
                    prop_assert_eq!(table.open(id.as_bytes(), Tracked::List, generation, now), expected);
                    if expected != Opened::Full {
                        model.open.retain(|(held, _)| *held != id);
                        model.settled.retain(|(held, _)| *held != id);
                        model.open.push_back((id, entry));
                    }
                }
                Step::Close(id) => {
                    let id = id.to_string();
                    let at = model.open.iter().position(|(held, _)| *held == id);
                    let expected = at.and_then(|at| model.open.remove(at)).map(|(_, entry)| entry);
                    prop_assert_eq!(table.close(id.as_bytes()), expected);
                }
                Step::Settle(id) => {
                    let id = id.to_string();
                    let at = model.open.iter().position(|(held, _)| *held == id);
                    let entry = at.and_then(|at| model.open.remove(at));
                    prop_assert_eq!(table.settle(id.as_bytes()), entry.is_some());
                    table.written();
                    model.settled.extend(entry);
                }
                Step::Swallow(id) => {
                    let id = id.to_string();
                    let before = model.settled.len();
                    model.settled.retain(|(held, _)| *held != id);
                    prop_assert_eq!(table.swallow(id.as_bytes()), model.settled.len() < before);
                }
                Step::Forget(generation) => {
                    model.settled.retain(|(_, of)| of.sent_to > Some(generation));
                    table.forget_settled(generation);
                }
                Step::TakeOldest => {
                    let taken = table.take_oldest().map(|(id, entry)| (format!("{id:?}"), entry));
                    prop_assert_eq!(taken, model.open.pop_front());
                }
                Step::Takeover => table = Inflight::new(table.slots),
            }
            prop_assert_eq!(table.len(), model.open.len());
            prop_assert_eq!(table.settled(), model.settled.len());
            prop_assert!(table.iter().eq(model.open.iter().map(|(id, entry)| (id.as_bytes(), *entry))));
            for (id, _) in &model.settled {
                prop_assert!(table.is_settled(id.as_bytes()));
            }
        }
    }
}

/// What a request is in the full model. The first three are open for a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Open,
    /// The server's answer is on its way.
    Answered,
    /// An answer of ours is on its way; whether the server's late one is to be swallowed.
    AnsweredByUs {
        late: bool,
    },
    Settled,
}

const OURS: Held = Held::AnsweredByUs { late: false };
const OURS_FIRST: Held = Held::AnsweredByUs { late: true };

#[derive(Clone, Debug)]
enum Answer {
    Open(u8, bool, u32),
    Close(u8),
    Answered(u8),
    AnsweredIf(u8, bool),
    ByUs(u8),
    WithOurs(u8),
    Settle(u8),
    Swallow(u8),
    Delivered,
    Written,
    Forget(u32),
    Takeover,
}

fn answer() -> impl Strategy<Value = Answer> {
    let id = || 0..12u8;
    prop_oneof![
        8 => (id(), any::<bool>(), 0..3u32).prop_map(|(id, call, generation)| Answer::Open(id, call, generation)),
        2 => id().prop_map(Answer::Close),
        2 => id().prop_map(Answer::Answered),
        2 => (id(), any::<bool>()).prop_map(|(id, call)| Answer::AnsweredIf(id, call)),
        2 => id().prop_map(Answer::ByUs),
        2 => id().prop_map(Answer::WithOurs),
        3 => id().prop_map(Answer::Settle),
        2 => id().prop_map(Answer::Swallow),
        1 => Just(Answer::Delivered),
        1 => Just(Answer::Written),
        1 => (0..3u32).prop_map(Answer::Forget),
        1 => Just(Answer::Takeover),
    ]
}

/// In the order of opening.
type Requests = Vec<(String, Entry, Held)>;

fn of(all: &Requests, wanted: impl Fn(Held) -> bool) -> Vec<(String, Entry)> {
    all.iter()
        .filter(|(_, _, held)| wanted(*held))
        .map(|(id, entry, _)| (id.clone(), *entry))
        .collect()
}

/// Changes a request that is held so; what it was.
fn turn(all: &mut Requests, id: &str, from: Held, to: Held) -> Option<Entry> {
    let found = all
        .iter_mut()
        .find(|(held_id, _, held)| held_id == id && *held == from)?;
    found.2 = to;
    Some(found.1)
}

proptest! {
    #[test]
    fn whatever_is_on_its_way_is_open_for_a_successor(steps in prop::collection::vec(answer(), 0..120)) {
        const ROOM: usize = 6;
        let method = |call: bool| if call { Tracked::ToolsCall } else { Tracked::Ping };
        let mut table = table(ROOM);
        let mut model = Requests::new();
        for (n, step) in steps.into_iter().enumerate() {
            let now = Moment(n as u64);
            match step {
                Answer::Open(id, call, generation) => {
                    let id = id.to_string();
                    let entry = Entry { method: method(call), sent_to: Some(generation), opened: now };
                    let known = model.iter().find(|(held, _, _)| *held == id).map(|(_, _, held)| *held);
                    if known.is_none() && model.len() == ROOM
                        && let Some(oldest) = model.iter().position(|(_, _, held)| *held == Held::Settled)
                    {
                        model.remove(oldest);
                    }
                    let expected = match known {
                        Some(Held::Open) => Opened::Again,
                        Some(_) => Opened::New,
                        None if model.len() < ROOM => Opened::New,
                        None => Opened::Full,
                    };
                    prop_assert_eq!(table.open(id.as_bytes(), method(call), generation, now), expected);
                    if expected != Opened::Full {
                        model.retain(|(held, _, _)| *held != id);
                        model.push((id, entry, Held::Open));
                    }
                }
                Answer::Close(id) => {
                    let id = id.to_string();
                    let at = model.iter().position(|(held_id, _, held)| *held_id == id && *held == Held::Open);
                    let expected = at.map(|at| model.remove(at).1);
                    prop_assert_eq!(table.close(id.as_bytes()), expected);
                }
                Answer::Answered(id) => {
                    let id = id.to_string();
                    let expected = turn(&mut model, &id, Held::Open, Held::Answered);
                    prop_assert_eq!(table.answered(id.as_bytes()), expected);
                }
                Answer::AnsweredIf(id, call) => {
                    let id = id.to_string();
                    let waits = model
                        .iter()
                        .any(|(held_id, entry, held)| *held_id == id && *held == Held::Open && entry.method == method(call));
                    if waits {
                        turn(&mut model, &id, Held::Open, Held::Answered);
                    }
                    prop_assert_eq!(table.answered_if(id.as_bytes(), method(call)).is_some(), waits);
                }
                Answer::ByUs(id) => {
                    let id = id.to_string();
                    let expected = turn(&mut model, &id, Held::Open, OURS);
                    prop_assert_eq!(table.answered_by_us(id.as_bytes()), expected);
                }
                Answer::WithOurs(id) => {
                    let id = id.to_string();
                    turn(&mut model, &id, Held::Answered, OURS);
                    table.goes_with_ours(id.as_bytes());
                }
                Answer::Settle(id) => {
                    let id = id.to_string();
                    let waited = turn(&mut model, &id, Held::Open, OURS_FIRST).is_some();
                    prop_assert_eq!(table.settle(id.as_bytes()), waited);
                }
                Answer::Swallow(id) => {
                    let id = id.to_string();
                    let before = model.len();
                    model.retain(|(held_id, _, held)| *held_id != id || *held != Held::Settled);
                    let late = model.len() < before || turn(&mut model, &id, OURS_FIRST, OURS).is_some();
                    prop_assert_eq!(table.swallow(id.as_bytes()), late);
                }
                Answer::Delivered => {
                    model.retain(|(_, _, held)| *held != Held::Answered);
                    table.delivered();
                }
                Answer::Written => {
                    model.retain(|(_, _, held)| *held != OURS);
                    for (_, _, held) in &mut model {
                        if *held == OURS_FIRST {
                            *held = Held::Settled;
                        }
                    }
                    table.written();
                }
                Answer::Forget(generation) => {
                    model.retain(|(_, entry, held)| *held != Held::Settled || entry.sent_to > Some(generation));
                    for (_, _, held) in &mut model {
                        if *held == OURS_FIRST {
                            *held = OURS;
                        }
                    }
                    table.forget_settled(generation);
                }
                Answer::Takeover => {
                    for (_, _, held) in &mut model {
                        if *held != Held::Settled {
                            *held = Held::Open;
                        }
                    }
                    table = Inflight::new(table.slots);
                }
            }
            let entries = |table: &Inflight<Vec<Slot>>| -> Vec<(String, Entry)> {
                table.iter().map(|(id, entry)| (String::from_utf8_lossy(id).into_owned(), entry)).collect()
            };
            prop_assert_eq!(entries(&table), of(&model, |held| held == Held::Open));
            let late = |held: Held| matches!(held, Held::Settled | OURS_FIRST);
            prop_assert_eq!(table.settled(), of(&model, late).len());
            let taken = of(&model, |held| held != Held::Settled).len();
            prop_assert_eq!(table.room(), ROOM - taken);
            for id in (0..12).map(|id: u8| id.to_string()) {
                let held = model.iter().find(|(held, _, _)| *held == id);
                prop_assert_eq!(table.knows(id.as_bytes()), held.is_some());
                prop_assert_eq!(table.is_settled(id.as_bytes()), held.is_some_and(|(_, _, held)| late(*held)));
                let open = held.filter(|(_, _, held)| *held == Held::Open);
                prop_assert_eq!(table.get(id.as_bytes()), open.map(|(_, entry, _)| *entry));
            }
            let successor = Inflight::new(table.slots().to_vec());
            prop_assert_eq!(entries(&successor), of(&model, |held| held != Held::Settled));
            prop_assert_eq!(successor.settled(), of(&model, |held| held == Held::Settled).len());
        }
    }
}
