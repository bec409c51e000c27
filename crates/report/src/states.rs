//! The states of a link as `mainstay ps` shows them, with what each means.

use crate::paint::Tone;

/// One state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The word in `ps` and in its JSON.
    pub word: &'static str,
    /// What it means, for a legend.
    pub meaning: &'static str,
    /// Whether it is good or bad news.
    pub tone: Tone,
}

const fn state(word: &'static str, tone: Tone, meaning: &'static str) -> State {
    State {
        word,
        meaning,
        tone,
    }
}

/// Every state, in the order of a server's life.
pub const STATES: [State; 16] = [
    state(
        "starting",
        Tone::Warn,
        "the server process is being started",
    ),
    state(
        "opening",
        Tone::Warn,
        "the handshake with the client is not complete",
    ),
    state(
        "greeting",
        Tone::Warn,
        "restarted; the handshake is repeated",
    ),
    state("ready", Tone::Good, "it serves"),
    state(
        "doubtful",
        Tone::Warn,
        "idle, and has not answered the last probe; it may be restarted",
    ),
    state(
        "draining",
        Tone::Warn,
        "a restart was asked for; open requests are answered first",
    ),
    state("restarting", Tone::Warn, "the old process is being ended"),
    state(
        "waiting",
        Tone::Warn,
        "it died; the next start waits for its delay",
    ),
    state(
        "resting",
        Tone::Faint,
        "stopped because it was idle, or not started yet; a call starts it",
    ),
    state(
        "lingering",
        Tone::Warn,
        "the client killed its process and lives on; the server is kept for it",
    ),
    state(
        "abandoned",
        Tone::Bad,
        "too many crashes; it is tried once a minute",
    ),
    state(
        "failed",
        Tone::Bad,
        "it could not be started; the connection ends",
    ),
    state("stopping", Tone::Warn, "the connection ends"),
    state("gone", Tone::Warn, "the connection has ended"),
    state(
        "dead",
        Tone::Bad,
        "all its mainstay processes were killed; the next `mainstay run` cleans up",
    ),
    state(
        "elsewhere",
        Tone::Warn,
        "it runs in another container that shares this home directory",
    ),
];

/// The state of this name; none for a word of a newer mainstay.
pub fn of(word: &str) -> Option<&'static State> {
    STATES.iter().find(|state| state.word == word)
}
