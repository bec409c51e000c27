//! Which requests are allowed at all: checks of Host and Origin against DNS rebinding, of the token where other machines can
//! connect, and without a token of the local user at the other end.

use alloc::string::String;
use alloc::vec::Vec;

/// The rules that a request has to pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRules {
    /// Names beside the loopback ones that `Host` may have, in lower case.
    pub hosts: Vec<String>,
    /// Whether any `Host` will do: we listen to the network, behind a token.
    pub any_host: bool,
    /// Origins beside our own, in lower case, as `scheme://host[:port]`.
    pub origins: Vec<String>,
    /// The token, if one is asked for.
    pub token: Option<Vec<u8>>,
    /// Local users that may connect without a token.
    pub users: Vec<u32>,
    /// Whether every local user may connect, also one that cannot be found out.
    pub any_user: bool,
}

/// Why a request is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There is no `Host`, or it is no host.
    NoHost,
    /// It names another host than us.
    Host,
    /// The page that asks is not from here.
    Origin,
    /// There is no token, or another one.
    Token,
}

impl AccessRules {
    /// Whether a connection of this local user is allowed. With a token the user does not matter: the token is checked instead.
    pub fn admits(&self, user: Option<u32>) -> bool {
        let known = user.is_some_and(|user| self.users.contains(&user));
        self.token.is_some() || self.any_user || known
    }

    /// Checks the headers Host, Origin and Authorization.
    pub fn judge(
        &self,
        host: Option<&str>,
        origin: Option<&str>,
        authorization: Option<&[u8]>,
    ) -> Result<(), Denied> {
        let called = host.and_then(Authority::read).ok_or(Denied::NoHost)?;
        let named = is_loopback(&called.host) || self.hosts.contains(&called.host);
        if !(self.any_host || named) {
            return Err(Denied::Host);
        }
        // A name that is neither ours nor allowed may be any site's, which a page of that site calls us by.
        let own = (named || is_address(&called.host)).then_some(&called);
        if let Some(origin) = origin
            && !self.knows_origin(origin, own)
        {
            return Err(Denied::Origin);
        }
        match &self.token {
            Some(token) if !bears(authorization, token) => Err(Denied::Token),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a page of this origin may ask: it is allowed, or it came from the very address that is called now. A page from
    /// another port of this machine is another program's.
    fn knows_origin(&self, origin: &str, own: Option<&Authority>) -> bool {
        let origin = origin.trim().to_ascii_lowercase();
        if self.origins.contains(&origin) {
            return true;
        }
        let Some((scheme, authority)) = origin.split_once("://") else {
            return false;
        };
        // TLS may end before us; the port that is left out is then the proxy's.
        let usual = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return false,
        };
        let from = Authority::read(authority);
        from.zip(own).is_some_and(|(from, own)| {
            from.host == own.host && from.port.unwrap_or(usual) == own.port.unwrap_or(usual)
        })
    }
}

/// `host[:port]`; the host in lower case, without brackets.
#[derive(Debug, PartialEq, Eq)]
struct Authority {
    host: String,
    port: Option<u16>,
}

impl Authority {
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (inside, after) = rest.split_once(']')?;
                let port = after.strip_prefix(':');
                (inside, port.or(after.is_empty().then_some(""))?)
            }
            None => text.split_once(':').unwrap_or((text, "")),
        };
        let port = match port {
            "" => None,
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse().ok()?)
            }
            _ => return None,
        };
        let plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':');
        let sound = !host.is_empty() && host.bytes().all(plain);
        sound.then(|| Self {
            host: host.trim_end_matches('.').to_ascii_lowercase(),
            port,
        })
    }
}

/// Whether a host is an address, which no site can take for its name.
fn is_address(host: &str) -> bool {
    host.parse::<core::net::IpAddr>().is_ok()
}

/// Whether a name in lower case means this machine alone.
pub fn is_loopback(host: &str) -> bool {
    let four = |host: &str| {
        let mut parts = 0;
        let octets = host.split('.').all(|part| {
            parts += 1;
            part.len() <= 3 && part.parse::<u8>().is_ok()
        });
        octets && parts == 4 && host.starts_with("127.")
    };
    host == "localhost" || host.ends_with(".localhost") || host == "::1" || four(host)
}

/// Whether the header bears this token. The time it takes tells nothing but the length of what was offered.
fn bears(authorization: Option<&[u8]>, token: &[u8]) -> bool {
    let Some((scheme, offered)) = authorization.and_then(|value| value.split_at_checked(7)) else {
        return false;
    };
    scheme.eq_ignore_ascii_case(b"bearer ") && same(offered.trim_ascii(), token)
}

