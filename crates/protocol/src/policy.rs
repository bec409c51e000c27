//! What the user wants of a link beyond numbers.

use core::str::FromStr;

/// Choices for one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// What is sent again to the next generation.
    pub retry: Retry,
    /// The server is not started before it is needed.
    pub lazy: bool,
    /// Changed lists are announced even if the server did not say that it would.
    pub advertise: bool,
}

/// Which requests that were in flight at a death are sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// None.
    Never,
    /// Those that only read, by the protocol's own rules.
    #[default]
    Safe,
    /// Also calls of tools that say of themselves that they only read or may be repeated.
    Annotated,
}

impl Retry {
    /// All of them, for help texts.
    pub const ALL: [Self; 3] = [Self::Never, Self::Safe, Self::Annotated];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Safe => "safe",
            Self::Annotated => "annotated",
        }
    }
}

/// A word that is no [`Retry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRetry;

impl core::fmt::Display for UnknownRetry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("not a way to retry: say never, safe or annotated")
    }
}

impl core::error::Error for UnknownRetry {}

impl FromStr for Retry {
    type Err = UnknownRetry;

    fn from_str(word: &str) -> Result<Self, UnknownRetry> {
        let known = Self::ALL.into_iter().find(|retry| retry.word() == word);
        known.ok_or(UnknownRetry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive() {
        for retry in Retry::ALL {
            assert_eq!(retry.word().parse(), Ok(retry));
        }
        assert_eq!("always".parse::<Retry>(), Err(UnknownRetry));
    }
}
