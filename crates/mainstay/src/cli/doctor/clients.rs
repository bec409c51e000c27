//! How many servers of each client go through mainstay. It reads the config files once and plans nothing, so it costs milliseconds.

use std::collections::BTreeMap;

use mainstay_clients::explain::{Explain as _, Explanation};
use mainstay_clients::plan::{self, Survey};
use mainstay_clients::profile::Client;
use mainstay_clients::refusal::Refusal;
use mainstay_clients::write::{self, WriteError};
use mainstay_report::measure::count;
use mainstay_store::paths::Paths;

use super::{Finding, Status};
use crate::cli::adopt::{Here, clients, word};

/// One finding for each client that has servers here.
pub fn adopted(paths: &Paths) -> Vec<Finding> {
    let (Ok(here), Ok(clients)) = (Here::find(paths, None), clients(&[])) else {
        return Vec::new();
    };
    let mut counted: BTreeMap<&'static str, Counted> = BTreeMap::new();
    let mut unreadable = Vec::new();
    for found in here.find_files(&clients) {
        if found.file.never.is_some() {
            continue;
        }
        let read = write::read(&found.path);
        let survey = read.map_err(|error| unreadable_file(found.client, &error));
        let survey = survey.and_then(|bytes| {
            plan::survey(&bytes, found.client, found.file)
                .map_err(|refusal| refused(found.client, &here.show(&found.path), &refusal))
        });
        match survey {
            Ok(survey) => {
                let one = counted.entry(found.client.name).or_insert(Counted {
                    client: found.client,
                    sum: Survey::default(),
                    files: Vec::new(),
                });
                one.sum.servers += survey.servers;
                one.sum.through += survey.through;
                let (file, through) = (here.show(&found.path), survey.through);
                let told = format!("{file}: {through} of {}", count(survey.servers, "server"));
                one.files.extend((survey.servers > 0).then_some(told));
            }
            Err(finding) => unreadable.push(finding),
        }
    }
    let with_servers = counted.into_values().filter(|one| one.sum.servers > 0);
    with_servers.map(finding).chain(unreadable).collect()
}

/// A file that the system does not let us read; the client may be allowed to.
fn unreadable_file(client: &Client, error: &WriteError) -> Finding {
    with_adopt(client, format!("{}: {}", client.name, error.explain().what))
}

/// A file whose servers cannot be found. It is a problem if the client cannot find them either.
fn refused(client: &Client, file: &str, refusal: &Refusal) -> Finding {
    let Explanation { what, why, hint } = refusal.explain();
    let what = format!("{}: {file}: {what}", client.name);
    if refusal.is_broken() {
        return Finding::new("client", Status::Problem, what).hint(format!("{why}: {hint}"));
    }
    with_adopt(client, what)
}

fn with_adopt(client: &Client, what: String) -> Finding {
    let adopt = format!("mainstay adopt {}", word(client));
    Finding::new("client", Status::Note, what)
        .hint(format!(
            "its servers cannot be adopted: `{adopt}` says more"
        ))
        .command(adopt)
}

/// The servers of one client.
struct Counted {
    client: &'static Client,
    sum: Survey,
    /// One line for each of its files.
    files: Vec<String>,
}

fn finding(counted: Counted) -> Finding {
    let Counted { client, sum, files } = counted;
    let Survey { servers, through } = sum;
    let name = client.name;
    let goes = if servers == 1 { "goes" } else { "go" };
    let mut found = if through == servers {
        let servers = count(servers, "server");
        let what = format!("{name}: {servers} {goes} through mainstay");
        Finding::new("client", Status::Ok, what)
    } else {
        let adopt = format!("mainstay adopt {}", word(client));
        let servers = count(servers, "server");
        let what = format!("{name}: {through} of {servers} {goes} through mainstay");
        Finding::new("client", Status::Note, what)
            .hint(format!("`{adopt}`"))
            .command(adopt)
    };
    found.details = files;
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_clients::profile;

    #[test]
    fn a_client_with_bare_servers_gets_the_command_that_adopts_them() {
        let claude = profile::named("claude").unwrap();
        let counted = |servers, through| Counted {
            client: claude,
            sum: Survey { servers, through },
            files: Vec::new(),
        };
        let some = finding(counted(10, 3));
        assert_eq!(
            some.what,
            "Claude Code: 3 of 10 servers go through mainstay"
        );
        assert_eq!(some.hint.as_deref(), Some("`mainstay adopt claude`"));
        assert_eq!(some.command.as_deref(), Some("mainstay adopt claude"));
        let none = finding(counted(1, 0));
        assert_eq!(
            none.what,
            "Claude Code: 0 of 1 server goes through mainstay"
        );
        let all = finding(counted(1, 1));
        assert_eq!(
            (all.status, all.hint, all.command),
            (Status::Ok, None, None)
        );
        assert_eq!(all.what, "Claude Code: 1 server goes through mainstay");
    }
}
