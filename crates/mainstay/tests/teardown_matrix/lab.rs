//! Tier `scope` where no user manager runs for us: the same test runs once more, as a user without any rights, next to a private
//! manager (`private-systemd` in `crates/testkit/scripts`). The outer test process starts the inner one and reads its results.

use std::fs;
use std::path::Path;

use mainstay_protocol::tier::Tier;
use mainstay_testkit::lab::Lab;
pub use mainstay_testkit::lab::{affordable, inside};
use serde_json::{Value, json};

use crate::Results;
use crate::cell::Outcome;

/// The file with the results of the inner process, in the directory of the lab.
const SEEN: &str = "seen/results.json";

/// The tier that the inner process plays.
pub const TIER: Tier = Tier::Scope;

/// Runs `test` of this program in the lab and returns its results.
pub fn play(mainstay: &Path, test: &str) -> Results {
    let lab = Lab::furnish(mainstay);
    let played = lab.run(test);
    let said = String::from_utf8_lossy(&played.stderr).into_owned();
    assert!(played.status.success(), "the lab failed: {said}");
    let seen = fs::read(lab.path().join(SEEN)).expect("the one inside has written what it saw");
    let seen: Value = serde_json::from_slice(&seen).expect("it writes JSON");
    seen.as_object().into_iter().flatten().map(read).collect()
}

/// Writes the results for the outer process.
pub fn hand_over(lab: &Path, results: &Results) {
    let seen: Value = results.iter().map(write).collect();
    fs::write(lab.join(SEEN), seen.to_string()).expect("the lab takes a file");
}

fn write((name, result): (&String, &Result<Outcome, String>)) -> (String, Value) {
    let told = match result {
        Ok(outcome) => json!({"word": outcome.word, "rungs": outcome.rungs}),
        Err(problem) => json!({"problem": problem}),
    };
    (name.clone(), told)
}

fn read((name, told): (&String, &Value)) -> (String, Result<Outcome, String>) {
    let text = |key: &str| told[key].as_str().map(ToOwned::to_owned);
    let result = match (text("word"), text("rungs")) {
        (Some(word), Some(rungs)) => Ok(Outcome { word, rungs }),
        (_, _) => Err(text("problem").unwrap_or_default()),
    };
    (name.clone(), result)
}
