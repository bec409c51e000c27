//! Work that goes on in a server after its request was answered: tasks, by what was last seen of them.
//!
//! It reads what passes and sends nothing. A task is open from the answer that carries it until a terminal status, its
//! result, or the end of the time that the server promised to keep it. It matters before a server is put to rest, and
//! when its silence is judged; requests and retries do not need it.

use alloc::collections::BTreeMap;
use alloc::string::String;

use memchr::memmem;

use super::envelope::Members;
use crate::clock::Moment;
use crate::limits::{TASK_MS, TASKS_MAX};

/// The key in a result's `_meta` that says which task it is the result of.
const RELATED_KEY: &str = "io.modelcontextprotocol/related-task";

/// The open tasks of one generation.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    /// The opening of the session speaks of them: there may be some.
    possible: bool,
    /// Until when each of them counts.
    open: BTreeMap<String, Moment>,
}

impl Tasks {
    /// What opens the session: the server's word in the legacy era, the client's in the modern one.
    pub fn opened(&mut self, opening: &[u8]) {
        self.possible |= memmem::find(opening, b"tasks").is_some();
    }

    /// Whether there may be any.
    pub fn possible(&self) -> bool {
        self.possible
    }

    /// They lived in the memory of a generation that is gone.
    pub fn forget(&mut self) {
        self.open.clear();
    }

    /// A line from the server: a result or a notification.
    pub fn seen(&mut self, now: Moment, line: &[u8]) {
        if memmem::find(line, b"taskId").is_some()
            && let Some(news) = News::of(line)
        {
            self.learn(now, news);
        }
    }

    /// Until when the server is at work, as far as is known.
    pub fn until(&self) -> Option<Moment> {
        self.open.values().max().copied()
    }

    fn learn(&mut self, now: Moment, News { id, state }: News) {
        let State::Open { kept_ms } = state else {
            self.open.remove(&id);
            return;
        };
        if self.open.len() >= TASKS_MAX && !self.open.contains_key(&id) {
            let first = self.open.iter().min_by_key(|(_, until)| **until);
            if let Some(first) = first.map(|(id, _)| id.clone()) {
                self.open.remove(&first);
            }
        }
        let until = now.after_ms(kept_ms.unwrap_or(TASK_MS));
        self.open.insert(id, until);
        debug_assert!(self.open.len() <= TASKS_MAX, "the one that ends first goes");
    }
}

/// What one line says about one task.
struct News {
    id: String,
    state: State,
}

enum State {
    Open { kept_ms: Option<u64> },
    Over,
}

impl News {
    /// Looks where each era puts a task: the result's `task`, the result itself, or a notification's parameters.
    fn of(line: &[u8]) -> Option<Self> {
        let message = Members::of_line(line)?;
        let Some(result) = message.object("result") else {
            let about_tasks = message.text("method")?.starts_with("notifications/tasks");
            return Self::in_task(&message.object("params").filter(|_| about_tasks)?);
        };
        let related = result
            .object("_meta")
            .and_then(|meta| meta.object(RELATED_KEY));
        if let Some(id) = related.and_then(|related| related.text("taskId")) {
            return Some(Self {
                id: id.into_owned(),
                state: State::Over,
            });
        }
        Self::in_task(&result.object("task").unwrap_or(result))
    }

    fn in_task(task: &Members<'_>) -> Option<Self> {
        let over = match task.text("status")?.as_ref() {
            "completed" | "failed" | "cancelled" => true,
            "working" | "input_required" => false,
            // Not a task, or one of a protocol that we do not know.
            _ => return None,
        };
        let kept = task.get("ttl").or_else(|| task.get("ttlMs"));
        let kept_ms = kept.and_then(|ms| serde_json::from_str(ms.get()).ok());
        Some(Self {
            id: task.text("taskId")?.into_owned(),
            state: if over {
                State::Over
            } else {
                State::Open { kept_ms }
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const NOW: Moment = Moment(1_000);

    fn after(lines: &[&str]) -> Option<u64> {
        let mut tasks = Tasks::default();
        for line in lines {
            tasks.seen(NOW, line.as_bytes());
        }
        tasks.until().map(|until| until.ms_since(NOW))
    }

    #[test]
    fn open_until_something_says_that_it_is_over() {
        const LEGACY: &str =
            r#"{"id":1,"result":{"task":{"taskId":"t","status":"working","ttl":60000}}}"#;
        const MODERN: &str = r#"{"id":1,"result":{"resultType":"task","taskId":"t","status":"input_required","ttlMs":60000}}"#;
        for opened in [LEGACY, MODERN] {
            assert_eq!(after(&[opened]), Some(60_000));
            for over in [
                r#"{"id":2,"result":{"taskId":"t","status":"completed"}}"#,
                r#"{"method":"notifications/tasks/status","params":{"taskId":"t","status":"failed"}}"#,
                r#"{"id":2,"result":{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}"#,
            ] {
                assert_eq!(after(&[opened, over]), None, "{over}");
            }
            for not_over in [
                r#"{"id":2,"result":{"taskId":"other","status":"cancelled"}}"#,
                r#"{"method":"notifications/progress","params":{"taskId":"t","status":"completed"}}"#,
                r#"{"id":2,"result":{"content":[{"type":"text","text":"taskId"}]}}"#,
            ] {
                assert_eq!(after(&[opened, not_over]), Some(60_000), "{not_over}");
            }
        }
    }

    #[test]
    fn without_a_promise_it_counts_for_an_hour() {
        for ttl in ["null", "-1", "\"long\""] {
            let line = format!(
                r#"{{"id":1,"result":{{"task":{{"taskId":"t","status":"working","ttl":{ttl}}}}}}}"#
            );
            assert_eq!(after(&[&line]), Some(3_600_000));
        }
    }

    #[test]
    fn no_more_tasks_are_known_than_fit() {
        let mut tasks = Tasks::default();
        for n in 0..TASKS_MAX as u64 + 10 {
            let line = format!(
                r#"{{"result":{{"task":{{"taskId":"{n}","status":"working","ttl":{}}}}}}}"#,
                10_000 + n
            );
            tasks.seen(NOW, line.as_bytes());
        }
        assert_eq!(tasks.open.len(), TASKS_MAX);
        assert!(!tasks.open.contains_key("9") && tasks.open.contains_key("10"));
    }
}
