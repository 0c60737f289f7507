//! How an installed scalerl comes to libtorch: a small program finds it and becomes the whole one.
//!
//! An archive holds two programs. `bin/scalerl` is built without libtorch and starts anywhere;
//! `libexec/scalerl-train` has every command and cannot even start before the loader has found
//! libtorch. Commands that the small one has run there. For the others of [`COMMANDS`] it finds
//! libtorch (in the order of `scripts/setup/libtorch.py`), tells the loader, and replaces itself by
//! the whole one; a name that neither has is answered at once, with the nearest of both:
//!
//! ```text
//! scalerl train … ─ bin/scalerl ─ where is libtorch? ─┬ found ── exec libexec/scalerl-train train …
//!                                                     └ not ──── "libtorch is missing", exit code 2
//! ```
//!
//! The loader's path is meant for the whole program alone: it puts back what the user had before it
//! starts a program of its own, so that a Python with another torch is not given ours. Processes of
//! its own kind it starts by way of the small one again ([`program`]).
//!
//! Not here: fetching (`setup.rs`). A binary built from the sources needs none of this: its RUNPATH
//! names the tree's `.libtorch`.

use std::io;
use std::path::PathBuf;

/// The small program's path, set for the whole one.
const LAUNCHER: &str = "SCALERL_LAUNCHER";
/// What the user had in the loader's variable; empty for nothing.
const OUTER: &str = "SCALERL_OUTER_LIBRARY_PATH";
const LOADER: &str = "LD_LIBRARY_PATH";

/// Every command of the whole program, as it is typed.
#[cfg(any(test, not(feature = "train")))]
#[rustfmt::skip]
const COMMANDS: [&str; 31] = [
    "alarms", "backtest", "bench decode", "bench fit", "bench head", "bench serve", "bench train",
    "compare", "completions", "doctor", "export", "fit", "generate", "generator", "grade", "history",
    "init", "man", "merge", "plan", "predictions", "recipe", "replay", "report", "serve", "setup",
    "sft", "status", "study", "train", "watch",
];

/// What starts another scalerl like this one.
pub(crate) fn program() -> io::Result<PathBuf> {
    std::env::var_os(LAUNCHER).map_or_else(std::env::current_exe, |path| Ok(path.into()))
}

#[cfg(feature = "train")]
pub(crate) use whole::forget_library_path;

#[cfg(feature = "train")]
mod whole {
    #![expect(unsafe_code, reason = "the environment, before there are threads")]

    use super::{LOADER, OUTER};

    /// Gives the programs that this one will start the loader's path that the user had. The
    /// loader itself has read ours already and keeps it.
    pub(crate) fn forget_library_path() {
        let Some(outer) = std::env::var_os(OUTER) else { return };
        // SAFETY: first in `main`: nothing else reads or writes the environment yet.
        unsafe {
            std::env::remove_var(OUTER);
            if outer.is_empty() {
                std::env::remove_var(LOADER);
            } else {
                std::env::set_var(LOADER, outer);
            }
        }
    }
}

#[cfg(not(feature = "train"))]
pub(crate) use small::{Handover, hand_over, parse, whole_program};

#[cfg(not(feature = "train"))]
mod small {
    use std::ffi::OsString;
    use std::os::unix::process::CommandExt as _;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use anyhow::Result;
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    use clap::{CommandFactory as _, Parser as _};

    use super::{COMMANDS, LAUNCHER, LOADER, OUTER};
    use crate::failure::BadInput;
    use crate::{Cli, setup};

    const WHERE_THE_WHOLE_IS: &str =
        "install one with libtorch: an archive, a wheel, or `cargo install --path crates/cli`";

    /// Whether the whole program is better for a command line.
    #[derive(Debug, PartialEq, Eq)]
    pub(crate) enum Handover {
        /// The small program has all that is asked for.
        No,
        /// Help and completions: the whole one knows more commands, the small one will do.
        IfPossible,
        Needed,
    }

    impl Handover {
        pub(crate) fn of(arguments: &[OsString]) -> Self {
            let starts_runs = |cli: &Cli| matches!(cli.command, crate::Command::Study(_));
            let lists_commands = |cli: &Cli| {
                matches!(cli.command, crate::Command::Completions(_) | crate::Command::Man(_))
            };
            match Cli::try_parse_from(arguments) {
                Ok(cli) if starts_runs(&cli) => Self::Needed,
                Ok(cli) if lists_commands(&cli) => Self::IfPossible,
                Ok(_) => Self::No,
                Err(error) if of_the_whole(&error, arguments).is_some() => Self::Needed,
                Err(error) => match error.kind() {
                    ErrorKind::DisplayHelp
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                    | ErrorKind::MissingSubcommand => Self::IfPossible,
                    _ => Self::No,
                },
            }
        }
    }

