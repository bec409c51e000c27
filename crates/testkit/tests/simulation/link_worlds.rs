//! Simulated worlds: hundreds of seeds on every run. `MAINSTAY_SEED=N` prints one story. Wide sweeps by hand: `cargo run
//! --profile sim -p mainstay-testkit --bin sim -- --seeds 100000`.
//! guards: In hundreds of simulated worlds, each request is answered exactly once and no answer of an old generation reaches the client.

use std::collections::BTreeSet;
use std::panic;

use mainstay_protocol::limits::Limits;
use mainstay_protocol::policy::Policy;
use mainstay_testkit::world::dice::Dice;
use mainstay_testkit::world::message::Message;
use mainstay_testkit::world::outside::{self, Halt};
use mainstay_testkit::world::watch::{Watch, Way};
use mainstay_testkit::world::{self, StoryCounts, raw};

const SEEDS: u64 = 2_000;
const RAW_SEEDS: u64 = 3_000;
/// Worlds of wide sweeps in which a promise was once broken.
const ONCE_BROKEN: [u64; 36] = [
    1_754, 2_657, 15_046, 29_316, 31_844, 36_378, 38_235, 44_426, 47_175, 49_500, 50_212, 56_284,
    59_566, 61_968, 74_722, 86_024, 93_063, 151_989, 163_485, 183_385, 186_602, 208_880, 308_307,
    308_440, 312_068, 359_733, 418_372, 472_140, 754_543, 958_237, 39_992, 264_005, 382_977,
    177_713, 411_974, 724_695,
];

#[test]
fn every_promise_holds_in_every_world() {
    if let Ok(seed) = std::env::var("MAINSTAY_SEED") {
        let seed = seed.parse().expect("MAINSTAY_SEED is a number");
        outside::tell_aloud();
        let told = world::run(seed, true);
        assert!(told.is_ok(), "{:?}", told.map_err(|failure| failure.what));
        return;
    }
    let mut all = StoryCounts::default();
    for seed in (0..SEEDS).chain(ONCE_BROKEN) {
        let told = tell(seed);
        all.generations += told.generations;
        all.killed += told.killed;
        all.reattached += told.reattached;
    }
    // Worlds in which nothing happens prove nothing.
    assert!(all.reattached > SEEDS as u32 / 8, "{all:?}");
    assert!(all.generations > 2 * SEEDS as u32 && all.killed > SEEDS as u32 / 4);
}

#[test]
fn any_bytes_from_both_sides_keep_the_link_in_one_piece() {
    for seed in 0..RAW_SEEDS {
        let mut dice = Dice::new(seed);
        let len = dice.below(200);
        let bytes: Vec<u8> = (0..len).map(|_| dice.roll() as u8).collect();
        if let Err(what) = raw::run(&bytes) {
            panic!("{what}, with the bytes of seed {seed}: {bytes:?}");
        }
    }
}

#[test]
fn one_seed_is_one_story() {
    for seed in [7, 178, 3_192] {
        assert_eq!(tell(seed), tell(seed));
    }
}

#[test]
fn broken_promises_are_noticed() {
    let asked = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rw"}}"#;
    let mut watch = Watch::new(&Limits::default(), Policy::default());
    for said in Message::read(asked).unwrap() {
        watch.client_asks(&said);
    }
    let broken = |halt: Result<(), Halt>| match halt {
        Err(Halt::Broken(what)) => what,
        Ok(()) | Err(Halt::Killed) => panic!("it was not noticed"),
    };
    watch.server_gets(1, asked).unwrap();
    assert!(broken(watch.server_gets(2, asked)).contains("sent again"));
    assert!(broken(watch.server_gets(1, b"{\"jso")).contains("half a line"));
    assert!(broken(watch.calm(None, &BTreeSet::new())).contains("held for ever"));
    let answer = br#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"by":1}}}"#;
    watch.client_gets(answer, Way::Passed).unwrap();
    let second = br#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"ours"}}"#;
    assert!(broken(watch.client_gets(second, Way::Ours)).contains("second answer"));
    let stale = br#"{"jsonrpc":"2.0","id":2,"result":{"_meta":{"by":1}}}"#;
    assert!(broken(watch.client_gets(stale, Way::Passed)).contains("never asked"));
}

fn tell(seed: u64) -> StoryCounts {
    if let Ok(Ok(told)) = panic::catch_unwind(|| world::run(seed, false)) {
        return told;
    }
    // The whole story, printed while it runs, so that one that ends in a panic is printed too.
    outside::tell_aloud();
    let story = panic::catch_unwind(|| world::run(seed, true));
    let what = match story {
        Ok(Ok(_)) => "not the same story".into(),
        Ok(Err(failure)) => failure.what,
        Err(_) => "a panic".into(),
    };
    panic!(
        "{what}: MAINSTAY_SEED={seed} cargo test -p mainstay-testkit --test simulation link_worlds"
    );
}
