//! The page of every state and every event is what the link does. `MAINSTAY_BLESS=1` writes it again.
//! guards: The page of states and events says what the link does.

use mainstay_testkit::world::matrix;

use crate::files::compare;

#[test]
fn every_state_and_every_event_is_on_the_page() {
    compare(
        "docs/reference/life-matrix.md",
        &matrix::page(),
        "cargo test -p mainstay-testkit --test pages life_matrix",
    );
}
