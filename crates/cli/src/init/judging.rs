//! How answers are asked for and judged: verifier, format, and the sentence added to a prompt.
//!
//! Prompts that ask for a form already keep it; to all others a sentence is added.

use anyhow::Result;
use scalerl_task::data::{Row, column};
use scalerl_task::problem::lookup;
use scalerl_task::verify::math::last_boxed;
use serde_json::Value;

use super::columns::{Columns, Gold, empty};
use super::text::quoted;
use crate::failure::BadInput;

/// Rows looked at.
const SAMPLE: usize = 500;
/// Share of rows that must agree.
const MOST: f64 = 0.9;
/// A longer answer is no name, number or word.
const LONGEST_EXACT: usize = 80;

/// The form in which an answer is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Boxed,
    /// `#### answer`.
    Gsm8k,
    /// `<answer>…</answer>`.
    Tags,
    /// `Answer: …` in the last line.
    LastLine,
    /// A program, in a fenced block.
    Plain,
}

impl Form {
    /// The value of `format.answer`.
    pub(super) fn toml(self) -> &'static str {
        match self {
            Self::Boxed => r#""boxed""#,
            Self::Gsm8k => r#""gsm8k""#,
            Self::Tags => r#"{ type = "marked", open = "<answer>", close = "</answer>" }"#,
            Self::LastLine => r#"{ type = "marked", open = "Answer:" }"#,
            Self::Plain => r#""plain""#,
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Boxed | Self::Tags | Self::LastLine => {
                "Reason step by step, briefly, and put your final answer within \\boxed{{}}."
            }
            Self::Gsm8k => {
                "Reason step by step, briefly, and end with a line of #### and the final answer."
            }
            Self::Plain => "Write a Python program that solves this, in one fenced block.",
        }
    }
}

/// What was chosen, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judging {
    /// The value of `task.verifier`.
    pub(super) verifier: String,
    pub(super) verifier_why: String,
    pub(super) form: Form,
    pub(super) form_why: String,
    /// The value of `task.prompt`.
    pub(super) prompt: String,
    /// What the user should look at.
    pub(super) remarks: Vec<String>,
}

impl Judging {
    /// `has_template`: whether the model reads conversations.
    pub(super) fn choose(rows: &[Row], columns: &Columns, has_template: bool) -> Result<Self> {
        let sample: Vec<&Row> = rows.iter().step_by(rows.len().div_ceil(SAMPLE)).collect();
        let (verifier, verifier_why) = verifier(&sample, columns)?;
        let asked = asked(&sample, columns);
        let (form, form_why) = match (asked, &columns.gold) {
            (_, Gold::Tests(_)) => (Form::Plain, "programs are taken from the last fenced block"),
            (Some(form), _) => (form, "the prompts ask for it"),
            (None, Gold::Marked(_)) if !has_template => {
                (Form::Gsm8k, "a model without a chat template continues the data's own form")
            }
            (None, _) => (Form::Boxed, "models know it, and its brace ends a completion"),
        };
        let is_told = asked.is_some() && form != Form::Plain;
        let prompt = prompt(columns, form, is_told, has_template);
        let mut remarks = Vec::new();
        match &columns.gold {
            Gold::Tests(tests) => {
                remarks.extend(unnamed_function(&sample, &columns.problem, tests));
            }
            Gold::Whole(name) => remarks.extend(without_answer(rows, name)),
            _ => {}
        }
        Ok(Self { verifier, verifier_why, form, form_why: form_why.into(), prompt, remarks })
    }
}

fn share(sample: &[&Row], fits: impl Fn(&Row) -> bool) -> f64 {
    sample.iter().filter(|row| fits(row)).count() as f64 / sample.len().max(1) as f64
}

