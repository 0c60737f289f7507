//! What a run is given beside its recipe, and numbers derived from both once.

use std::{sync::Arc, time::Duration};

use scalerl_curve::HistoryEntry;
use scalerl_recipe::{LengthControl, Recipe};
use scalerl_rollout::{
    AnswerEnd, EvaluationSet, GroupId, Intake, Interruption, Prompt, SampleRequest, Sampling,
};

/// The recipe's format as generators need it; tokens are those of the run's tokenizer. Made by the CLI.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Phrases {
    /// What an interruption appends, closing tag included.
    pub interruption: Vec<u32>,
    /// Tokens that end thinking; empty when the format has no thinking.
    pub end_of_thinking: Vec<u32>,
    /// What ends a completion once its answer has begun; `None` where only the model can.
    pub end_of_answer: Option<AnswerEnd>,
}

/// Devices held by each role.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Devices {
    /// Both roles share all of them.
    Shared {
        /// How many.
        count: f64,
    },
    /// Each role has its own.
    Apart {
        /// Held by the generator.
        generator: f64,
        /// Held by the trainer.
        trainer: f64,
    },
}

impl Devices {
    /// Devices held altogether.
    pub fn count(&self) -> f64 {
        match self {
            Self::Shared { count } => *count,
            Self::Apart { generator, trainer } => generator + trainer,
        }
    }
}

/// How long each kind of wait may last before the run ends with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// One group's completions.
    pub generate: Duration,
    /// Taking new weights.
    pub adopt: Duration,
    /// A step, a publication, a save.
    pub trainer: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            generate: Duration::from_hours(1),
            adopt: Duration::from_mins(10),
            trainer: Duration::from_hours(1),
        }
    }
}

/// Everything fixed for the length of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The recipe, checked.
    pub recipe: Recipe,
    /// From the tokenizer.
    pub phrases: Phrases,
    /// Judges every answer of every generator, by the same tokenizer.
    pub intake: Intake,
    /// What is measured.
    pub evaluation_sets: Vec<EvaluationSet>,
    /// What is held.
    pub devices: Devices,
    /// Operations for one token read or written by the generator: about twice the active
    /// parameters. The trainer reports its own.
    pub generator_flops_per_token: f64,
    /// Verdicts worked on at once: the workers that verifiers have.
    pub verdicts_at_once: usize,
    /// For every wait.
    pub deadlines: Deadlines,
    /// Unix time at the start of this session, in seconds.
    pub now: f64,
    /// Finished runs of the same model and evaluation that forecasts learn from.
    pub history: Arc<[HistoryEntry]>,
}

impl Settings {
    /// The request for one training group.
    pub(crate) fn training_request(&self, group: GroupId, prompt: &Prompt) -> SampleRequest {
        let recipe = &self.recipe;
        let seed = mix(recipe.seed, "train", group.0);
        let interruptions = match recipe.objective.length_control {
            LengthControl::Interruption { earliest, latest } => (0..recipe.pipeline.group_size)
                .map(|index| {
                    let span = u64::from(latest - earliest) + 1;
                    let offset = mix(seed, "interruption", u64::from(index)) % span;
                    self.interruption(earliest + offset as u32)
                })
                .collect(),
            _ => Vec::new(),
        };
        SampleRequest {
            group,
            count: recipe.pipeline.group_size,
            sampling: Sampling {
                temperature: recipe.sampling.temperature as f32,
                top_p: recipe.sampling.top_p as f32,
                top_k: recipe.sampling.top_k,
            },
            interruptions,
            seed,
            ..self.request(prompt)
        }
    }

    /// The request for one prompt of an evaluation. Its seeds depend on the version, so that the
    /// noise of two evaluations is independent. Thinking is cut at the latest point of training.
    pub(crate) fn evaluation_request(
        &self,
        version: u64,
        set: usize,
        index: usize,
        prompt: &Prompt,
    ) -> SampleRequest {
        let evaluation = &self.recipe.evaluation;
        let place = mix(version, "evaluation set", set as u64);
        let interruptions = match self.recipe.objective.length_control {
            LengthControl::Interruption { latest, .. } => {
                vec![self.interruption(latest); evaluation.generations as usize]
            }
            _ => Vec::new(),
        };
        SampleRequest {
            group: GroupId(index as u64),
            count: evaluation.generations,
            sampling: Sampling {
                temperature: evaluation.temperature as f32,
                top_p: evaluation.top_p as f32,
                top_k: 0,
            },
            interruptions,
            seed: mix(self.recipe.seed ^ place, "evaluate", index as u64),
            ..self.request(prompt)
        }
    }

    fn interruption(&self, at_token: u32) -> Interruption {
        Interruption { at_token, token_ids: self.phrases.interruption.clone() }
    }

    fn request(&self, prompt: &Prompt) -> SampleRequest {
        let sampling = &self.recipe.sampling;
        SampleRequest {
            group: GroupId(0),
            prompt_token_ids: prompt.token_ids.clone(),
            count: 0,
            sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
            max_thinking_tokens: sampling.max_thinking_tokens,
            max_answer_tokens: sampling.max_answer_tokens,
            end_of_thinking: self.phrases.end_of_thinking.clone(),
            interruptions: Vec::new(),
            stop: sampling.stop.clone(),
            stop_token_ids: Vec::new(),
            end_of_answer: self.phrases.end_of_answer.clone(),
            seed: 0,
        }
    }
}

/// A number for a seed, a purpose and an index: SplitMix64 over an FNV-1a of the purpose. Fixed for
/// ever, because it decides what old runs sample when they are resumed.
pub(crate) fn mix(seed: u64, purpose: &str, index: u64) -> u64 {
    let purpose = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let scramble = |mut z: u64| {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    scramble(scramble(seed ^ purpose).wrapping_add(index))
}

#[cfg(test)]
mod tests {
    use scalerl_recipe::Source;
    use scalerl_rollout::PromptId;

    use super::*;

    fn settings(end_of_answer: Option<AnswerEnd>) -> Settings {
        let source = Source::Text { name: "test".into(), text: String::new() };
        Settings {
            recipe: (*Recipe::load(&[source], &[]).unwrap()).clone(),
            phrases: Phrases { end_of_answer, ..Phrases::default() },
            intake: crate::fake::fake_intake(),
            evaluation_sets: Vec::new(),
            devices: Devices::Shared { count: 1.0 },
            generator_flops_per_token: 1.0,
            verdicts_at_once: 1,
            deadlines: Deadlines::default(),
            now: 0.0,
            history: Arc::default(),
        }
    }

    #[test]
    fn what_ends_an_answer_reaches_every_request() {
        let prompt = Prompt {
            id: PromptId("one".into()),
            dataset: "made up".into(),
            text: String::new(),
            token_ids: vec![1],
            answer: String::new(),
        };
        for end in [Some(AnswerEnd::boxed()), None] {
            let settings = settings(end.clone());
            let training = settings.training_request(GroupId(1), &prompt);
            let evaluation = settings.evaluation_request(0, 0, 0, &prompt);
            for request in [training, evaluation] {
                assert_eq!(request.end_of_answer, end);
            }
        }
    }
}
