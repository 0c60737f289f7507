//! Combinations that cannot work, each refused with its reason.
//!
//! What one value must obey by itself is declared beside it (`sections/`). Here is what takes two;
//! lists of data sets are in `datasets.rs`.

mod datasets;
mod memory;
mod verifiers;

use std::collections::BTreeSet;

use crate::{
    AnswerForm, DataSource, Dataset, Experts, GeneratorChoice, Kl, LengthControl, PromptTemplate,
    RatioGrain, Recipe, RecipeError, Sharding, Surrogate, Thinking, TrackerChoice, WarmUpExamples,
    Weights, error::Origin, load::SHIPPED_MARK, node::Node,
};
use datasets::check_datasets;
use memory::{one_set_of_weights_has_one_place, summed_gradients_are_in_one_place};

/// Two keys, why they do not go together, and what to do.
struct Refusal {
    key: &'static str,
    other: &'static str,
    reason: String,
    remedy: &'static str,
}

type Verdict = Result<(), Refusal>;

fn refuse(
    key: &'static str,
    other: &'static str,
    reason: impl Into<String>,
    remedy: &'static str,
) -> Verdict {
    Err(Refusal { key, other, reason: reason.into(), remedy })
}

/// Checks a recipe; `layers` knows where each value was set.
pub(crate) fn check(recipe: &Recipe, layers: &Node) -> Result<(), RecipeError> {
    let checks = [
        ratio_needs_a_surrogate,
        cut_distributions_have_no_ratio,
        first_kl_has_no_gradient,
        interruption_needs_thinking,
        interruption_fits_the_budget,
        penalty_can_bite,
        thinking_before_an_answer_needs_its_mark,
        thinking_has_a_budget,
        rewards_tell_right_from_wrong,
        a_sequence_fits_a_micro_batch,
        evaluation_gives_points,
        pass_at_is_sampled,
        template_shows_the_problem,
        servers_have_addresses,
        a_new_model_has_a_shape,
        a_new_model_has_tokens,
        synthetic_problems_think_in_their_own_tags,
        silence_is_noticed_in_order,
        layers_in_parts_are_computed_again,
        experts_are_owned_where_weights_are_in_parts,
        trackers_are_named_once,
        one_set_of_weights_has_one_place,
        summed_gradients_are_in_one_place,
    ];
    for check in checks {
        check(recipe).map_err(|refusal| {
            let Refusal { key, other, reason, remedy } = refusal;
            let places = [key, other].map(|key| layers.place_of(key));
            RecipeError::Conflict {
                place: places.into_iter().min_by_key(distance_from_user).unwrap_or_default(),
                key: key.into(),
                other: other.into(),
                reason: reason.into(),
                remedy: remedy.into(),
            }
        })?;
    }
    check_datasets(recipe, layers)
}

/// The line to mend is the one that the user wrote, not the one of the recipe it extends.
fn distance_from_user(place: &Origin) -> u8 {
    match place {
        Origin::Set(_) => 0,
        Origin::Line { file, .. } if !file.ends_with(SHIPPED_MARK) => 1,
        Origin::Line { .. } => 2,
        Origin::Default => 3,
    }
}

fn servers_have_addresses(recipe: &Recipe) -> Verdict {
    let GeneratorChoice::Vllm { urls, .. } = &recipe.pipeline.generator else { return Ok(()) };
    if recipe.cluster.generators > 0 {
        return refuse(
            "cluster.generators",
            "pipeline.generator",
            "vLLM servers write the completions, so other generators would have nothing to do",
            "set cluster.generators = 0, or pipeline.generator = \"local\"",
        );
    }
    let (key, other) = ("pipeline.generator.urls", "pipeline.generator");
    let remedy = "name each server once, as in urls = [\"http://10.0.0.7:8000\"]";
    if urls.is_empty() {
        return refuse(key, other, "\"vllm\" needs servers, and none is named", remedy);
    }
    if let Some(bad) = urls.iter().find(|url| !is_address(url)) {
        return refuse(key, other, format!("{bad:?} is not the address of a server"), remedy);
    }
    let different: BTreeSet<&str> = urls.iter().map(|url| url.trim_end_matches('/')).collect();
    if different.len() < urls.len() {
        return refuse(key, other, "a server named twice would be asked twice as often", remedy);
    }
    Ok(())
}

