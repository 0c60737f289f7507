//! vLLM servers as the run's generator: connect, check, hand over.
//!
//! Before a run depends on them, every server takes the model the run starts from and writes a few
//! completions, whose log-probs must be ours (docs/vllm.md). A run that is resumed checks the same
//! model and takes its own weights afterwards.
//!
//! An adapter goes by itself where every server takes it and writes what the trainer computes with it;
//! otherwise all of them get merged weights, whatever they hold from an earlier session.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use scalerl_model::folder::Model;
use scalerl_recipe::{GeneratorChoice, KvAfterUpdate, Recipe};
use scalerl_rollout::{
    Generator as _, GeneratorError, GroupId, PolicyVersion, Prompt, SampleRequest, Sampling,
    WeightHandle,
};
use scalerl_worker::options::head_options;
use scalerl_worker::vllm::{AgreementError, Notice, ServerState, measure_agreement, stirred};
use scalerl_worker::{FolderTrainer, VllmGenerator, VllmSetup, WeightFolder};
use tokio::sync::mpsc;

use crate::failure::{BadInput, Failed};
use crate::train::cluster::roles::AnyTrainer;
use crate::train::rendering::Renderer;

/// Prompts that the check of log-probs uses, completions of each, and their tokens.
const CHECKED: (usize, u32, u32) = (4, 2, 128);

/// For one call that writes; the engine's own deadline for a group is the same.
const WRITING: Duration = Duration::from_hours(1);

/// What the recipe says about servers, opened.
pub(crate) struct Servers<'a> {
    pub(crate) recipe: &'a Recipe,
    pub(crate) renderer: &'a Renderer,
    /// The run's folder.
    pub(crate) run: &'a Path,
    /// A few prompts to check log-probs with.
    pub(crate) prompts: &'a [Prompt],
}

