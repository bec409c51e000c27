//! The bytes of D-Bus messages: writing calls, reading answers and signals.

use super::{Error, Method, Notice};

/// A value in a variant, of the types that unit properties need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `b`
    Bool(bool),
    /// `u`
    U32(u32),
    /// `t`
    U64(u64),
    /// `s`
    Str(String),
    /// `as`
    Strs(Vec<String>),
    /// `au`
    U32s(Vec<u32>),
    /// `a(sasb)`: one command line of a service.
    Command {
        /// The program.
        exe: String,
        /// Its arguments, the first included.
        argv: Vec<String>,
    },
}

/// The arguments of a call.
#[derive(Clone, Debug, Default)]
pub struct Args {
    signature: String,
    body: Writer,
}

impl Args {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a string.
    #[must_use]
    pub fn str(mut self, text: &str) -> Self {
        self.signature.push('s');
        self.body.str(text);
        self
    }

    /// Adds named values: `a(sv)`.
    #[must_use]
    pub fn properties(mut self, properties: &[(&str, Value)]) -> Self {
        self.signature.push_str("a(sv)");
        self.body.array(8, |body| {
            for (name, value) in properties {
                body.align(8);
                body.str(name);
                body.variant(value);
            }
        });
        self
    }

    /// Adds an empty list of auxiliary units: `a(sa(sv))`.
    #[must_use]
    pub fn no_units(mut self) -> Self {
        self.signature.push_str("a(sa(sv))");
        self.body.array(8, |_| ());
        self
    }
}

/// The arguments of an answer or a signal. A reader must know what it asked for, because nothing skips arguments of
/// other types.
#[derive(Clone, Debug, Default)]
pub struct Body {
    bytes: Vec<u8>,
    big: bool,
    at: usize,
}

