//! `scalerl predictions`: forecasts made from the first part of each run, against what came.
//!
//! Reads run folders, study folders, and folders with the small files of studies (docs/results) and
//! prints how good the forecasts were. With `--out` their rows are added to the ledger beside the
//! page, and the page is written from the whole ledger.
//!
//! Not here: what the page says (`scalerl-report`).

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use scalerl_board::{Size, save};
use scalerl_report::predictions as page;
use scalerl_study::export;
use scalerl_study::ledger::{self, Row};

use crate::failure::BadInput;
use crate::forecast::output::say;
use crate::study::{bad_input, records};
use scalerl_report::table;

/// Options of `scalerl predictions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run folders, study folders, or folders with such inside.
    #[arg(value_name = "RUN_OR_STUDY", required = true)]
    paths: Vec<PathBuf>,
    /// Write a page; its rows are kept beside it as .csv and added to those of before, its figure is
    /// drawn as .png. Without it nothing is written.
    #[arg(long, value_name = "OUT.md")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    if let Some(page) = args.out.as_ref().filter(|out| out.extension().is_none_or(|e| e != "md")) {
        let message = format!("--out {}: the page is Markdown", page.display());
        return Err(BadInput::new(message).hint("end its name in .md").into());
    }
    let records = records(&args.paths)?;
    let (mut rows, left_out) = ledger::rows(&records);
    for one in &left_out {
        say(&format!("left out {}: {}", one.run, one.reason));
    }
    if let Some(page) = &args.out {
        let known = ledger::read(&page.with_extension("csv")).map_err(|error| bad_input(&error))?;
        rows = ledger::merge(known, rows);
    }
    if rows.is_empty() {
        let hint = "give folders of runs that have ended; docs/studies.md says what is read";
        return Err(BadInput::new("no finished run among these").hint(hint).into());
    }
    table::write(out, &page::methods(&rows))?;
    writeln!(out)?;
    for line in page::headlines(&rows) {
        writeln!(out, "  {line}")?;
    }
    args.out.as_ref().map_or(Ok(()), |page| write_page(page, &rows))
}

fn write_page(path: &Path, rows: &[Row]) -> Result<()> {
    ledger::write(&path.with_extension("csv"), rows)?;
    let figure = path.with_extension("png");
    save(&page::agreement(rows), Size::WIDE, &figure)?;
    let image = figure.file_name().unwrap_or_default().to_string_lossy().into_owned();
    export::replace(path, page::page(rows, &image).as_bytes())?;
    say(&format!("wrote {}", path.display()));
    Ok(())
}