impl Servers<'_> {
    /// Connects, checks log-probs against `model`, the one the run starts from, and makes the
    /// trainer publish where the servers read.
    pub(crate) async fn connect(
        &self,
        model: Model,
        trainer: AnyTrainer,
        notices: mpsc::UnboundedSender<Notice>,
    ) -> Result<(VllmGenerator, FolderTrainer<AnyTrainer>)> {
        let GeneratorChoice::Vllm { weights_folder, .. } = &self.recipe.pipeline.generator else {
            unreachable!("called for vLLM only")
        };
        let place = weights_folder.as_ref().map_or_else(|| self.run.join("weights"), Into::into);
        let mut folder = WeightFolder::open(&place).map_err(|error| {
            BadInput::new(error).hint("set pipeline.generator.weights_folder to shared storage")
        })?;
        let setup = self.setup(&model, notices)?;
        let generator = VllmGenerator::start(setup).await.map_err(failed)?;
        let goes_alone = self.goes_alone(&generator, &model, &mut folder).await?;
        if !goes_alone {
            let whole = folder.publish(PolicyVersion(0), &model)?;
            self.check(&generator, &model, &whole).await?.map_err(|error| {
                let hint = error.hint();
                Failed::new(error, hint)
            })?;
        }
        let trainer = FolderTrainer::new(trainer, folder);
        Ok((generator, if goes_alone { trainer.with_adapter_alone() } else { trainer }))
    }

    /// Whether the run's adapter goes to the servers by itself. Says why where it does not.
    async fn goes_alone(
        &self,
        generator: &VllmGenerator,
        model: &Model,
        folder: &mut WeightFolder,
    ) -> Result<bool> {
        let Some(adapter) = &model.adapter else { return Ok(false) };
        let rank = adapter.config.rank;
        let model = stirred(model)?;
        let published = folder.publish_adapter(PolicyVersion(0), &model)?;
        let refusal = generator.refuses_adapter(&published.location, rank).await;
        if let Some(refusal) = refusal.map_err(failed)? {
            say(&refusal.to_string())?;
            return Ok(false);
        }
        match self.check(generator, &model, &published).await? {
            Ok(()) => {
                say("the adapter goes to the servers by itself")?;
                Ok(true)
            }
            // Whole weights replace the one and hold the other; what is wrong besides is found out with
            // them.
            Err(apart) => {
                generator.unload_adapters().await;
                say(&format!(
                    "{apart}. Either the server was not started with the model the run starts from, or it \
                     leaves out layers of the adapter; merged weights are sent"
                ))?;
                Ok(false)
            }
        }
    }

    /// Gives the servers these weights of `model` and compares log-probs with it. Inside is what is
    /// to be said of servers that are too far apart.
    async fn check(
        &self,
        generator: &VllmGenerator,
        model: &Model,
        published: &WeightHandle,
    ) -> Result<Result<(), AgreementError>> {
        let GeneratorChoice::Vllm { logprob_tolerance, .. } = &self.recipe.pipeline.generator
        else {
            unreachable!("called for vLLM only")
        };
        generator.adopt(published).await.map_err(failed)?;
        for server in generator.load() {
            if let ServerState::Away { reason } = server.state {
                say(&format!("waiting for vLLM server {}: {reason}", server.url))?;
            }
        }
        let head = head_options(self.recipe, model.device());
        let requests = self.requests();
        let found = measure_agreement(generator, model, head, &requests, *logprob_tolerance).await;
        match found {
            Ok(found) => {
                found.iter().try_for_each(|agreement| say(&agreement.to_string()))?;
                Ok(Ok(()))
            }
            Err(apart @ AgreementError::Apart { .. }) => Ok(Err(apart)),
            Err(error) => {
                let hint = error.hint();
                Err(Failed::new(error, hint).into())
            }
        }
    }

    fn setup(&self, model: &Model, notices: mpsc::UnboundedSender<Notice>) -> Result<VllmSetup> {
        let GeneratorChoice::Vllm {
            urls,
            token_file,
            requests_at_once,
            seeded,
            silence_s,
            patience_s,
            ..
        } = &self.recipe.pipeline.generator
        else {
            unreachable!("called for vLLM only")
        };
        let token = token_file.as_deref().map(read_token).transpose()?;
        let tokenizer = self.renderer.tokenizer();
        Ok(VllmSetup {
            urls: urls.clone(),
            token,
            requests_at_once: *requests_at_once as usize,
            patience: Duration::from_secs_f64(*patience_s),
            silence: Duration::from_secs_f64(*silence_s),
            deadline: WRITING,
            is_seeded: *seeded,
            keeps_cache: self.recipe.pipeline.kv_after_update == KvAfterUpdate::Stale,
            stop_tokens: tokenizer.ends().iter().map(|id| *id as u32).collect(),
            tokenizer,
            vocabulary: model.config.vocabulary,
            owner: owner(),
            notices: Some(notices),
        })
    }

    fn requests(&self) -> Vec<SampleRequest> {
        let (prompts, count, tokens) = CHECKED;
        let sampling = &self.recipe.sampling;
        let most = sampling.max_completion_tokens().min(u64::from(tokens)) as u32;
        let request = |(index, prompt): (usize, &Prompt)| SampleRequest {
            group: GroupId(index as u64),
            prompt_token_ids: prompt.token_ids.clone(),
            count,
            sampling: Sampling { temperature: sampling.temperature as f32, top_p: 1.0, top_k: 0 },
            max_thinking_tokens: 0,
            max_answer_tokens: most,
            end_of_thinking: Vec::new(),
            interruptions: Vec::new(),
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            end_of_answer: None,
            seed: self.recipe.seed.wrapping_add(1_000 * index as u64),
        };
        self.prompts.iter().take(prompts).enumerate().map(request).collect()
    }
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stderr(), "{line}")?)
}

fn failed(error: GeneratorError) -> Failed {
    Failed::new(error, "see docs/vllm.md for how servers are started")
}

/// Two sessions of one run, or two runs, never share it.
fn owner() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_nanos(), std::process::id())
}

fn read_token(path: &str) -> Result<String> {
    let text = scalerl_files::read_to_string(Path::new(path), scalerl_files::DOCUMENT)
        .with_context(|| format!("cannot read {path}, pipeline.generator.token_file"))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(BadInput::new(format!("{path} is empty; it should hold a token")).into());
    }
    Ok(token.to_owned())
}