    /// The command that was asked for, if only the whole program has it.
    fn of_the_whole(error: &clap::Error, arguments: &[OsString]) -> Option<&'static str> {
        let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else {
            return None;
        };
        // `help train` asks for train.
        let words = arguments.iter().skip(1).skip_while(|word| *word == "help");
        let first = words.into_iter().next()?.to_str()?;
        let asked = if first == unknown { first.to_owned() } else { format!("{first} {unknown}") };
        COMMANDS.into_iter().find(|command| *command == asked)
    }

    /// Parses, or ends the program with what was wrong. A misspelt command is told from the names of
    /// the whole program, too; one that only the whole program has is an error to report.
    pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, BadInput> {
        let error = match Cli::try_parse_from(arguments) {
            Ok(cli) => return Ok(cli),
            Err(error) => error,
        };
        if let Some(command) = of_the_whole(&error, arguments) {
            let message = format!("`scalerl {command}` is not part of this scalerl");
            return Err(BadInput::new(message).hint(WHERE_THE_WHOLE_IS));
        }
        let of_all = all_commands().try_get_matches_from(arguments).err();
        of_all
            .filter(|of_all| of_all.kind() == ErrorKind::InvalidSubcommand)
            .unwrap_or(error)
            .exit()
    }

    /// This program's commands, and the names of those that only the whole one has.
    fn all_commands() -> clap::Command {
        let mut all = Cli::command();
        for command in COMMANDS {
            let (group, name) = command.split_once(' ').unwrap_or(("", command));
            let has = |of: &clap::Command| of.find_subcommand(name).is_some();
            if group.is_empty() && !has(&all) {
                all = all.subcommand(clap::Command::new(name));
            } else if all.find_subcommand(group).is_some_and(|group| !has(group)) {
                all = all.mut_subcommand(group, |of| of.subcommand(clap::Command::new(name)));
            }
        }
        all
    }

    /// The whole program of the archive that this small one is part of.
    pub(crate) fn whole_program() -> Option<PathBuf> {
        let program = std::env::current_exe().and_then(|path| path.canonicalize()).ok()?;
        let whole = program.parent()?.parent()?.join("libexec/scalerl-train");
        whole.is_file().then_some(whole)
    }

    /// Replaces this program by the whole one. Returns only when it could not.
    pub(crate) fn hand_over(whole: &Path, arguments: &[OsString]) -> Result<()> {
        let Some(folder) = setup::find()? else {
            let asked = arguments.get(1).map(|asked| asked.to_string_lossy()).unwrap_or_default();
            let message = format!("`scalerl {asked}` needs libtorch, and libtorch is missing");
            let hint = "scalerl setup (finds or downloads it, once; about 545 MB)";
            return Err(BadInput::new(message).hint(hint).into());
        };
        let outer = std::env::var_os(LOADER).unwrap_or_default();
        let mut path = folder.join("torch/lib").into_os_string();
        if !outer.is_empty() {
            path.push(":");
            path.push(&outer);
        }
        let error = Command::new(whole)
            .args(&arguments[1..])
            .env(LOADER, path)
            .env(OUTER, outer)
            .env(LAUNCHER, std::env::current_exe()?)
            // Its own children need not ask again.
            .env(setup::FOLDER, folder)
            .exec();
        Err(anyhow::Error::new(error).context(format!("cannot start {}", whole.display())))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn of(line: &str) -> Handover {
            Handover::of(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
        }

        #[test]
        fn what_needs_libtorch_is_handed_over_and_the_rest_is_not() {
            let needed = ["train quickstart", "doctor", "bench decode", "help train"];
            for line in needed.map(|line| format!("scalerl {line}")) {
                let line = line.as_str();
                assert_eq!(of(line), Handover::Needed, "{line}");
            }
            let own = ["fit a.csv", "--version", "fit --no-such-option"];
            let misspelt = ["fti a.csv", "trian quickstart", "bench decoed", "recipe train"];
            for line in own.into_iter().chain(misspelt).map(|line| format!("scalerl {line}")) {
                let line = line.as_str();
                assert_eq!(of(line), Handover::No, "{line}");
            }
            for line in ["scalerl --help", "scalerl", "scalerl completions bash"] {
                assert_eq!(of(line), Handover::IfPossible, "{line}");
            }
        }

        #[test]
        fn a_misspelt_command_is_told_from_those_of_both_programs() {
            for (line, nearest) in [("fitt a.csv", "fit"), ("trian quickstart", "train")] {
                let words = ["scalerl"].into_iter().chain(line.split(' '));
                let error = all_commands().try_get_matches_from(words).unwrap_err().to_string();
                assert!(error.contains(&format!("'{nearest}'")), "{error}");
            }
        }

        #[test]
        fn what_only_the_whole_program_has_is_said_where_there_is_none() {
            let words = ["scalerl", "train", "quickstart"].map(OsString::from);
            let error = parse(&words).unwrap_err();
            assert_eq!(error.to_string(), "`scalerl train` is not part of this scalerl");
        }

        #[test]
        fn a_study_starts_runs_so_it_is_handed_over() {
            assert_eq!(of("scalerl study leave-one-out"), Handover::Needed);
        }
    }
}

#[cfg(all(test, feature = "train", feature = "watch"))]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_small_program_knows_every_command_of_the_whole_one() {
        let mut names = Vec::new();
        for command in crate::Cli::command().get_subcommands() {
            match command.get_name() {
                "bench" => names.extend(
                    command.get_subcommands().map(|what| format!("bench {}", what.get_name())),
                ),
                name => names.push(name.to_owned()),
            }
        }
        names.sort();
        assert_eq!(names, super::COMMANDS);
    }
}
