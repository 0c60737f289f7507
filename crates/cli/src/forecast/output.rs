//! Where results go: standard output, a figure, a page.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use scalerl_board::{Block, Page, Section};
use scalerl_board::{Figure, Glyphs, Size, TerminalOptions};
use serde::Serialize;

use super::runs::SkippedRun;

/// Writes `value` as JSON and ends the line.
pub(crate) fn json(out: &mut dyn Write, value: &impl Serialize) -> Result<()> {
    // As an error of the operating system, so that a closed pipe is known as one.
    serde_json::to_writer_pretty(&mut *out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Draws a figure into the terminal, as wide as it is.
pub(crate) fn chart(out: &mut dyn Write, figure: &Figure) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let options = TerminalOptions {
        width: columns.unwrap_or(88_usize).min(120),
        color: is_terminal && std::env::var_os("NO_COLOR").is_none(),
        glyphs: Glyphs::Unicode,
        ..TerminalOptions::default()
    };
    writeln!(out, "\n{}", scalerl_board::terminal(figure, options))?;
    Ok(())
}

/// Writes a figure where the user asked for one and says so on standard error.
pub(crate) fn figure(path: &Path, figure: &Figure) -> Result<()> {
    scalerl_board::save(figure, Size::WIDE, path)?;
    say(&format!("wrote {}", path.display()));
    Ok(())
}

/// The same name with something before its ending: curve.png, curve-slopes.png.
pub(crate) fn beside(path: &Path, addition: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{addition}.{ending}"))
}

/// Writes a page, with a last section on how it was made.
pub(crate) fn page(path: &Path, mut page: Page) -> Result<()> {
    page.sections.push(Section {
        heading: "How this was made".to_owned(),
        blocks: vec![
            Block::Code(scalerl_report::command::line()),
            Block::Prose(format!(
                "scalerl {}. Intervals are 90 %: those of forecasts are for one new measurement, \
                 the bands in figures for the curve itself.",
                env!("CARGO_PKG_VERSION")
            )),
        ],
    });
    std::fs::write(path, page.html())
        .with_context(|| format!("cannot write {}", path.display()))?;
    say(&format!("wrote {}", path.display()));
    Ok(())
}

/// Tells about runs that were left out.
pub(crate) fn skipped(skipped: &[SkippedRun]) {
    for run in skipped {
        say(&format!("left out {}: {} ({})", run.name, run.reason, run.hint));
    }
}

/// A line on standard error; a closed one must not end the work.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
