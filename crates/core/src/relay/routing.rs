//! Shows each line of one direction to the link, and tells the shell what became of it.

use mainstay_protocol::clock::Moment;
use mainstay_protocol::frames::Side;

use super::lane::{Part, Router};
use super::shell::{Shell, Sight};
use crate::link::{Link, Route};

/// The lines of one side.
pub(super) struct Routing<'r, 'a, S> {
    pub link: &'r mut Link<'a>,
    pub shell: &'r mut S,
    pub now: Moment,
    pub from: From,
}

/// The side that wrote the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Client,
    Server,
}

impl From {
    fn side(self) -> Side {
        match self {
            Self::Client => Side::Client,
            Self::Server => Side::Server,
        }
    }
}

impl<S: Shell> Router for Routing<'_, '_, S> {
    fn pass(&mut self, lines: &[u8], begin: u64) -> usize {
        let Self {
            link,
            shell,
            now,
            from,
        } = self;
        if shell.watched() {
            return 0;
        }
        let side = from.side();
        match from {
            From::Client => link.calls(*now, lines, |frame| shell.passed(*now, side, frame)),
            From::Server => {
                link.results(*now, lines, begin, |frame| shell.passed(*now, side, frame))
            }
        }
    }

    fn route(&mut self, part: Part<'_>, end: u64) -> Route {
        let Self {
            link,
            shell,
            now,
            from,
        } = self;
        let (now, side, generation) = (*now, from.side(), link.generation());
        if *from == From::Server {
            link.line_ends_at(end);
        }
        match part {
            Part::Line(frame, bytes) => {
                let route = match from {
                    From::Client => link.client_line(now, frame, bytes),
                    From::Server => link.server_line(now, frame, bytes),
                };
                let sight = Sight::Line {
                    from: side,
                    frame,
                    bytes,
                    route,
                };
                shell.saw(now, generation, sight);
                route
            }
            Part::LongBegins(frame, bytes) => {
                let route = match from {
                    From::Client => link.client_cut(now, frame),
                    From::Server => link.server_known(frame),
                };
                let sight = Sight::LongBegins {
                    from: side,
                    frame,
                    bytes,
                    route,
                };
                shell.saw(now, generation, sight);
                route
            }
            Part::LongKnown(frame) => {
                match from {
                    From::Client => link.client_known(now, frame),
                    From::Server => {}
                }
                Route::Pass
            }
            Part::LongPassed(frame) => {
                self.long_ends(frame, true);
                match self.from {
                    From::Client => Route::Pass,
                    From::Server => self.link.server_line_unseen(now, frame),
                }
            }
            Part::LongDropped(frame) => {
                self.long_ends(frame, false);
                match self.from {
                    From::Client => {
                        self.link.client_lost(now, frame);
                        Route::Replaced
                    }
                    // Junk, or an answer that the client must not see: the link knows which.
                    From::Server => self.link.server_line_unseen(now, frame),
                }
            }
            Part::Piece(piece) => {
                match from {
                    From::Client => link.client_piece(piece),
                    From::Server => link.server_piece(piece),
                }
                Route::Gather
            }
            Part::Gathered(frame) => {
                self.long_ends(frame, false);
                match self.from {
                    From::Client => self.link.gathered_from_client(now, frame),
                    From::Server => self.link.gathered_from_server(now, frame),
                }
                Route::Replaced
            }
        }
    }
}

impl<S: Shell> Routing<'_, '_, S> {
    fn long_ends(&mut self, frame: &mainstay_protocol::message::frame::Frame<'_>, passed: bool) {
        let sight = Sight::LongEnds {
            from: self.from.side(),
            frame,
            passed,
        };
        self.shell.saw(self.now, self.link.generation(), sight);
    }
}
