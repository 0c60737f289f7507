//! `scalerl predictions`: forecasts made from the first part of each run, against what came.
//!
//! Reads run folders, study folders, and folders with the small files of studies (docs/results),
//! adds their rows to the ledger beside the page, and writes the page from the whole ledger.
//!
//! Not here: what the page says (`page.rs`).

mod page;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use scalerl_board::{Size, save};
use scalerl_study::ledger;
use scalerl_study::{export, record};

use crate::failure::BadInput;
use crate::forecast::output::say;
use crate::forecast::table;
use crate::study::bad_input;

/// Options of `scalerl predictions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run folders, study folders, or folders with such inside.
    #[arg(value_name = "RUN_OR_STUDY", required = true)]
    paths: Vec<PathBuf>,
    /// The page; its rows are kept beside it as .csv, its figure as .png.
    #[arg(long, value_name = "OUT.md", default_value = "docs/results/predictions.md")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    if args.out.extension().is_none_or(|ending| ending != "md") {
        let message = format!("--out {}: the page is Markdown", args.out.display());
        return Err(BadInput::new(message).hint("end its name in .md").into());
    }
    let mut records = Vec::new();
    for path in &args.paths {
        records.extend(record::find(path).map_err(|error| bad_input(&error))?);
    }
    let (rows, left_out) = ledger::rows(&records);
    for one in &left_out {
        say(&format!("left out {}: {}", one.run, one.reason));
    }
    let csv = args.out.with_extension("csv");
    let known = ledger::read(&csv).map_err(|error| bad_input(&error))?;
    let rows = ledger::merge(known, rows);
    if rows.is_empty() {
        let hint = "give folders of runs that have ended; docs/studies.md says what is read";
        return Err(BadInput::new("no finished run among these").hint(hint).into());
    }
    ledger::write(&csv, &rows)?;
    let figure = args.out.with_extension("png");
    save(&page::agreement(&rows), Size::WIDE, &figure)?;
    let image = figure.file_name().unwrap_or_default().to_string_lossy().into_owned();
    export::replace(&args.out, page::page(&rows, &image).as_bytes())?;
    table::write(out, &page::methods(&rows))?;
    writeln!(out)?;
    for line in page::headlines(&rows) {
        writeln!(out, "  {line}")?;
    }
    say(&format!("wrote {}", args.out.display()));
    Ok(())
}
