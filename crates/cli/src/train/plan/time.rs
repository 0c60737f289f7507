//! How long a run would take, and what it would cost.
//!
//! Speeds are measured: by one step of the model's shape with random weights where a few seconds
//! suffice, else by a smaller model on the same device, scaled by operations per token. Either way it
//! says which.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use scalerl_generate::Sampling;
use scalerl_generate::bench::{DecodeBench, bench_decode};
use scalerl_model::bench::{Shape, TrainBench, bench_train};
use scalerl_model::config::{FeedForward, ModelConfig};
use scalerl_model::train::ComputeKind;
use scalerl_recipe::{GeneratorChoice, Recipe, WarmUpExamples};
use scalerl_torch::shim;
use scalerl_torch::tch::{Device, Kind};
use scalerl_worker::flops::{SequenceSize, forward_flops};
use scalerl_worker::options::{generator_options, learner_options};

use super::Step;

/// Bytes of a parameter in what is tried: weights, masters, moments, gradients, and a generator's.
const TRIED_BYTES: f64 = 22.0;
/// Operations of a probe that a CPU does in a few seconds.
const PROBE_FLOPS: f64 = 1e12;
/// A training step is a forward pass and twice that backward; a probe makes three.
const PASSES: f64 = 9.0;
/// Tokens of a sequence of the smaller model.
const SHORT: usize = 128;

/// What is asked.
pub(super) struct Question<'a> {
    pub(super) recipe: &'a Recipe,
    pub(super) config: &'a ModelConfig,
    pub(super) step: &'a Step,
    pub(super) device: Device,
    /// Devices that the run holds.
    pub(super) devices: f64,
    pub(super) price_per_hour: Option<f64>,
}

/// Tokens per second of each role, working alone.
struct Speeds {
    generate: f64,
    train: f64,
    /// How they are known.
    how: String,
}

/// Seconds, at least and at most.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    least: f64,
    most: f64,
}

pub(super) fn print(question: &Question<'_>, out: &mut dyn Write) -> Result<()> {
    let speeds = match question.speeds() {
        Ok(speeds) => speeds,
        Err(why) => return Ok(writeln!(out, "time      not measured: {why}")?),
    };
    let Question { recipe, step, .. } = question;
    writeln!(
        out,
        "speed     {:.0} tokens/s generated, {:.0} tokens/s trained on: {}",
        speeds.generate, speeds.train, speeds.how,
    )?;
    let generate = step.generated() / speeds.generate;
    let train = step.trained() / speeds.train;
    let evaluation = step.evaluated() / speeds.generate;
    writeln!(
        out,
        "time      a step of full-length completions: {} to generate, {} to train; an evaluation {}",
        seconds(generate),
        seconds(train),
        seconds(evaluation),
    )?;
    let warm_up = warm_up_tokens(recipe) / speeds.train;
    if warm_up > 0.0 {
        writeln!(
            out,
            "          the warm-up, unless it was made already: at most {}",
            seconds(warm_up)
        )?;
    }
    let of_steps = |steps: f64| {
        let evaluations = recipe.evaluation.every_steps.map_or(0.0, |n| steps / f64::from(n) + 1.0);
        Range {
            least: 0.5 * (steps * generate.max(train) + evaluations * evaluation),
            most: steps * (generate + train) + evaluations * evaluation + warm_up,
        }
    };
    if let Some(steps) = recipe.budget.steps {
        let Range { least, most } = of_steps(steps as f64);
        writeln!(
            out,
            "          {steps} steps: between {} (half the budget of each completion, roles side by \
             side) and {} (all of it, in turn)",
            seconds(least),
            seconds(most),
        )?;
    }
    let tokens = |tokens: u64| tokens as f64 / step.generated().max(1.0);
    let ends = ends(recipe, question.devices, warm_up, &of_steps, tokens);
    writeln!(out, "cost      {}", cost(&ends, question, of_steps(100.0)))?;
    Ok(())
}

/// Every limit that would end the run, with the time it allows.
fn ends(
    recipe: &Recipe,
    devices: f64,
    warm_up: f64,
    of_steps: &dyn Fn(f64) -> Range,
    steps_of_tokens: impl Fn(u64) -> f64,
) -> Vec<(&'static str, Range)> {
    let budget = &recipe.budget;
    let clock = |hours: f64| Range { least: hours * 3600.0, most: hours * 3600.0 + warm_up };
    let limits = [
        ("budget.steps", budget.steps.map(|steps| of_steps(steps as f64))),
        ("budget.wall_hours", budget.wall_hours.map(clock)),
        ("budget.device_hours", budget.device_hours.map(|hours| clock(hours / devices))),
        ("budget.tokens", budget.tokens.map(|tokens| of_steps(steps_of_tokens(tokens)))),
    ];
    limits.into_iter().filter_map(|(key, range)| Some((key, range?))).collect()
}

