//! `scalerl recipe`: list, show, check and compare recipes.
//!
//! A recipe is named by a shipped name (`scalerl`) or a path ending in `.toml`; several are laid
//! over each other, left to right, then `--set`.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use scalerl_recipe::{Advice, Override, Recipe, RecipeError, Resolved, Source, diff, shipped};

use crate::failure::BadInput;

/// Options of `scalerl recipe`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Name the recipes that are part of the program.
    List,
    /// Print a recipe with every key resolved, as a run keeps it.
    Show {
        #[command(flatten)]
        layers: Layers,
        /// Say where each value that is not a default was set.
        #[arg(long, conflicts_with = "json")]
        origins: bool,
        /// JSON instead of TOML.
        #[arg(long)]
        json: bool,
    },
    /// Check that a recipe can be used.
    Check {
        #[command(flatten)]
        layers: Layers,
    },
    /// Print the choices in which two recipes differ.
    Diff {
        /// Shipped name or file.
        left: String,
        /// Shipped name or file.
        right: String,
    },
}

/// What a recipe is made of.
#[derive(Debug, clap::Args)]
pub(crate) struct Layers {
    /// Shipped names or files, each laid over those before it.
    #[arg(value_name = "RECIPE", required = true)]
    recipes: Vec<String>,
    /// Set one key, after all files: section.key=value.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Layers {
    /// The recipe, checked.
    pub(crate) fn load(&self) -> Result<Resolved> {
        resolve(&self.recipes, &self.set)
    }
}

/// Lays named recipes and `--set` over the defaults, and checks the result.
pub(crate) fn resolve(recipes: &[String], set: &[String]) -> Result<Resolved> {
    let sources: Vec<Source> = recipes.iter().map(|name| Source::named(name)).collect();
    load(&sources, set)
}

/// Remarks on a recipe, a line each and what to do.
pub(crate) fn say_advice(recipe: &Recipe, out: &mut dyn Write) -> Result<()> {
    for Advice { key, remark, remedy } in recipe.advice() {
        writeln!(out, "note: `{key}`: {remark}\n      {remedy}")?;
    }
    Ok(())
}

fn load(sources: &[Source], set: &[String]) -> Result<Resolved> {
    let overrides: Result<Vec<Override>, _> =
        set.iter().map(|text| Override::parse(text)).collect();
    let resolved = overrides.and_then(|overrides| Recipe::load(sources, &overrides));
    Ok(resolved.map_err(|error| bad_input(&error))?)
}

/// The recipe that a run keeps in its folder, with these overrides.
pub(crate) fn resolve_kept(path: &Path, set: &[String]) -> Result<Resolved> {
    let text = scalerl_files::read_to_string(path, scalerl_files::DOCUMENT)
        .map_err(|error| BadInput::new(format!("cannot read {}: {error}", path.display())))?;
    load(&[Source::Kept { name: path.display().to_string(), text }], set)
}

fn bad_input(error: &RecipeError) -> BadInput {
    BadInput::new(error).hint(error.hint())
}

fn load_one(name: &str) -> Result<Resolved> {
    Layers { recipes: vec![name.into()], set: Vec::new() }.load()
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    match &args.command {
        Command::List => list(out),
        Command::Show { layers, origins, json } => {
            let resolved = layers.load()?;
            let text = match (json, origins) {
                (true, _) => serde_json::to_string_pretty(&*resolved)? + "\n",
                (false, true) => resolved.to_annotated_toml(),
                (false, false) => resolved.to_toml(),
            };
            Ok(out.write_all(text.as_bytes())?)
        }
        Command::Check { layers } => {
            let resolved = layers.load()?;
            writeln!(out, "{}: fine", layers.recipes.join(" + "))?;
            say_advice(&resolved, out)
        }
        Command::Diff { left, right } => print_diff(left, right, out),
    }
}

fn list(out: &mut dyn Write) -> Result<()> {
    let all = || shipped::RECIPES.iter().chain(shipped::EXAMPLES);
    let width = all().map(|recipe| recipe.name.len()).max().unwrap_or_default();
    for recipe in all() {
        let description = &load_one(recipe.name)?.description;
        writeln!(out, "{:width$}  {description}", recipe.name)?;
    }
    Ok(writeln!(out, "\na recipe for data of your own: scalerl init DATA --model MODEL")?)
}

