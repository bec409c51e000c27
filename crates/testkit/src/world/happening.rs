//! The events of a story: to the client, to the server, and to the link between them.

use mainstay_core::link::Input;
use mainstay_protocol::event::{Cause, RestartReason, Status};

use super::client::{self, Client};
use super::outside::{self, Halt, Outside};
use super::pipe::Pipe;
use super::server::{self, Server};
use super::shell::Shell;
use super::story::{Happening, Phase, Story};

impl Story {
    pub(super) fn happen(
        &mut self,
        shell: &mut Shell<'_>,
        happening: Happening,
    ) -> Result<(), Halt> {
        let up = |server: &Option<Server>, outside: &Outside, generation: u32| {
            let serves = outside
                .process
                .as_ref()
                .is_some_and(outside::Process::serves);
            serves
                && server
                    .as_ref()
                    .is_some_and(|server| server.generation == generation)
        };
        match happening {
            Happening::ClientActs => {
                if self.phase == Phase::Busy {
                    if !shell.link().away() {
                        self.client.act(&mut self.outside);
                        self.strike(shell)?;
                    }
                    let ms = self.outside.dice.delay_ms(1_000);
                    self.later(ms, Happening::ClientActs);
                    self.renew(shell)?;
                }
            }
            Happening::ClientReads => {
                self.reading = false;
                for client::Later::Say(line) in self.client.read(&mut self.outside) {
                    let ms = self.outside.dice.delay_ms(3_000);
                    let who = self.outside.attachment;
                    self.later(ms, Happening::ClientSays(who, line));
                }
            }
            Happening::ClientReturns => self.client_returns(shell)?,
            Happening::ClientSays(who, line) => {
                if !self.outside.from_client.writer_gone
                    && who == self.outside.attachment
                    && !shell.link().away()
                {
                    self.client.say(&mut self.outside, &line);
                }
            }
            Happening::ServerReads(generation) if up(&self.server, &self.outside, generation) => {
                self.server_reads(generation);
            }
            Happening::ServerWrites(generation, line)
                if up(&self.server, &self.outside, generation) =>
            {
                if let Some(server) = &mut self.server {
                    server.write(&mut self.outside, line.as_bytes());
                }
            }
            Happening::ServerAnswers(generation, token, line)
                if up(&self.server, &self.outside, generation) =>
            {
                if let Some(server) = &mut self.server {
                    server.answer(&mut self.outside, &token, &line);
                }
            }
            Happening::ServerDies(generation, torn)
                if up(&self.server, &self.outside, generation) =>
            {
                self.server_dies(torn);
            }
            Happening::ServerObeys(generation) if up(&self.server, &self.outside, generation) => {
                if let Some(process) = &mut self.outside.process {
                    process.end(Status::Code(0), self.outside.now);
                }
            }
            Happening::ServerReads(_)
            | Happening::ServerWrites(..)
            | Happening::ServerAnswers(..)
            | Happening::ServerDies(..)
            | Happening::ServerObeys(_) => {}
            Happening::Next => self.next_phase(shell)?,
        }
        Ok(())
    }

    fn server_reads(&mut self, generation: u32) {
        let Some(server) = &mut self.server else {
            return;
        };
        let mut later = Vec::new();
        let ended = server.read(&mut self.outside, &mut later);
        let most = server.temper.answer_ms;
        let mut ms = 0;
        for wish in later {
            ms += self.outside.dice.delay_ms(most);
            let happening = match wish {
                server::Later::Write(line) => Happening::ServerWrites(generation, line),
                server::Later::Answer(token, line) => {
                    Happening::ServerAnswers(generation, token, line)
                }
                server::Later::Die(torn) => Happening::ServerDies(generation, torn),
            };
            self.later(ms, happening);
        }
        if ended {
            let manners = self.outside.process.as_ref().map(|process| process.manners);
            if let Some(ms) = manners.and_then(|manners| manners.eof_ms) {
                self.later(ms, Happening::ServerObeys(generation));
            }
            // There is nothing more to read.
            return;
        }
        self.server_reading = false;
    }

    fn server_dies(&mut self, torn: Option<String>) {
        // A process that serves on after the server's end writes whole lines, so only a lone server tears one.
        let alone = self
            .outside
            .process
            .as_ref()
            .is_some_and(|p| !p.manners.serve_on);
        if let (true, Some(torn), Some(server)) = (alone, torn, &mut self.server) {
            let len = self.outside.dice.below(torn.len() as u64) as usize;
            server.write(&mut self.outside, &torn.as_bytes()[..len]);
        }
        let status = match self.outside.dice.below(3) {
            0 => Status::Code(0),
            1 => Status::Code(1),
            _ => Status::Signal {
                number: 11,
                core: true,
            },
        };
        self.outside.note(|| format!("the server dies: {status}"));
        if let Some(process) = &mut self.outside.process {
            process.end(status, self.outside.now);
        }
    }

    fn renew(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        if !self.outside.dice.permille(self.faults.renew) {
            return Ok(());
        }
        let why = match self.outside.dice.below(3) {
            0 => RestartReason::Asked,
            1 => RestartReason::Changed { path: "/x".into() },
            _ => RestartReason::Memory { bytes: 1 << 30 },
        };
        shell.tell(&mut self.outside, Input::Renew(why))
    }

    /// The shim gets a signal or is killed. The client may have meant it, or come back.
    fn strike(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        if self.plan.limits.linger_ms == 0 || !self.outside.dice.permille(self.faults.strike) {
            return Ok(());
        }
        // If the server is not surely kept, this ends the story, so it happens rarely.
        if shell.link().word() != "ready" && !self.outside.dice.permille(50) {
            return Ok(());
        }
        let cause = match self.outside.dice.below(2) {
            0 => Cause::ShimSignal { number: 15 },
            _ => Cause::ShimKilled,
        };
        shell.tell(&mut self.outside, Input::Stop(cause))?;
        if shell.link().doubted() && self.outside.dice.permille(30) {
            self.client.close(&mut self.outside);
        }
        let ms = self.outside.dice.delay_ms(4_000);
        self.later(ms, Happening::ClientReturns);
        Ok(())
    }

    /// The client starts the server once more, if it is still kept.
    fn client_returns(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        if shell.link().doubted() || (shell.link().away() && !shell.takes_in()) {
            self.later(50, Happening::ClientReturns);
            return Ok(());
        }
        if !shell.link().away() {
            return Ok(());
        }
        let outside = &mut self.outside;
        outside.attachment += 1;
        outside.from_client = Pipe::new(65_536);
        let room = outside.dice.pick(&[32, 1_024, 65_536]) as usize;
        outside.to_client = Pipe::new(room);
        outside.watch.client_returns();
        outside.note(|| "the client comes back".into());
        self.told.reattached += 1;
        self.client = Client::returning(outside, shell.link().modern());
        shell.reattach(outside)?;
        self.client.act(outside);
        Ok(())
    }
}
