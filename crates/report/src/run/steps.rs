//! Charts over optimizer steps: lag, batches, lengths, entropy, gradient, ratios.

use scalerl_board::chart::{Axis, Scale};
use scalerl_board::{Block, Figure, Section};
use scalerl_recipe::OffPolicy;

use super::{
    compute,
    story::{StepRow, Story},
    trace::{Curve, limit, over_steps},
};

/// Where the paper saw instability begin (ScaleRL, arXiv 2510.13786); used when the recipe cannot
/// be read.
const TRUNCATED_LIMIT: f64 = 0.1;

pub(crate) fn section(story: &Story) -> Section {
    let heading = "Training, step by step".to_owned();
    if story.steps.is_empty() {
        let text = "No optimizer step was taken yet.".to_owned();
        return Section { heading, blocks: vec![Block::Prose(text)] };
    }
    let figures = [
        lag(story),
        batch(story),
        truncation(story),
        rewards(story),
        lengths(story),
        entropy(story),
        gradient(story),
        samples(story),
        ratios(story),
        speed(story),
    ];
    let mut blocks = vec![Block::Gallery(figures.into())];
    if story.empty_batches > 0 {
        let count = story.empty_batches;
        let text =
            format!("Batches in which nothing carried loss, and no step was taken: {count}.");
        blocks.push(Block::Prose(text));
    }
    Section { heading, blocks }
}

fn curve<'a>(story: &Story, legend: &'a str, of: impl Fn(&StepRow) -> f64) -> Curve<'a> {
    let values = story.steps.iter().map(|step| (step.version as f64, of(step))).collect();
    Curve { legend, values }
}

fn lag(story: &Story) -> Figure {
    let curves = [
        curve(story, "largest of the step", |step| step.lag as f64),
        curve(story, "mean over its groups", |step| step.mean_lag.unwrap_or(f64::NAN)),
    ];
    let words = ("Lag", "Steps between the policy trained and the oldest token of its batch.");
    let mut figure = over_steps(story, words, Axis::linear("steps"), &curves);
    let allowed = story.recipe.as_ref().ok().map(|recipe| match recipe.objective.off_policy {
        OffPolicy::Pipeline { steps_behind } => steps_behind,
        OffPolicy::PpoOffPolicy { steps_per_phase } => steps_per_phase.saturating_sub(1),
    });
    if let Some(allowed) = allowed {
        figure.layers.insert(0, limit(f64::from(allowed), &format!("at most {allowed}")));
    }
    figure
}

fn batch(story: &Story) -> Figure {
    let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
    let curves = [
        curve(story, "carry loss, of the batch", |step| {
            share(step.batch.trained_groups as usize, step.batch.groups.len())
        }),
        curve(story, "no variance, of those judged", |step| step.zero_variance_share),
    ];
    let groups = story.steps.iter().map(|step| step.batch.groups.len()).max().unwrap_or(0);
    let effective: u64 = story.steps.iter().map(|step| u64::from(step.batch.trained_groups)).sum();
    let subtitle = format!(
        "Batches of up to {groups} groups; {:.1} of them carry loss on average.",
        effective as f64 / story.steps.len() as f64
    );
    let words = ("Effective batch", subtitle.as_str());
    over_steps(story, words, Axis::linear("share of groups"), &curves)
}

fn truncation(story: &Story) -> Figure {
    let curves = [
        curve(story, "truncated", |step| step.batch.truncated_share),
        curve(story, "interrupted", |step| step.batch.interrupted_share),
    ];
    let words = ("Completions cut short", "Truncated: out of budget. Interrupted: told to answer.");
    let mut figure = over_steps(story, words, Axis::linear("share of completions"), &curves);
    let threshold =
        story.recipe.as_ref().map_or(TRUNCATED_LIMIT, |recipe| recipe.stopping.truncated_share);
    let label = format!("{:.0} %:\nbad sign", threshold * 100.0);
    figure.layers.insert(0, limit(threshold, &label));
    figure
}

fn rewards(story: &Story) -> Figure {
    let curves = [
        curve(story, "mean reward", |step| step.batch.mean_reward),
        curve(story, "right completions", |step| step.batch.pass_rate),
    ];
    let words = ("Rewards in training", "On the prompts trained on, before the filter.");
    over_steps(story, words, Axis::linear("reward"), &curves)
}

fn lengths(story: &Story) -> Figure {
    let curves = [curve(story, "mean tokens", |step| step.batch.mean_tokens)];
    over_steps(story, ("Length of completions", ""), Axis::linear("mean tokens"), &curves)
}

fn entropy(story: &Story) -> Figure {
    let curves = [curve(story, "entropy", |step| step.report.entropy)];
    let words = ("Entropy of the policy", "Mean over the tokens that carry loss.");
    over_steps(story, words, Axis::linear("nats"), &curves)
}

fn gradient(story: &Story) -> Figure {
    let curves = [curve(story, "gradient norm", |step| step.report.gradient_norm)];
    over_steps(story, ("Gradient norm, before clipping", ""), Axis::linear("norm"), &curves)
}

fn samples(story: &Story) -> Figure {
    let curves = [
        curve(story, "effective sample share", |step| step.report.ratio.effective_sample_share),
        curve(story, "capped or clipped tokens", |step| step.report.ratio.clip_fraction),
    ];
    let words = ("What the ratios leave", "1: every token has the same weight.");
    let mut figure = over_steps(story, words, Axis::linear("share of tokens"), &curves);
    if let Ok(recipe) = &story.recipe {
        let threshold = recipe.stopping.effective_sample_share;
        let label = format!("{threshold}:\nbad sign");
        figure.layers.insert(0, limit(threshold, &label));
    }
    figure
}

fn ratios(story: &Story) -> Figure {
    let curves = [
        curve(story, "largest", |step| step.report.ratio.max),
        curve(story, "mean", |step| step.report.ratio.mean),
        curve(story, "smallest", |step| step.report.ratio.min),
    ];
    let words = ("Ratio of trainer to generator", "Probability of the same token under both.");
    let y = Axis { scale: Scale::Log, ..Axis::linear("ratio") };
    over_steps(story, words, y, &curves)
}

fn speed(story: &Story) -> Figure {
    let rate = |of: fn(&scalerl_journal::Ledger) -> u64| {
        let spent = compute::windows_of(story).into_iter();
        spent.map(|(step, spent)| (step, of(&spent) as f64 / spent.wall_s)).collect()
    };
    let curves = [
        Curve { legend: "generated for training", values: rate(|spent| spent.tokens_generated) },
        Curve { legend: "trained", values: rate(|spent| spent.tokens_trained) },
    ];
    let words = ("Tokens per second of the clock", "");
    over_steps(story, words, Axis::linear("tokens/s"), &curves)
}
