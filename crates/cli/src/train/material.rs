//! What a run works on: prompts to train on, sets to measure, judges. Read before anything is
//! spent, so that a missing file is known before a warm-up and not after it.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use scalerl_engine::EvaluationSet;
use scalerl_engine::task::{Problems, ProblemsError, TaskGrader};
use scalerl_recipe::Recipe;
use scalerl_rollout::{Prompt, PromptId};
use scalerl_task::data::{self, Pool};
use scalerl_task::{Question, VerifierPool};

use crate::failure::BadInput;
use crate::train::environment::threads;
use crate::train::rendering::Renderer;

/// Threads that judge, and verdicts at once.
pub(crate) fn judges() -> usize {
    threads().clamp(1, 16)
}

fn bad_problems(error: &ProblemsError) -> BadInput {
    BadInput::new(error).hint(error.hint())
}

/// Reads the recipe's data and builds its judges. `record` says which prompts are held out, where
/// the run has begun already.
pub(crate) fn read(recipe: &Recipe, record: &Path) -> Result<Problems> {
    let problems = Problems::load(recipe, record, judges()).map_err(|e| bad_problems(&e))?;
    if problems.duplicates > 0 {
        let count = problems.duplicates;
        writeln!(std::io::stderr(), "{count} training prompts left out: they are measured on")?;
    }
    Ok(problems)
}

/// Keeps which prompts were held out.
pub(crate) fn record(problems: &Problems, path: &Path) -> Result<()> {
    Ok(problems.write_record(path).map_err(|error| bad_problems(&error))?)
}

/// The problems as one model sees them.
pub(crate) struct Material {
    pub(crate) pool: Pool,
    pub(crate) evaluation_sets: Vec<EvaluationSet>,
    questions: HashMap<PromptId, Question>,
    verifiers: BTreeMap<String, Arc<VerifierPool>>,
}

impl Material {
    pub(crate) fn render(
        problems: &Problems,
        renderer: &Renderer,
        recipe: &Recipe,
    ) -> Result<Self> {
        let questions = problems.questions();
        let evaluation_sets = rendered(renderer, &problems.evaluation)?;
        let pool = fitting(renderer, problems.pool.clone(), recipe)?;
        Ok(Self { pool, evaluation_sets, questions, verifiers: problems.verifiers.clone() })
    }

    /// The judge, and the prompts it judges answers to.
    pub(crate) fn into_grader(self, recipe: &Recipe) -> (TaskGrader, Pool, Vec<EvaluationSet>) {
        let grader = TaskGrader {
            correct_reward: recipe.task.correct_reward,
            wrong_reward: recipe.task.wrong_reward,
            verifiers: self.verifiers,
            questions: self.questions,
        };
        (grader, self.pool, self.evaluation_sets)
    }
}

/// The training prompts that fit the recipe's budget.
fn fitting(renderer: &Renderer, pool: Pool, recipe: &Recipe) -> Result<Pool> {
    let limit = recipe.sampling.max_prompt_tokens as usize;
    let too_long = renderer.too_long(pool.prompts(), limit)?;
    if too_long.is_empty() {
        return Ok(pool);
    }
    let count = too_long.len();
    writeln!(std::io::stderr(), "{count} prompts left out: longer than {limit} tokens")?;
    let kept = pool.without(|prompt| too_long.contains(&prompt.id));
    Ok(kept.map_err(|error| {
        BadInput::new(format!("every prompt is longer than {limit} tokens: {error}"))
            .hint("raise sampling.max_prompt_tokens")
    })?)
}

fn rendered(
    renderer: &Renderer,
    sets: &[(String, Vec<data::Prompt>)],
) -> Result<Vec<EvaluationSet>> {
    let mut rendered = Vec::new();
    for (name, rows) in sets {
        let prompts: Result<Vec<Prompt>, _> = rows.iter().map(|row| renderer.render(row)).collect();
        let prompts = prompts.map_err(|error| {
            BadInput::new(format!("evaluation set {name}: {error}")).hint(error.hint())
        })?;
        rendered.push(EvaluationSet { name: name.clone(), prompts });
    }
    Ok(rendered)
}
