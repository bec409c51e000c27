//! SHA-256, as FIPS 180-4 has it.
//!
//! The name of a record is a digest of credentials among other things, and names get about: into listings, backups and
//! reports. So it must not be possible to compute back, which rules out FNV and (its key would lie beside it) `SipHash`;
//! it must be the same in every build, which rules out the standard library's hashers. The same holds for the
//! seal of a debt. This is all that is hashed here, a few KiB for each start, so sixty lines with the standard's own
//! examples as tests do what a crate with eight others behind it would do.

/// A digest in the making.
#[derive(Clone)]
pub struct Sha256 {
    state: [u32; 8],
    block: [u8; 64],
    filled: usize,
    length: u64,
}

impl Sha256 {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self {
            state: [
                0x6a09_e667,
                0xbb67_ae85,
                0x3c6e_f372,
                0xa54f_f53a,
                0x510e_527f,
                0x9b05_688c,
                0x1f83_d9ab,
                0x5be0_cd19,
            ],
            block: [0; 64],
            filled: 0,
            length: 0,
        }
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.block[self.filled] = byte;
            self.filled += 1;
            if self.filled == self.block.len() {
                self.compress();
                self.filled = 0;
            }
        }
        self.length = self.length.wrapping_add(bytes.len() as u64);
    }

    /// The digest, in halves.
    pub fn finish(mut self) -> (u128, u128) {
        let bits = self.length.wrapping_mul(8);
        self.add(&[0x80]);
        while self.filled != 56 {
            self.add(&[0]);
        }
        self.add(&bits.to_be_bytes());
        let half = |words: &[u32]| {
            words
                .iter()
                .fold(0, |half, &word| half << 32 | u128::from(word))
        };
        let (first, second) = self.state.split_at(4);
        (half(first), half(second))
    }

    fn compress(&mut self) {
        let mut words = [0u32; 64];
        for (word, bytes) in words.iter_mut().zip(self.block.chunks_exact(4)) {
            *word = bytes
                .iter()
                .fold(0, |word, &byte| word << 8 | u32::from(byte));
        }
        for i in 16..64 {
            let (near, far) = (words[i - 2], words[i - 15]);
            let near = near.rotate_right(17) ^ near.rotate_right(19) ^ near >> 10;
            let far = far.rotate_right(7) ^ far.rotate_right(18) ^ far >> 3;
            words[i] = near
                .wrapping_add(words[i - 7])
                .wrapping_add(far)
                .wrapping_add(words[i - 16]);
        }
        let mut s = self.state;
        for (word, round) in words.iter().zip(ROUNDS) {
            let choice = (s[4] & s[5]) ^ (!s[4] & s[6]);
            let majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
            let low = s[4].rotate_right(6) ^ s[4].rotate_right(11) ^ s[4].rotate_right(25);
            let high = s[0].rotate_right(2) ^ s[0].rotate_right(13) ^ s[0].rotate_right(22);
            let first = s[7]
                .wrapping_add(low)
                .wrapping_add(choice)
                .wrapping_add(round)
                .wrapping_add(*word);
            let second = high.wrapping_add(majority);
            s = [
                first.wrapping_add(second),
                s[0],
                s[1],
                s[2],
                s[3].wrapping_add(first),
                s[4],
                s[5],
                s[6],
            ];
        }
        for (sum, word) in self.state.iter_mut().zip(s) {
            *sum = sum.wrapping_add(word);
        }
    }
}

#[rustfmt::skip]
const ROUNDS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        let mut sha = Sha256::new();
        sha.add(bytes);
        let (first, second) = sha.finish();
        format!("{first:032x}{second:032x}")
    }

    #[test]
    fn the_examples_of_the_standard() {
        for (text, expected) in [
            (
                "",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            (
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            assert_eq!(hex(text.as_bytes()), expected, "{text}");
        }
        let million = "a".repeat(1_000_000);
        assert_eq!(
            hex(million.as_bytes()),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
    }
}
