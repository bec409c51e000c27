//! A scripted server: it answers in its own order and time, forgets everything when it dies, and may misbehave.

use std::collections::BTreeSet;

use mainstay_protocol::message::frame::Kind;

use super::message::{Message, key_of};
use super::outside::{Outside, text};
use super::pipe::{Lines, Read};

/// How servers of one story behave. Each number is a chance in a thousand.
#[derive(Clone, Debug, Default)]
pub struct Temper {
    /// The longest that an answer takes.
    pub answer_ms: u64,
    /// A request is never answered.
    pub never: u64,
    /// It is answered twice.
    pub twice: u64,
    /// An answer to an unknown request is sent too.
    pub stale: u64,
    /// A line that is no message is sent too.
    pub junk: u64,
    /// A notification is sent too.
    pub notify: u64,
    /// The client gets a question.
    pub ask: u64,
    /// The server dies of a request.
    pub die: u64,
    /// It dies of `server/discover`.
    pub dies_of_discover: bool,
    /// It knows the modern era.
    pub modern: bool,
    /// It refuses replayed requests.
    pub refuse: u64,
    /// It answers with another protocol version.
    pub version: u64,
    /// Lists differ between generations.
    pub lists_differ: bool,
    /// It says when lists change.
    pub list_changed: bool,
    /// It leaves our probes unanswered.
    pub ignores_pings: bool,
    /// An answer is longer than a buffer.
    pub long: u64,
}

/// The running server process.
#[derive(Debug)]
pub struct Server {
    /// Its generation.
    pub generation: u32,
    /// How it behaves.
    pub temper: Temper,
    /// Requests that it will never answer.
    pub silent: BTreeSet<String>,
    lines: Lines,
    /// Written, but the pipe had no room yet.
    backlog: Vec<u8>,
    asked: u64,
    /// The size of its reads.
    pub read_most: u64,
}

/// What the server does later.
#[derive(Debug)]
pub enum Later {
    /// It writes this line.
    Write(String),
    /// It answers this request with this line.
    Answer(String, String),
    /// It dies; perhaps after the beginning of this line.
    Die(Option<String>),
}

impl Server {
    /// A new process, which knows nothing.
    pub fn new(generation: u32, temper: &Temper, outside: &mut Outside) -> Self {
        Self {
            generation,
            temper: temper.clone(),
            silent: BTreeSet::new(),
            lines: Lines::default(),
            backlog: Vec::new(),
            asked: 0,
            read_most: outside.dice.pick(&[5, 300, 65_536]),
        }
    }

    /// Writes what the pipe had no room for. Returns whether it took any.
    pub fn flush(&mut self, outside: &mut Outside) -> bool {
        let process = outside.process.as_mut();
        let mine = process.filter(|process| process.generation == self.generation);
        match mine.map(|process| process.stdout.write(&self.backlog)) {
            Some(Ok(len)) => {
                self.backlog.drain(..len);
                len > 0
            }
            Some(Err(_)) | None => {
                self.backlog.clear();
                false
            }
        }
    }

    /// Writes this now.
    pub fn write(&mut self, outside: &mut Outside, bytes: &[u8]) {
        let generation = self.generation;
        outside.note(|| format!("server {generation} writes: {}", text(bytes)));
        self.backlog.extend_from_slice(bytes);
        self.flush(outside);
    }

    /// It answers.
    pub fn answer(&mut self, outside: &mut Outside, token: &str, line: &str) {
        outside.watch.server_answers(self.generation, token);
        self.write(outside, line.as_bytes());
    }

