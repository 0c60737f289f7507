//! `scalerl completions` and `scalerl man`: what shells and manuals want to know, from the commands
//! themselves.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::Cli;
use crate::failure::BadInput;

/// Options of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

/// Options of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Folder for the pages of all commands (scalerl.1, scalerl-train.1, …); without it the page of
    /// `scalerl` goes to standard output.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// `scalerl completions bash > …`: a script for the shell.
pub(crate) fn completions(args: &Completions, out: &mut dyn Write) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "scalerl", &mut script);
    Ok(out.write_all(&script)?)
}

/// `scalerl man | man -l -`: the manual.
pub(crate) fn man(args: &Man, out: &mut dyn Write) -> Result<()> {
    // Manuals have no place before the name.
    let command = Cli::command().before_help("").after_help(crate::START);
    let Some(folder) = &args.out else { return page(command, out) };
    let written =
        std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    let bad = |error| BadInput::new(format!("cannot write to {}: {error}", folder.display()));
    Ok(written.map_err(bad)?)
}

fn page(command: Command, out: &mut dyn Write) -> Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(out.write_all(&page)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_is_told_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut out = Vec::new();
            completions(&Completions { shell }, &mut out).unwrap();
            let script = String::from_utf8(out).unwrap();
            for command in Cli::command().get_subcommands() {
                let name = command.get_name();
                assert!(script.contains(name), "{shell}: {name} is missing");
            }
            assert!(script.contains("dry-run"), "{shell}: options are missing");
        }
    }

    #[test]
    fn the_manual_has_a_page_for_every_command() {
        let folder = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        man(&Man { out: Some(folder.path().to_owned()) }, &mut out).unwrap();
        for command in Cli::command().get_subcommands() {
            let page = folder.path().join(format!("scalerl-{}.1", command.get_name()));
            let text = std::fs::read_to_string(&page).unwrap();
            assert!(text.contains(".SH SYNOPSIS"), "{}", page.display());
        }
        man(&Man { out: None }, &mut out).unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(page.contains("scalerl\\-fit"), "{page}");
        // What one starts with, where there is training.
        let starts = page.contains("Start here") && page.contains("scalerl\\-init");
        assert_eq!(starts, cfg!(feature = "train"), "{page}");
    }

    #[cfg(feature = "train")]
    #[test]
    fn help_begins_with_where_to_start() {
        let help = Cli::command().render_help().to_string();
        for line in ["Start here:", "scalerl train quickstart", "scalerl init DATA", "scalerl fit"]
        {
            assert!(help.contains(line), "{line} is missing in:\n{help}");
        }
        assert!(help.find("Start here:") < help.find("Commands:"), "{help}");
    }
}