/// Whether it is the address of a server, without a password: recipes are kept in run folders.
fn is_address(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = rest.map(|rest| rest.trim_end_matches('/')).unwrap_or_default();
    !host.is_empty() && !host.contains(['?', '#', '@']) && !host.contains(char::is_whitespace)
}

fn trackers_are_named_once(recipe: &Recipe) -> Verdict {
    let (key, other, to) = ("track.to", "track.project", &recipe.track.to);
    for (index, choice) in to.iter().enumerate() {
        if to[..index].contains(choice) {
            let reason =
                format!("{:?} is named twice, and would get every value twice", choice.name());
            return refuse(key, other, reason, "name each tracker once");
        }
        let (TrackerChoice::Mlflow { url: Some(url) } | TrackerChoice::Trackio { url: Some(url) }) =
            choice
        else {
            continue;
        };
        if !is_address(url) {
            return refuse(
                key,
                other,
                format!("{url:?} is not the address of a server"),
                "write http://HOST:PORT or https://HOST, and passwords or tokens into the variables \
                 of docs/tracking.md",
            );
        }
    }
    Ok(())
}

fn ratio_needs_a_surrogate(recipe: &Recipe) -> Verdict {
    let objective = &recipe.objective;
    if objective.surrogate == Surrogate::None && objective.ratio == RatioGrain::Sequence {
        return refuse(
            "objective.ratio",
            "objective.surrogate",
            "a surrogate of \"none\" uses no ratio, so there is nothing to take per sequence",
            "set objective.ratio = \"token\", or choose a surrogate that uses the ratio",
        );
    }
    Ok(())
}

fn cut_distributions_have_no_ratio(recipe: &Recipe) -> Verdict {
    let uses_ratio = recipe.objective.surrogate != Surrogate::None;
    let key = match (recipe.sampling.top_p < 1.0, recipe.sampling.top_k > 0) {
        (true, _) => "sampling.top_p",
        (false, true) => "sampling.top_k",
        (false, false) => return Ok(()),
    };
    if uses_ratio {
        return refuse(
            key,
            "objective.surrogate",
            "both sides of the ratio must be of the distribution that was sampled from, and the \
             trainer cannot rebuild which tokens the generator cut away",
            "leave top_p at 1 and top_k at 0 in training, or set objective.surrogate = \"none\"",
        );
    }
    Ok(())
}

fn layers_in_parts_are_computed_again(recipe: &Recipe) -> Verdict {
    if recipe.cluster.sharding == Sharding::Full && !recipe.model.activation_checkpointing {
        return refuse(
            "cluster.sharding",
            "model.activation_checkpointing",
            "activations that are kept hold on to the weights they came from, so no layer's could be \
             let go of",
            "set model.activation_checkpointing = true, or cluster.sharding = \"optimizer\"",
        );
    }
    Ok(())
}

fn experts_are_owned_where_weights_are_in_parts(recipe: &Recipe) -> Verdict {
    if recipe.cluster.experts == Experts::Owned && recipe.cluster.sharding != Sharding::Full {
        return refuse(
            "cluster.experts",
            "cluster.sharding",
            "every trainer has all weights, so there is no expert that only one of them owns",
            "set cluster.sharding = \"full\", or cluster.experts = \"gathered\"",
        );
    }
    Ok(())
}

fn silence_is_noticed_in_order(recipe: &Recipe) -> Verdict {
    let cluster = &recipe.cluster;
    if cluster.suspect_s <= cluster.heartbeat_s {
        return refuse(
            "cluster.suspect_s",
            "cluster.heartbeat_s",
            "a generator would be suspect between two signs of life",
            "set cluster.suspect_s to a few times cluster.heartbeat_s",
        );
    }
    if cluster.dead_s <= cluster.suspect_s {
        return refuse(
            "cluster.dead_s",
            "cluster.suspect_s",
            "a generator would be given up before it is suspect",
            "set cluster.dead_s to a few times cluster.suspect_s",
        );
    }
    Ok(())
}

fn first_kl_has_no_gradient(recipe: &Recipe) -> Verdict {
    if matches!(recipe.objective.kl, Kl::K1 { .. }) {
        return refuse(
            "objective.kl",
            "objective.kl.coefficient",
            "the gradient of k1 does not depend on the reference model, so its penalty pulls \
             nowhere",
            "choose \"k3\" (GRPO's) or \"k2\"; k1 is reported as a diagnostic anyway",
        );
    }
    Ok(())
}

