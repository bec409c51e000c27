//! The memory of one generation, lost when it dies: the messages that it has read, the log level, subscriptions, listening
//! requests, questions to the client.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// How many messages, and how much of each, it keeps.
const HEARD: usize = 2_000;
const HEARD_BYTES: usize = 4_096;

/// The memory.
#[derive(Debug, Default)]
pub struct Hold {
    heard: Vec<String>,
    level: Option<Value>,
    subscriptions: Vec<Value>,
    /// Listening requests by their id as text: the id, and what was granted.
    listens: BTreeMap<String, (Value, Value)>,
    /// Questions to the client by their number: the call that waits for the answer.
    questions: BTreeMap<u64, Option<Value>>,
    asked: u64,
}

impl Hold {
    /// Notes a message.
    pub fn hear(&mut self, line: &[u8]) {
        if self.heard.len() < HEARD {
            let line = &line[..line.len().min(HEARD_BYTES)];
            self.heard.push(String::from_utf8_lossy(line).into_owned());
        }
    }

    /// `logging/setLevel`.
    pub fn set_level(&mut self, params: &Value) -> Value {
        self.level = params.get("level").cloned();
        json!({})
    }

    /// `resources/subscribe`.
    pub fn subscribe(&mut self, params: &Value) -> Value {
        self.subscriptions.extend(params.get("uri").cloned());
        json!({})
    }

    /// `resources/unsubscribe`.
    pub fn unsubscribe(&mut self, params: &Value) -> Value {
        self.subscriptions
            .retain(|uri| Some(uri) != params.get("uri"));
        json!({})
    }

    /// `subscriptions/listen`: returns the notification that grants it.
    pub fn listen(&mut self, id: &Value, params: &Value, grants: Option<&str>) -> Value {
        let mut granted = params.get("notifications").cloned().unwrap_or(json!({}));
        if let (Some(granted), Some(grants)) = (granted.as_object_mut(), grants) {
            granted.retain(|key, _| grants.split(',').any(|grant| grant == key));
        }
        self.listens
            .insert(id.to_string(), (id.clone(), granted.clone()));
        json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {SUBSCRIPTION: id}, "notifications": granted},
        })
    }

    /// A notification for every listening request.
    pub fn news(&self, method: &str) -> Vec<Value> {
        self.listens
            .values()
            .map(|(id, _)| {
                json!({"jsonrpc": "2.0", "method": method, "params": {"_meta": {SUBSCRIPTION: id}}})
            })
            .collect()
    }

    /// The client cancels a request.
    pub fn cancelled(&mut self, params: &Value) {
        if let Some(id) = params.get("requestId") {
            self.listens.remove(&id.to_string());
        }
    }

    /// A question to the client, numbered from 0 in every generation. If a call is given, it waits for the answer.
    pub fn ask(&mut self, method: &str, params: &Value, call: Option<Value>) -> Value {
        let id = self.asked;
        self.asked += 1;
        self.questions.insert(id, call);
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    /// The client answers. Returns the call that waited for it.
    pub fn answered(&mut self, message: &Value) -> Option<Value> {
        let id = message.get("id")?.as_u64()?;
        self.questions.remove(&id)?
    }

    /// The whole memory as JSON.
    pub fn all(&self, generation: u32) -> Value {
        json!({
            "generation": generation,
            "heard": self.heard,
            "level": self.level,
            "subscriptions": self.subscriptions,
            "listens": self.listens.values().map(|(id, granted)| json!([id, granted])).collect::<Vec<_>>(),
            "open_questions": self.questions.len(),
        })
    }
}

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
