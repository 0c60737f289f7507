//! `scalerl merge`: an adapter and its base as one model folder.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use scalerl_journal::{Checkpoints, RunFolder};
use scalerl_model::adapter::{PEFT_CONFIG, Place};
use scalerl_model::folder::Model;
use scalerl_model::hub;
use scalerl_model::save::SaveKind;
use scalerl_torch::tch::{Device, Kind};

use crate::failure::BadInput;
use crate::train::policy::bad_model;

/// What a checkpoint must have to be merged.
const PARTS: [&str; 1] = ["trainer"];

/// Options of `merge`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// PEFT's folder of an adapter, or a run that trains one: its newest checkpoint is taken.
    #[arg(value_name = "ADAPTER_OR_RUN")]
    from: String,
    /// Folder of the merged model; must not be there yet.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// The base, where it is not the one that the adapter names.
    #[arg(long, value_name = "MODEL")]
    base: Option<String>,
}

/// Reads both in float32, adds them up, and writes the numbers that the base's files hold.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    if args.out.exists() {
        let message = format!("{} is there already", args.out.display());
        return Err(BadInput::new(message).hint("choose another --out").into());
    }
    let folder = adapter_of(&args.from)?;
    let place = Place::find(&folder, args.base.as_deref()).map_err(|error| bad_model(&error))?;
    if place.adapter.is_none() {
        let message = format!("{} is no adapter: it has no {PEFT_CONFIG}", folder.display());
        let hint = "give PEFT's folder of an adapter, or a run with an [adapter] in its recipe";
        return Err(BadInput::new(message).hint(hint).into());
    }
    let model = Model::load_at(&place, Kind::Float, Device::Cpu);
    let model = model.map_err(|error| bad_model(&error))?;
    let is_wide = ["dtype", "torch_dtype"]
        .iter()
        .any(|key| model.config.raw.get(*key).is_some_and(|kind| kind == "float32"));
    let kind = if is_wide { SaveKind::Float32 } else { SaveKind::BFloat16 };
    let merged = model.merged()?;
    merged.save(&args.out, kind).map_err(|error| bad_model(&error))?;
    let kind = if is_wide { "float32" } else { "bfloat16" };
    let (from, base) = (folder.display(), place.base.display());
    Ok(writeln!(out, "{}: {from} on {base}, {kind}", args.out.display())?)
}

/// The adapter's folder itself, or that of a run's newest checkpoint.
fn adapter_of(from: &str) -> Result<PathBuf> {
    let path = Path::new(from);
    if path.join(PEFT_CONFIG).is_file() || RunFolder::open(path).is_err() {
        return Ok(hub::resolve(from).map_err(|error| bad_model(&error))?);
    }
    let checkpoints = Checkpoints::at(path.join("checkpoints"));
    let (newest, _) = checkpoints.newest_sound(&PARTS).context("cannot read the checkpoints")?;
    let Some(newest) = newest else {
        return Err(BadInput::new(format!("{from} has no checkpoint"))
            .hint("set output.checkpoint_every_steps, or give an adapter's folder")
            .into());
    };
    Ok(newest.path.join("trainer").join("model"))
}
