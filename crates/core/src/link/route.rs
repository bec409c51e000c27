//! The way of a line: which way it goes, who waits for an answer to it, and the answers that we give ourselves.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::state::{Because, Client, Closing, Life, Silence, Stage, Up};
use super::{GREETING_ID, Link, Output, Route};
use crate::clock::Moment;
use crate::event::{Junk, OpeningSilent, What};
use crate::message::batch;
use crate::message::envelope::{self, Era, cancelled_id};
use crate::message::frame::{Frame, Id, Kind};
use crate::message::inflight::{Opened, Token, Tracked};
use crate::message::settle;

impl Link<'_> {
    /// Routes a whole line from the client.
    pub fn client_line(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        match &self.life {
            Life::Absent
            | Life::Up(Up {
                stage: Stage::Greeting { .. },
                ..
            })
            | Life::Closing(Closing {
                because: Because::Leaving,
                ..
            }) => Route::Hold,
            Life::Up(_) => self.track(now, frame, line),
            Life::Closing(_) | Life::Finished => {
                self.refuse(frame);
                self.finish_if_done();
                Route::Drop
            }
        }
    }

    /// May a line from the client that is too long to be held go on?
    pub fn client_cut(&self) -> Route {
        match &self.life {
            Life::Absent
            | Life::Up(Up {
                stage: Stage::Greeting { .. },
                ..
            }) => Route::Hold,
            Life::Up(_) => Route::Forward,
            Life::Closing(_) | Life::Finished => Route::Drop,
        }
    }

    /// Learns what is known of a long line from the client while it is being forwarded.
    pub fn client_known(&mut self, now: Moment, frame: &Frame<'_>) {
        if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) {
            let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
            self.open(now, id, tracked);
        }
    }

    /// Routes a whole line from the server.
    pub fn server_line(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        match &mut self.life {
            Life::Up(up) => up.silence = Silence::Broken,
            Life::Closing(closing) if closing.client == Client::Released => return Route::Drop,
            Life::Closing(_) => {}
            Life::Absent | Life::Finished => return Route::Drop,
        }
        let route = match frame.kind {
            Kind::Request | Kind::Notification => Route::Forward,
            Kind::Response | Kind::Error => self.answered(frame),
            Kind::Batch => {
                batch::each_member(line, |member| {
                    if matches!(member.kind, Kind::Response | Kind::Error) {
                        self.answered(&member);
                    }
                });
                Route::Forward
            }
            Kind::Blank => Route::Drop,
            Kind::Junk => {
                self.junk(line);
                Route::Drop
            }
        };
        self.drained_if_answered(now);
        route
    }

    /// Learns what is known of a long line from the server before it is forwarded: may it go on?
    pub fn server_known(&mut self, frame: Option<&Frame<'_>>) -> Route {
        match &self.life {
            Life::Up(_) => {}
            Life::Closing(closing) if closing.client == Client::Reading => {}
            Life::Closing(_) | Life::Absent | Life::Finished => return Route::Drop,
        }
        match frame {
            Some(frame) if matches!(frame.kind, Kind::Response | Kind::Error) => match frame.id {
                Id::Token(id) if id == GREETING_ID || self.inflight.is_settled(id) => Route::Drop,
                Id::Absent | Id::Null | Id::Token(_) | Id::TooLong => Route::Forward,
            },
            Some(_) | None => Route::Forward,
        }
    }

    /// Counts a line from the server that was no message.
    pub fn junk(&mut self, line: &[u8]) {
        self.junk += 1;
        // Once per power of ten: a server that logs to stdout must not fill the event files.
        if power_of_ten(self.junk) {
            let sample = String::from_utf8_lossy(&line[..line.len().min(120)])
                .trim_end()
                .to_string();
            self.tell(What::Junk(Junk {
                lines: self.junk,
                sample,
            }));
        }
    }

    pub(super) fn track(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        match frame.kind {
            Kind::Request => {
                let Id::Token(id) = frame.id else {
                    return Route::Forward;
                };
                let method = frame.method.as_deref().unwrap_or_default();
                let tracked = Tracked::of(method);
                if !self.open(now, id, tracked) {
                    return Route::Hold;
                }
                if tracked == Tracked::Initialize {
                    self.remember_opening(line);
                } else if self.head.greeted == 0 && envelope::era(line) == Era::Modern {
                    self.head.modern = 1;
                }
            }
            Kind::Notification => match frame.method.as_deref() {
                Some("notifications/initialized") => self.head.initialized = 1,
                Some("notifications/cancelled") => {
                    if let Some(id) = cancelled_id(line) {
                        self.inflight.close(id);
                    }
                }
                Some(_) | None => {}
            },
            Kind::Batch => {
                batch::each_member(line, |member| {
                    if let (Kind::Request, Id::Token(id)) = (member.kind, member.id) {
                        let tracked = Tracked::of(member.method.as_deref().unwrap_or_default());
                        self.open(now, id, tracked);
                    }
                });
            }
            Kind::Response | Kind::Error | Kind::Blank | Kind::Junk => {}
        }
        Route::Forward
    }

    /// Opens an entry; `false` if there is no room and the client must wait.
    pub(super) fn open(&mut self, now: Moment, id: &[u8], tracked: Tracked) -> bool {
        if let Life::Up(Up {
            silence: silence @ Silence::NothingAsked,
            ..
        }) = &mut self.life
        {
            *silence = Silence::Since(now);
        }
        match self.inflight.open(id, tracked, self.head.generation, now) {
            Opened::New | Opened::Again | Opened::Untracked => true,
            Opened::Full => false,
        }
    }

    pub(super) fn remember_opening(&mut self, line: &[u8]) {
        self.head.opening_len = 0;
        if let Some(room) = self.opening.get_mut(..line.len()) {
            room.copy_from_slice(line);
            self.head.opening_len = line.len() as u32;
        }
    }

    pub(super) fn answered(&mut self, frame: &Frame<'_>) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Forward;
        };
        if id == GREETING_ID {
            self.greeted_again();
            return Route::Drop;
        }
        if self.inflight.swallow(id) {
            return Route::Drop;
        }
        if let Some(entry) = self.inflight.answered(id)
            && entry.method == Tracked::Initialize
            && frame.kind == Kind::Response
        {
            self.greeting_routed = true;
        }
        Route::Forward
    }

    /// The replayed opening has its answer: the server is where the client believes it to be.
    pub(super) fn greeted_again(&mut self) {
        if let Life::Up(up) = &mut self.life
            && let Stage::Greeting { .. } = up.stage
        {
            up.stage = Stage::Serving;
            if self.head.initialized != 0 {
                let line =
                    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n".to_vec();
                self.push(Output::ToServer(line));
            }
        }
    }

    /// Answers a request that no server will see.
    pub(super) fn refuse(&mut self, frame: &Frame<'_>) {
        let modern = self.head.modern != 0;
        if let Life::Closing(closing) = &mut self.life
            && closing.client == Client::Reading
            && let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id)
        {
            let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
            if tracked == Tracked::Initialize {
                // The client has heard it where it matters; it need not be told twice.
                closing.explain = None;
            }
            let why = closing.because.why(&self.about);
            self.outputs
                .push_back(Output::ToClient(settle::answer(id, tracked, modern, &why)));
        }
    }

    /// Answers everything in flight; how many. The opening can be kept: it is sent again.
    ///
    /// The entries stay until the answers are written ([`Link::written`]): a keeper that is killed in between is
    /// followed by one that answers again, and a second answer does no harm where a missing one would.
    pub(super) fn settle(&mut self, because: &Because, keep_opening: bool) -> u32 {
        let modern = self.head.modern != 0;
        let why = because.why(&self.about);
        let mut count = 0;
        for (id, entry) in self.inflight.iter() {
            if keep_opening && entry.method == Tracked::Initialize {
                continue;
            }
            let answer = settle::answer(id, entry.method, modern, &why);
            self.outputs.push_back(Output::ToClient(answer));
            count += 1;
        }
        if count > 0 {
            self.owed = Some(self.head.generation);
        }
        count
    }

    /// All lines of the server have reached the client: what they answered is closed for good.
    pub fn delivered(&mut self) {
        self.inflight.delivered();
        if core::mem::take(&mut self.greeting_routed) {
            self.head.greeted = 1;
        }
    }

    /// All lines of ours have reached the client: what they answered is closed.
    pub fn written(&mut self) {
        if let Some(generation) = self.owed.take() {
            let answered: Vec<Token> = self
                .inflight
                .iter()
                .filter(|(_, entry)| entry.generation <= generation)
                .filter_map(|(id, _)| Token::new(id))
                .collect();
            for id in answered {
                self.inflight.close(&id);
            }
        }
    }

    /// The client's `initialize`, if it waits for its answer and can be sent again.
    pub(super) fn initialize_in_flight(&self) -> Option<Token> {
        if self.head.greeted != 0 || self.head.opening_len == 0 {
            return None;
        }
        let (id, _) = self
            .inflight
            .iter()
            .find(|(_, entry)| entry.method == Tracked::Initialize)?;
        Token::new(id)
    }

    pub(super) fn opening_silent(&mut self, ms: u64) {
        self.tell(What::OpeningSilent(OpeningSilent { ms }));
        let why = Because::OpeningSilent { ms };
        let why = why.why(&self.about);
        let modern = self.head.modern != 0;
        let open: Vec<_> = self
            .inflight
            .iter()
            .map(|(id, entry)| (id.to_vec(), entry.method))
            .collect();
        for (id, method) in open {
            self.outputs
                .push_back(Output::ToClient(settle::answer(&id, method, modern, &why)));
            self.inflight.settle(&id);
        }
    }
}

fn power_of_ten(mut n: u64) -> bool {
    while n >= 10 && n.is_multiple_of(10) {
        n /= 10;
    }
    n == 1
}
