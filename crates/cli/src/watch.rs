//! `scalerl watch`: the live page of runs, or the same on the whole terminal; and the page that
//! `scalerl train --watch` opens with a run.
//!
//! Not here: what is shown (`scalerl_watch`).

use std::io::Write;
#[cfg(feature = "train")]
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use scalerl_watch::{Server, ServerOptions, StartError, TerminalError};

use crate::failure::BadInput;
use crate::interrupt::Interrupt;

/// Where a key may be, so that it does not stand in the list of processes.
const KEY: &str = "SCALERL_API_KEY";
/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(50);
const ADDRESS: &str = "127.0.0.1:7070";

/// Options of `watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs, and folders of runs [default: the folder `runs`, or this one].
    #[arg(value_name = "RUN or FOLDER")]
    folders: Vec<PathBuf>,
    /// Where to listen; other than loopback needs a key.
    #[arg(long, value_name = "HOST:PORT", default_value = ADDRESS)]
    address: String,
    /// What browsers are asked for before they may read; without it the variable SCALERL_API_KEY.
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// On the whole terminal instead of a page.
    #[arg(long, conflicts_with_all = ["address", "api_key"])]
    terminal: bool,
}

/// Serves until it is asked to stop.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let folders = folders(&args.folders)?;
    if args.terminal {
        return scalerl_watch::show(&folders).map_err(|error| match error {
            TerminalError::NoTerminal => BadInput::new(error)
                .hint("scalerl status RUN prints how a run stands, to a file or a pipe too")
                .into(),
            other => other.into(),
        });
    }
    let interrupt = Interrupt::listen()?;
    let api_key = args.api_key.clone().or_else(|| std::env::var(KEY).ok());
    let options = ServerOptions { folders, address: args.address.clone(), api_key };
    let server = Server::start(&options).map_err(|error| refused(&error))?;
    say(&server, out)?;
    out.flush()?;
    while !interrupt.is_asked() {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// What to look at: what was named and is there.
fn folders(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if named.is_empty() {
        let runs = PathBuf::from("runs");
        return Ok(vec![if runs.is_dir() { runs } else { PathBuf::from(".") }]);
    }
    if let Some(missing) = named.iter().find(|folder| !folder.is_dir()) {
        let problem = format!("{} is no folder", missing.display());
        return Err(BadInput::new(problem).hint("name a run's folder, or a folder of runs").into());
    }
    Ok(named.to_vec())
}

fn say(server: &Server, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "page    {}", server.url())?;
    writeln!(out, "token   {}  (the stop button asks for it)", server.token())
}

fn refused(error: &StartError) -> BadInput {
    BadInput::new(error).hint(error.hint())
}

/// The page of a run that this process is about to train. Where its usual port is taken it has
/// another; a page that cannot be opened is said and does not keep a run from starting.
#[cfg(feature = "train")]
pub(crate) fn beside(run: &Path) -> Option<Server> {
    let start = |address: &str| {
        let address = address.to_owned();
        Server::start(&ServerOptions { folders: vec![run.to_owned()], address, api_key: None })
    };
    let server = match start(ADDRESS) {
        Err(StartError::Bind { .. }) => start("127.0.0.1:0"),
        started => started,
    };
    let mut out = std::io::stderr();
    // A closed terminal is no reason not to train.
    match server {
        Ok(server) => {
            let _ = say(&server, &mut out);
            Some(server)
        }
        Err(error) => {
            let _ = writeln!(out, "no page: {error}");
            None
        }
    }
}
