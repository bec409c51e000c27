//! Base64 with padding (RFC 4648), for the headers that need it.

use alloc::string::String;
use alloc::vec::Vec;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            if digit <= group.len() {
                let index = (bits >> (18 - 6 * digit)) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// Decodes text. Strict: the standard alphabet, padded, nothing left over.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let quads = text.len() / 4;
    for (place, quad) in text.chunks_exact(4).enumerate() {
        let padding = quad.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && place + 1 != quads) {
            return None;
        }
        let mut bits = 0u32;
        for byte in &quad[..4 - padding] {
            bits = bits << 6 | sextet(*byte)?;
        }
        bits <<= 6 * padding;
        let three = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
        let (whole, rest) = three.split_at(3 - padding);
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(whole);
    }
    Some(bytes)
}

fn sextet(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
        }
        assert_eq!(encode(&[0xff, 0xfe]), "//4=");
    }

    proptest! {
        #[test]
        fn what_is_decoded_was_encoded_that_way(bytes in proptest::collection::vec(any::<u8>(), 0..40), junk in "[A-Za-z0-9+/=!]{0,16}") {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
            // Junk is refused or decodes to something; it never panics.
            let _decoded = decode(junk.as_bytes());
        }
    }
}
