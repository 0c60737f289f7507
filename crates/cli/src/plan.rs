//! `scalerl plan`: seeds, prompts, generations and compute that it takes to tell two recipes apart,
//! from the runs at hand.
//!
//! Not here: the formulas (`scalerl_study::power`), what is read off the runs (`scalerl_study::pilot`).

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use scalerl_board::number::short;
use scalerl_curve::Resolution;
use scalerl_study::pilot::{NoPilot, Pilot};
use scalerl_study::power::MOST_SEEDS;
use serde::Serialize;

use crate::failure::BadInput;
use crate::forecast::output;
use crate::study::records;
use scalerl_report::table::{self, row};

/// Seeds of a recipe that the table goes through.
const SHOWN_SEEDS: [u32; 8] = [2, 3, 4, 5, 6, 8, 12, 16];

/// Options of `scalerl plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pilot runs: run folders, study folders, or folders with such inside.
    #[arg(value_name = "RUN_OR_STUDY", required = true)]
    paths: Vec<PathBuf>,
    /// The difference between two recipes that must be seen, in pass rate.
    #[arg(long, value_name = "D", default_value_t = 0.02, value_parser = share)]
    difference: f64,
    /// The chance with which it must be seen.
    #[arg(long, value_name = "CHANCE", default_value_t = 0.8, value_parser = share)]
    power: f64,
    /// Generations of each held-out prompt in the evaluations that are planned.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    generations: u32,
    /// Also say what an evaluation of this size resolves, as PROMPTSxGENERATIONS; may be repeated.
    #[arg(long, value_name = "PxG")]
    evaluation: Vec<Evaluation>,
    /// Standard deviation between seeds, where no variant of the pilot has two.
    #[arg(long, value_name = "SD", value_parser = share)]
    seed_spread: Option<f64>,
    /// Machine-readable output.
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "is not a number".to_owned())?;
    let is_inside = value > 0.0 && value < 1.0;
    is_inside.then_some(value).ok_or_else(|| "a number between 0 and 1".into())
}

/// An evaluation's size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Evaluation {
    prompts: u32,
    generations: u32,
}

impl FromStr for Evaluation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(['x', '×']).and_then(|(prompts, generations)| {
            Some((prompts.trim().parse().ok()?, generations.trim().parse().ok()?))
        });
        match parts {
            Some((prompts, generations)) if prompts > 0 && generations > 0 => {
                Ok(Self { prompts, generations })
            }
            _ => Err("prompts and generations, as in 1024x4".into()),
        }
    }
}

impl Evaluation {
    fn of(completions: f64, generations: u32) -> Self {
        let prompts = (completions / f64::from(generations)).ceil();
        Self { prompts: prompts as u32, generations }
    }

    fn completions(self) -> f64 {
        f64::from(self.prompts) * f64::from(self.generations)
    }

    fn text(self) -> String {
        format!("{} × {}", self.prompts, self.generations)
    }
}

/// One way to see the difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Way {
    seeds: u32,
    evaluation: Evaluation,
    /// Device-hours of both recipes; 0 where the pilot does not say.
    device_hours: f64,
}

/// What an evaluation resolves.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Resolved {
    evaluation: Evaluation,
    is_pilot: bool,
    /// Standard deviation of one evaluation.
    noise: f64,
    /// Difference between two evaluations of one run that is no chance at 90 %.
    two_evaluations: f64,
    /// Seeds of each recipe, and the difference that a study of so many sees with the power asked for.
    studies: Vec<(u32, f64)>,
}

#[derive(Debug, Serialize)]
struct Answer {
    difference: f64,
    power: f64,
    pilot: Pilot,
    ways: Vec<Way>,
    cheapest: Option<Way>,
    /// Seeds needed at the size of the cheapest if seeds differ as much as they may (90 %).
    seeds_if_worse: Option<u32>,
    resolves: Vec<Resolved>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let records = records(&args.paths)?;
    let pilot = Pilot::of(&records, args.seed_spread).map_err(no_pilot)?;
    let answer = answer(args, pilot);
    if args.json {
        return output::json(out, &answer);
    }
    for line in pilot_lines(&answer.pilot) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "\nto see a difference of {} with a chance of {}", args.difference, args.power)?;
    table::write(out, &way_rows(&answer))?;
    for line in advice(&answer) {
        writeln!(out, "  {line}")?;
    }
    writeln!(out, "\nwhat evaluations resolve")?;
    table::write(out, &resolved_rows(&answer))?;
    Ok(())
}

fn no_pilot(reason: NoPilot) -> BadInput {
    match reason {
        NoPilot::NoRuns => BadInput::new("no finished run among these")
            .hint("give folders of runs that have ended, or docs/results of a study"),
        NoPilot::OneSeed => BadInput::new(
            "no variant among these has two seeds, so how much seeds differ is not known",
        )
        .hint("run the base with a second seed, or say it: --seed-spread 0.01"),
    }
}

