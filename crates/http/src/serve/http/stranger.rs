//! Refuses connections of users that may not connect, and says what to do about it.

use mainstay_os::owner::Unknown;
use mainstay_report::talk;

use super::super::front::Front;
use super::super::reply::Refusal;

/// The user at the other end of a connection, as the kernel told it when the connection was accepted.
pub type Owner = Result<u32, Unknown>;

/// Refuses every request of a user that may not connect. The rules may have changed since the connection was accepted.
pub fn judge(front: &Front, owner: Owner) -> Result<(), Refusal> {
    if front.access().admits(owner.ok()) {
        return Ok(());
    }
    let (problem, allow) = match owner {
        Ok(uid) => (
            format!("this connection is of another user of this machine (uid {uid})"),
            format!("let that user in with --allow-user {uid}"),
        ),
        Err(why) => (
            format!("it cannot be found out which user this connection is of ({why})"),
            String::from("allow all users of this machine with --allow-user any"),
        ),
    };
    let advice = format!("{allow}, or clients with a token with --token-file");
    if front.is_news(owner) {
        talk(&format!("warning: refused: {problem}\nhint: {advice}\n"));
    }
    Err(Refusal::stranger(format!("{problem}; {advice}")))
}
