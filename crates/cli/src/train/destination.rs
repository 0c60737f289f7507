//! Where a run writes: a new folder, or one to go on with.
//!
//! Whether it can be used is known before anything is spent. A new folder is made only when
//! nothing but training is left to do, so bad input leaves none behind.

use std::path::{Path, PathBuf};

use anyhow::Result;
use scalerl_journal::{Environment, JournalError, RunFolder};
use scalerl_recipe::{Recipe, Resolved, diff};

use crate::failure::BadInput;
use crate::recipe::{resolve, resolve_kept};

/// Keys that a resumed run may have otherwise than before.
const MAY_CHANGE: [&str; 11] = [
    "budget.",
    "cluster.",
    "stopping.",
    "output.",
    "track.",
    "pipeline.generator",
    // What it holds in memory, so that a run that was out of it can go on (`worker`'s memory/fit.rs).
    "model.activation_checkpointing",
    "pipeline.micro_batch_tokens",
    "pipeline.weights",
    "optimizer.moments",
    "optimizer.gradients",
];

/// The folder of a run.
#[derive(Debug)]
pub(crate) enum Destination {
    /// To be made.
    New(PathBuf),
    /// Held by this process.
    Resumed(RunFolder),
}

impl Destination {
    /// The folder named by the user, or the first free `OUTPUT/NAME-N`.
    pub(crate) fn new(named: Option<&Path>, recipe: &Recipe, names: &[String]) -> Result<Self> {
        let path = named.map_or_else(|| free_folder(recipe, names), Path::to_path_buf);
        // What a start has left that was killed before its first event is in nobody's way.
        let has_begun = RunFolder::undo_start(&path).map_err(|error| bad_folder(&error))?;
        if has_begun {
            return Err(bad_folder(&JournalError::Exists { path }).into());
        }
        Ok(Self::New(path))
    }

    /// An existing run that no other process works on.
    pub(crate) fn resumed(path: &Path) -> Result<Self> {
        Ok(Self::Resumed(RunFolder::claim(path).map_err(|error| bad_folder(&error))?))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::New(path) => path,
            Self::Resumed(folder) => folder.path(),
        }
    }

    /// The folder with this recipe in it, for the process that writes.
    pub(crate) fn enter(self, recipe: &Resolved, environment: &Environment) -> Result<RunFolder> {
        let recipe = recipe.to_toml();
        let entered = match self {
            Self::New(path) => RunFolder::create(&path, &recipe, environment),
            Self::Resumed(folder) => folder.amend_recipe(&recipe).map(|()| folder),
        };
        Ok(entered.map_err(|error| bad_folder(&error))?)
    }
}

pub(crate) fn bad_folder(error: &JournalError) -> BadInput {
    BadInput::new(error).hint(error.hint())
}

fn free_folder(recipe: &Recipe, names: &[String]) -> PathBuf {
    let name = names.last().map_or("run", String::as_str);
    // A shipped recipe's name may have dots in it; only a file's ending goes.
    let stem = Path::new(name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = stem.strip_suffix(".toml").unwrap_or(&stem).to_owned();
    let parent = Path::new(&recipe.output.folder);
    let mut folders = (1..=u32::MAX).map(|number| parent.join(format!("{stem}-{number}")));
    folders.find(|path| !path.exists()).unwrap_or_else(|| parent.join(stem))
}

/// The recipe of a run that goes on, with the changes that are allowed.
pub(crate) fn resumed_recipe(
    folder: &Path,
    names: &[String],
    set: &[String],
    goes_back: bool,
) -> Result<Resolved> {
    let kept = RunFolder::open(folder).map_err(|error| bad_folder(&error))?.recipe();
    let before = resolve_kept(&kept, &[])?;
    let after = if names.is_empty() { resolve_kept(&kept, set)? } else { resolve(names, set)? };
    let is_allowed = |key: &str| {
        MAY_CHANGE.iter().any(|section| key.starts_with(section))
            || (goes_back && key == "optimizer.lr")
    };
    let changed = diff(&before, &after);
    if let Some(refused) = changed.iter().find(|difference| !is_allowed(&difference.key)) {
        let message = format!(
            "{} was started with {} = {}, not {}",
            folder.display(),
            refused.key,
            refused.left,
            refused.right
        );
        let hint = "a resumed run may change [budget], [cluster], [stopping], [output], [track], \
                    pipeline.generator, what it holds in memory (model.activation_checkpointing, \
                    pipeline.micro_batch_tokens, pipeline.weights, optimizer.moments, \
                    optimizer.gradients) only, and optimizer.lr with --from; start a new run for \
                    anything else";
        return Err(BadInput::new(message).hint(hint).into());
    }
    Ok(after)
}
