//! `scalerl train --dry-run`: what a run would be, before anything is spent.
//!
//! Sizes follow from recipe and model. Speeds are measured, for a second or two, on random weights
//! of the model's shape; where that would take long, or the shape cannot be measured, it says so
//! instead of guessing.

use std::io::Write;

use anyhow::Result;
use scalerl_model::bench::{DecodeBench, Shape, TrainBench, bench_decode, bench_train};
use scalerl_model::config::{FeedForward, ModelConfig};
use scalerl_model::generate::Sampling;
use scalerl_model::shim;
use scalerl_model::tch::{Device, Kind};
use scalerl_model::train::ComputeKind;
use scalerl_recipe::{OffPolicy, Recipe, Resolved};
use scalerl_worker::flops::{SequenceSize, forward_flops};
use scalerl_worker::options::{generator_options, learner_options};

use crate::train::GIB;
use crate::train::environment::threads;
use crate::train::material;
use crate::train::policy::Policy;
use crate::train::rendering::Renderer;
const MIB: f64 = (1_u64 << 20) as f64;

/// Operations of a probe that a CPU does in a few seconds.
const PROBE_FLOPS: f64 = 1e12;

pub(crate) fn print(recipe: &Resolved, device: Device, out: &mut dyn Write) -> Result<()> {
    let aside = Aside::new();
    let policy = Policy::sketch(recipe, &aside.0)?;
    let config = policy.config()?;
    let (all, active) = (config.parameter_count() as f64, config.active_parameter_count() as f64);
    let compute = learner_options(recipe, device).compute;
    write!(out, "model     {:.2}M parameters", all / 1e6)?;
    if active < all {
        write!(out, ", {:.2}M of them active", active / 1e6)?;
    }
    let wide = if compute == ComputeKind::Float32 { "f32" } else { "bf16 with f32 masters" };
    let place = match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => format!("{} CPU threads", threads()),
    };
    writeln!(out, ", {wide}, on {place}")?;

    let prompt_tokens = problems(recipe, &policy, &aside, out)?;
    let step = Step::of(recipe, prompt_tokens);
    step.print(recipe, out)?;
    memory(recipe, &config, device, out)?;
    time(recipe, &config, &step, device, out)
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

/// Reads the data and returns the mean length of a prompt.
fn problems(recipe: &Recipe, policy: &Policy, aside: &Aside, out: &mut dyn Write) -> Result<f64> {
    let renderer = Renderer::load(recipe, &policy.folder)?;
    std::fs::create_dir_all(&aside.0)?;
    let problems = material::read(recipe, &aside.0.join("held_out.json"))?;
    let rendered = material::render(problems, &renderer, recipe)?;
    let lengths: Vec<usize> =
        rendered.prompts.prompts().map(|prompt| prompt.token_ids.len()).collect();
    write!(out, "prompts   {} to train on", lengths.len())?;
    for set in &rendered.evaluation_sets {
        write!(out, ", {} {}", set.prompts.len(), set.name)?;
    }
    let mean = lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64;
    writeln!(out, "; {mean:.0} tokens in the mean")?;
    Ok(mean)
}

/// The tokens of one step, at most.
struct Step {
    completions: u64,
    prompt: f64,
    /// Thinking and answer, both used up.
    completion: f64,
}

impl Step {
    fn of(recipe: &Recipe, prompt: f64) -> Self {
        let pipeline = &recipe.pipeline;
        Self {
            completions: u64::from(pipeline.groups_per_step) * u64::from(pipeline.group_size),
            prompt,
            completion: recipe.sampling.max_completion_tokens() as f64,
        }
    }

