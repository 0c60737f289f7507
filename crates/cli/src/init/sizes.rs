//! Lengths, batches and rates for one data set, one model and one machine.
//!
//! Lengths follow from what was measured. What no data tells (rates, batches) comes from runs of this
//! project: 0.8M parameters at 8e-5, 22M at 5e-5, 0.5B at 1e-6, and the paper's 5e-7 for 8B.

use anyhow::Result;

use super::judging::Form;
use super::text::Choice;
use crate::failure::BadInput;

/// Fewer problems are no task to learn.
const FEWEST: usize = 8;
/// Thinking is cut down to this before prompts are left out.
const SHORTEST_THINKING: u64 = 128;
/// Of `pipeline.micro_batch_tokens`.
const USUAL_MICRO_BATCH: u64 = 32_768;

/// What sizes depend on.
pub(super) struct Facts {
    pub(super) form: Form,
    /// Tokens of each prompt, as the model reads it.
    pub(super) prompts: Vec<usize>,
    /// Tokens of worked solutions, where the data has them.
    pub(super) solutions: Vec<usize>,
    pub(super) answers: Vec<usize>,
    /// Different problems.
    pub(super) distinct: usize,
    pub(super) model: Option<ModelFacts>,
    pub(super) machine: Machine,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ModelFacts {
    pub(super) parameters: u64,
    pub(super) vocabulary: u64,
    pub(super) positions: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    Cpu,
    Gpu { free_bytes: u64 },
}

/// A value below which a share of the numbers lies.
fn quantile(numbers: &[usize], share: f64) -> Option<usize> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[((last as f64) * share).ceil() as usize])
}

fn up_to(number: u64, multiple: u64) -> u64 {
    number.div_ceil(multiple) * multiple
}

/// Most tokens of prompt, thinking and answer.
struct Lengths {
    prompt: u64,
    thinking: u64,
    answer: u64,
}

/// Everything that has a size, each with its reason.
pub(super) fn choose(facts: &Facts) -> Result<Vec<Choice>> {
    if facts.distinct < FEWEST {
        let message = format!("{} different problems are no task to learn", facts.distinct);
        return Err(BadInput::new(message).hint("give at least 8; hundreds are better").into());
    }
    let mut choices = Vec::new();
    let lengths = lengths(facts, &mut choices)?;
    held_out(facts, &mut choices);
    batches(facts, &lengths, &mut choices);
    if let Some(model) = facts.model {
        let (lr, why) = rate(model.parameters);
        choices.push(Choice::new("optimizer", "lr", lr, why));
    }
    let (steps, why) = match facts.machine {
        Machine::Cpu => ("20", "a CPU's first look; no more than an hour"),
        Machine::Gpu { .. } => ("100", "a first look; no more than an hour"),
    };
    choices.push(Choice::new("budget", "steps", steps, why));
    choices.push(Choice::new("budget", "wall_hours", "1.0", "whichever is met first"));
    Ok(choices)
}

fn lengths(facts: &Facts, choices: &mut Vec<Choice>) -> Result<Lengths> {
    let positions = facts.model.map_or(u64::MAX, |model| model.positions);
    let longest = facts.prompts.iter().copied().max().unwrap_or(1) as u64;
    let (mut thinking, mut thinking_why) = thinking(facts);
    let (answer, answer_why) = answer(facts);
    let beside = positions.saturating_sub(up_to(longest, 32).min(2048) + answer);
    if (SHORTEST_THINKING..thinking).contains(&beside) {
        (thinking, thinking_why) = (beside, format!("what {positions} positions leave for it"));
    }
    let room = positions.saturating_sub(thinking + answer);
    let prompt = up_to(longest, 32).min(2048).min(room);
    if prompt < quantile(&facts.prompts, 0.5).unwrap_or(1) as u64 {
        let message = format!(
            "the model reads {positions} tokens: half of the prompts have no room beside {thinking} \
             tokens of thinking and {answer} of answer"
        );
        return Err(BadInput::new(message).hint("choose a model with a longer context").into());
    }
    let left_out = facts.prompts.iter().filter(|tokens| **tokens as u64 > prompt).count();
    let prompt_why = match left_out {
        0 => format!("the longest has {longest}"),
        count => format!("{count} of {} are longer and left out", facts.prompts.len()),
    };
    choices.push(Choice::new("sampling", "max_prompt_tokens", prompt, prompt_why));
    choices.push(Choice::new("sampling", "max_thinking_tokens", thinking, thinking_why));
    choices.push(Choice::new("sampling", "max_answer_tokens", answer, answer_why));
    let control = if thinking == 0 {
        r#""none""#.to_owned()
    } else {
        let earliest = thinking * 3 / 4;
        format!("{{ type = \"interruption\", earliest = {earliest}, latest = {thinking} }}")
    };
    choices.push(Choice::new("objective", "length_control", control, ""));
    Ok(Lengths { prompt, thinking, answer })
}

fn thinking(facts: &Facts) -> (u64, String) {
    let is_cpu = facts.machine == Machine::Cpu;
    if facts.form == Form::Plain {
        return (0, "all that is written is the answer".into());
    }
    let most = if is_cpu { 256 } else { 2048 };
    match quantile(&facts.solutions, 0.95) {
        Some(tokens) => {
            let wanted = up_to(tokens as u64 * 3 / 2, 64).clamp(128, most);
            let cut = if wanted < tokens as u64 { "; cut to what is affordable here" } else { "" };
            (wanted, format!("95 % of the solutions have at most {tokens}{cut}"))
        }
        None if is_cpu => (256, "no solutions to measure; what a CPU can bear".into()),
        None => (1024, "no solutions to measure: raise it if many are interrupted".into()),
    }
}

