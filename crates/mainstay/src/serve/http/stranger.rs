//! Somebody whom the door does not know: which user of this machine it is, and what to do about it.

use mainstay_os::owner::Unknown;

use super::super::front::Front;
use super::super::reply::Refusal;
use crate::report::talk;

/// Whose a connection is, as it was found out when it was taken.
pub type Owner = Result<u32, Unknown>;

/// Refuses whoever may not come in, whatever is asked for. The door may have changed since the connection was taken.
pub fn judge(front: &Front, owner: Owner) -> Result<(), Refusal> {
    if front.door().admits(owner.ok()) {
        return Ok(());
    }
    let (problem, allow) = match owner {
        Ok(uid) => (
            format!("this connection is of another user of this machine (uid {uid})"),
            format!("let that user in with --allow-user {uid}"),
        ),
        Err(why) => (
            format!("it cannot be found out which user this connection is of ({why})"),
            String::from("let everybody of this machine in with --allow-user any"),
        ),
    };
    let advice = format!("{allow}, or whoever bears a token with --token-file");
    if front.is_news(owner) {
        talk(&format!("warning: refused: {problem}\nhint: {advice}\n"));
    }
    Err(Refusal::stranger(format!("{problem}; {advice}")))
}
