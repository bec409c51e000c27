//! Which servers `mainstay watch` watches: those of one process, of one kind of client, or all of this user.

use mainstay_clients::behaviour::{self, Behaviour, Signature};
use mainstay_protocol::ids::Identity;

/// The clients whose servers are watched.
#[derive(Clone, Debug)]
pub enum Selection {
    /// One process.
    Process(Identity),
    /// Every process that is this client.
    Client(Client),
    /// Every process of this user.
    All,
}

impl Selection {
    /// Which servers these are.
    pub fn described(&self) -> String {
        match self {
            Self::Process(client) => format!("the servers of pid {}", client.pid),
            Self::Client(client) => format!("the servers of every {}", client.name),
            Self::All => "all your stdio servers".into(),
        }
    }

    /// The message for `--once` if no server was found.
    pub fn none_found(&self) -> String {
        match self {
            Self::Process(client) => format!("pid {} has no stdio server now\n", client.pid),
            Self::Client(client) => format!(
                "no {} of yours has a stdio server now; `mainstay watch --all --once` shows the servers of all clients\n",
                client.name
            ),
            Self::All => "no process of yours is a stdio server now\n".into(),
        }
    }
}

/// A client, recognised by its name.
#[derive(Clone, Debug)]
pub struct Client {
    /// The name as the user typed it.
    pub name: String,
    profile: Option<&'static Behaviour>,
}

impl Client {
    /// The client with this name. Without a profile of that name, it is the name of a program or script.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            profile: behaviour::named(name),
        }
    }

    /// Whether this process is the client.
    pub fn matches(&self, pid: i32, comm: &str) -> bool {
        self.is(&Signature::at(pid, comm))
    }

    fn is(&self, signature: &Signature) -> bool {
        match self.profile {
            Some(profile) => (profile.is)(signature),
            None => signature.is_called(&self.name) || signature.scripts(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_match_by_profile_or_by_program_or_script_name() {
        for (client, comm, line, matches) in [
            (
                "gemini",
                "node",
                "node --max-old-space-size=9 /usr/bin/gemini -p x",
                true,
            ),
            (
                "qwen",
                "node",
                "node --expose-gc /x/@qwen-code/qwen-code/cli.js",
                true,
            ),
            ("continue", "node", "node /usr/bin/cn chat", true),
            ("claude", "claude", "claude", true),
            ("claude", "node", "node /srv/server.js claude", false),
            ("gemini", "node", "node", false),
            ("my-host", "node", "node /srv/my-host.js", true),
            ("my-host", "my-host", "/opt/my-host", true),
            ("my-host", "bash", "bash my-host", false),
        ] {
            let signature = Signature {
                comm: comm.into(),
                exe: None,
                argv: line.split(' ').map(Into::into).collect(),
            };
            assert_eq!(
                Client::named(client).is(&signature),
                matches,
                "{client}: {line}"
            );
        }
    }
}
