//! `scalerl grade`: compares predicted with gold answers, row by row.
//!
//! Rows are read and judged by `scalerl_task::grade`; here they are printed. With `--json` one
//! line a row, then one line with the summary.

use std::io::{BufReader, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use scalerl_task::grade::{GradeFile, GradeRow, GradeSummary, GradedRow, grade_row};
use scalerl_task::second_opinion::{SecondOpinion, SecondOpinionOptions};
use serde_json::json;

use crate::failure::BadInput;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A JSONL file with `gold` and `pred` in each row.
    file: PathBuf,
    /// One JSON line per row, then one with the summary.
    #[arg(long)]
    json: bool,
    /// Who is asked where the native grader cannot tell.
    #[arg(long, value_name = "GRADER")]
    second_opinion: Option<SecondGrader>,
    /// The Python interpreter that has the second opinion installed.
    #[arg(long, default_value = "python3", requires = "second_opinion")]
    python: String,
    /// Seconds for one second opinion.
    #[arg(long, default_value_t = 15.0, requires = "second_opinion")]
    timeout_s: f64,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum SecondGrader {
    /// The Python package math-verify.
    MathVerify,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let name = args.file.display();
    let input = scalerl_files::open_input(&args.file)
        .map_err(|error| BadInput::new(format!("{name}: {error}")).hint("give a JSONL file"))?;
    let file = GradeFile::read(BufReader::new(input))
        .map_err(|error| BadInput::new(format!("{name}: {error}")).hint(error.hint()))?;
    let second = args.second_opinion.map(|_| start_second_opinion(args)).transpose()?;
    let mut summary = GradeSummary {
        ignored_kwargs: file.ignored.iter().cloned().collect(),
        ..GradeSummary::default()
    };
    for (index, row) in file.rows.iter().enumerate() {
        let graded = grade_row(index, row, second.as_ref());
        summary.add(row, &graded);
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&graded)?)?;
        } else {
            print_if_telling(row, &graded, out)?;
        }
    }
    if args.json {
        writeln!(out, "{}", json!({ "summary": summary }))?;
        return Ok(());
    }
    print_summary(&summary, out)
}

fn start_second_opinion(args: &Args) -> Result<SecondOpinion> {
    let options = SecondOpinionOptions {
        python: args.python.clone(),
        processes: 1,
        timeout_s: args.timeout_s,
    };
    SecondOpinion::try_new(options)
        .map_err(|error| BadInput::new(&error).hint(error.hint()))
        .context("--second-opinion math-verify")
}

/// Rows that need a reader: no verdict, or not the expected one.
fn print_if_telling(row: &GradeRow, graded: &GradedRow, out: &mut impl Write) -> Result<()> {
    let wanted = row.expected.map(|expected| if expected { "equal" } else { "different" });
    let is_as_expected = wanted.is_none_or(|wanted| wanted == graded.verdict);
    if is_as_expected && graded.reason.is_none() {
        return Ok(());
    }
    write!(out, "row {}: {}", graded.row, graded.verdict)?;
    if let Some(wanted) = wanted.filter(|_| !is_as_expected) {
        write!(out, ", expected {wanted}")?;
    }
    if let Some(reason) = &graded.reason {
        write!(out, " ({reason})")?;
    }
    writeln!(out, "\n  gold {}\n  pred {}", ending(&row.gold), ending(&row.pred))?;
    Ok(())
}

/// The last characters, on one line: the answer is there.
fn ending(text: &str) -> String {
    const SHOWN: usize = 120;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let count = line.chars().count();
    let tail: String = line.chars().skip(count.saturating_sub(SHOWN)).collect();
    if count > SHOWN { format!("…{tail}") } else { tail }
}

fn print_summary(summary: &GradeSummary, out: &mut impl Write) -> Result<()> {
    let GradeSummary { rows, equal, different, undecided, error, .. } = summary;
    writeln!(
        out,
        "{rows} rows: {equal} equal, {different} different, {undecided} undecided, {error} errors"
    )?;
    if let Some(agreement) = summary.agreement {
        writeln!(
            out,
            "agreement {:.1} % ({} of {}), wrongly equal {}, wrongly different {}",
            100.0 * agreement,
            summary.agreed,
            summary.expected,
            summary.wrongly_equal,
            summary.wrongly_different
        )?;
    }
    if summary.second_opinions > 0 {
        writeln!(out, "second opinions {}", summary.second_opinions)?;
    }
    if !summary.ignored_kwargs.is_empty() {
        writeln!(out, "ignored kwargs: {}", summary.ignored_kwargs.join(", "))?;
    }
    let rate = *rows as f64 / summary.seconds.max(1e-9);
    writeln!(out, "{:.3} s, {rate:.0} rows a second", summary.seconds)?;
    Ok(())
}