fn print_diff(left: &str, right: &str, out: &mut dyn Write) -> Result<()> {
    let found = diff(&load_one(left)?, &load_one(right)?);
    if found.is_empty() {
        return Ok(writeln!(out, "{left} and {right} make the same choices")?);
    }
    let width = left.len().max(right.len());
    for difference in found {
        writeln!(out, "{}", difference.key)?;
        for (name, value) in [(left, &difference.left), (right, &difference.right)] {
            writeln!(out, "  {name:width$}  {value}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    fn output(words: &[&str]) -> Result<String> {
        let alone = Alone::try_parse_from(["recipe"].iter().chain(words))?;
        let mut out = Vec::new();
        run(&alone.args, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn diff_shows_exactly_the_choices_in_which_two_recipes_differ() {
        insta::assert_snapshot!(output(&["diff", "scalerl", "dapo-qwen2.5"]).unwrap(), @r#"
    pipeline.groups_per_step
      scalerl       48
      dapo-qwen2.5  80
    objective.advantage
      scalerl       "batch"
      dapo-qwen2.5  "group"
    objective.surrogate
      scalerl       { type = "cispo", cap = 5.0 }
      dapo-qwen2.5  { type = "clip", low = 0.2, high = 0.26 }
    objective.off_policy
      scalerl       { type = "pipeline", steps_behind = 8 }
      dapo-qwen2.5  { type = "ppo-off-policy", steps_per_phase = 8 }
    objective.head_precision
      scalerl       "fp32"
      dapo-qwen2.5  "bf16"
    objective.curriculum
      scalerl       { type = "no-positive-resampling", threshold = 0.9 }
      dapo-qwen2.5  "none"
    "#);
    }

    #[test]
    fn diff_says_so_when_there_is_none() {
        let text = output(&["diff", "scalerl", "scalerl"]).unwrap();
        assert_eq!(text, "scalerl and scalerl make the same choices\n");
    }

    #[test]
    fn list_names_every_shipped_recipe_with_its_description() {
        insta::assert_snapshot!(output(&["list"]).unwrap(), @"
    scalerl                                ScaleRL (arXiv 2510.13786): the recipe whose curve held to 100,000 GPU-hours
    quickstart                             ScaleRL on a small synthetic task: minutes on two CPU cores
    first-run                              ScaleRL for a first run of an hour: the base of what `scalerl init` writes
    episodes                               ScaleRL over episodes of several turns with two tools: minutes on two CPU cores
    minimax-m1                             MiniMax-M1 as run in the ScaleRL paper: CISPO and FP32 head, phases alternate
    magistral                              Magistral as run in the ScaleRL paper: DAPO, streaming
    dapo-qwen2.5                           Qwen2.5-DAPO as run in the ScaleRL paper
    grpo-deepseek                          DeepSeek-GRPO as run in the ScaleRL paper
    gspo                                   GSPO: the ratio is taken per completion, not per token
    dr-grpo                                Dr. GRPO: no std, constant denominator
    small                                  ScaleRL on a 22M model and chained arithmetic, for studies on one GPU
    leave-one-out/ppo-off-policy           leave one out: PPO-off-policy-8 for PipelineRL-8
    leave-one-out/dapo-loss                leave one out: DAPO loss for CISPO
    leave-one-out/bf16-head                leave one out: no FP32 head
    leave-one-out/sample-average           leave one out: sample average for prompt average
    leave-one-out/group-normalisation      leave one out: prompt-level for batch-level normalisation
    leave-one-out/length-penalty           leave one out: length penalty for interruptions
    leave-one-out/no-zero-variance-filter  leave one out: no zero-variance filter
    leave-one-out/uniform-sampling         leave one out: uniform sampling for No-Positive-Resampling
    examples/gsm8k                         ScaleRL on GSM8K: a 0.5B model on one GPU
    examples/gsm8k-python                  ScaleRL on GSM8K with a Python tool: a 0.5B model on one GPU, several turns

    a recipe for data of your own: scalerl init DATA --model MODEL
    ");
    }

    #[test]
    fn show_prints_what_can_be_loaded_again() {
        let text = output(&["show", "gspo", "--set", "seed=3"]).unwrap();
        let source = Source::Text { name: "shown".into(), text: text.clone() };
        assert_eq!(Recipe::load(&[source], &[]).unwrap().to_toml(), text);
        assert!(text.contains("seed = 3\n"));
    }

    #[test]
    fn show_can_say_where_values_come_from() {
        let text = output(&["show", "magistral", "--set", "seed=3", "--origins"]).unwrap();
        assert!(text.contains("seed = 3  # --set seed=3\n"), "{text}");
        assert!(text.contains("steps_behind = 8 }  # magistral (shipped):"), "{text}");
    }

    #[test]
    fn check_refuses_with_a_hint() {
        let error = output(&["check", "scalerl", "--set", "pipeline.group_size=1"]).unwrap_err();
        assert!(error.downcast_ref::<BadInput>().is_some());
        assert_eq!(
            error.to_string(),
            "--set pipeline.group_size=1: `pipeline.group_size` is 1, it must be between 2 and 65536"
        );
        assert_eq!(output(&["check", "scalerl"]).unwrap(), "scalerl: fine\n");
    }
}
