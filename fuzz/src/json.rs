//! A strict and slow reader of JSON (RFC 8259) that keeps every member of every object, in order, repeated or not.
//!
//! Texts are compared by their UTF-16 units, so that half a surrogate pair is a text as any other.

/// How deep a value may be; deeper ones are not read.
const DEEPEST: usize = 200;

/// A value, and where it stands in the bytes.
#[derive(Clone, Debug)]
pub struct Value<'a> {
    pub raw: &'a [u8],
    pub what: What<'a>,
}

#[derive(Clone, Debug)]
pub enum What<'a> {
    Null,
    Bool,
    Number,
    Text(Vec<u16>),
    Array(Vec<Value<'a>>),
    Object(Vec<(Vec<u16>, Value<'a>)>),
}

/// How much of a text is JSON.
#[derive(Debug)]
pub enum Read<'a> {
    Json(Value<'a>),
    NotJson,
    TooDeep,
}

/// Reads a whole text.
pub fn read(bytes: &[u8]) -> Read<'_> {
    let mut reader = Reader {
        bytes,
        at: 0,
        too_deep: false,
    };
    if std::str::from_utf8(bytes).is_err() {
        return Read::NotJson;
    }
    let value = reader.value(0);
    reader.blank();
    match value {
        _ if reader.too_deep => Read::TooDeep,
        Some(value) if reader.at == bytes.len() => Read::Json(value),
        Some(_) | None => Read::NotJson,
    }
}

/// A text as it is compared.
pub fn units(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

impl<'a> Value<'a> {
    /// The members of an object.
    pub fn members(&self) -> &[(Vec<u16>, Value<'a>)] {
        match &self.what {
            What::Object(members) => members,
            _ => &[],
        }
    }

    /// Every value of a key.
    pub fn all(&self, key: &str) -> Vec<&Value<'a>> {
        let key = units(key);
        let members = self.members().iter().filter(|(held, _)| *held == key);
        members.map(|(_, value)| value).collect()
    }

    /// What a reader finds that takes the last of several and does not tell upper case from lower case.
    pub fn last_of_any_case(&self, key: &str) -> Option<&Value<'a>> {
        let lower = |unit: u16| match unit {
            0x41..=0x5a => unit + 0x20,
            _ => unit,
        };
        let key: Vec<u16> = units(key).into_iter().map(lower).collect();
        let same = |held: &[u16]| held.iter().copied().map(lower).eq(key.iter().copied());
        let mut members = self.members().iter().rev();
        members.find(|(held, _)| same(held)).map(|(_, value)| value)
    }

    /// Its text.
    pub fn text(&self) -> Option<String> {
        match &self.what {
            What::Text(units) => String::from_utf16(units).ok(),
            _ => None,
        }
    }

    /// Whether an object at any depth has a key twice.
    pub fn repeats(&self) -> bool {
        match &self.what {
            What::Array(all) => all.iter().any(Value::repeats),
            What::Object(members) => {
                let twice = |(place, (key, _)): (usize, &(Vec<u16>, Value<'_>))| {
                    members[..place].iter().any(|(before, _)| before == key)
                };
                members.iter().enumerate().any(twice)
                    || members.iter().any(|(_, value)| value.repeats())
            }
            What::Null | What::Bool | What::Number | What::Text(_) => false,
        }
    }

    /// Whether every key, at any depth, is plain lower case, every text is Unicode, and `repeats` is false even so.
    pub fn plain(&self) -> bool {
        let usual = |unit: &u16| matches!(unit, 0x61..=0x7a | 0x5f);
        let names = ["progressToken", "protocolVersion", "requestId", "taskId"];
        let known = names.map(units);
        // In lower case they are another spelling of a key that is read.
        let respelled = names.map(|name| units(&name.to_lowercase()));
        match &self.what {
            What::Array(all) => all.iter().all(Value::plain),
            What::Object(members) => {
                !self.repeats()
                    && members.iter().all(|(key, value)| {
                        let plain = key.iter().all(usual) && !respelled.contains(key);
                        (plain || known.contains(key)) && value.plain()
                    })
            }
            What::Text(units) => String::from_utf16(units).is_ok(),
            What::Null | What::Bool | What::Number => true,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    too_deep: bool,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn takes(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let there = self.bytes[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        there.then_some(())
    }

    fn value(&mut self, depth: usize) -> Option<Value<'a>> {
        if depth > DEEPEST {
            self.too_deep = true;
            return None;
        }
        self.blank();
        let start = self.at;
        let what = match self.peek()? {
            b'n' => self.word("null").map(|()| What::Null)?,
            b't' => self.word("true").map(|()| What::Bool)?,
            b'f' => self.word("false").map(|()| What::Bool)?,
            b'"' => What::Text(self.string()?),
            b'[' => What::Array(self.array(depth)?),
            b'{' => What::Object(self.object(depth)?),
            _ => self.number().map(|()| What::Number)?,
        };
        Some(Value {
            raw: &self.bytes[start..self.at],
            what,
        })
    }

    fn array(&mut self, depth: usize) -> Option<Vec<Value<'a>>> {
        let mut all = Vec::new();
        self.at += 1;
        self.blank();
        if self.takes(b']') {
            return Some(all);
        }
        loop {
            all.push(self.value(depth + 1)?);
            self.blank();
            if self.takes(b']') {
                return Some(all);
            }
            self.takes(b',').then_some(())?;
        }
    }

    fn object(&mut self, depth: usize) -> Option<Vec<(Vec<u16>, Value<'a>)>> {
        let mut all = Vec::new();
        self.at += 1;
        self.blank();
        if self.takes(b'}') {
            return Some(all);
        }
        loop {
            self.blank();
            (self.peek() == Some(b'"')).then_some(())?;
            let key = self.string()?;
            self.blank();
            self.takes(b':').then_some(())?;
            all.push((key, self.value(depth + 1)?));
            self.blank();
            if self.takes(b'}') {
                return Some(all);
            }
            self.takes(b',').then_some(())?;
        }
    }

    fn string(&mut self) -> Option<Vec<u16>> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(text);
                }
                b'\\' => {
                    self.at += 1;
                    let escape = self.peek()?;
                    self.at += 1;
                    text.push(match escape {
                        b'"' | b'\\' | b'/' => u16::from(escape),
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => 10,
                        b'r' => 13,
                        b't' => 9,
                        b'u' => {
                            let hex = self.bytes.get(self.at..self.at + 4)?;
                            hex.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                            self.at += 4;
                            u16::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?
                        }
                        _ => return None,
                    });
                }
                0..=0x1f => return None,
                _ => {
                    let end = (self.at + 4).min(self.bytes.len());
                    let near = &self.bytes[self.at..end];
                    let rest = near.utf8_chunks().next()?.valid();
                    let letter = rest.chars().next()?;
                    self.at += letter.len_utf8();
                    text.extend_from_slice(letter.encode_utf16(&mut [0; 2]));
                }
            }
        }
    }

    fn number(&mut self) -> Option<()> {
        self.takes(b'-');
        if !self.takes(b'0') {
            self.digits()?;
        }
        if self.takes(b'.') {
            self.digits()?;
        }
        if self.takes(b'e') || self.takes(b'E') {
            let _sign = self.takes(b'+') || self.takes(b'-');
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}