fn answer(args: &Args, pilot: Pilot) -> Answer {
    let noise = pilot.noise;
    let way = |seeds: u32| {
        let completions = noise.completions_for(args.difference, args.power, seeds)?;
        let evaluation = Evaluation::of(completions, args.generations);
        let device_hours = pilot.cost.hours(2 * seeds, evaluation.completions());
        Some(Way { seeds, evaluation, device_hours })
    };
    let all: Vec<Way> = (2..=MOST_SEEDS).filter_map(way).collect();
    let cheapest = all.iter().copied().min_by(|a, b| a.device_hours.total_cmp(&b.device_hours));
    let least = all.first().map_or(0, |way| way.seeds);
    let is_shown = |way: &&Way| SHOWN_SEEDS.contains(&way.seeds) || way.seeds == least;
    let worse = scalerl_study::power::Noise { between_seeds: pilot.between_seeds_high, ..noise };
    let seeds_if_worse = cheapest
        .and_then(|way| worse.seeds_for(args.difference, args.power, way.evaluation.completions()));
    let own = Evaluation::of(pilot.completions, args.generations);
    let asked = args.evaluation.iter().map(|one| (*one, false));
    let resolves = std::iter::once((own, true))
        .chain(asked)
        .map(|(evaluation, is_pilot)| resolved(&pilot, args.power, evaluation, is_pilot))
        .collect();
    Answer {
        difference: args.difference,
        power: args.power,
        ways: all.iter().filter(is_shown).copied().collect(),
        cheapest,
        seeds_if_worse,
        resolves,
        pilot,
    }
}

fn resolved(pilot: &Pilot, power: f64, evaluation: Evaluation, is_pilot: bool) -> Resolved {
    let (noise, completions) = (pilot.noise, evaluation.completions());
    let resolution = Resolution::with_noise(completions, noise.rate, noise.over_binomial);
    let study = |seeds: u32| (seeds, noise.resolves(power, seeds, completions));
    Resolved {
        evaluation,
        is_pilot,
        noise: resolution.expected,
        two_evaluations: resolution.difference,
        studies: [2, 3, 5].map(study).to_vec(),
    }
}

fn pilot_lines(pilot: &Pilot) -> Vec<String> {
    let Pilot { runs, completions, noise, noise_runs, freedom, between_seeds_high, cost } = pilot;
    let one = noise.of_evaluation(*completions);
    let source = if *noise_runs > 0 {
        format!("median of {noise_runs} runs")
    } else {
        "the usual one for fixed prompts; no run says".into()
    };
    let spread = match freedom {
        Some(freedom) => format!(
            "seeds differ by {:.4} beyond that (standard deviation, {freedom} degrees of freedom; up to \
             {between_seeds_high:.4} at 90 %)",
            noise.between_seeds
        ),
        None => format!("seeds differ by {:.4}, as given", noise.between_seeds),
    };
    vec![
        format!(
            "{runs} finished runs that end near {:.3}; evaluations of {completions:.0} completions",
            noise.rate
        ),
        format!(
            "an evaluation scatters by {:.2} of binomial, {one:.4} ({source})",
            noise.over_binomial
        ),
        spread,
        format!(
            "a run takes {} {}, {} device-hours without its {:.0} evaluations",
            short(cost.compute),
            cost.axis.label(),
            short(cost.training_hours),
            cost.evaluations
        ),
    ]
}

fn way_rows(answer: &Answer) -> Vec<Vec<String>> {
    let mut rows = vec![row([
        "seeds of each recipe",
        "prompts × generations",
        "runs",
        "compute",
        "device-hours",
    ])];
    for way in &answer.ways {
        rows.push(vec![
            way.seeds.to_string(),
            way.evaluation.text(),
            (2 * way.seeds).to_string(),
            short(f64::from(2 * way.seeds) * answer.pilot.cost.compute),
            short(way.device_hours),
        ]);
    }
    rows
}

fn advice(answer: &Answer) -> Vec<String> {
    let Some(best) = answer.cheapest else {
        return vec![format!(
            "Not with {MOST_SEEDS} seeds of each, however large the evaluation: seeds differ by more \
             than that."
        )];
    };
    let mut lines = vec![format!(
        "Cheapest: {} seeds of each, evaluations of {} (prompts × generations).",
        best.seeds,
        best.evaluation.text()
    )];
    match (answer.pilot.freedom, answer.seeds_if_worse) {
        (Some(_), Some(seeds)) if seeds > best.seeds => lines.push(format!(
            "The spread between seeds rests on few runs: if it is as large as it may be, {seeds} seeds."
        )),
        (Some(_), None) => lines.push(
            "The spread between seeds rests on few runs: if it is as large as it may be, no number of \
             seeds here is enough at this size."
                .into(),
        ),
        _ => {}
    }
    lines.push(
        "Prompts and generations make the same noise by their product; more prompts also say more about \
         prompts that were not asked. Another set of prompts is another evaluation: its runs are no \
         history of these."
            .into(),
    );
    lines
}

fn resolved_rows(answer: &Answer) -> Vec<Vec<String>> {
    let mut rows = vec![row([
        "prompts × generations",
        "noise",
        "two evaluations differ",
        "2 seeds each",
        "3 seeds each",
        "5 seeds each",
    ])];
    for one in &answer.resolves {
        let mark = if one.is_pilot { " (pilot)" } else { "" };
        let mut cells = vec![
            format!("{}{mark}", one.evaluation.text()),
            format!("{:.4}", one.noise),
            format!("{:.4}", one.two_evaluations),
        ];
        cells.extend(one.studies.iter().map(|(_, difference)| format!("{difference:.4}")));
        rows.push(cells);
    }
    rows
}
