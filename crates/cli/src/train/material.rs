//! What a run works on: prompts to train on, sets to measure, verifiers. Read before anything is
//! spent, so that a missing file is known before a warm-up and not after it.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use scalerl_recipe::Recipe;
use scalerl_task::{Problems, ProblemsError, ProblemsRecord, RenderError, Rendered};

use crate::failure::BadInput;
use crate::train::environment::threads;
use crate::train::rendering::Renderer;

/// Threads that judge, and processes of judges that keep some.
fn judges() -> usize {
    threads().clamp(1, 16)
}

fn bad_problems(error: &ProblemsError) -> BadInput {
    BadInput::new(error).hint(error.hint())
}

/// Reads the recipe's data and builds its verifiers. `record` says which prompts are held out, where
/// the run has begun already.
pub(crate) fn read(recipe: &Recipe, record: &Path) -> Result<Problems> {
    let problems = Problems::load(recipe, record, judges()).map_err(|e| bad_problems(&e))?;
    if problems.duplicates > 0 {
        let count = problems.duplicates;
        writeln!(std::io::stderr(), "{count} training prompts left out: they are measured on")?;
    }
    Ok(problems)
}

/// Keeps which prompts were held out and what all problems were, where that is not known yet.
pub(crate) fn record(kept: &ProblemsRecord, path: &Path) -> Result<()> {
    Ok(kept.save(path).map_err(|e| bad_problems(&e))?)
}

/// The problems as one model reads them.
pub(crate) fn render(problems: Problems, renderer: &Renderer, recipe: &Recipe) -> Result<Rendered> {
    let rendered = problems.render(recipe, |problem| renderer.render(problem));
    let rendered = rendered.map_err(|error| {
        let hint = match &error {
            RenderError::Render { source, .. } => source.hint(),
            _ => "raise sampling.max_prompt_tokens",
        };
        BadInput::new(&error).hint(hint)
    })?;
    if rendered.too_long > 0 {
        let (count, limit) = (rendered.too_long, recipe.sampling.max_prompt_tokens);
        writeln!(std::io::stderr(), "{count} prompts left out: longer than {limit} tokens")?;
    }
    Ok(rendered)
}