fn answer(facts: &Facts) -> (u64, String) {
    if facts.form == Form::Plain {
        let tokens = if facts.machine == Machine::Cpu { 512 } else { 1024 };
        return (tokens, "room for a program".into());
    }
    let longest = quantile(&facts.answers, 0.99).unwrap_or(8);
    let room = up_to(longest as u64 * 2 + 8, 8).clamp(24, 256);
    (room, format!("99 % of the answers have at most {longest}"))
}

fn held_out(facts: &Facts, choices: &mut Vec<Choice>) {
    let is_cpu = facts.machine == Machine::Cpu;
    let (most, work) = if is_cpu { (32, 128) } else { (256, 1024) };
    let count = (facts.distinct / 10).clamp(16, most).min(facts.distinct / 4).max(1);
    let why = format!("of {} different problems; measured, never trained on", facts.distinct);
    choices.push(Choice::new("task", "held_out", count, why));
    let generations = (work / count).clamp(4, 16);
    let error = 0.5 / ((count * generations) as f64).sqrt();
    let why = format!("× {count} prompts: a pass rate is known to about {error:.2}");
    choices.push(Choice::new("evaluation", "generations", generations, why));
    if is_cpu {
        choices.push(Choice::new("evaluation", "every_steps", 4, "six points in 20 steps"));
    }
}

fn batches(facts: &Facts, lengths: &Lengths, choices: &mut Vec<Choice>) {
    let longest = lengths.prompt + lengths.thinking + lengths.answer;
    let vocabulary = facts.model.map_or(150_000, |model| model.vocabulary).max(1);
    let (most, why) = match facts.machine {
        Machine::Cpu => (2048, "a CPU gains nothing from more"),
        // Logits and their gradient in a quarter of what is free.
        Machine::Gpu { free_bytes } => (free_bytes / 4 / (8 * vocabulary), "for the free memory"),
    };
    let tokens = up_to(most.min(USUAL_MICRO_BATCH).max(longest), 256);
    if tokens < USUAL_MICRO_BATCH {
        choices.push(Choice::new("pipeline", "micro_batch_tokens", tokens, why));
    }
    if facts.machine == Machine::Cpu {
        choices.push(Choice::new("pipeline", "groups_per_step", 8, "what a CPU can bear"));
    }
}

fn rate(parameters: u64) -> (&'static str, String) {
    let size = match parameters {
        0..1_000_000_000 => format!("{:.1}M", parameters as f64 / 1e6),
        _ => format!("{:.1}B", parameters as f64 / 1e9),
    };
    let lr = match parameters {
        0..50_000_000 => "5e-5",
        50_000_000..300_000_000 => "5e-6",
        300_000_000..3_000_000_000 => "1e-6",
        _ => "5e-7",
    };
    (lr, format!("for {size} parameters"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts(prompts: Vec<usize>, machine: Machine) -> Facts {
        Facts {
            form: Form::Boxed,
            distinct: prompts.len(),
            prompts,
            solutions: Vec::new(),
            answers: vec![3],
            model: Some(ModelFacts {
                parameters: 500_000_000,
                vocabulary: 151_936,
                positions: 4096,
            }),
            machine,
        }
    }

    fn value(choices: &[Choice], key: &str) -> u64 {
        let found = choices.iter().find(|choice| choice.key == key);
        found.map_or(USUAL_MICRO_BATCH, |choice| choice.value.parse().unwrap())
    }

    proptest! {
        #[test]
        fn sizes_fit_each_other_the_data_and_the_model(
            prompts in prop::collection::vec(1_usize..1000, 8..400),
            solutions in prop::collection::vec(1_usize..5000, 0..20),
            gib in prop::option::of(1_u64..140),
        ) {
            let machine = gib.map_or(Machine::Cpu, |gib| Machine::Gpu { free_bytes: gib << 30 });
            let facts = Facts { solutions, ..facts(prompts, machine) };
            let choices = choose(&facts).unwrap();
            let [prompt, thinking, answer] =
                ["max_prompt_tokens", "max_thinking_tokens", "max_answer_tokens"].map(|key| value(&choices, key));
            prop_assert!(prompt as usize >= *facts.prompts.iter().max().unwrap());
            prop_assert!(prompt + thinking + answer <= 4096);
            prop_assert!(value(&choices, "micro_batch_tokens") >= prompt + thinking + answer);
            let held_out = value(&choices, "held_out") as usize;
            prop_assert!(held_out >= 1 && held_out * 4 <= facts.distinct);
        }
    }

    #[test]
    fn too_few_problems_and_too_short_a_context_are_refused() {
        let error = choose(&facts(vec![10; 7], Machine::Cpu)).unwrap_err().to_string();
        assert_eq!(error, "7 different problems are no task to learn");
        let error = choose(&facts(vec![4000; 20], Machine::Cpu)).unwrap_err().to_string();
        assert!(error.starts_with("the model reads 4096 tokens"), "{error}");
    }

    #[test]
    fn programs_are_all_answer_and_larger_models_learn_slower() {
        let code = Facts { form: Form::Plain, ..facts(vec![10; 20], Machine::Cpu) };
        let choices = choose(&code).unwrap();
        assert_eq!(value(&choices, "max_thinking_tokens"), 0);
        assert_eq!(rate(8_000_000_000).0, "5e-7");
        assert_eq!(rate(135_000_000).0, "5e-6");
    }
}
