//! Colours: only on a terminal, and never the only carrier of a meaning.

/// What a text is, not how it looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// A heading or a name.
    Strong,
    /// Beside the point.
    Faint,
    /// As it should be.
    Good,
    /// Worth a look.
    Warn,
    /// Not as it should be.
    Bad,
}

/// What begins and what ends a colour.
const BEGIN: &str = "\u{1b}[";
const END: &str = "\u{1b}[0m";
const TONES: [Tone; 5] = [Tone::Strong, Tone::Faint, Tone::Good, Tone::Warn, Tone::Bad];

/// How many bytes of this text are a colour of ours that begins or ends there.
pub(super) fn colour_code(text: &str) -> Option<usize> {
    if text.starts_with(END) {
        return Some(END.len());
    }
    let rest = text.strip_prefix(BEGIN)?;
    TONES.iter().find_map(|tone| {
        let after = rest.strip_prefix(tone.code())?.strip_prefix('m')?;
        Some(text.len() - after.len())
    })
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warn => "33",
            Self::Bad => "31",
        }
    }

    /// The text in this tone, if colours are wanted.
    pub fn paint(self, text: &str, colour: bool) -> String {
        if !colour || text.is_empty() || self == Self::Plain {
            return text.into();
        }
        format!("{BEGIN}{}m{text}{END}", self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_the_text_is_untouched() {
        assert_eq!(Tone::Bad.paint("dead", false), "dead");
        assert_eq!(Tone::Bad.paint("dead", true), "\u{1b}[31mdead\u{1b}[0m");
        assert_eq!(Tone::Plain.paint("dead", true), "dead");
    }
}