fn interruption_needs_thinking(recipe: &Recipe) -> Verdict {
    let is_interrupted =
        matches!(recipe.objective.length_control, LengthControl::Interruption { .. });
    if is_interrupted && recipe.format.thinking == Thinking::None {
        return refuse(
            "format.thinking",
            "objective.length_control",
            "an interruption ends thinking, and this format has none",
            "set objective.length_control = \"none\" or \"penalty\", or give the format its tags",
        );
    }
    Ok(())
}

fn interruption_fits_the_budget(recipe: &Recipe) -> Verdict {
    let LengthControl::Interruption { earliest, latest } = recipe.objective.length_control else {
        return Ok(());
    };
    if earliest > latest {
        return refuse(
            "objective.length_control.earliest",
            "objective.length_control.latest",
            format!("the earliest point, {earliest}, lies after the latest, {latest}"),
            "swap the two",
        );
    }
    let budget = recipe.sampling.max_thinking_tokens;
    if latest > budget {
        return refuse(
            "objective.length_control.latest",
            "sampling.max_thinking_tokens",
            format!("thinking would be cut at {budget} tokens, before an interruption at {latest}"),
            "lower earliest and latest (the paper has 10,000 and 12,000 of 12,288), or raise the \
             thinking budget",
        );
    }
    Ok(())
}

fn penalty_can_bite(recipe: &Recipe) -> Verdict {
    let LengthControl::Penalty { max_tokens, cache_tokens } = recipe.objective.length_control
    else {
        return Ok(());
    };
    let longest = recipe.sampling.max_completion_tokens();
    if u64::from(max_tokens.saturating_sub(cache_tokens)) >= longest {
        return refuse(
            "objective.length_control.max_tokens",
            "sampling.max_thinking_tokens",
            format!("no completion is longer than {longest} tokens, so none is ever penalised"),
            "set max_tokens to the thinking and answer budgets together",
        );
    }
    if cache_tokens >= max_tokens {
        return refuse(
            "objective.length_control.cache_tokens",
            "objective.length_control.max_tokens",
            "every answer, however short, would be penalised",
            "make cache_tokens smaller than max_tokens",
        );
    }
    Ok(())
}

fn thinking_before_an_answer_needs_its_mark(recipe: &Recipe) -> Verdict {
    let format = &recipe.format;
    if format.thinking == Thinking::BeforeAnswer && format.answer.opening().is_empty() {
        return refuse(
            "format.thinking",
            "format.answer",
            "thinking would last until the answer's mark, and this answer has no opening text",
            "set format.answer = \"boxed\", \"gsm8k\", or a \"marked\" one with `open`",
        );
    }
    Ok(())
}

fn thinking_has_a_budget(recipe: &Recipe) -> Verdict {
    let has_thinking = recipe.format.thinking != Thinking::None;
    let budget = recipe.sampling.max_thinking_tokens;
    if has_thinking != (budget > 0) {
        let reason = if has_thinking {
            "the format thinks, and the budget for it is 0".to_string()
        } else {
            format!("the format does not think, and {budget} tokens are set aside for it")
        };
        return refuse(
            "sampling.max_thinking_tokens",
            "format.thinking",
            reason,
            "without thinking set the budget to 0 and put the whole length into max_answer_tokens",
        );
    }
    Ok(())
}

fn rewards_tell_right_from_wrong(recipe: &Recipe) -> Verdict {
    let (correct, wrong) = (recipe.task.correct_reward, recipe.task.wrong_reward);
    if correct <= wrong {
        return refuse(
            "task.correct_reward",
            "task.wrong_reward",
            format!("a right answer earns {correct}, a wrong one {wrong}"),
            "the right answer must earn more; the paper has 1 and -1",
        );
    }
    Ok(())
}

fn a_sequence_fits_a_micro_batch(recipe: &Recipe) -> Verdict {
    let longest = recipe.longest_sequence();
    let piece = recipe.pipeline.micro_batch_tokens;
    if u64::from(piece) < longest {
        return refuse(
            "pipeline.micro_batch_tokens",
            "sampling.max_thinking_tokens",
            format!(
                "a sequence is not split, and one can have {longest} tokens, more than {piece}"
            ),
            "raise micro_batch_tokens or lower the budgets of prompt, thinking, answer and episode",
        );
    }
    Ok(())
}

fn evaluation_gives_points(recipe: &Recipe) -> Verdict {
    let evaluation = &recipe.evaluation;
    if evaluation.every_steps.is_none() && evaluation.every_device_minutes.is_none() {
        return refuse(
            "evaluation.every_steps",
            "evaluation.every_device_minutes",
            "with both unset the run has no curve to forecast from",
            "set one of them",
        );
    }
    Ok(())
}

