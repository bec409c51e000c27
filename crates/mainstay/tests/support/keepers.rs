//! Stand-ins for keepers: each has an entry and gives one answer.

use std::io::{BufRead, BufReader, Write};

use mainstay_protocol::ids::LinkId;
use mainstay_store::registry::Entry;
use mainstay_store::registry::control::{Answer, Request};

use super::home::{Home, Outcome, card};

/// The entry of a link of this name.
pub fn entry(home: &Home, id: u32, name: &str) -> Entry {
    let entry = Entry::create(&home.paths(), LinkId(id)).unwrap();
    entry.write(&card(id, name)).unwrap();
    entry
}

/// Runs a command while each of these keepers waits for this request and gives its answer.
pub fn with_keepers(
    home: &Home,
    words: &[&str],
    asked: &Request,
    keepers: Vec<(Entry, Answer)>,
) -> Outcome {
    std::thread::scope(|scope| {
        for (entry, answer) in keepers {
            let listener = entry.listen().unwrap();
            listener.set_nonblocking(false).unwrap();
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut line = Vec::new();
                BufReader::new(&stream)
                    .read_until(b'\n', &mut line)
                    .unwrap();
                assert_eq!(Request::parse(&line).as_ref(), Ok(asked));
                stream.write_all(&answer.line()).unwrap();
                drop(entry);
            });
        }
        home.mainstay(words)
    })
}
