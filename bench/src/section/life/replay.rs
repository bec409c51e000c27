//! The cost of a replay with a thousand subscriptions.

use std::io;

use mainstay_os::clock;
use mainstay_os::identity::Handle;
use rustix::process::Signal;

use crate::args::Effort;
use crate::lane::Lane;
use crate::place::Place;
use crate::section::Part;
use crate::section::cradle::Cradle;
use crate::stats::{Series, ms};
use crate::table::Table;
use crate::talk::{Requests, Writing};

#[derive(Default)]
struct Case {
    subscriptions: usize,
    /// From the first instruction of the next generation to the first answer after the replay.
    ready: Series,
    /// From its spawn to the end of the replay, from the event, in milliseconds.
    told: Series,
    /// How long the bare server takes to answer the same requests.
    own: Series,
}

pub fn measure(place: &Place<'_>, effort: Effort, cradle: &mut Cradle) -> io::Result<Part> {
    let mut cases = [0, 1, 1_000].map(|subscriptions| Case {
        subscriptions,
        ..Case::default()
    });
    for _ in 0..effort.pick(20, 2) {
        for case in &mut cases {
            case.bare(place, cradle)?;
            case.once(place, cradle)?;
        }
    }
    let mut table = Table::new(
        1,
        &[
            "subscriptions",
            "birth to first answer, p50, ms",
            "p90",
            "event `ready`, p50",
            "bare server, the same requests, p50",
            "n",
        ],
    );
    for case in &cases {
        table.row([
            case.subscriptions.to_string(),
            ms(case.ready.p50()),
            ms(case.ready.quantile(0.9)),
            case.told.p50().to_string(),
            match case.subscriptions {
                0 => "-".into(),
                _ => ms(case.own.p50()),
            },
            case.ready.count().to_string(),
        ]);
    }
    let blocks = vec![
        "**Replay.** The client has subscribed to so many resources when the server gets SIGKILL. *Birth to first answer*: from the first \
         instruction of the next generation to the answer to a ping that waits behind the replay. The event `ready` counts whole \
         milliseconds from the spawn. *Bare*: the server alone answers the same subscriptions, sent at once."
            .into(),
        table.into(),
    ];
    Ok(Part::new(blocks, Vec::new()))
}

impl Case {
    fn bare(&mut self, place: &Place<'_>, cradle: &mut Cradle) -> io::Result<()> {
        let mut lane = Lane::of(place, &cradle.server(place, 1))?;
        lane.talk.open()?;
        cradle.born()?;
        self.own.push(self.subscribe(&mut lane)?);
        lane.end()
    }

    fn once(&mut self, place: &Place<'_>, cradle: &mut Cradle) -> io::Result<()> {
        let mut lane = Lane::of(place, &place.kept(&[], cradle.server(place, 1)))?;
        lane.talk.open()?;
        cradle.born()?;
        self.subscribe(&mut lane)?;
        let card = lane.card(place);
        let handle = Handle::open(card.server.ok_or(io::ErrorKind::NotFound)?)?;
        handle.signal(Signal::KILL)?;
        lane.talk.ask(&Requests::pings(1))?;
        let answered = clock::now();
        self.ready.push(answered.0.saturating_sub(cradle.born()?));
        let replayed = place.last_event("ready", &card.id)?;
        if replayed["subscriptions"] != self.subscriptions {
            return Err(io::Error::other(format!("not all came back: {replayed}")));
        }
        self.told.push(replayed["ms"].as_u64().unwrap_or_default());
        lane.end()?;
        place.wait_empty()
    }

    fn subscribe(&self, lane: &mut Lane) -> io::Result<u64> {
        let requests = Requests::subscriptions(self.subscriptions);
        lane.talk
            .pipeline(&requests, self.subscriptions.max(1), Writing::InBulk)
    }
}