fn pass_at_is_sampled(recipe: &Recipe) -> Verdict {
    let generations = recipe.evaluation.generations;
    if let Some(k) = recipe.evaluation.pass_at.iter().find(|k| **k > generations) {
        return refuse(
            "evaluation.pass_at",
            "evaluation.generations",
            format!("pass@{k} needs {k} generations, and {generations} are sampled"),
            "raise generations or leave that k out",
        );
    }
    Ok(())
}

fn template_shows_the_problem(recipe: &Recipe) -> Verdict {
    let (key, template) = match &recipe.task.prompt {
        PromptTemplate::Chat { user, .. } => ("task.prompt.user", user),
        PromptTemplate::Plain { template } => ("task.prompt.template", template),
    };
    if !template.contains("{prompt}") {
        return refuse(
            key,
            "task.datasets",
            "every row would give the same prompt: the text does not contain {prompt}",
            "put {prompt} where the problem belongs",
        );
    }
    Ok(())
}

fn a_new_model_has_a_shape(recipe: &Recipe) -> Verdict {
    let Weights::New { width, heads, kv_heads, experts, active_experts, .. } = recipe.model.weights
    else {
        return Ok(());
    };
    if recipe.model.path.is_some() {
        return refuse(
            "model.path",
            "model.weights",
            "weights of type \"new\" make a model from its shape, so there is nothing to read",
            "leave model.path unset, or take the shape from its config.json: weights = \"random\"",
        );
    }
    // Rotary embeddings turn pairs.
    if !width.is_multiple_of(2 * heads) || !heads.is_multiple_of(kv_heads) {
        return refuse(
            "model.weights.heads",
            "model.weights.width",
            format!("{heads} query and {kv_heads} key heads do not share out a width of {width}"),
            "width must be an even multiple of heads, and heads a multiple of kv_heads",
        );
    }
    if experts > 0 && active_experts > experts {
        return refuse(
            "model.weights.active_experts",
            "model.weights.experts",
            format!("{active_experts} of {experts} experts cannot read a token"),
            "lower active_experts",
        );
    }
    Ok(())
}

/// Whether its problems come with tokens of their own.
fn is_synthetic(dataset: &Dataset) -> bool {
    !matches!(dataset.source, DataSource::Files { .. } | DataSource::Seeds { .. })
}

/// Whether its prompts end in the opening of thinking.
fn thinks_in_tags(dataset: &Dataset) -> bool {
    is_synthetic(dataset) && !matches!(dataset.source, DataSource::Store { .. })
}

fn a_new_model_has_tokens(recipe: &Recipe) -> Verdict {
    if !matches!(recipe.model.weights, Weights::New { .. }) {
        return Ok(());
    }
    let mut datasets = recipe.task.datasets.iter().chain(&recipe.evaluation.datasets);
    let files = datasets.find(|dataset| !is_synthetic(dataset)).map(|dataset| &dataset.name);
    let is_read = matches!(recipe.warm_up.examples, WarmUpExamples::File { .. });
    if files.is_some() || is_read {
        let what = files.map_or("warm_up.examples".into(), |name| format!("data set \"{name}\""));
        return refuse(
            "model.weights",
            "task.datasets",
            format!("a new model has only the tokens of synthetic problems, and {what} is read"),
            "name a folder with config.json and tokenizer.json: model.path and weights = \"random\"",
        );
    }
    Ok(())
}

fn synthetic_problems_think_in_their_own_tags(recipe: &Recipe) -> Verdict {
    let mut datasets = recipe.task.datasets.iter().chain(&recipe.evaluation.datasets);
    let Some(dataset) = datasets.find(|dataset| thinks_in_tags(dataset)) else { return Ok(()) };
    let is_theirs = matches!(
        &recipe.format.thinking,
        Thinking::Tags { open, close, opened_by_prompt: true }
            if open == "<think>" && close == "</think>"
    );
    if is_theirs && recipe.format.answer == AnswerForm::Plain {
        return Ok(());
    }
    refuse(
        "format.thinking",
        "task.datasets",
        format!(
            "data set \"{}\" is synthetic: its prompts end in <think>, and a plain answer follows \
             </think>",
            dataset.name
        ),
        "thinking = { type = \"tags\", open = \"<think>\", close = \"</think>\" } and answer = \"plain\"",
    )
}
