//! Whose servers are watched.

use mainstay_core::ids::Identity;

use crate::profile::{self, Profile, Signature};

/// Whose servers.
#[derive(Clone, Debug)]
pub enum Whom {
    /// Those of this process.
    Process(Identity),
    /// Those of every process that is this client.
    Client(Client),
    /// Those of anybody, as long as they belong to our user.
    All,
}

impl Whom {
    /// What is said if none of their servers is there.
    pub fn nobody(&self) -> String {
        match self {
            Self::Process(client) => format!("pid {} has no stdio server now\n", client.pid),
            Self::Client(client) => format!(
                "no {} of yours has a stdio server now; `mainstay watch --all --once` shows everybody's\n",
                client.name
            ),
            Self::All => "no process of yours is a stdio server now\n".into(),
        }
    }
}

/// A client by its name.
#[derive(Clone, Debug)]
pub struct Client {
    /// What people call it.
    pub name: String,
    profile: Option<&'static Profile>,
}

impl Client {
    /// The client of this name; a name that no profile has is that of a program.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            profile: profile::named(name),
        }
    }

    /// Whether a process is it.
    pub fn fits(&self, pid: i32, comm: &str) -> bool {
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
    fn clients_by_profile_and_others_by_program_or_script() {
        for (client, comm, line, fits) in [
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
                fits,
                "{client}: {line}"
            );
        }
    }
}
