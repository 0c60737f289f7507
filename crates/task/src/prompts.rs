//! Problems as one model reads them: rendered once, handed out in the sampler's order, judged by
//! their data set's verifier.
//!
//! ```text
//! Problems ── render ──▶ TaskPrompts (PromptSource), EvaluationSets, TaskGrader (Grader)
//! ```
//!
//! Not here: templates and tokens, which are the model's; the caller brings the function that renders.

use rayon::prelude::*;
use scalerl_recipe::{Curriculum as CurriculumChoice, Recipe};
use scalerl_rollout::{
    DrawnPrompt, EvaluationSet, PassRecord, Prompt, PromptId, PromptSource, SourceError,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::curriculum::Curriculum;
use crate::data::{DataError, Pool};
use crate::grader::TaskGrader;
use crate::problem::Problem;
use crate::problems::Problems;
use crate::sampler::{Sampler, SamplerState};

/// Why problems cannot become prompts of a model.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RenderError<E> {
    /// The model's template or tokenizer refuses one.
    #[error("prompt {id} cannot be rendered: {source}", id = id.0)]
    #[expect(missing_docs, reason = "the message names the fields")]
    Render { id: PromptId, source: E },
    /// None is short enough.
    #[error("every prompt is longer than {limit} tokens, the shortest has {shortest}")]
    #[expect(missing_docs, reason = "the message names the fields")]
    AllTooLong { limit: usize, shortest: usize },
}

/// Everything the engine asks of a task.
#[derive(Debug)]
pub struct Rendered {
    /// What is trained on.
    pub prompts: TaskPrompts,
    /// What is measured.
    pub evaluation_sets: Vec<EvaluationSet>,
    /// Who judges both.
    pub grader: TaskGrader,
    /// Training prompts that were left out because they are longer than the recipe allows.
    pub too_long: usize,
}

impl Problems {
    /// Renders every problem once, on all cores.
    pub fn render<E: Send>(
        self,
        recipe: &Recipe,
        render: impl Fn(&Problem) -> Result<Prompt, E> + Sync,
    ) -> Result<Rendered, RenderError<E>> {
        let render_all = |problems: &[Problem]| -> Result<Vec<Prompt>, RenderError<E>> {
            let one = |problem: &Problem| {
                let id = || problem.id.clone();
                render(problem).map_err(|source| RenderError::Render { id: id(), source })
            };
            problems.par_iter().map(one).collect()
        };
        let mut evaluation_sets = Vec::new();
        for (name, problems) in &self.evaluation {
            let prompts = render_all(problems)?;
            evaluation_sets.push(EvaluationSet { name: name.clone(), prompts });
        }
        let limit = recipe.sampling.max_prompt_tokens as usize;
        let (mut sets, mut prompts) = (Vec::new(), Vec::new());
        let (mut too_long, mut shortest) = (0, usize::MAX);
        for set in self.pool.sets {
            let rendered = render_all(&set.problems)?;
            shortest = rendered
                .iter()
                .map(|one| one.token_ids.len())
                .min()
                .unwrap_or(shortest)
                .min(shortest);
            let all = set.problems.into_iter().zip(rendered);
            let (fitting, long): (Vec<_>, Vec<_>) =
                all.partition(|(_, prompt)| prompt.token_ids.len() <= limit);
            too_long += long.len();
            let (problems, rendered): (Vec<Problem>, Vec<Prompt>) = fitting.into_iter().unzip();
            if !problems.is_empty() {
                prompts.push(rendered);
                sets.push((set.name, set.weight, problems));
            }
        }
        let pool = match Pool::try_new(sets) {
            Ok(pool) => pool,
            Err(DataError::Empty) => return Err(RenderError::AllTooLong { limit, shortest }),
            Err(error) => unreachable!("names and weights were checked when it was read: {error}"),
        };
        let measured = self.evaluation.iter().flat_map(|(_, problems)| problems);
        let judged = pool.problems().chain(measured);
        let grader = TaskGrader::new(recipe, self.verifiers, judged.cloned());
        let prompts = TaskPrompts::new(&pool, prompts, recipe.seed, &recipe.objective.curriculum);
        Ok(Rendered { prompts, evaluation_sets, grader, too_long })
    }
}

/// Training prompts in the sampler's order, without those the curriculum excludes.
#[derive(Debug)]
pub struct TaskPrompts {
    /// By data set and row of the pool.
    prompts: Vec<Vec<Prompt>>,
    sampler: Sampler,
    curriculum: Curriculum,
    choice: CurriculumChoice,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    sampler: SamplerState,
    curriculum: Curriculum,
}

impl TaskPrompts {
    /// From the beginning; `prompts` are those of the pool, set by set and row by row.
    fn new(pool: &Pool, prompts: Vec<Vec<Prompt>>, seed: u64, choice: &CurriculumChoice) -> Self {
        let sampler = Sampler::new(pool, seed);
        Self { prompts, sampler, curriculum: Curriculum::default(), choice: choice.clone() }
    }

