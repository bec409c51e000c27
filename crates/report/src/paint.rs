//! Colours: only where they are wanted, and never the only carrier of a meaning.

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

/// When colours are used: the option `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourChoice {
    /// On a terminal, unless a variable says otherwise.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What [`ColourChoice::Auto`] depends on.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Stdout is a terminal.
    pub terminal: bool,
    /// The variable `NO_COLOR`: no colours if it is not empty.
    pub no_color: Option<String>,
    /// The variable `CLICOLOR_FORCE`: colours also into a pipe, if it is neither empty nor 0.
    pub clicolor_force: Option<String>,
    /// The variable `TERM`: a terminal called `dumb` has no colours.
    pub term: Option<String>,
}

impl ColourChoice {
    /// Whether colours are used. The option counts before the variables, and `NO_COLOR` before `CLICOLOR_FORCE`.
    pub fn decide(self, around: &Surroundings) -> bool {
        let set = |value: &Option<String>, off: &[&str]| {
            let value = value.as_deref();
            value.is_some_and(|value| !value.is_empty() && !off.contains(&value))
        };
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if set(&around.no_color, &[]) => false,
            Self::Auto if set(&around.clicolor_force, &["0"]) => true,
            Self::Auto => around.terminal && around.term.as_deref() != Some("dumb"),
        }
    }
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
    fn the_option_counts_before_the_variables() {
        let around = |terminal, no_color: &str, force: &str, term: &str| Surroundings {
            terminal,
            no_color: Some(no_color.into()),
            clicolor_force: Some(force.into()),
            term: Some(term.into()),
        };
        for (terminal, no_color, force, term, coloured) in [
            (true, "", "", "xterm", true),
            (false, "", "", "xterm", false),
            (true, "1", "", "xterm", false),
            (true, "", "", "dumb", false),
            (false, "", "1", "xterm", true),
            (false, "", "0", "xterm", false),
            (true, "", "0", "xterm", true),
            (false, "", "1", "dumb", true),
            (true, "1", "1", "xterm", false),
        ] {
            let around = around(terminal, no_color, force, term);
            assert_eq!(ColourChoice::Auto.decide(&around), coloured, "{around:?}");
            assert!(ColourChoice::Always.decide(&around));
            assert!(!ColourChoice::Never.decide(&around));
        }
        assert!(!ColourChoice::Auto.decide(&Surroundings::default()));
    }

    #[test]
    fn without_colour_the_text_is_untouched() {
        assert_eq!(Tone::Bad.paint("dead", false), "dead");
        assert_eq!(Tone::Bad.paint("dead", true), "\u{1b}[31mdead\u{1b}[0m");
        assert_eq!(Tone::Plain.paint("dead", true), "dead");
    }
}
