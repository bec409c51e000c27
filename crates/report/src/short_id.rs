//! The short form of a link's id: its first four digits, or more if another link or a server's name begins like this.

use mainstay_protocol::ids::LinkId;

/// Digits of a short id, at least.
const LEAST: usize = 4;

/// The shortest form of this id that `stop` and the other commands take for this link alone. A name counts before an id.
pub fn short(id: LinkId, all: &[LinkId], names: &[&str]) -> String {
    let text = id.to_string();
    let clear = |digits: &&str| {
        let same = |other: &LinkId| *other != id && other.to_string().starts_with(digits);
        !all.iter().any(same) && !names.contains(digits)
    };
    let mut forms = (LEAST..text.len()).filter_map(|digits| text.get(..digits));
    forms.find(clear).unwrap_or(&text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_id_has_four_digits_unless_it_is_ambiguous() {
        let all = [0x2fb4_ce64, 0xcc98_0000, 0xcc98_1000, 0xbeef_0000].map(LinkId);
        let names = ["files", "beef"];
        let short = |id: LinkId| short(id, &all, &names);
        assert_eq!(all.map(short), ["2fb4", "cc980", "cc981", "beef0"]);
    }

    #[test]
    fn an_id_that_no_prefix_tells_apart_is_shown_whole() {
        let all = [LinkId(1), LinkId(2)];
        assert_eq!(short(LinkId(1), &all, &[]), "00000001");
    }
}