impl Body {
    /// The next argument, a string or an object path.
    pub fn str(&mut self) -> Result<String, Error> {
        let len = self.u32()? as usize;
        let end = self.at.checked_add(len).ok_or(SHORT)?;
        let text = self.bytes.get(self.at..end).ok_or(SHORT)?;
        if self.bytes.get(end) != Some(&0) {
            return Err(SHORT);
        }
        self.at = end + 1;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// The next argument, a number.
    pub fn u32(&mut self) -> Result<u32, Error> {
        self.at = self.at.next_multiple_of(4);
        let word = number(&self.bytes, self.at, self.big)?;
        self.at += 4;
        Ok(word)
    }

    /// The next argument, a string in a variant.
    pub fn variant_str(&mut self) -> Result<String, Error> {
        let len = usize::from(*self.bytes.get(self.at).ok_or(SHORT)?);
        let signature = self
            .bytes
            .get(self.at + 1..self.at + 1 + len)
            .ok_or(SHORT)?;
        if signature != b"s" && signature != b"o" {
            return Err(Error::Protocol("a value is not a string"));
        }
        self.at += len + 2;
        self.str()
    }
}

/// A message from the peer.
#[derive(Debug)]
pub enum Message {
    /// The answer to a call.
    Return { to: u32, body: Body },
    /// An error as the answer to a call.
    Error { to: u32, name: String, text: String },
    /// A signal.
    Signal(Notice),
    /// A call to us, or a message of a later version.
    Other,
}

const SHORT: Error = Error::Protocol("a message is cut short");
const CALL: u8 = 1;
const RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;
/// The peer must not start a service in order to answer us.
const NO_AUTO_START: u8 = 2;

/// Writes a call.
pub fn call(serial: u32, destination: Option<&str>, method: &Method<'_>, args: &Args) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes.extend([b'l', CALL, NO_AUTO_START, 1]);
    out.u32(args.body.bytes.len() as u32);
    out.u32(serial);
    out.array(8, |out| {
        out.field(1, "o", method.path);
        out.field(2, "s", method.interface);
        out.field(3, "s", method.member);
        if let Some(destination) = destination {
            out.field(6, "s", destination);
        }
        if !args.signature.is_empty() {
            out.field(8, "g", &args.signature);
        }
    });
    out.align(8);
    out.bytes.extend_from_slice(&args.body.bytes);
    out.bytes
}

/// The length of the message at the start of some bytes, once it is known.
pub fn whole(bytes: &[u8]) -> Result<Option<usize>, Error> {
    if bytes.len() < 16 {
        return Ok(None);
    }
    let big = big(bytes)?;
    let body = number(bytes, 4, big)? as usize;
    let fields = number(bytes, 12, big)? as usize;
    let len = fields
        .checked_add(16)
        .and_then(|len| len.checked_next_multiple_of(8))
        .and_then(|len| len.checked_add(body))
        .ok_or(SHORT)?;
    Ok(Some(len))
}

/// Reads one whole message.
pub fn read(bytes: &[u8]) -> Result<Message, Error> {
    let big = big(bytes)?;
    let kind = *bytes.get(1).ok_or(SHORT)?;
    let fields_end = 16 + number(bytes, 12, big)? as usize;
    let mut to = 0;
    let mut member = String::new();
    let mut error = String::new();
    let mut strings = false;
    let mut head = Body {
        bytes: bytes.get(..fields_end).ok_or(SHORT)?.to_vec(),
        big,
        at: 16,
    };
    loop {
        head.at = head.at.next_multiple_of(8);
        if head.at >= fields_end {
            break;
        }
        let code = *head.bytes.get(head.at).ok_or(SHORT)?;
        let len = usize::from(*head.bytes.get(head.at + 1).ok_or(SHORT)?);
        let signature = head
            .bytes
            .get(head.at + 2..head.at + 2 + len)
            .ok_or(SHORT)?
            .to_vec();
        head.at += len + 3;
        match signature.as_slice() {
            b"u" => {
                let value = head.u32()?;
                if code == 5 {
                    to = value;
                }
            }
            b"g" => {
                let len = usize::from(*head.bytes.get(head.at).ok_or(SHORT)?);
                let text = head
                    .bytes
                    .get(head.at + 1..head.at + 1 + len)
                    .ok_or(SHORT)?;
                if code == 8 {
                    strings = text.starts_with(b"s");
                }
                head.at += len + 2;
            }
            b"s" | b"o" => {
                let value = head.str()?;
                match code {
                    3 => member = value,
                    4 => error = value,
                    _ => {}
                }
            }
            _ => return Err(Error::Protocol("a header field of an unknown type")),
        }
    }
    let mut body = Body {
        bytes: bytes
            .get(fields_end.next_multiple_of(8)..)
            .ok_or(SHORT)?
            .to_vec(),
        big,
        at: 0,
    };
    Ok(match kind {
        RETURN => Message::Return { to, body },
        ERROR => Message::Error {
            to,
            name: error,
            text: if strings { body.str()? } else { String::new() },
        },
        SIGNAL => Message::Signal(Notice { member, body }),
        _ => Message::Other,
    })
}

fn big(bytes: &[u8]) -> Result<bool, Error> {
    match bytes.first() {
        Some(b'l') => Ok(false),
        Some(b'B') => Ok(true),
        Some(_) | None => Err(Error::Protocol("no byte order")),
    }
}

fn number(bytes: &[u8], at: usize, big: bool) -> Result<u32, Error> {
    let word: [u8; 4] = at
        .checked_add(4)
        .and_then(|end| bytes.get(at..end))
        .and_then(|word| word.try_into().ok())
        .ok_or(SHORT)?;
    Ok(if big {
        u32::from_be_bytes(word)
    } else {
        u32::from_le_bytes(word)
    })
}

#[derive(Clone, Debug, Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn u32(&mut self, value: u32) {
        self.align(4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn str(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.bytes.push(text.len() as u8);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
    }

    /// The length comes before the padding to the first element and does not count it.
    fn array(&mut self, element: usize, write: impl FnOnce(&mut Self)) {
        self.u32(0);
        let length = self.bytes.len() - 4;
        self.align(element);
        let start = self.bytes.len();
        write(self);
        let len = (self.bytes.len() - start) as u32;
        self.bytes[length..length + 4].copy_from_slice(&len.to_le_bytes());
    }

    fn field(&mut self, code: u8, signature: &str, text: &str) {
        self.align(8);
        self.bytes.push(code);
        self.signature(signature);
        if signature == "g" {
            self.signature(text);
        } else {
            self.str(text);
        }
    }

    fn variant(&mut self, value: &Value) {
        match value {
            Value::Bool(value) => {
                self.signature("b");
                self.u32(u32::from(*value));
            }
            Value::U32(value) => {
                self.signature("u");
                self.u32(*value);
            }
            Value::U64(value) => {
                self.signature("t");
                self.align(8);
                self.bytes.extend(value.to_le_bytes());
            }
            Value::Str(text) => {
                self.signature("s");
                self.str(text);
            }
            Value::Strs(texts) => {
                self.signature("as");
                self.strs(texts);
            }
            Value::U32s(numbers) => {
                self.signature("au");
                self.array(4, |out| numbers.iter().for_each(|&number| out.u32(number)));
            }
            Value::Command { exe, argv } => {
                self.signature("a(sasb)");
                self.array(8, |out| {
                    out.str(exe);
                    out.strs(argv);
                    out.u32(0);
                });
            }
        }
    }

    fn strs(&mut self, texts: &[String]) {
        self.array(4, |out| texts.iter().for_each(|text| out.str(text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHOD: Method<'_> = Method {
        destination: "d.e",
        path: "/p",
        interface: "i.f",
        member: "M",
    };

    #[test]
    fn a_call_is_laid_out_as_the_specification_says() {
        let bytes = call(7, None, &METHOD, &Args::new().str("hi"));
        let mut want = b"l\x01\x02\x01\x07\0\0\0\x07\0\0\0\x37\0\0\0".to_vec();
        want.extend(b"\x01\x01o\0\x02\0\0\0/p\0\0\0\0\0\0");
        want.extend(b"\x02\x01s\0\x03\0\0\0i.f\0\0\0\0\0");
        want.extend(b"\x03\x01s\0\x01\0\0\0M\0\0\0\0\0\0\0");
        want.extend(b"\x08\x01g\0\x01s\0\0");
        want.extend(b"\x02\0\0\0hi\0");
        // The fields end where the signature does; the last byte is padding.
        assert_eq!(bytes, want);
        assert_eq!(whole(&bytes).unwrap(), Some(bytes.len()));
        assert_eq!(whole(&bytes[..15]).unwrap(), None);
        assert!(matches!(read(&bytes).unwrap(), Message::Other));
    }

    #[test]
    fn values_keep_their_alignment() {
        let args = Args::new().properties(&[
            ("P", Value::U32s(vec![1, 2])),
            ("T", Value::U64(5)),
            ("B", Value::Bool(true)),
        ]);
        let mut want = b"\x48\0\0\0\0\0\0\0".to_vec();
        want.extend(b"\x01\0\0\0P\0\x02au\0\0\0\x08\0\0\0\x01\0\0\0\x02\0\0\0");
        want.extend(b"\x01\0\0\0T\0\x01t\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0");
        want.extend(b"\x01\0\0\0B\0\x01b\0\0\0\0\x01\0\0\0");
        want[0] = (want.len() - 8) as u8;
        assert_eq!(args.body.bytes, want);
        assert_eq!(args.signature, "a(sv)");
    }

    /// An answer in big-endian, by hand.
    fn answer(kind: u8, fields: &[u8], body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![b'B', kind, 0, 1];
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(9u32.to_be_bytes());
        bytes.extend((fields.len() as u32).to_be_bytes());
        bytes.extend_from_slice(fields);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn answers_and_refusals_are_read() {
        let ok = answer(
            2,
            b"\x05\x01u\0\0\0\0\x07\x08\x01g\0\x01s\0",
            b"\0\0\0\x02ok\0",
        );
        let Message::Return { to: 7, mut body } = read(&ok).unwrap() else {
            panic!()
        };
        assert_eq!(body.str().unwrap(), "ok");
        assert!(body.str().is_err());

        let fields = b"\x05\x01u\0\0\0\0\x07\x04\x01s\0\0\0\0\x03a.b\0\0\0\0\0\x08\x01g\0\x01s\0";
        let no = answer(3, fields, b"\0\0\0\x03why\0");
        let Message::Error { to: 7, name, text } = read(&no).unwrap() else {
            panic!()
        };
        assert_eq!((name.as_str(), text.as_str()), ("a.b", "why"));
    }

    #[test]
    fn cut_and_broken_messages_are_errors_and_no_panics() {
        let ok = answer(
            2,
            b"\x05\x01u\0\0\0\0\x07\x08\x01g\0\x01s\0",
            b"\0\0\0\x02ok\0",
        );
        for len in 0..ok.len() {
            if let Ok(Message::Return { mut body, .. }) = read(&ok[..len]) {
                assert!(body.str().is_err());
            }
        }
        for at in 0..ok.len() {
            let mut bad = ok.clone();
            bad[at] = 0xff;
            if let Ok(Message::Return { mut body, .. }) = read(&bad) {
                drop(body.str());
            }
            drop(whole(&bad));
        }
    }
}
