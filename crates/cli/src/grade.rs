//! `scalerl grade`: compares predicted with gold answers, row by row.
//!
//! Rows are read and judged by `scalerl_task::grade`; here they are printed: a line a row, then the
//! summary. With `--json` one object a row, then one with the summary.

use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use scalerl_task::grade::{GradeFile, GradeRow, GradeSummary, GradedRow, grade_row};
use scalerl_task::second_opinion::{SecondOpinion, SecondOpinionOptions};
use serde_json::json;

use crate::failure::BadInput;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A JSONL file with `gold` and `pred` in each row; `-` reads standard input.
    file: PathBuf,
    /// One JSON line per row, then one with the summary.
    #[arg(long)]
    json: bool,
    /// Prints only rows without a verdict or with another than expected, and the summary.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Asks for answers that are worked out, as training does: `56 + 52` is not 108.
    #[arg(long)]
    evaluated: bool,
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
    let mut file = read(&args.file)?;
    if args.evaluated {
        file.rows.iter_mut().for_each(|row| row.options.evaluated = true);
    }
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
            print_row(row, &graded, args.quiet, out)?;
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

fn read(path: &Path) -> Result<GradeFile> {
    let name = path.display();
    let file = if path == Path::new("-") {
        GradeFile::read(std::io::stdin().lock())
    } else {
        let input = scalerl_files::open_input(path)
            .map_err(|error| BadInput::new(format!("{name}: {error}")).hint("give a JSONL file"))?;
        GradeFile::read(BufReader::new(input))
    };
    Ok(file.map_err(|error| BadInput::new(format!("{name}: {error}")).hint(error.hint()))?)
}

/// One line a row: where it is, the verdict, both answers. `quiet` keeps those that need a reader.
fn print_row(row: &GradeRow, graded: &GradedRow, quiet: bool, out: &mut impl Write) -> Result<()> {
    let wanted = row.expected.map(|expected| if expected { "equal" } else { "different" });
    let unexpected = wanted.filter(|wanted| *wanted != graded.verdict);
    if quiet && unexpected.is_none() && graded.reason.is_none() {
        return Ok(());
    }
    let pred = row.pred.as_deref().map_or_else(|| "no answer".to_owned(), |pred| ending(pred, 60));
    write!(
        out,
        "line {:<5} {:<9}  {} | {pred}",
        graded.line,
        graded.verdict,
        ending(&row.gold, 40)
    )?;
    if let Some(wanted) = unexpected {
        write!(out, "  (expected {wanted})")?;
    }
    if let Some(reason) = &graded.reason {
        write!(out, "  ({reason})")?;
    }
    writeln!(out)?;
    Ok(())
}

/// The last characters, on one line: the answer is there.
fn ending(text: &str, shown: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let count = line.chars().count();
    let tail: String = line.chars().skip(count.saturating_sub(shown)).collect();
    if count > shown { format!("…{tail}") } else { tail }
}

fn print_summary(summary: &GradeSummary, out: &mut impl Write) -> Result<()> {
    let GradeSummary { rows, equal, different, undecided, error, .. } = summary;
    let share = 100.0 * summary.equal_share.unwrap_or_default();
    writeln!(
        out,
        "{rows} rows: {equal} equal ({share:.1} %), {different} different, {undecided} undecided, \
         {error} errors"
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
