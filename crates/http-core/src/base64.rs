//! Base64 with padding (RFC 4648), for the headers that need it. The `base64` crate does it; this page is the choice of dialect.

use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Encodes bytes.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes text. Strict: the standard alphabet, padded, no bits left over.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_two_readers_could_read_differently_is_refused() {
        assert_eq!(encode(&[0xff, 0xfe]), "//4=");
        assert_eq!(decode(b"//4="), Some([0xff, 0xfe].into()));
        for text in ["//4", "//5=", "__4=", "//4=\n", "//4==", "/ /4=", "="] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