fn verifier(sample: &[&Row], columns: &Columns) -> Result<(String, String)> {
    let answer = |row: &Row, name: &str| column(row, name).unwrap_or_default();
    let shown = |name: &str, cut: &dyn Fn(&str) -> String| {
        let looks = share(sample, |row| is_mathematical(&cut(&answer(row, name))));
        let longest = sample.iter().map(|row| cut(&answer(row, name)).len()).max().unwrap_or(0);
        (looks, longest)
    };
    let (looks, longest) = match &columns.gold {
        Gold::Countdown { numbers, target } => {
            let (numbers, target) = (quoted(numbers), quoted(target));
            let value =
                format!("{{ type = \"countdown\", numbers = {numbers}, target = {target} }}");
            return Ok((value, "rows have numbers and a target to reach".into()));
        }
        Gold::Tests(tests) => {
            let value = format!("{{ type = \"code\", tests = {} }}", quoted(tests));
            return Ok((value, format!("column `{tests}` holds tests for a program")));
        }
        Gold::Whole(name) => shown(name, &str::to_owned),
        Gold::Marked(name) => {
            shown(name, &|text| text.rsplit("####").next().unwrap_or_default().trim().to_owned())
        }
        Gold::Boxed(name) => shown(name, &|text| last_boxed(text).unwrap_or_default()),
    };
    if looks >= MOST {
        let why = format!("{:.0} % of the answers are numbers or formulas", looks * 100.0);
        return Ok((r#""math""#.into(), why));
    }
    if longest <= LONGEST_EXACT {
        let value = r#"{ type = "exact", ignore_case = true }"#;
        return Ok((value.into(), format!("answers are words of at most {longest} characters")));
    }
    Err(BadInput::new("the answers are texts, which no built-in verifier can judge")
        .hint(
            "write a program that scores them (docs/tasks.md, \"Verifiers\"), or name a column of short \
             answers with --answer COLUMN",
        )
        .into())
}

fn is_mathematical(answer: &str) -> bool {
    let words = answer
        .split_whitespace()
        .filter(|word| word.len() > 3 && word.chars().all(char::is_alphabetic));
    let has_sign = answer.contains(|c: char| c.is_ascii_digit() || "\\$^=+".contains(c));
    has_sign && words.count() <= 3
}

/// The form that the prompts ask for by themselves.
fn asked(sample: &[&Row], columns: &Columns) -> Option<Form> {
    let forms = [
        (Form::Tags, "</answer>"),
        (Form::Boxed, "\\boxed"),
        (Form::LastLine, "Answer: $Answer"),
        (Form::LastLine, "\"Answer:\""),
        (Form::Gsm8k, "####"),
    ];
    let says = |row: &Row, sign: &str| {
        lookup(row, &columns.problem).is_some_and(|value| match value {
            Value::String(text) => text.contains(sign),
            Value::Array(turns) => turns.iter().any(|turn| {
                turn.get("content").and_then(Value::as_str).is_some_and(|text| text.contains(sign))
            }),
            _ => false,
        })
    };
    let found = forms.iter().find(|(_, sign)| share(sample, |row| says(row, sign)) >= MOST);
    found.map(|(form, _)| *form)
}

fn prompt(columns: &Columns, form: Form, is_told: bool, has_template: bool) -> String {
    if columns.is_conversation && has_template {
        // The conversation is the data's own; only a system message can be added.
        if is_told {
            return r#""chat""#.into();
        }
        return format!("{{ type = \"chat\", system = {} }}", quoted(form.sentence()));
    }
    let mut parts = Vec::new();
    parts.extend(columns.context.as_ref().map(|name| format!("{{{name}}}")));
    parts.push("{prompt}".into());
    parts.extend(columns.choices.as_ref().map(|name| format!("{{{name}}}")));
    parts.extend((!is_told).then(|| form.sentence().to_owned()));
    if !has_template {
        return format!(
            "{{ type = \"plain\", template = {} }}",
            quoted(&(parts.join("\n") + "\n"))
        );
    }
    format!("{{ type = \"chat\", user = {} }}", quoted(&parts.join("\n")))
}

fn without_answer(rows: &[Row], name: &str) -> Option<String> {
    let rows = empty(rows, name);
    let first = rows.first()?;
    let count = rows.len();
    Some(format!("no answer in {count} rows (row {first} first): no completion can be right there"))
}

/// Assertions call a function by name, and a model can only guess one that it is not told.
fn unnamed_function(sample: &[&Row], problem: &str, tests: &str) -> Option<String> {
    let name_of = |row: &Row| {
        let text = column(row, tests).ok()?;
        let call = text.split("assert ").nth(1)?.trim_start_matches('(').split('(').next()?;
        Some(call.trim().to_owned()).filter(|name| !name.is_empty() && !name.contains(' '))
    };
    let is_unnamed = |row: &Row| {
        let text = column(row, problem).unwrap_or_default();
        name_of(row).is_some_and(|name| !text.contains(&name))
    };
    let part = share(sample, is_unnamed);
    (part > 0.1).then(|| {
        format!(
            "{:.0} % of the problems do not name the function that their tests call: put the name into the \
             problem, or show {{{tests}}} in task.prompt",
            part * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::columns::Named;
    use super::*;
    use serde_json::json;

    fn choose(row: &Value, has_template: bool) -> Result<Judging> {
        let rows = vec![row.as_object().unwrap().clone(); 20];
        let columns = Columns::find(&rows, &Named::default())?;
        Judging::choose(&rows, &columns, has_template)
    }

    #[test]
    fn numbers_are_judged_by_mathematics_and_words_by_their_letters() {
        let math = choose(&json!({"question": "1+1?", "answer": "2"}), true).unwrap();
        assert_eq!((math.verifier.as_str(), math.form), ("\"math\"", Form::Boxed));
        let words = choose(&json!({"question": "Capital of France?", "answer": "Paris"}), true);
        assert!(words.unwrap().verifier.contains("exact"));
        let essay = json!({"question": "Why?", "answer": "because of the weather ".repeat(9)});
        let error = choose(&essay, true).unwrap_err();
        assert!(error.to_string().contains("no built-in verifier"), "{error}");
    }

    #[test]
    fn prompts_that_ask_for_a_form_keep_it() {
        let ask = |text: &str| {
            let turn = json!([{"role": "user", "content": text}]);
            choose(&json!({"prompt": turn, "answer": "2"}), true).unwrap()
        };
        assert_eq!(ask("1+1? in \\boxed{}").form, Form::Boxed);
        assert_eq!(ask("1+1? in \\boxed{}").prompt, "\"chat\"");
        assert_eq!(ask("1+1? as <answer> 3 </answer>").form, Form::Tags);
        assert_eq!(ask("last line of the form Answer: $Answer").form, Form::LastLine);
        assert!(ask("1+1?").prompt.contains("system = "), "{}", ask("1+1?").prompt);
    }

    #[test]
    fn a_model_without_a_template_gets_plain_text_in_the_form_of_the_data() {
        let found = choose(&json!({"question": "1+1?", "answer": "so #### 2"}), false).unwrap();
        assert_eq!(found.form, Form::Gsm8k);
        assert!(found.prompt.starts_with("{ type = \"plain\""), "{}", found.prompt);
    }

    #[test]
    fn tests_that_call_an_unnamed_function_are_remarked_on() {
        let row = |text: &str| json!({"text": text, "test_list": ["assert add(1, 2) == 3"]});
        assert_eq!(choose(&row("Add two numbers."), true).unwrap().remarks.len(), 1);
        assert!(choose(&row("Write add(a, b)."), true).unwrap().remarks.is_empty());
    }
}
