//! The notes of one bridge: written before a session is used, removed when it is closed.

use std::collections::BTreeMap;
use std::io;

use mainstay_http_core::bridge::{Closed, ExchangeId};
use mainstay_protocol::event::{SessionClosed, SessionGivenUp, SessionOpened, What};
use mainstay_protocol::ids::LinkId;
use mainstay_store::config::target::Target;
use mainstay_store::ledger::append::Ledger;
use mainstay_store::paths::Paths;

use super::spec::Spec;
use crate::unclosed::close::UNNAMED;
use crate::unclosed::fingerprint::Fingerprint;
use crate::unclosed::note::{LockedNote, Note};
use crate::unclosed::{Source, credentials};

/// The sessions of one bridge that are not closed yet, with their notes.
pub struct Journal {
    paths: Paths,
    link: LinkId,
    server: String,
    url: String,
    /// The URL as it is printed, without secrets.
    shown: String,
    url_secret: Option<Source>,
    headers: Vec<credentials::NamedHeader>,
    fingerprint: Option<Fingerprint>,
    notes: BTreeMap<String, LockedNote>,
    openings: BTreeMap<ExchangeId, LockedNote>,
    ledger: Ledger,
}

impl Journal {
    pub fn new(
        paths: Paths,
        link: LinkId,
        spec: &Spec,
        target: &Target,
        url_secret: Option<Source>,
        fingerprint: Option<Fingerprint>,
    ) -> Self {
        Self {
            link,
            server: spec.name.clone(),
            url: target.plain(),
            shown: target.shown(),
            url_secret,
            headers: spec.named(),
            fingerprint,
            notes: BTreeMap::new(),
            openings: BTreeMap::new(),
            ledger: Ledger::open(&paths),
            paths,
        }
    }

    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Writes the note of a session. If it has one, only the protocol version for its DELETE changes.
    pub fn note(&mut self, session: &str, version: Option<String>) -> io::Result<()> {
        if let Some(note) = self.notes.get_mut(session) {
            return note.rewrite(version);
        }
        let note = self.written(session, version.clone());
        let locked = LockedNote::write(&self.paths, note)?;
        self.notes.insert(session.into(), locked);
        let url = self.shown.clone();
        let what = What::SessionOpened(SessionOpened { url, version });
        self.ledger.record(self.link, &self.server, what);
        Ok(())
    }

    /// The server is asked for a session.
    pub fn opening(&mut self, exchange: ExchangeId) {
        // Best effort: without it, a kill before the answer is not reported. Nothing else is lost.
        if let Ok(note) = LockedNote::opening(&self.paths, self.written("", None)) {
            self.openings.insert(exchange, note);
        }
    }

    /// The server has answered (`known`), or its answer will never come.
    pub fn opened(&mut self, exchange: ExchangeId, known: bool) {
        let Some(note) = self.openings.remove(&exchange) else {
            return;
        };
        let since = note.note.since.clone();
        note.remove().ok();
        if !known {
            let what = What::SessionGivenUp(SessionGivenUp {
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
            fingerprint: self.fingerprint.clone(),
            ..Note::of_ours(&self.server, self.link, self.url.clone(), session)
        }
    }

    pub fn closed(&mut self, session: &str, by: Closed) {
        let Some(note) = self.notes.remove(session) else {
            return;
        };
        // If the note cannot be removed, the next start sends one more DELETE, which does no harm.
        note.remove().ok();
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

    /// A session could not be closed. Its note stays, with the reason, for the next process that tries.
    pub fn unclosed(&mut self, session: &str, why: String) {
        if let Some(note) = self.notes.remove(session) {
            note.note_failure(1, why);
        }
    }
}
