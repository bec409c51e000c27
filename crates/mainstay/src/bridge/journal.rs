//! The debts of one bridge: written before a session is used, struck out when it is closed.

use std::collections::BTreeMap;

use mainstay_core::event::{DebtGivenUp, SessionClosed, SessionOpened, What};
use mainstay_core::http::bridge::{Closed, ExchangeId};
use mainstay_core::ids::LinkId;

use super::spec::Spec;
use crate::debts::note::{Held, Note};
use crate::debts::pay::UNNAMED;
use crate::debts::seal::Seal;
use crate::debts::{Source, secret};
use crate::http::target::Target;
use crate::ledger::append::Ledger;
use crate::paths::Paths;
use crate::report::plain;

/// The debts, by session.
pub struct Journal {
    paths: Paths,
    link: LinkId,
    server: String,
    url: String,
    /// The same for people.
    shown: String,
    url_secret: Option<Source>,
    headers: Vec<secret::Named>,
    seal: Option<Seal>,
    held: BTreeMap<String, Held>,
    openings: BTreeMap<ExchangeId, Held>,
    ledger: Ledger,
}

impl Journal {
    pub fn new(
        paths: Paths,
        link: LinkId,
        spec: &Spec,
        target: &Target,
        url_secret: Option<Source>,
        seal: Option<Seal>,
    ) -> Self {
        Self {
            link,
            server: spec.name.clone(),
            url: target.plain(),
            shown: target.shown(),
            url_secret,
            headers: spec.named(),
            seal,
            held: BTreeMap::new(),
            openings: BTreeMap::new(),
            ledger: Ledger::open(&paths),
            paths,
        }
    }

    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Writes a session down, or with which version it is closed.
    pub fn note(&mut self, session: &str, version: Option<String>) -> Result<(), String> {
        if let Some(held) = self.held.get_mut(session) {
            return held.rewrite(version).map_err(|error| plain(&error));
        }
        let note = self.written(session, version.clone());
        let held = Held::write(&self.paths, note).map_err(|error| plain(&error))?;
        self.held.insert(session.into(), held);
        let url = self.shown.clone();
        let what = What::SessionOpened(SessionOpened { url, version });
        self.ledger.record(self.link, &self.server, what);
        Ok(())
    }

    /// A session is asked for.
    pub fn opening(&mut self, exchange: ExchangeId) {
        // Best effort: without it a death in the middle is silent, and nothing else is lost.
        if let Ok(held) = Held::opening(&self.paths, self.written("", None)) {
            self.openings.insert(exchange, held);
        }
    }

    /// What became of that is known, or never will be.
    pub fn opened(&mut self, exchange: ExchangeId, known: bool) {
        let Some(held) = self.openings.remove(&exchange) else {
            return;
        };
        let since = held.note.since.clone();
        held.strike_out().ok();
        if !known {
            let what = What::DebtGivenUp(DebtGivenUp {
                url: self.shown.clone(),
                since,
                why: UNNAMED.into(),
                attempts: 0,
            });
            self.ledger.record(self.link, &self.server, what);
        }
    }

    fn written(&self, session: &str, version: Option<String>) -> Note {
        Note {
            url_secret: self.url_secret.clone(),
            version,
            headers: self.headers.clone(),
            seal: self.seal.clone(),
            ..Note::of_ours(&self.server, self.link, self.url.clone(), session)
        }
    }

    /// A session is closed.
    pub fn paid(&mut self, session: &str, by: Closed) {
        let Some(held) = self.held.remove(session) else {
            return;
        };
        // What cannot be struck out is closed once more by the next start, which does no harm.
        held.strike_out().ok();
        let (by, status) = match by {
            Closed::Delete(status) => ("delete", Some(status)),
            Closed::Server => ("server", None),
        };
        let what = What::SessionClosed(SessionClosed {
            url: self.shown.clone(),
            by: by.into(),
            status,
        });
        self.ledger.record(self.link, &self.server, what);
    }

    /// A session could not be closed: its debt stays, with the reason, for the next payer.
    pub fn owed(&mut self, session: &str, why: String) {
        if let Some(held) = self.held.remove(session) {
            held.note_failure(1, why);
        }
    }
}