    /// All of them, in the order of the data.
    pub fn prompts(&self) -> impl Iterator<Item = &Prompt> {
        self.prompts.iter().flatten()
    }
}

impl PromptSource for TaskPrompts {
    fn next(&mut self) -> Result<Option<DrawnPrompt>, SourceError> {
        let Self { prompts, sampler, curriculum, choice } = self;
        let is_excluded =
            |dataset: usize, row: usize| curriculum.is_excluded(&prompts[dataset][row].id, choice);
        let drawn = sampler.next(is_excluded);
        Ok(drawn.map(|drawn| DrawnPrompt {
            draw: drawn.draw,
            prompt: prompts[drawn.dataset][drawn.row].clone(),
        }))
    }

    fn record(
        &mut self,
        prompt: &PromptId,
        record: PassRecord,
    ) -> Result<Option<PassRecord>, SourceError> {
        self.curriculum.record(prompt, record).map_err(SourceError::new)
    }

    fn state(&self) -> Result<serde_json::Value, SourceError> {
        let saved = Saved { sampler: self.sampler.state(), curriculum: self.curriculum.clone() };
        serde_json::to_value(saved).map_err(SourceError::new)
    }

    fn restore(&mut self, state: serde_json::Value) -> Result<(), SourceError> {
        let saved: Saved = serde_json::from_value(state).map_err(SourceError::new)?;
        self.sampler.restore(&saved.sampler).map_err(SourceError::new)?;
        self.curriculum = saved.curriculum;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_recipe::Source;

    /// Nine sums; the prompt's tokens are its bytes.
    fn rendered(count: usize, limit: usize) -> Result<Rendered, RenderError<String>> {
        let text = format!("sampling.max_prompt_tokens = {limit}\nseed = 3\n");
        let source = Source::Text { name: "test".into(), text };
        let recipe = Recipe::load(&[source], &[]).unwrap();
        let sums = (0..count)
            .map(|i| Problem::plain(format!("{i}+1="), (i + 1).to_string()).named("sums", i));
        let pool = Pool::try_new(vec![("sums".into(), 1.0, sums.collect())]).unwrap();
        Problems::of_pool(pool).render(&recipe, |problem| {
            if problem.text().contains("13") {
                return Err("as told".to_owned());
            }
            Ok(Prompt {
                id: problem.id.clone(),
                dataset: problem.dataset.clone(),
                text: problem.text(),
                token_ids: problem.text().bytes().map(u32::from).collect(),
                answer: problem.answer.clone(),
            })
        })
    }

    fn prompts() -> TaskPrompts {
        rendered(9, 100).unwrap().prompts
    }

    fn is_solved(drawn: &DrawnPrompt) -> bool {
        ["sums/0", "sums/3", "sums/6"].contains(&drawn.prompt.id.0.as_str())
    }

    /// Draws and records; every third prompt is solved.
    fn take(prompts: &mut TaskPrompts, count: u64) -> Vec<DrawnPrompt> {
        let mut taken = Vec::new();
        for step in 0..count {
            let drawn = prompts.next().unwrap().unwrap();
            let passed = if is_solved(&drawn) { 4 } else { 1 };
            let record = PassRecord { step, passed, judged: 4 };
            prompts.record(&drawn.prompt.id, record).unwrap();
            taken.push(drawn);
        }
        taken
    }

    #[test]
    fn a_restored_source_hands_out_what_would_have_come_next() {
        let mut straight = prompts();
        let all = take(&mut straight, 24);
        for stop in [0, 1, 5, 9, 13, 20] {
            let mut first = prompts();
            let mut taken = take(&mut first, stop);
            let text = serde_json::to_string(&first.state().unwrap()).unwrap();
            let mut second = prompts();
            second.restore(serde_json::from_str(&text).unwrap()).unwrap();
            taken.extend(take(&mut second, 24 - stop));
            assert_eq!(taken, all, "stopped after {stop}");
        }
        let solved: Vec<u64> =
            all.iter().filter(|one| is_solved(one)).map(|one| one.draw.epoch).collect();
        assert_eq!(solved, [0, 0, 0], "a solved prompt does not come again");
    }

    #[test]
    fn a_state_of_other_data_is_refused() {
        let state = prompts().state().unwrap();
        let mut other = rendered(4, 100).unwrap().prompts;
        assert!(other.restore(state).unwrap_err().to_string().contains("other data"));
    }

    #[test]
    fn prompts_that_are_too_long_are_left_out_and_counted() {
        let found = rendered(12, 4).unwrap();
        assert_eq!(found.too_long, 2, "10+1= and 11+1=");
        let none = rendered(3, 2).unwrap_err();
        assert!(matches!(none, RenderError::AllTooLong { limit: 2, shortest: 4 }), "{none}");
    }

    #[test]
    fn a_prompt_that_cannot_be_rendered_is_named() {
        let error = rendered(14, 100).unwrap_err();
        assert_eq!(error.to_string(), "prompt sums/13 cannot be rendered: as told");
    }
}
