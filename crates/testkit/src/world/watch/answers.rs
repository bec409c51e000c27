//! The promises about single messages: at the client, and at each generation.

use mainstay_protocol::message::frame::Kind;

use super::super::message::{Message, key};
use super::super::outside::{Halt, broken, text};
use super::{Request, Unconfirmed, Watch, Way};

impl Watch {
    /// A line has reached the client.
    pub fn client_gets(&mut self, line: &[u8], way: Way) -> Result<(), Halt> {
        let half_told = std::mem::take(&mut self.half_told);
        let Some(all) = Message::read(line) else {
            if self.torn_allowed {
                self.torn_allowed = false;
                return Ok(());
            }
            return broken(format!("the client gets half a line: {}", text(line)));
        };
        for said in all {
            match said.kind {
                Kind::Response | Kind::Error => self.client_gets_answer(&said, way, half_told)?,
                Kind::Request => self.client_is_asked(&said)?,
                Kind::Notification => self.client_is_told(&said)?,
                Kind::Batch | Kind::Blank | Kind::Junk => {}
            }
        }
        Ok(())
    }

    fn client_gets_answer(
        &mut self,
        said: &Message,
        way: Way,
        half_told: Option<bool>,
    ) -> Result<(), Halt> {
        let id = said.key();
        let by = said.by();
        let Some(request) = self.requests.get_mut(&id) else {
            if id.starts_with("\"stale-") {
                return Ok(());
            }
            return broken(format!(
                "the client gets an answer that it never asked for: {id}"
            ));
        };
        // If a killed keeper had begun the line, its writer is unknown.
        if let (Some(by), Way::Passed, None) = (by, way, half_told)
            && !request.sent.contains(&by)
        {
            return broken(format!("generation {by} answers {id}, which it never got"));
        }
        // An answer from the record may carry the mark of another client.
        let recalled = matches!(request.method.as_str(), "initialize" | "server/discover")
            || request.method.ends_with("/list");
        if let (Some(mark), false) = (said.mark(), recalled)
            && request.mark.as_deref() != Some(mark)
        {
            return broken(format!("the answer to {mark} reaches another: {id}"));
        }
        request.answers += 1;
        let first = request.answers == 1;
        if first {
            request.first_by = by;
        } else {
            // Two answers of one server are both passed on. Since both may be late, the extra one comes before or after our own
            // answer.
            let server = by.or(request.first_by);
            let twice = server.is_some_and(|by| request.written.get(&by) > Some(&1));
            if !twice {
                if request.allowance == 0 && !self.crowded {
                    let method = &request.method;
                    return broken(format!("a second answer: {method} {id}"));
                }
                request.allowance = request.allowance.saturating_sub(1);
            }
        }
        let (method, cancelled) = (request.method.clone(), request.cancelled);
        // The link does not build on an extra answer that was tolerated either.
        let opens = first && method == "initialize" && said.is_success();
        self.known.answered(&id, said, cancelled);
        // If a killed keeper had begun the line, only the server's own mark shows who wrote it.
        let way = match (half_told, by) {
            (Some(_), None) => Way::Ours,
            (Some(_), Some(_)) | (None, _) => way,
        };
        let answer = Unconfirmed {
            key: id,
            way,
            opens,
        };
        match half_told {
            None => self.unconfirmed.push(answer),
            // All but its newline was there, and the killed keeper knew it.
            Some(true) => self.confirm(vec![answer]),
            Some(false) => {}
        }
        Ok(())
    }

    fn client_is_asked(&mut self, said: &Message) -> Result<(), Halt> {
        let label = said.key();
        if self.labels.contains_key(&label) {
            return broken(format!("the client is asked twice under one id: {label}"));
        }
        let by = said.by().unwrap_or_default();
        let n = said.value["params"]["n"].as_u64().unwrap_or_default();
        let mut all = self.questions.iter();
        let Some(at) = all.position(|q| q.generation == by && q.n == n) else {
            return broken(format!("no server asked this: {label}"));
        };
        self.questions[at].shown = true;
        self.labels.insert(label, at);
        Ok(())
    }