    /// Whether it has nothing to write.
    pub fn flushed(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Reads what is there. Returns true at the end of its stdin.
    pub fn read(&mut self, outside: &mut Outside, later: &mut Vec<Later>) -> bool {
        let most = outside.dice.between(1, self.read_most) as usize;
        let Some(process) = &mut outside.process else {
            return false;
        };
        match process.stdin.read(most) {
            Read::Nothing => false,
            Read::End => true,
            Read::Bytes(bytes) => {
                for line in self.lines.feed(&bytes) {
                    for said in Message::read(&line).unwrap_or_default() {
                        if said.kind == Kind::Request {
                            self.asked(outside, &said, later);
                        }
                    }
                }
                false
            }
        }
    }

    fn asked(&mut self, outside: &mut Outside, said: &Message, later: &mut Vec<Later>) {
        let Some(token) = said.token.clone() else {
            return;
        };
        let temper = self.temper.clone();
        let ours = said.is_the_links_own();
        let dice = &mut outside.dice;
        let deadly = temper.dies_of_discover && said.method == "server/discover";
        let chance = dice.permille(temper.die);
        if deadly || chance {
            let torn = dice.permille(300).then(|| self.result(said, &token, "{}"));
            // Other processes of the tree may serve on.
            self.silent.insert(key_of(&token));
            self.silent.extend(said.mark().map(String::from));
            later.push(Later::Die(torn));
            return;
        }
        if ours
            && temper.ignores_pings
            && (said.method == "ping" || said.method == "server/discover")
        {
            return;
        }
        if dice.permille(temper.never) && !(ours && said.method == "initialize") {
            self.silent.insert(key_of(&token));
            self.silent.extend(said.mark().map(String::from));
            return;
        }
        let line = self.reply(outside, said, &token, ours);
        let dice = &mut outside.dice;
        if dice.permille(temper.notify) {
            later.push(Later::Write(self.news(outside, said)));
        }
        let dice = &mut outside.dice;
        if dice.permille(temper.junk) {
            later.push(Later::Write("log: this is no message\n".into()));
        }
        if dice.permille(temper.stale) {
            let n = dice.below(1_000);
            later.push(Later::Write(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":\"stale-{n}\",\"result\":{{}}}}\n"
            )));
        }
        if said.method == "subscriptions/listen" {
            let key = "io.modelcontextprotocol/subscriptionId";
            let granted = &said.value["params"]["notifications"];
            later.push(Later::Write(format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{{\"_meta\":{{\"{key}\":{token}}},\"notifications\":{granted}}}}}\n"
            )));
            if dice.permille(700) {
                return;
            }
        }
        if dice.permille(temper.twice) && !ours && said.method != "initialize" {
            later.push(Later::Answer(token.clone(), line.clone()));
        }
        later.push(Later::Answer(token, line));
    }

    /// Progress, a notification, or a question.
    fn news(&mut self, outside: &mut Outside, said: &Message) -> String {
        let token = &said.value["params"]["_meta"]["progressToken"];
        let generation = self.generation;
        if !token.is_null() {
            // One entry with several lines, so that they keep their order.
            return (1..=outside.dice.between(1, 3))
                .map(|value| format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\"progress\":{value},\"w\":{}}}}}\n", said.value["params"]["w"]))
                .collect();
        }
        if outside.dice.permille(self.temper.ask) && !self.temper.modern {
            self.asked += 1;
            let n = self.asked;
            let token = match outside.dice.below(4) {
                0 => format!("\"q{n}\""),
                1 => format!("{n}.0"),
                _ => format!("{n}"),
            };
            outside.watch.server_asks(generation, n, &token);
            let ask = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{token},\"method\":\"sampling/createMessage\",\"params\":{{\"by\":{generation},\"n\":{n}}}}}\n"
            );
            if outside.dice.permille(100) {
                outside.watch.server_cancels(generation, n);
                return format!(
                    "{ask}{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{token}}}}}\n"
                );
            }
            return ask;
        }
        let kind = outside
            .dice
            .pick(&["message", "tools/list_changed", "resources/updated"]);
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{kind}\",\"params\":{{\"by\":{generation}}}}}\n"
        )
    }

    fn reply(&mut self, outside: &mut Outside, said: &Message, token: &str, ours: bool) -> String {
        let temper = self.temper.clone();
        let dice = &mut outside.dice;
        let replayed = ours
            && matches!(
                said.method.as_str(),
                "logging/setLevel" | "resources/subscribe"
            );
        let unknown = said.method == "server/discover" && !temper.modern;
        let odd = dice.permille(50)
            && !ours
            && said.method != "initialize"
            && said.method != "server/discover";
        if unknown || odd || (replayed && dice.permille(temper.refuse)) {
            let code = if unknown { -32601 } else { -32000 };
            return format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{token},\"error\":{{\"code\":{code},\"message\":\"no\",\"data\":{{\"by\":{},\"w\":{}}}}}}}\n",
                self.generation, said.value["params"]["w"]
            );
        }
        let body = match said.method.as_str() {
            "initialize" => {
                let other = dice.permille(temper.version);
                let version = if other { "2024-11-05" } else { "2025-06-18" };
                let changed = temper.list_changed;
                format!(
                    r#""protocolVersion":"{version}","capabilities":{{"tools":{{"listChanged":{changed}}},"logging":{{}}}},"serverInfo":{{"name":"s","version":"1"}}"#
                )
            }
            "tools/list" => {
                let more = if temper.lists_differ && self.generation.is_multiple_of(2) {
                    r#",{"name":"more","inputSchema":{}}"#
                } else {
                    ""
                };
                format!(
                    r#""tools":[{{"name":"ro","inputSchema":{{}},"annotations":{{"readOnlyHint":true}}}},{{"name":"ro2","inputSchema":{{}},"annotations":{{"idempotentHint":true}}}},{{"name":"rw","inputSchema":{{}}}}{more}]"#
                )
            }
            "prompts/list" => r#""prompts":[{"name":"p"}]"#.into(),
            "resources/list" => r#""resources":[{"uri":"file:///0","name":"0"}]"#.into(),
            "resources/templates/list" => r#""resourceTemplates":[]"#.into(),
            // Our probes repeat, so their answers are short.
            "ping" | "server/discover" if ours => String::new(),
            _ if dice.permille(temper.long) => {
                let fill = dice.between(60_000, 200_000) as usize;
                format!(r#""text":"{}""#, "y".repeat(fill))
            }
            _ => String::new(),
        };
        let comma = if body.is_empty() { "" } else { "," };
        let (by, mark) = (self.generation, &said.value["params"]["w"]);
        let result = format!(r#"{{{body}{comma}"_meta":{{"by":{by},"w":{mark}}}}}"#);
        // The id may come last, and be written in another form.
        let token = match token.strip_suffix(".0") {
            Some(plain) if dice.permille(500) => plain,
            Some(_) | None => token,
        };
        if dice.permille(200) {
            return format!("{{\"result\":{result},\"jsonrpc\":\"2.0\",\"id\":{token}}}\n");
        }
        self.result(said, token, &result)
    }

    fn result(&self, _said: &Message, token: &str, result: &str) -> String {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{token},\"result\":{result}}}\n")
    }
}