fn cost(ends: &[(&'static str, Range)], question: &Question<'_>, hundred: Range) -> String {
    let priced = |range: Range| {
        let hours = [range.least, range.most].map(|seconds| seconds / 3600.0 * question.devices);
        let mut text =
            format!("between {} and {} device-hours", amount(hours[0]), amount(hours[1]));
        if let Some(price) = question.price_per_hour {
            let [least, most] = hours.map(|hours| hours * price);
            let (least, most) = (amount(least), amount(most));
            // Writing to a string does not fail.
            let _ = write!(text, " = {least} to {most} at {price} an hour");
        }
        text
    };
    let by_most = ends.iter().min_by(|a, b| a.1.most.total_cmp(&b.1.most));
    let Some((key, Range { most, .. })) = by_most else {
        return format!("no budget ends the run; a hundred steps: {}", priced(hundred));
    };
    let least = ends.iter().map(|(_, range)| range.least).fold(f64::INFINITY, f64::min);
    let devices = match question.devices {
        1.0 => "one device".to_owned(),
        devices => format!("{devices:.0} devices"),
    };
    format!("{} on {devices}, ended by {key}", priced(Range { least, most: *most }))
}

/// Three digits, without a tail of zeros.
fn amount(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v if v >= 0.01 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}

/// Most tokens that a warm-up trains on.
fn warm_up_tokens(recipe: &Recipe) -> f64 {
    let (warm_up, sampling) = (&recipe.warm_up, &recipe.sampling);
    if warm_up.examples == WarmUpExamples::None {
        return 0.0;
    }
    let longest = warm_up.max_tokens.map_or_else(
        || f64::from(sampling.max_prompt_tokens) + sampling.max_completion_tokens() as f64,
        f64::from,
    );
    f64::from(warm_up.steps) * f64::from(warm_up.examples_per_step) * longest
}

pub(super) fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.1 => format!("{:.0} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// How many devices the recipe holds: those of other processes, or this process's own.
pub(crate) fn devices(recipe: &Recipe, own: f64) -> f64 {
    let cluster = &recipe.cluster;
    match &recipe.pipeline.generator {
        GeneratorChoice::Vllm { urls, .. } => f64::from(cluster.trainers) + urls.len() as f64,
        GeneratorChoice::Local if cluster.is_alone() => own,
        GeneratorChoice::Local => f64::from(cluster.trainers) + f64::from(cluster.generators),
    }
}

impl Question<'_> {
    fn speeds(&self) -> Result<Speeds, String> {
        let length = ((self.step.prompt + self.step.completion).min(1024.0) as usize).max(2);
        let most = self.recipe.pipeline.micro_batch_tokens as usize / length;
        let sequences = most.clamp(1, 32);
        let own = forward(self.config, length) * sequences as f64 * PASSES;
        let why = match self.config.layers[0].feed_forward {
            FeedForward::Experts { .. } => "a mixture of experts".to_owned(),
            FeedForward::Dense { .. } if self.device == Device::Cpu && own > PROBE_FLOPS => {
                "too large to be tried on a CPU in seconds".to_owned()
            }
            FeedForward::Dense { .. } if self.is_too_large() => {
                "too large to be tried whole on this device".to_owned()
            }
            FeedForward::Dense { width } => {
                match self.measure(&shape(self.config, width), sequences, length) {
                    Ok((generate, train)) => {
                        let how = "one timed step of this shape, each role alone, random weights"
                            .to_owned();
                        return Ok(Speeds { generate, train, how });
                    }
                    Err(error) => format!("this shape could not be tried ({error})"),
                }
            }
        };
        self.scaled(&why, length)
    }

    /// Whether a GPU has no room for all weights with a float32 optimizer, which is what is tried.
    fn is_too_large(&self) -> bool {
        let Device::Cuda(_) = self.device else { return false };
        let total = shim::device_memory(self.device).map_or(0, |(_, total)| total);
        self.config.parameter_count() as f64 * TRIED_BYTES > total as f64
    }

    /// From a smaller model, by operations per token.
    fn scaled(&self, why: &str, length: usize) -> Result<Speeds, String> {
        let small = smaller(self.config);
        let config = small.config().map_err(|error| error.to_string())?;
        let (generate, train) = self.measure(&small, 4, SHORT)?;
        let share = (forward(&config, SHORT) / SHORT as f64)
            / (forward(self.config, length) / length as f64);
        let rate = 3.0 * train * forward(&config, SHORT) / SHORT as f64;
        let how = format!(
            "estimated from {:.2} TFLOP/s of a model of {:.1}M parameters, because it is {why}",
            rate / 1e12,
            config.parameter_count() as f64 / 1e6,
        );
        Ok(Speeds { generate: generate * share, train: train * share, how })
    }

    /// Tokens per second generated and trained on.
    fn measure(
        &self,
        shape: &Shape,
        sequences: usize,
        length: usize,
    ) -> Result<(f64, f64), String> {
        let (recipe, device) = (self.recipe, self.device);
        let train = bench_train(&TrainBench {
            shape: *shape,
            sequences,
            length,
            is_mixed: false,
            micro_batch_tokens: sequences * length,
            warmup: 1,
            steps: 2,
            is_profiled: false,
            seed: 1,
            device,
            options: learner_options(recipe, device),
        });
        let train = train.map_err(|error| error.to_string())?;
        let config = shape.config().map_err(|error| error.to_string())?;
        let options = generator_options(recipe, &config, device);
        let kind = match learner_options(recipe, device).compute {
            ComputeKind::Float32 => Kind::Float,
            ComputeKind::BFloat16 => Kind::BFloat16,
        };
        let decode = bench_decode(&DecodeBench {
            shape: *shape,
            batch: options.running.min(self.step.completions as usize),
            prompt: (self.step.prompt as usize).max(1),
            new: (self.step.completion as usize).clamp(1, 64),
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
        Ok((decode.new_tokens_per_s, train.tokens_per_s))
    }
}

fn forward(config: &ModelConfig, length: usize) -> f64 {
    forward_flops(config, SequenceSize { tokens: length as u64, scored: length as u64 })
}

fn shape(config: &ModelConfig, feed_forward: i64) -> Shape {
    Shape {
        layers: config.layers.len() as i64,
        width: config.width,
        heads: config.heads,
        kv_heads: config.kv_heads,
        feed_forward,
        vocabulary: config.vocabulary,
    }
}

/// A dense model of two layers and the same proportions, as wide as a few seconds on a CPU allow.
fn smaller(config: &ModelConfig) -> Shape {
    let active = match config.layers[0].feed_forward {
        FeedForward::Dense { width } => width,
        FeedForward::Experts { active, width, shared_width, .. } => {
            active * width + shared_width.unwrap_or_default()
        }
    };
    let mut width = (config.width / 64).clamp(1, 32) * 64;
    let ratio = active as f64 / config.width as f64;
    loop {
        let shape = Shape {
            layers: 2,
            width,
            heads: width / 64,
            kv_heads: if (width / 64) % 2 == 0 { 2 } else { 1 },
            feed_forward: ((width as f64 * ratio) as i64).max(64),
            vocabulary: config.vocabulary.min(8192),
        };
        let is_cheap = shape
            .config()
            .is_ok_and(|config| 4.0 * PASSES * forward(&config, SHORT) <= PROBE_FLOPS);
        if is_cheap || width == 64 {
            return shape;
        }
        width -= 64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_limit_that_ends_a_run_first_is_what_it_costs() {
        let source = scalerl_recipe::Source::Text {
            name: "test".into(),
            text: "[budget]\nsteps = 100\nwall_hours = 1.0\ndevice_hours = 8.0".into(),
        };
        let recipe = Recipe::load(&[source], &[]).unwrap();
        let of_steps = |steps: f64| Range { least: steps * 10.0, most: steps * 100.0 };
        let found = ends(&recipe, 4.0, 0.0, &of_steps, |_| 0.0);
        let most: Vec<(&str, f64)> = found.iter().map(|(key, range)| (*key, range.most)).collect();
        let expected = [
            ("budget.steps", 10_000.0),
            ("budget.wall_hours", 3600.0),
            ("budget.device_hours", 7200.0),
        ];
        assert_eq!(most, expected);
    }

    proptest! {
        #[test]
        fn a_smaller_model_can_be_tried_in_seconds(
            width in 1_i64..256, layers in 1_i64..128, vocabulary in 100_i64..300_000, ratio in 1_i64..6,
        ) {
            let large = Shape {
                layers, width: width * 64, heads: width, kv_heads: 1,
                feed_forward: width * 64 * ratio, vocabulary,
            };
            let small = smaller(&large.config().unwrap());
            let config = small.config().unwrap();
            prop_assert!(small.heads % small.kv_heads == 0);
            prop_assert!(4.0 * PASSES * forward(&config, SHORT) <= PROBE_FLOPS);
        }
    }
}