    fn generated(&self) -> f64 {
        self.completions as f64 * self.completion
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

fn memory(
    recipe: &Recipe,
    config: &ModelConfig,
    device: Device,
    out: &mut dyn Write,
) -> Result<()> {
    let learner = learner_options(recipe, device);
    let parameters = config.parameter_count() as f64;
    let is_wide = learner.compute == ComputeKind::Float32;
    let width = if is_wide { 4.0 } else { 2.0 };
    let copy = parameters * width;
    // Masters and two moments; gradients in the kind of the layers; a copy for the layers unless
    // they are the masters.
    let trainer = parameters * 12.0 + copy + if is_wide { 0.0 } else { copy };
    let options = generator_options(recipe, config, device);
    let per_token =
        2.0 * config.layers.len() as f64 * (config.kv_heads * config.head_width) as f64 * width;
    let cache = options.cache_tokens as f64 * per_token;
    // Two published copies take turns.
    let whole = trainer + 3.0 * copy + cache;
    write!(
        out,
        "memory    trainer {}, published weights {}, generator {} and its cache {} ({} tokens): {} \
         before activations",
        memory_size(trainer),
        memory_size(2.0 * copy),
        memory_size(copy),
        memory_size(cache),
        tokens(options.cache_tokens as f64),
        memory_size(whole),
    )?;
    if let Device::Cuda(_) = device {
        let (free, total) = shim::device_memory(device)?;
        write!(out, "; {:.1} of {:.1} GiB are free", free as f64 / GIB, total as f64 / GIB)?;
        if whole > free as f64 {
            write!(out, ": TOO LITTLE")?;
        }
    }
    Ok(writeln!(out)?)
}

fn time(
    recipe: &Recipe,
    config: &ModelConfig,
    step: &Step,
    device: Device,
    out: &mut dyn Write,
) -> Result<()> {
    let speeds = match probe(recipe, config, step, device) {
        Ok(speeds) => speeds,
        Err(why) => return Ok(writeln!(out, "time      not measured: {why}")?),
    };
    writeln!(
        out,
        "speed     {:.0} tokens/s generated, {:.0} tokens/s trained on (each alone, random weights)",
        speeds.generate, speeds.train,
    )?;
    let generate = step.generated() / speeds.generate;
    let train = step.trained() / speeds.train;
    let evaluated = f64::from(recipe.task.held_out) * f64::from(recipe.evaluation.generations);
    let evaluation = evaluated * step.completion / speeds.generate;
    writeln!(
        out,
        "time      a step of full-length completions: {} to generate, {} to train; an evaluation of \
         the held-out prompts {}",
        seconds(generate),
        seconds(train),
        seconds(evaluation),
    )?;
    if let Some(steps) = recipe.budget.steps {
        let steps = steps as f64;
        let evaluations = recipe.evaluation.every_steps.map_or(0.0, |n| steps / f64::from(n) + 1.0);
        let most = steps * (generate + train) + evaluations * evaluation;
        let least = 0.5 * (steps * generate.max(train) + evaluations * evaluation);
        writeln!(
            out,
            "          {steps:.0} steps: between {} (half the budget of each completion, roles side \
             by side) and {} (all of it, in turn)",
            seconds(least),
            seconds(most),
        )?;
    }
    Ok(())
}

fn tokens(count: f64) -> String {
    if count < 1e5 { format!("{count:.0}") } else { format!("{:.2}M", count / 1e6) }
}

fn memory_size(bytes: f64) -> String {
    if bytes < 0.1 * GIB {
        format!("{:.1} MiB", bytes / MIB)
    } else {
        format!("{:.2} GiB", bytes / GIB)
    }
}

fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.1 => format!("{:.0} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Tokens per second of each role, working alone.
struct Speeds {
    generate: f64,
    train: f64,
}

fn probe(
    recipe: &Recipe,
    config: &ModelConfig,
    step: &Step,
    device: Device,
) -> Result<Speeds, String> {
    let FeedForward::Dense { width } = config.layers[0].feed_forward else {
        return Err("the probe knows dense models only".to_owned());
    };
    let shape = Shape {
        layers: config.layers.len() as i64,
        width: config.width,
        heads: config.heads,
        kv_heads: config.kv_heads,
        feed_forward: width,
        vocabulary: config.vocabulary,
    };
    let length = (step.prompt + step.completion).min(1024.0) as usize;
    let sequences = (recipe.pipeline.micro_batch_tokens as usize / length).clamp(1, 32);
    let one = forward_flops(config, SequenceSize { tokens: length as u64, scored: length as u64 });
    if device == Device::Cpu && one * sequences as f64 * 9.0 > PROBE_FLOPS {
        return Err("the model is too large to be tried on a CPU in a few seconds".to_owned());
    }
    let train = bench_train(&TrainBench {
        shape,
        sequences,
        length,
        is_mixed: false,
        micro_batch_tokens: sequences * length,
        warmup: 1,
        steps: 2,
        seed: 1,
        device,
        options: learner_options(recipe, device),
    });
    let train = train.map_err(|error| error.to_string())?;
    let options = generator_options(recipe, config, device);
    let kind = match learner_options(recipe, device).compute {
        ComputeKind::Float32 => Kind::Float,
        ComputeKind::BFloat16 => Kind::BFloat16,
    };
    let decode = bench_decode(&DecodeBench {
        shape,
        batch: options.running.min(step.completions as usize),
        prompt: (step.prompt as usize).max(1),
        new: (step.completion as usize).clamp(1, 64),
        fewest: None,
        sampling: Sampling::default(),
        repetitions: 1,
        bandwidth: None,
        is_broken_down: false,
        device,
        kind,
        options,
    });
    let decode = decode.map_err(|error| error.to_string())?;
    Ok(Speeds { generate: decode.new_tokens_per_s, train: train.tokens_per_s })
}
