//! The sender of a signal and its relation to the client, from what the kernel told and what was seen of the process.
//!
//! Nothing is judged here. Of a sender that has ended only pid and uid are known, and the event says so.

use mainstay_os::census::{self, Stat};
use mainstay_os::sender::Look;
use mainstay_os::signals::Received;
use mainstay_protocol::event::{Origin, Part, Relation, Seen, Signal};
use mainstay_protocol::ids::Identity;
use mainstay_protocol::redact;

/// How many ancestors are reported.
const ANCESTORS: usize = 16;
/// The longest argument that is reported, in characters.
const WORD_CHARS: usize = 200;

/// The processes that a sender is compared with.
pub struct Around<'a> {
    /// The client now.
    pub client: Option<Identity>,
    /// The processes above the client at the start.
    pub above: &'a [Identity],
    /// Shim, guard and keeper.
    pub ours: [Identity; 3],
}

/// The event of a signal.
pub fn signal(to: Part, received: Received, look: Option<Look>, around: &Around<'_>) -> Signal {
    let Received {
        number,
        code,
        pid,
        uid,
    } = received;
    let origin = Origin::of(code, pid);
    let told = Signal {
        number,
        code,
        sender: pid,
        uid,
        to,
        origin: Some(origin),
        ..Signal::default()
    };
    match origin {
        // There is no process to look at.
        Origin::Kernel | Origin::Outside => return told,
        Origin::Kill | Origin::Thread | Origin::Claim => {}
    }
    let Some(look) = look else {
        return Signal { gone: true, ..told };
    };
    let words = redact::words(&look.cmdline);
    let told = Signal {
        exe: look.exe,
        cmdline: words.iter().map(|word| short(word)).collect(),
        ..told
    };
    let Some(stat) = look.stat else {
        return Signal { gone: true, ..told };
    };
    let ancestry = ancestry(&stat, around.client);
    let relation = relation(&stat, &ancestry, around);
    Signal {
        comm: Some(stat.comm),
        start: Some(stat.start),
        ancestry,
        relation: Some(relation),
        ..told
    }
}

/// The sender's parent, its parent, and so on, to the client or to the top.
fn ancestry(sender: &Stat, client: Option<Identity>) -> Vec<Seen> {
    let mut found: Vec<Seen> = Vec::new();
    let mut next = sender.ppid;
    if Some(sender.who()) == client {
        return found;
    }
    while next > 0 && found.len() < ANCESTORS {
        let Ok(stat) = census::stat(next) else { break };
        let who = stat.who();
        found.push(Seen {
            who,
            comm: stat.comm,
        });
        if Some(who) == client {
            break;
        }
        next = stat.ppid;
    }
    found
}

fn relation(sender: &Stat, ancestry: &[Seen], around: &Around<'_>) -> Relation {
    let who = sender.who();
    let Around {
        client,
        above,
        ours,
    } = around;
    let session = client
        .and_then(|client| census::stat(client.pid).ok())
        .map(|stat| stat.session);
    if Some(who) == *client {
        Relation::Client
    } else if ours.contains(&who) {
        Relation::Ours
    } else if ancestry.iter().any(|seen| Some(seen.who) == *client) {
        Relation::BelowClient
    } else if Some(who.pid) == session {
        Relation::SessionLeader
    } else if above.contains(&who) {
        Relation::AboveClient
    } else {
        Relation::Other
    }
}

pub(super) fn short(word: &str) -> String {
    match word.char_indices().nth(WORD_CHARS) {
        Some((at, _)) => format!("{}…", &word[..at]),
        None => word.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_os::sender::{LOOK_BYTES, look};

    fn seen(pid: i32) -> Option<Look> {
        let mut bytes = [0; LOOK_BYTES];
        let len = look(pid, &mut bytes);
        Look::of(&bytes[..len])
    }

    fn told(pid: i32, code: i32, around: &Around<'_>) -> Signal {
        let received = Received {
            number: 15,
            code,
            pid,
            uid: 7,
        };
        signal(Part::Shim, received, seen(pid), around)
    }

    fn no_process() -> Identity {
        Identity { pid: -1, start: 0 }
    }

    #[test]
    fn every_relation_by_real_processes() {
        let me = census::stat(std::process::id() as i32).unwrap();
        let parent = census::stat(me.ppid).unwrap();
        let around = |client: Option<Identity>, above: &'static [Identity], ours| {
            told(
                me.pid,
                0,
                &Around {
                    client,
                    above,
                    ours: [ours, no_process(), no_process()],
                },
            )
        };
        let client = around(Some(me.who()), &[], no_process());
        assert_eq!(client.relation, Some(Relation::Client));
        assert_eq!(client.who(), Some(me.who()));
        assert_eq!(client.comm, Some(me.comm.clone()));
        assert!(client.exe.is_some() && !client.cmdline.is_empty());
        assert!(client.ancestry.is_empty());
        let below = around(Some(parent.who()), &[], no_process());
        assert_eq!(below.relation, Some(Relation::BelowClient));
        assert_eq!(below.ancestry.len(), 1);
        assert_eq!(below.ancestry[0].who, parent.who());
        let ours = around(None, &[], me.who());
        assert_eq!(ours.relation, Some(Relation::Ours));
        let other = around(Some(no_process()), &[], no_process());
        assert_eq!(other.relation, Some(Relation::Other));
        let above = Box::leak(Box::new([me.who()]));
        let above = around(Some(no_process()), above, no_process());
        assert_eq!(above.relation, Some(Relation::AboveClient));
    }

    #[test]
    fn a_sender_that_has_ended_is_gone_and_the_kernel_is_no_process() {
        let around = Around {
            client: None,
            above: &[],
            ours: [no_process(); 3],
        };
        let gone = told(i32::MAX, 0, &around);
        assert!(gone.gone && gone.comm.is_none() && gone.relation.is_none());
        assert_eq!((gone.sender, gone.uid), (i32::MAX, 7));
        for (code, origin) in [(128, Origin::Kernel), (0, Origin::Outside)] {
            let told = told(0, code, &around);
            assert_eq!((told.origin, told.gone), (Some(origin), false));
        }
    }
}
