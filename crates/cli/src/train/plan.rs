//! `scalerl train --dry-run`: what a run would be, before anything is spent.
//!
//! Sizes follow from recipe and model. The verifier is tried on a few rows (`plan/trial.rs`), speeds
//! are measured for a second or two, and what the run would take and cost follows (`plan/time.rs`).
//! What `train` would refuse is refused here too.

pub(crate) mod time;
mod trial;

use std::io::Write;

use anyhow::Result;
use scalerl_model::train::ComputeKind;
use scalerl_recipe::{Adapter, OffPolicy, Recipe, Resolved};
use scalerl_task::Problems;
use scalerl_torch::tch::Device;
use scalerl_worker::options::learner_options;

use crate::train::environment::threads;
use crate::train::memory::Places;
use crate::train::policy::Policy;
use crate::train::rendering::Renderer;
use crate::train::{material, memory};

/// Where the run would be, and what an hour of a device costs.
pub(crate) struct Machine {
    pub(crate) places: Places,
    /// Bytes of a GPU that is asked about in place of the device at hand.
    pub(crate) device_memory: Option<u64>,
    pub(crate) price_per_hour: Option<f64>,
}

pub(crate) fn print(recipe: &Resolved, machine: &Machine, out: &mut dyn Write) -> Result<()> {
    let device = machine.places.trainer;
    let aside = Aside::new();
    std::fs::create_dir_all(&aside.0)?;
    // In the order of a run, so that the same is refused first.
    let problems = material::read(recipe, &aside.0.join("held_out.json"))?;
    let policy = Policy::sketch(recipe, &aside.0)?;
    let config = policy.config()?;
    super::owners::check(recipe, &config, machine.places.ranks)?;
    let (all, active) = (config.parameter_count() as f64, config.active_parameter_count() as f64);
    let compute = learner_options(recipe, device).compute;
    write!(out, "model     {:.2}M parameters", all / 1e6)?;
    if active < all {
        write!(out, ", {:.2}M of them active", active / 1e6)?;
    }
    if let Some(size) = policy.adapter_size(recipe)? {
        write!(out, ", {size}")?;
    }
    let wide = match compute {
        ComputeKind::Float32 => "f32",
        ComputeKind::BFloat16 if recipe.adapter != Adapter::None => "bf16 with an f32 adapter",
        ComputeKind::BFloat16 => "bf16 with f32 masters",
    };
    let place = match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => format!("{} CPU threads", threads()),
    };
    writeln!(out, ", {wide}, on {place}")?;

    let step = try_problems(recipe, problems, &policy, out)?;
    step.print(recipe, out)?;
    memory::print(recipe, &config, machine.places, machine.device_memory, out)?;
    let is_shared = machine.places.generator == device;
    let own_devices = if is_shared { 1.0 } else { 2.0 };
    let question = time::Question {
        recipe,
        config: &config,
        step: &step,
        device,
        devices: time::devices(recipe, own_devices),
        price_per_hour: machine.price_per_hour,
    };
    time::print(&question, out)
}

/// A folder for what is only looked at; gone at the end.
struct Aside(std::path::PathBuf);

impl Aside {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("scalerl-dry-run-{}", std::process::id())))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Nothing was made where the model is read from a folder of the user's.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Tries the verifier, renders the prompts and says how much work a step is.
fn try_problems(
    recipe: &Recipe,
    problems: Problems,
    policy: &Policy,
    out: &mut dyn Write,
) -> Result<Step> {
    let renderer = Renderer::load(recipe, &policy.folder)?;
    trial::print(recipe, &problems, out)?;
    let rendered = material::render(problems, &renderer, recipe)?;
    let lengths: Vec<usize> =
        rendered.prompts.prompts().map(|prompt| prompt.token_ids.len()).collect();
    write!(out, "prompts   {} to train on", lengths.len())?;
    for set in &rendered.evaluation_sets {
        write!(out, ", {} {}", set.prompts.len(), set.name)?;
    }
    let mean = lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64;
    writeln!(out, "; {mean:.0} tokens in the mean")?;
    let measured: usize = rendered.evaluation_sets.iter().map(|set| set.prompts.len()).sum();
    Ok(Step::of(recipe, mean, measured))
}

/// The tokens of one step, at most.
struct Step {
    completions: u64,
    prompt: f64,
    /// Thinking and answer, both used up.
    completion: f64,
    /// Completions of one evaluation.
    evaluated: f64,
}

impl Step {
    fn of(recipe: &Recipe, prompt: f64, measured: usize) -> Self {
        let pipeline = &recipe.pipeline;
        Self {
            completions: u64::from(pipeline.groups_per_step) * u64::from(pipeline.group_size),
            prompt,
            completion: recipe.sampling.max_completion_tokens() as f64,
            evaluated: measured as f64 * f64::from(recipe.evaluation.generations),
        }
    }

    fn generated(&self) -> f64 {
        self.completions as f64 * self.completion
    }

    /// Tokens of one evaluation.
    fn evaluated(&self) -> f64 {
        self.evaluated * self.completion
    }

    fn trained(&self) -> f64 {
        self.completions as f64 * (self.completion + self.prompt)
    }

    fn print(&self, recipe: &Recipe, out: &mut dyn Write) -> Result<()> {
        let pipeline = &recipe.pipeline;
        let lag = match recipe.objective.off_policy {
            OffPolicy::Pipeline { steps_behind } => format!("at most {steps_behind} steps behind"),
            OffPolicy::PpoOffPolicy { steps_per_phase } => {
                format!("phases of {steps_per_phase} steps")
            }
        };
        writeln!(
            out,
            "step      {} prompts x {} completions = {}, up to {:.0} tokens each, {lag}",
            pipeline.groups_per_step, pipeline.group_size, self.completions, self.completion,
        )?;
        writeln!(
            out,
            "          at most {} tokens generated and {} trained on",
            tokens(self.generated()),
            tokens(self.trained()),
        )?;
        Ok(())
    }
}

fn tokens(count: f64) -> String {
    if count < 1e5 { format!("{count:.0}") } else { format!("{:.2}M", count / 1e6) }
}
