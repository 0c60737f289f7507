//! `scalerl history`: a library of finished runs that forecasts can learn from.
//!
//! One readable file, in the user's data folder or wherever `--file` says; `--history` of the
//! forecasting commands takes it. Entries outlive the folders they were made from.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use scalerl_board::number::short;
use scalerl_curve::{HistoryEntry, Provenance};
use scalerl_journal::{Added, JournalError, Library};

use crate::failure::BadInput;
use crate::forecast::history;
use crate::forecast::options::{ProvenanceOptions, ReadingOptions};
use crate::forecast::output::{self, say};
use scalerl_report::table;

/// Options of `scalerl history`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
    /// The library; by default history.jsonl in the user's data folder
    /// ($XDG_DATA_HOME/scalerl, else ~/.local/share/scalerl).
    #[arg(long, value_name = "FILE", global = true)]
    file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Summarise finished runs and keep them.
    Add(AddArgs),
    /// Say which runs are kept.
    List {
        /// Machine-readable output.
        #[arg(long)]
        json: bool,
    },
    /// Forget runs.
    Remove {
        /// Their names.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// Run folders, studies or logs of runs that are over.
    #[arg(required = true, value_name = "RUN|FILE|FOLDER")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    reading: ReadingOptions,
    #[command(flatten)]
    provenance: ProvenanceOptions,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let library = Library::new(match &args.file {
        Some(file) => file.clone(),
        None => usual_file()?,
    });
    match &args.act {
        Act::Add(add) => added(&library, add),
        Act::List { json } => list(&library, *json, out),
        Act::Remove { names } => removed(&library, names),
    }
}

/// The library in the user's data folder.
pub(crate) fn usual_file() -> Result<PathBuf, BadInput> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or(absolute("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("scalerl/history.jsonl")).ok_or_else(|| {
        BadInput::new("neither XDG_DATA_HOME nor HOME says where data are kept")
            .hint("name the library with --file")
    })
}

fn bad(error: &JournalError) -> BadInput {
    BadInput::new(error).hint(error.hint())
}

fn added(library: &Library, args: &AddArgs) -> Result<()> {
    let mut entries = Vec::new();
    for path in &args.paths {
        let range = args.reading.range.unwrap_or_default();
        let found = history::entries_of(path, &args.reading.request(), range, &say)?;
        if found.is_empty() {
            let message = format!("{}: no finished run in it", path.display());
            let hint = "give runs that have ended with 8 evaluations or more";
            return Err(BadInput::new(message).hint(hint).into());
        }
        entries.extend(found);
    }
    let stated = args.provenance.provenance();
    let entries: Vec<HistoryEntry> =
        entries.into_iter().map(|entry| with_stated(entry, &stated)).collect();
    let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    let outcomes = library.add(entries).map_err(|error| bad(&error))?;
    for (name, outcome) in names.iter().zip(&outcomes) {
        say(&match outcome {
            Added::New => format!("added {name}"),
            Added::Known => format!("{name} is there already"),
            Added::NameTaken => format!(
                "left out {name}: another run of that name is there; remove it first \
                 (scalerl history remove {name})"
            ),
        });
    }
    say(&format!("{}", library.path().display()));
    Ok(())
}

/// What a run says of itself wins over what the user says of all of them.
fn with_stated(entry: HistoryEntry, stated: &Provenance) -> HistoryEntry {
    let own = entry.provenance.clone();
    let either = |own: Option<String>, stated: &Option<String>| own.or_else(|| stated.clone());
    entry.with_provenance(Provenance {
        model: either(own.model, &stated.model),
        evaluation: either(own.evaluation, &stated.evaluation),
    })
}

fn list(library: &Library, is_json: bool, out: &mut dyn Write) -> Result<()> {
    let entries = library.entries().map_err(|error| bad(&error))?;
    if is_json {
        return output::json(out, &entries);
    }
    if entries.is_empty() {
        writeln!(out, "{}: no runs yet; scalerl history add RUN", library.path().display())?;
        return Ok(());
    }
    let heading = ["run", "points", "compute", "ceiling", "model", "evaluation"];
    let mut rows = vec![table::row(heading)];
    rows.extend(entries.iter().map(|entry| {
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
        vec![
            entry.name.clone(),
            entry.points.to_string(),
            short(entry.last_compute.0),
            format!("{:.3} ± {:.3}", entry.ceiling, entry.ceiling_sd),
            known(&entry.provenance.model),
            known(&entry.provenance.evaluation),
        ]
    }));
    table::write(out, &rows)?;
    Ok(())
}

fn removed(library: &Library, names: &[String]) -> Result<()> {
    let found = library.remove(names).map_err(|error| bad(&error))?;
    let missing: Vec<&str> =
        names.iter().zip(&found).filter(|(_, found)| !**found).map(|(n, _)| n.as_str()).collect();
    for (name, _) in names.iter().zip(&found).filter(|(_, found)| **found) {
        say(&format!("removed {name}"));
    }
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!("{}: no run {}", library.path().display(), missing.join(", "));
    Err(BadInput::new(message).hint("scalerl history list says which there are").into())
}
