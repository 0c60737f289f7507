//! `scalerl sft`: supervised fine-tuning on chat or prompt/completion JSONL.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

use scalerl_model::adapter::AdapterConfig;
use scalerl_model::sft::{Progress, SftError, SftOptions};
use scalerl_model::train::AdamWConfig;
use scalerl_model::{hub, sft};
use scalerl_torch::device;

use crate::failure::{BadInput, Failed};
use crate::interrupt::Interrupt;

/// Options of `sft`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the model (or of an adapter) to start from, or a name on the Hugging Face hub.
    #[arg(long)]
    model: String,
    /// Base of a starting adapter, where it is not the one it names.
    #[arg(long, value_name = "MODEL")]
    base: Option<String>,
    /// Train a LoRA adapter of this rank in place of all weights.
    #[arg(long, value_name = "RANK")]
    lora_rank: Option<u32>,
    /// What the adapter adds is multiplied by this, divided by the rank.
    #[arg(long, value_name = "ALPHA", default_value_t = 32.0, requires = "lora_rank")]
    lora_alpha: f64,
    /// Layers with an adapter, such as q_proj,v_proj; without it all linear layers.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "lora_rank")]
    lora_layers: Vec<String>,
    /// Start from random weights; the folder needs config.json and a tokenizer only.
    #[arg(long)]
    from_scratch: bool,
    /// Training examples, JSONL: {"messages": […]} or {"prompt": …, "completion": …}.
    #[arg(long)]
    train: PathBuf,
    /// Examples for the validation loss.
    #[arg(long)]
    validation: Option<PathBuf>,
    /// Folder of the run: options, metrics, checkpoints, and the finished model.
    #[arg(long)]
    out: PathBuf,
    /// Go on with the run in --out from its last checkpoint.
    #[arg(long)]
    resume: bool,
    #[arg(long, default_value_t = 1000)]
    steps: u64,
    /// Examples of one step.
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Longer examples are left out.
    #[arg(long, default_value_t = 4096)]
    max_tokens: usize,
    /// Most tokens that pass through the network at once.
    #[arg(long, default_value_t = 16384)]
    micro_batch_tokens: usize,
    #[arg(long, default_value_t = 1e-5)]
    lr: f64,
    #[arg(long, default_value_t = 50)]
    warmup_steps: u64,
    /// Let the learning rate fall in a line to a tenth over this many steps; 0 keeps it.
    #[arg(long, default_value_t = 0)]
    decay_steps: u64,
    #[arg(long, default_value_t = 0.01)]
    weight_decay: f64,
    /// Gradients are scaled down to this norm; 0 leaves them alone.
    #[arg(long, default_value_t = 1.0)]
    max_gradient_norm: f64,
    #[arg(long, default_value_t = 100)]
    validate_every: u64,
    #[arg(long, default_value_t = 100)]
    save_every: u64,
    /// Checkpoints to keep.
    #[arg(long, default_value_t = 2)]
    keep: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compute activations again in the backward pass: less memory, more time.
    #[arg(long)]
    recompute: bool,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto")]
    device: String,
}

/// Trains and prints a line per step.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let device = device::parse(&args.device).map_err(BadInput::new)?;
    let model =
        hub::resolve(&args.model).map_err(|error| BadInput::new(&error).hint(error.hint()))?;
    let options = SftOptions {
        model,
        base: args.base.clone(),
        adapter: args.lora_rank.map(|rank| AdapterConfig {
            rank: i64::from(rank),
            alpha: args.lora_alpha,
            layers: args.lora_layers.clone(),
            is_rank_stabilised: false,
        }),
        is_from_scratch: args.from_scratch,
        train: args.train.clone(),
        validation: args.validation.clone(),
        steps: args.steps,
        examples_per_step: args.batch,
        max_tokens: args.max_tokens,
        micro_batch_tokens: args.micro_batch_tokens,
        optimizer: AdamWConfig {
            lr: args.lr,
            warmup_steps: args.warmup_steps,
            decay_steps: args.decay_steps,
            weight_decay: args.weight_decay,
            max_gradient_norm: args.max_gradient_norm,
            epsilon: 1e-8,
            ..AdamWConfig::default()
        },
        validate_every: args.validate_every,
        save_every: args.save_every,
        keep: args.keep,
        seed: args.seed,
        is_recomputing: args.recompute,
    };
    let mut failed_to_print = None;
    let interrupt = Interrupt::listen()?;
    let outcome = sft::run(&options, &args.out, device, args.resume, &mut |progress| {
        let printed = print(progress, out);
        failed_to_print = failed_to_print.take().or(printed.err());
        if interrupt.is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .map_err(failed)?;
    if let Some(error) = failed_to_print {
        return Err(error.into());
    }
    match outcome {
        Some(outcome) => writeln!(out, "finished: {}", outcome.model.display())?,
        None => writeln!(out, "stopped and saved; the same command with --resume goes on")?,
    }
    Ok(())
}

/// An error of supervised steps, with what to do next.
pub(crate) fn failed(error: SftError) -> anyhow::Error {
    let hint = error.hint();
    if error.is_of_work() {
        Failed::new(error, hint).into()
    } else {
        BadInput::new(&error).hint(hint).into()
    }
}

fn print(progress: &Progress, out: &mut dyn Write) -> std::io::Result<()> {
    match progress {
        Progress::Started { examples, too_long, parameters, trained, resumed_at } => {
            write!(out, "{examples} examples, {:.1}M parameters", *parameters as f64 / 1e6)?;
            if let Some(trained) = trained {
                let share = 100.0 * *trained as f64 / *parameters as f64;
                write!(out, ", {trained} of an adapter trained ({share:.2} %)")?;
            }
            if *too_long > 0 {
                write!(out, ", {too_long} examples left out as too long")?;
            }
            if *resumed_at > 0 {
                write!(out, ", going on after step {resumed_at}")?;
            }
            writeln!(out)
        }
        Progress::Line(line) => {
            let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
            if line.get("validation_loss").is_some() {
                let loss = number("validation_loss");
                return writeln!(out, "step {:>6}  validation loss {loss:.4}", number("step"));
            }
            writeln!(
                out,
                "step {:>6}  loss {:.4}  gradient norm {:.3}  lr {:.2e}  {} tokens",
                number("step"),
                number("loss"),
                number("gradient_norm"),
                number("lr"),
                number("tokens"),
            )
        }
    }
}
