//! `mainstay guardian`, started by the systemd user manager only.

use mainstay_os::tier::guardian;

use crate::exit::Exit;
use crate::report::Report;

/// Guards the trees whose owners were all killed, until there is none.
pub fn guardian() -> Result<Exit, Report> {
    guardian::run()
        .map(|()| Exit::Ok)
        .map_err(|problem| Report::new(Exit::Failed, "the guardian cannot guard").because(problem))
}