    fn client_is_told(&mut self, said: &Message) -> Result<(), Halt> {
        let params = &said.value["params"];
        match said.method.as_str() {
            "notifications/progress" => {
                if let Some(mark) = said.mark()
                    && !self.is_of_this_client(mark)
                {
                    return broken(format!("the progress of {mark} reaches another"));
                }
                let token = key(&params["progressToken"]);
                let value = params["progress"].as_f64().unwrap_or_default();
                let last = self.progress.insert(token.clone(), value);
                // Progress of a request that was cancelled or answered is not checked.
                let mut all = self.requests.values();
                let over = |request: &Request| request.cancelled || request.answers > 0;
                let wanted = !all.any(|request| request.token == token && over(request));
                if wanted && last.is_some_and(|last| value <= last) {
                    return broken(format!("the progress of {token} does not rise"));
                }
            }
            "notifications/cancelled" => {
                if let Some(&at) = self.labels.get(&key(&params["requestId"])) {
                    self.questions[at].cancelled = true;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn is_of_this_client(&self, mark: &str) -> bool {
        mark.split('-').next() == Some(self.attachment.to_string().as_str())
    }

    /// A line has reached a generation.
    pub fn server_gets(&mut self, generation: u32, line: &[u8]) -> Result<(), Halt> {
        let Some(all) = Message::read(line) else {
            let junk = line.starts_with(b"junk") || line.trim_ascii().is_empty();
            if junk || std::mem::take(&mut self.server_torn) {
                return Ok(());
            }
            return broken(format!("the server gets half a line: {}", text(line)));
        };
        for said in all {
            match said.kind {
                Kind::Request => self.server_is_asked(generation, &said)?,
                Kind::Response | Kind::Error => self.server_gets_answer(generation, &said)?,
                Kind::Notification if said.method == "notifications/initialized" => {
                    self.met.initialized = true;
                }
                Kind::Notification | Kind::Batch | Kind::Blank | Kind::Junk => {}
            }
        }
        Ok(())
    }

    fn server_is_asked(&mut self, generation: u32, said: &Message) -> Result<(), Halt> {
        let id = said.key();
        if said.is_the_links_own() {
            if !self.spoken {
                return broken("a server gets a message of ours before the client has spoken");
            }
            return self.met.ours(said);
        }
        if said
            .mark()
            .is_some_and(|mark| !self.is_of_this_client(mark))
        {
            // A client that is gone had sent it, and the line was in flight.
            return Ok(());
        }
        // A request with the id of such a request gets a label of ours.
        let labelled = id.starts_with("\"ms:re:") || id.starts_with("1500");
        let mut all = self.requests.iter_mut();
        let found = all.find(|(key, request)| {
            if labelled {
                request.mark.as_deref() == said.mark()
            } else {
                **key == id
            }
        });
        let Some((_, request)) = found else {
            return broken(format!("a server gets a request that no client sent: {id}"));
        };
        let method = request.method.clone();
        // A line that a killed keeper had seen and not yet marked is shown to its successor again.
        if request.sent.contains(&generation) && request.allowance == 0 {
            return broken(format!(
                "sent twice: {method} {id} to generation {generation}"
            ));
        }
        if !request.sent.is_empty() && !request.repeatable {
            return broken(format!("sent again: {method} {id}"));
        }
        let first = request.sent.is_empty();
        request.sent.push(generation);
        let most = match method.as_str() {
            "subscriptions/listen" => usize::MAX,
            // It is sent to each generation until it is answered. The restart budget bounds that.
            "initialize" => 10 * (1 + self.keepers_killed),
            _ => 2,
        };
        if request.sent.len() > most {
            return broken(format!(
                "sent too often: {method} {id} to {:?}",
                request.sent
            ));
        }
        // A later `initialize` of the same client is its own wish, and passes.
        if self.met.greeted() && self.is_opening(said) {
            return broken(format!("opened twice: by us, and by the client with {id}"));
        }
        if method == "initialize" {
            // A second `initialize`, of a client that does not wait, or of one that came back and opens in another way. If it is
            // sent again to the next generation, it does not reset the session: settings made after it last.
            if self.attachment > 1 && !self.met.greeted() && first {
                self.known.opens_anew();
                self.met = super::replay::Met::default();
                self.served = false;
            }
            return Ok(());
        }
        self.met.client_traffic(&method)
    }

    fn server_gets_answer(&mut self, generation: u32, said: &Message) -> Result<(), Halt> {
        let payload = match said.kind {
            Kind::Error => &said.value["error"]["data"],
            Kind::Response
            | Kind::Request
            | Kind::Notification
            | Kind::Batch
            | Kind::Blank
            | Kind::Junk => &said.value["result"],
        };
        if said.value["error"]["message"] == "the client is away" {
            return Ok(());
        }
        let by = payload["by"].as_u64().unwrap_or_default() as u32;
        let n = payload["n"].as_u64().unwrap_or_default();
        if by != generation {
            return broken(format!("generation {generation} gets an answer for {by}"));
        }
        let mut all = self.questions.iter();
        let asked = all.find(|q| q.generation == by && q.n == n);
        let token = asked.map(|question| question.token.as_str());
        if token != said.token.as_deref() {
            return broken(format!(
                "question {token:?} is answered as {:?}",
                said.token
            ));
        }
        // It may come at any time, because a server may wait for it before it goes on.
        Ok(())
    }
}
