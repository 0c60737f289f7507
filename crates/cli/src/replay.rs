//! `scalerl replay`: races run again over studies that are known to their end.
//!
//! Recorded studies say what a race would have saved and lost on real runs, simulated ones what it
//! does where the truth is known. Both beside halving by current value and no stopping.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use rayon::prelude::*;
use scalerl_study::export;
use scalerl_study::race::replay::{Policy, Raced, Replay, Summary};
use scalerl_study::race::{Limits, RUNGS, USUAL_LIMITS, simulated};

use crate::failure::BadInput;
use crate::forecast::output::say;
use crate::study::records;
use scalerl_report::study::tables::pipes;
use scalerl_report::table::{self, row};

/// Options of `scalerl replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Study folders, or folders with the small files of studies inside.
    #[arg(value_name = "STUDY")]
    paths: Vec<PathBuf>,
    /// Simulated studies of eight variants.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    simulated: u64,
    /// Also write the tables as a page.
    #[arg(long, value_name = "OUT.md")]
    out: Option<PathBuf>,
}

/// Never back: for comparison.
const NEVER: f64 = 1.0;

const OURS: usize = 2;

fn policies() -> [(String, Policy); 5] {
    let Limits { pause, back } = USUAL_LIMITS;
    let never = Limits { pause, back: NEVER };
    let half = Limits { pause: pause / 2.0, back: back / 2.0 };
    [
        ("no stopping".into(), Policy::NoStopping),
        ("halving by current value".into(), Policy::HalvingByValue),
        (
            format!("expected loss {pause}, back at {back} (ours)"),
            Policy::ExpectedLoss(USUAL_LIMITS),
        ),
        (format!("expected loss {pause}, never back"), Policy::ExpectedLoss(never)),
        (
            format!("expected loss {}, back at {}", half.pause, half.back),
            Policy::ExpectedLoss(half),
        ),
    ]
}

/// Races of one kind, and what each policy did.
struct Played {
    heading: &'static str,
    races: Vec<Replay>,
    raced: Vec<Vec<Raced>>,
}

impl Played {
    fn of(heading: &'static str, races: Vec<Replay>) -> Self {
        let raced = races
            .par_iter()
            .map(|race| policies().iter().map(|(_, policy)| race.race(*policy)).collect())
            .collect();
        Self { heading, races, raced }
    }

    /// One row a policy.
    fn policies(&self) -> Vec<Vec<String>> {
        let mut rows = vec![heading("policy")];
        for (index, (name, _)) in policies().into_iter().enumerate() {
            let all: Vec<&Raced> = self.raced.iter().map(|raced| &raced[index]).collect();
            rows.extend(Summary::of(&all).map(|summary| cells(name, &summary)));
        }
        rows
    }

    /// Our rule, one row a group.
    fn groups(&self) -> Vec<Vec<String>> {
        let mut names: Vec<&str> = self.races.iter().map(|race| race.group.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let mut rows = vec![heading("our rule on")];
        for name in names {
            let pairs = self.races.iter().zip(&self.raced);
            let own: Vec<&Raced> = pairs
                .filter(|(race, _)| race.group == name)
                .map(|(_, raced)| &raced[OURS])
                .collect();
            rows.extend(Summary::of(&own).map(|summary| cells(name.to_owned(), &summary)));
        }
        rows
    }

    /// Our rule, one row a race.
    fn each(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["race", "saved", "regret", "winner", "share of its compute"])];
        for (race, raced) in self.races.iter().zip(&self.raced) {
            let Raced { saved, regret, winner, shares } = &raced[OURS];
            let names = race.contestants.iter().map(|one| one.name.as_str());
            let shares: Vec<String> =
                names.clone().zip(shares).map(|(name, share)| format!("{name} {share}")).collect();
            rows.push(vec![
                race.name.clone(),
                percent(*saved),
                format!("{regret:.4}"),
                names.clone().nth(*winner).unwrap_or_default().to_owned(),
                shares.join(", "),
            ]);
        }
        rows
    }
}

fn heading(first: &str) -> Vec<String> {
    row([first, "races", "saved", "mean regret", "90th percentile", "largest"])
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn cells(name: String, summary: &Summary) -> Vec<String> {
    let Summary { races, saved, regret, ninetieth, largest } = summary;
    vec![
        name,
        races.to_string(),
        percent(*saved),
        format!("{regret:.4}"),
        format!("{ninetieth:.4}"),
        format!("{largest:.4}"),
    ]
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let records = records(&args.paths)?;
    let played: Vec<Played> = [
        Played::of("Recorded studies", Replay::recorded(&records)),
        Played::of("Simulated studies", simulated::studies(0..args.simulated)),
    ]
    .into_iter()
    .filter(|played| !played.races.is_empty())
    .collect();
    if played.is_empty() {
        let message = "no study among these has two variants that ran to their end";
        let hint = "give folders of finished studies, or --simulated 200";
        return Err(BadInput::new(message).hint(hint).into());
    }
    for one in &played {
        writeln!(out, "{}", one.heading)?;
        table::write(out, &one.policies())?;
        writeln!(out)?;
    }
    if let Some(path) = &args.out {
        export::replace(path, page(&played).as_bytes())?;
        say(&format!("wrote {}", path.display()));
    }
    Ok(())
}

fn page(played: &[Played]) -> String {
    let rungs: Vec<String> = RUNGS.iter().map(|rung| percent(*rung)).collect();
    let mut text = format!(
        "# Racing: what it saves, and what it loses\n\n\
         Made by `scalerl replay`. Every run of these studies went to its end, so what a race would \
         have stopped is known. Saved is the share of the study's compute that was not spent; regret \
         the best end of all less the end of the variant that the race would have named (ends are means \
         of the last three evaluations; of simulated studies the curve without the noise of its \
         evaluation). Rungs lie at {}; the winner runs to its end, so three variants can save half at \
         most.\n\n\
         The limits were chosen on the recorded studies below and on the simulated ones of numbers \
         1000 to 1099; the simulated ones below are those from 0 on. Recorded forecasts learn from runs \
         that had ended before the race began.\n",
        rungs.join(", ")
    );
    for one in played {
        let _ = write!(text, "\n## {}\n\n{}", one.heading, pipes(&one.policies()));
        let _ = write!(text, "\n{}", pipes(&one.groups()));
    }
    if let Some(recorded) = played.iter().find(|one| one.heading.starts_with("Recorded")) {
        let _ =
            write!(text, "\n## Each recorded race under our rule\n\n{}", pipes(&recorded.each()));
        text += &seeds(&recorded.races);
    }
    text
}

/// What seeds do to a winner, racing or not.
fn seeds(races: &[Replay]) -> String {
    let mut rows = vec![row(["winner of", "on", "its regret there"])];
    for one in races {
        for other in races.iter().filter(|other| other.group == one.group && other.name != one.name)
        {
            let regret = one.regret_in(other);
            rows.extend(
                regret.map(|regret| {
                    vec![one.name.clone(), other.name.clone(), format!("{regret:.4}")]
                }),
            );
        }
    }
    if rows.len() == 1 {
        return String::new();
    }
    format!(
        "\n## The winner of one seed on another seed, without any race\n\nA winner on one seed is that \
         seed's winner: what a race loses is small beside what another seed changes.\n\n{}",
        pipes(&rows)
    )
}
