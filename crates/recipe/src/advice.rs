//! What is allowed and seldom meant: said before a run starts, refused by nobody.

use crate::{Adapter, AnswerForm, DataSource, PromptTemplate, Recipe};

/// A remark on a recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The key to look at.
    pub key: &'static str,
    /// What will happen.
    pub remark: String,
    /// What to do.
    pub remedy: &'static str,
}

impl Recipe {
    /// What the author of a recipe may have overlooked.
    pub fn advice(&self) -> Vec<Advice> {
        let looks = [
            box_without_end,
            text_without_end,
            warm_up_longer_than_the_budget,
            rate_of_all_weights,
        ];
        looks.iter().filter_map(|look| look(self)).collect()
    }
}

fn instruction(recipe: &Recipe) -> String {
    match &recipe.task.prompt {
        PromptTemplate::Chat { system, user } => {
            format!("{}{user}", system.as_deref().unwrap_or_default())
        }
        PromptTemplate::Plain { template } => template.clone(),
    }
}

fn box_without_end(recipe: &Recipe) -> Option<Advice> {
    let asks = instruction(recipe).contains("\\boxed");
    let is_closed = recipe.format.answer.closing().is_some();
    (asks && !is_closed).then(|| Advice {
        key: "format.answer",
        remark: "the prompt asks for a box, and nothing ends a completion after its box: models \
                 that go on writing are cut by the budget"
            .into(),
        remedy: "format.answer = \"boxed\" ends a completion at the box's closing brace",
    })
}

/// Without a chat template many models never write their end token.
fn text_without_end(recipe: &Recipe) -> Option<Advice> {
    let is_plain = matches!(recipe.task.prompt, PromptTemplate::Plain { .. });
    let is_read = recipe
        .task
        .datasets
        .iter()
        .any(|dataset| matches!(dataset.source, DataSource::Files { .. }));
    let can_end = recipe.format.answer.closing().is_some() || !recipe.sampling.stop.is_empty();
    (is_plain && is_read && !can_end && recipe.format.answer == AnswerForm::Plain).then(|| Advice {
        key: "format.answer",
        remark: "prompts are plain text, and only the model's end token ends a completion: models \
                 that seldom write it are cut by the budget"
            .into(),
        remedy: "give the answer a form that ends (format.answer = \"boxed\", \"gsm8k\", \"marked\"), or \
                 set sampling.stop",
    })
}

fn warm_up_longer_than_the_budget(recipe: &Recipe) -> Option<Advice> {
    let steps = recipe.budget.steps?;
    let rising = u64::from(recipe.optimizer.warmup_steps);
    (rising >= steps).then(|| Advice {
        key: "optimizer.warmup_steps",
        remark: format!(
            "the learning rate rises for {rising} steps, and the run has {steps}: it never reaches \
             its value"
        ),
        remedy: "set optimizer.warmup_steps to a tenth of budget.steps or less",
    })
}

/// The default rate is the paper's, for all weights.
fn rate_of_all_weights(recipe: &Recipe) -> Option<Advice> {
    let usual = Recipe::default().optimizer.lr;
    let is_usual = recipe.optimizer.lr <= usual;
    (is_usual && recipe.adapter != Adapter::None).then(|| Advice {
        key: "optimizer.lr",
        remark: format!(
            "{:e} is a rate for all weights, and LoRA learns little at it",
            recipe.optimizer.lr
        ),
        remedy: "start with about ten times the rate of full training (docs/adapters.md)",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn keys(text: &str) -> Vec<&'static str> {
        let source = Source::Text { name: "test".into(), text: text.into() };
        let recipe = Recipe::load(&[source], &[]).unwrap();
        recipe.advice().into_iter().map(|advice| advice.key).collect()
    }

    const BOX: &str =
        "[task]\nprompt = { type = \"chat\", user = \"{prompt} in \\\\boxed{{}}\" }\n";

    #[test]
    fn a_box_that_ends_nothing_is_remarked_on() {
        assert_eq!(keys(BOX), ["format.answer"]);
        assert!(keys(&format!("{BOX}[format]\nanswer = \"boxed\"\n")).is_empty());
    }

    #[test]
    fn plain_text_without_an_end_is_remarked_on() {
        let plain = "[[task.datasets]]\nname = \"a\"\nsource = { type = \"files\", path = \"a.jsonl\" }\n\
                     [task]\nprompt = \"plain\"\n";
        assert_eq!(keys(plain), ["format.answer"]);
        assert!(keys(&format!("{plain}[sampling]\nstop = [\"\\n\\n\"]\n")).is_empty());
    }

    #[test]
    fn a_rate_of_full_training_is_remarked_on() {
        assert_eq!(keys("adapter.type = \"lora\""), ["optimizer.lr"]);
        assert!(keys("adapter = \"lora\"\noptimizer.lr = 1e-5").is_empty());
    }

    #[test]
    fn a_rate_that_never_arrives_is_remarked_on() {
        assert_eq!(keys("budget.steps = 50"), ["optimizer.warmup_steps"]);
        assert!(keys("budget.steps = 50\noptimizer.warmup_steps = 5").is_empty());
        assert!(keys("").is_empty());
    }
}
