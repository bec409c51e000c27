//! The phases of a story: busy, calm, and its end.

use mainstay_core::link::Input;
use mainstay_protocol::event::{Cause, LeaseEnded};
use mainstay_protocol::kill_point::set_fuse;
use mainstay_protocol::lease::Over;

use super::chance;
use super::outside::{self, Halt};
use super::shell::Shell;
use super::story::{Happening, Phase, Story};

/// How long all is calm before the end.
const CALM_MS: u64 = 300_000;
/// How long the end may take in all.
const END_MS: u64 = 600_000;

impl Story {
    pub(super) fn next_phase(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        match self.phase {
            Phase::Busy => {
                self.outside.note(|| "all is calm now".into());
                self.phase = Phase::Calm;
                self.outside.start_fails = 0;
                self.temper = chance::calm(&self.temper);
                if let Some(server) = &mut self.server {
                    server.temper = chance::calm(&server.temper);
                    server.read_most = 65_536;
                }
                self.client.read_most = 65_536;
                set_fuse(None);
                self.later(CALM_MS, Happening::Next);
            }
            Phase::Calm => {
                self.phase = Phase::Ending;
                self.outside.note(|| shell.told());
                let process = self.outside.process.as_ref();
                let up = process
                    .filter(|process| process.serves())
                    .map(|process| process.generation);
                let silent = self.server.as_ref().map(|server| server.silent.clone());
                if shell.finished.is_none() && shell.writes() {
                    self.outside.watch.calm(up, &silent.unwrap_or_default())?;
                }
                self.later(END_MS, Happening::Next);
                self.end(shell)?;
            }
            Phase::Ending => {
                self.outside.watch.end(false)?;
                return outside::broken("the end does not come");
            }
        }
        Ok(())
    }

    /// Ends the session by one of the possible causes.
    fn end(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        let cause = match self.outside.dice.below(9) {
            0 => Cause::ClientGone,
            1 => Cause::ShimSignal { number: 15 },
            2 => Cause::ShimKilled,
            3 => Cause::Asked,
            5 => Cause::LeaseEnded(LeaseEnded {
                lease: "night".into(),
                over: Over::Closed { by: None },
            }),
            4 => {
                self.outside.note(|| "the client is gone".into());
                self.client.close(&mut self.outside);
                self.outside.to_client.reader_gone = true;
                return Ok(());
            }
            _ => {
                self.client.close(&mut self.outside);
                return Ok(());
            }
        };
        shell.tell(&mut self.outside, Input::Stop(cause))
    }
}
