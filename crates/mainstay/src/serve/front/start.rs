//! What the front starts: a server for a session, for every session, for everybody of the modern era.

use std::cell::OnceCell;
use std::io;
use std::rc::{Rc, Weak};

use hyper::StatusCode;
use mainstay_core::event::{SessionBegan, What};
use mainstay_core::serve::limits::LEGACY_KNOWN_MS;
use mainstay_os::clock;

use super::super::endpoint::Endpoint;
use super::super::joint::{Joint, Place};
use super::super::link::{Link, Said, Spec};
use super::super::metrics::count;
use super::super::modern::Modern;
use super::super::reply::Refusal;
use super::super::session::{Behind, Session};
use super::super::stream::Seat;
use super::Front;

impl Front {
    /// Opens a session with a server of its own. The seat is that of its first connection.
    pub fn open_session(
        self: &Rc<Self>,
        endpoint: &Endpoint,
    ) -> Result<(Rc<Session>, Seat), Refusal> {
        let key = self.reserve()?;
        let make = |name, link| self.session_of(endpoint, key, name, Behind::Own(link));
        let started = random_name()
            .and_then(|name| self.linked(&endpoint.spec, |link| make(name, link), Session::hear));
        let session = started.map_err(|error| {
            self.release(key);
            cannot_start(&error)
        })?;
        Ok((Rc::clone(&session), self.begin(&session)))
    }

    /// Opens a session with its part in a shared server. The seat is that of its first connection.
    pub fn open_shared(
        self: &Rc<Self>,
        endpoint: &Endpoint,
        place: Place,
    ) -> Result<(Rc<Session>, Seat), Refusal> {
        let key = self.reserve()?;
        let name = random_name().map_err(|error| {
            self.release(key);
            cannot_start(&error)
        })?;
        let session = Rc::new(self.session_of(endpoint, key, name, Behind::Shared(place)));
        if let Behind::Shared(place) = &session.behind {
            place.give(&session);
        }
        Ok((Rc::clone(&session), self.begin(&session)))
    }

    fn session_of(&self, endpoint: &Endpoint, key: u64, name: String, behind: Behind) -> Session {
        let limits = self.limits.borrow();
        let kept = (limits.resume_events as usize, limits.resume_bytes as usize);
        let (path, server) = (endpoint.path.clone(), endpoint.spec.name.clone());
        Session::new(key, name, path, server, behind, kept)
    }

    /// A session is there from now on.
    fn begin(self: &Rc<Self>, session: &Rc<Session>) -> Seat {
        let key = session.key;
        self.by_id
            .borrow_mut()
            .insert(session.id.clone(), Rc::clone(session));
        self.by_key.borrow_mut().insert(key, Rc::clone(session));
        count(&self.metrics.opened);
        self.record(
            &session.server,
            What::SessionBegan(SessionBegan { session: key }),
        );
        self.leaving(key)
    }

    /// The server that the sessions behind a path share; the first one who asks has it started.
    pub fn joint(self: &Rc<Self>, endpoint: &Endpoint) -> Result<Rc<Joint>, Refusal> {
        let known = endpoint.joint.borrow().upgrade();
        if let Some(joint) = known.filter(|joint| !joint.is_over()) {
            return Ok(joint);
        }
        let make = |link| Joint::new(link, Rc::downgrade(self));
        let joint = self
            .linked(&endpoint.spec, make, |joint, front, said| {
                joint.hear(front, said);
            })
            .map_err(|error| cannot_start(&error))?;
        endpoint.joint.replace(Rc::downgrade(&joint));
        Ok(joint)
    }

    /// The server for everybody behind a path; the first one who asks has it started.
    pub fn modern(self: &Rc<Self>, endpoint: &Rc<Endpoint>) -> Result<Option<Rc<Modern>>, Refusal> {
        if let Some(since) = endpoint.legacy.get()
            && clock::now().ms_since(since) < LEGACY_KNOWN_MS
        {
            return Ok(None);
        }
        let known = endpoint.modern.borrow().clone();
        if let Some(modern) = known.filter(|modern| !modern.is_over() && !modern.is_legacy()) {
            return Ok(Some(modern));
        }
        let make = |link| Modern::new(link, Rc::clone(&self.bell));
        let modern = self
            .linked(&endpoint.spec, make, |modern, front, said| {
                modern.hear(front, said);
            })
            .map_err(|error| cannot_start(&error))?;
        endpoint.modern.replace(Some(Rc::clone(&modern)));
        self.moderns.borrow_mut().push(Rc::clone(&modern));
        let (front, asked, endpoint) =
            (Rc::downgrade(self), Rc::clone(&modern), Rc::clone(endpoint));
        self.tasks.start(async move {
            let spoke = asked.discover().await;
            if asked.is_legacy() && !asked.is_over() {
                endpoint.legacy.set(spoke.then(clock::now));
                if let Some(front) = front.upgrade() {
                    asked.end(&front, "the server is of the legacy era");
                }
            }
            if let Some(front) = front.upgrade() {
                front.bell.ring();
            }
        });
        Ok(Some(modern))
    }

    /// Starts a link, and makes what listens to it.
    fn linked<T: 'static>(
        self: &Rc<Self>,
        spec: &Spec,
        make: impl FnOnce(Rc<Link>) -> T,
        hear: fn(&Rc<T>, &Rc<Self>, Said),
    ) -> io::Result<Rc<T>> {
        let home: Rc<OnceCell<Weak<T>>> = Rc::default();
        let (front, back) = (Rc::downgrade(self), Rc::clone(&home));
        let counted = move |said: Said| {
            let Some(front) = front.upgrade() else {
                return;
            };
            let over = matches!(said, Said::Over(_));
            if let Some(listener) = back.get().and_then(Weak::upgrade) {
                hear(&listener, &front, said);
            }
            if over {
                front.links.set(front.links.get() - 1);
                front.bell.ring();
            }
        };
        let link = Link::open(&self.tasks, spec, Box::new(counted))?;
        self.links.set(self.links.get() + 1);
        let listener = Rc::new(make(link));
        // It was empty until now.
        drop(home.set(Rc::downgrade(&listener)));
        Ok(listener)
    }
}

fn cannot_start(error: &io::Error) -> Refusal {
    Refusal::later(
        StatusCode::SERVICE_UNAVAILABLE,
        format!("the server could not be started: {error}"),
    )
}

/// A name that nobody guesses.
fn random_name() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
