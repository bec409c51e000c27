//! Short ways to plans.

use mainstay_clients::plan::{self, Action, Adopt, Plan, Reason, Release};
use mainstay_clients::profile::{self, Client, ConfigFile};
use mainstay_clients::refusal::Refusal;

pub const PROGRAM: &str = "/home/ann/.local/bin/mainstay";

pub fn wish() -> Adopt {
    Adopt {
        program: PROGRAM.into(),
        ..Adopt::default()
    }
}

pub fn client(name: &str) -> &'static Client {
    profile::named(name).unwrap()
}

/// The first file of a client that is edited.
pub fn file(name: &str) -> &'static ConfigFile {
    let mut files = client(name).config.files.iter();
    files.find(|file| file.never.is_none()).unwrap()
}

pub fn adopt(name: &str, text: &[u8]) -> Result<Plan, Refusal> {
    plan::adopt(text, client(name), file(name), &wish())
}

pub fn release(name: &str, text: &[u8]) -> Result<Plan, Refusal> {
    plan::release(text, client(name), file(name), &Release::default())
}

pub fn text(plan: &Plan) -> &str {
    str::from_utf8(plan.new_bytes()).unwrap()
}

/// Adopts, checks all that must hold of any adopted file, and gives the new text.
pub fn adopted(name: &str, old: &str) -> String {
    let plan = adopt(name, old.as_bytes()).unwrap_or_else(|why| panic!("{why}\n{old}"));
    let new = text(&plan).to_owned();
    let changes = plan.entries().iter().any(|entry| entry.action.changes());
    assert!(changes, "nothing was adopted: {:?}\n{old}", plan.entries());
    let again = adopt(name, new.as_bytes()).unwrap();
    assert_eq!(text(&again), new, "adopting twice changes more");
    let back = release(name, new.as_bytes()).unwrap();
    assert_eq!(text(&back), old, "releasing does not give the old bytes");
    let still = release(name, old.as_bytes()).unwrap();
    assert!(!still.changes());
    new
}

/// The one reason for which the entries of a text are left alone.
pub fn reason(name: &str, old: &str) -> Reason {
    let plan = adopt(name, old.as_bytes()).unwrap_or_else(|why| panic!("{why}\n{old}"));
    assert!(!plan.changes(), "{}", text(&plan));
    let mut reasons = plan
        .entries()
        .iter()
        .filter_map(|entry| match &entry.action {
            Action::Leave(reason) => Some(reason.clone()),
            Action::Wrap(_)
            | Action::Bridge(_)
            | Action::Update(_)
            | Action::Already
            | Action::Restore
            | Action::NotAdopted => None,
        });
    reasons.next().unwrap_or_else(|| panic!("{old}"))
}
