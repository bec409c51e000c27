//! Simulated worlds around the HTTP front: thousands of seeds on every run. `MAINSTAY_SERVE_SEED=N` prints one story. Wide sweeps
//! by hand: `cargo run -p mainstay-testkit --bin sim -- --serve --seeds 100000`.
//! guards: In thousands of simulated worlds, every client of `serve` gets its own answers and each request is answered once.

use std::panic;

use mainstay_testkit::shared_world::{self, FrontCounts};

const SEEDS: u64 = 2_000;

#[test]
fn every_promise_holds_in_every_world() {
    if let Ok(seed) = std::env::var("MAINSTAY_SERVE_SEED") {
        let seed = seed.parse().expect("MAINSTAY_SERVE_SEED is a number");
        let told = shared_world::run(seed, true);
        assert!(told.is_ok(), "{told:?}");
        return;
    }
    let mut all = FrontCounts::default();
    for seed in 0..SEEDS {
        all.add(&tell(seed));
    }
    // Worlds in which nothing happens prove nothing.
    let seeds = SEEDS as u32;
    assert!(all.answered > 5 * seeds && all.sessions > seeds, "{all:?}");
    assert!(all.resumed > seeds / 5 && all.cut > seeds, "{all:?}");
    assert!(all.died > seeds / 5 && all.attacks > seeds, "{all:?}");
}

#[test]
fn one_seed_is_one_story() {
    for seed in [7, 178, 3_192] {
        assert_eq!(tell(seed), tell(seed));
    }
}

fn tell(seed: u64) -> FrontCounts {
    let what = match panic::catch_unwind(|| shared_world::run(seed, false)) {
        Ok(Ok(told)) => return told,
        Ok(Err(what)) => what,
        Err(_) => "a panic".into(),
    };
    panic!(
        "{what}: MAINSTAY_SERVE_SEED={seed} cargo test -p mainstay-testkit --test simulation front_worlds"
    );
}