fn same(offered: &[u8], token: &[u8]) -> bool {
    if token.is_empty() {
        return false;
    }
    let mut differs = u8::from(offered.len() != token.len());
    for (place, byte) in offered.iter().enumerate() {
        differs |= byte ^ token[place % token.len()];
    }
    core::hint::black_box(differs) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn loopback_names_come_in_and_rebound_ones_do_not() {
        let rules = AccessRules {
            hosts: vec!["mcp.example".into()],
            origins: vec!["https://app.example".into()],
            ..AccessRules::default()
        };
        for host in [
            "localhost",
            "localhost:80",
            "LOCALHOST.",
            "127.0.0.1:9",
            "127.1.2.3",
            "[::1]:3",
            "[::1]",
            "a.localhost",
            "mcp.example:443",
        ] {
            assert_eq!(rules.judge(Some(host), None, None), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evillocalhost",
            "evil-localhost:80",
            "a.evillocalhost",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "127.0.0.256",
            "127.0.0.0.1",
        ] {
            assert_eq!(
                rules.judge(Some(host), None, None),
                Err(Denied::Host),
                "{host}"
            );
        }
        for host in [
            "",
            ":80",
            "[::1",
            "a b",
            "localhost:x",
            "user@localhost",
            "[::1]x",
        ] {
            assert_eq!(
                rules.judge(Some(host), None, None),
                Err(Denied::NoHost),
                "{host}"
            );
        }
        assert_eq!(rules.judge(None, None, None), Err(Denied::NoHost));
    }

    #[test]
    fn a_user_is_known_and_allowed_or_bears_the_token() {
        let shut = AccessRules::default();
        assert!(!shut.admits(Some(0)) && !shut.admits(None));
        let ours = AccessRules {
            users: vec![1000, 0],
            ..AccessRules::default()
        };
        let admitted = |rules: &AccessRules| {
            [Some(0), Some(1000), Some(1001), Some(65_534), None].map(|user| rules.admits(user))
        };
        assert_eq!(admitted(&ours), [true, true, false, false, false]);
        let open = AccessRules {
            any_user: true,
            ..ours.clone()
        };
        assert_eq!(admitted(&open), [true; 5]);
        let guarded = AccessRules {
            token: Some(b"s3cret".to_vec()),
            ..ours
        };
        assert_eq!(admitted(&guarded), [true; 5], "the token is asked for");
    }

    #[test]
    fn an_origin_is_the_address_that_is_called_or_allowed() {
        let rules = AccessRules {
            hosts: vec!["mcp.example".into()],
            origins: vec!["https://app.example".into()],
            ..AccessRules::default()
        };
        for (host, origin) in [
            ("localhost:8808", "http://localhost:8808"),
            ("LOCALHOST:8808", "http://Localhost:8808"),
            ("127.0.0.1:8808", "http://127.0.0.1:8808"),
            ("[::1]:8808", "http://[::1]:8808"),
            ("localhost", "http://localhost"),
            ("localhost:80", "http://localhost"),
            ("localhost", "http://localhost:80"),
            ("mcp.example", "https://mcp.example"),
            ("localhost:8808", "https://App.example"),
        ] {
            assert_eq!(
                rules.judge(Some(host), Some(origin), None),
                Ok(()),
                "{host} {origin}"
            );
        }
        for (host, origin) in [
            ("localhost:8808", "http://localhost:3000"),
            ("localhost:8808", "http://localhost"),
            ("localhost:8808", "http://127.0.0.1:8808"),
            ("127.0.0.1:8808", "http://127.0.0.2:8808"),
            ("localhost:8808", "http://a.localhost:8808"),
            ("localhost:8808", "http://evillocalhost:8808"),
            ("mcp.example", "http://mcp.example:8808"),
            ("localhost:8808", "null"),
            ("localhost:8808", ""),
            ("localhost:8808", "http://evil.example"),
            ("localhost:8808", "https://app.example.evil"),
            ("localhost:8808", "file://localhost:8808"),
            ("localhost:8808", "http://localhost:8808@evil.example"),
            ("localhost:8808", "http://localhost:98808"),
        ] {
            let judged = rules.judge(Some(host), Some(origin), None);
            assert_eq!(judged, Err(Denied::Origin), "{host} {origin}");
        }
    }

    /// Where every name is taken for ours, a site whose name was made to mean our address is still another site.
    #[test]
    fn a_rebound_name_is_no_origin_of_ours() {
        let rules = AccessRules {
            any_host: true,
            ..AccessRules::default()
        };
        let judge = |host, origin| rules.judge(Some(host), Some(origin), None);
        assert_eq!(
            judge("evil.example:8808", "http://evil.example:8808"),
            Err(Denied::Origin)
        );
        assert_eq!(judge("10.0.0.1:8808", "http://10.0.0.1:8808"), Ok(()));
    }

    #[test]
    fn the_token_is_the_whole_token() {
        let rules = AccessRules {
            any_host: true,
            token: Some(b"s3cret".to_vec()),
            ..AccessRules::default()
        };
        let judge =
            |value: Option<&str>| rules.judge(Some("any.example"), None, value.map(str::as_bytes));
        assert_eq!(judge(Some("Bearer s3cret")), Ok(()));
        assert_eq!(judge(Some("bearer   s3cret ")), Ok(()));
        for wrong in [
            "Bearer s3cre",
            "Bearer s3crets3cret",
            "Bearer ",
            "Bearer",
            "Basic s3cret",
            "s3cret",
            "",
        ] {
            assert_eq!(judge(Some(wrong)), Err(Denied::Token), "{wrong}");
        }
        assert_eq!(judge(None), Err(Denied::Token));
        let empty = AccessRules {
            token: Some(Vec::new()),
            ..AccessRules::default()
        };
        assert_eq!(
            empty.judge(Some("localhost"), None, Some(b"Bearer ")),
            Err(Denied::Token)
        );
    }
}
