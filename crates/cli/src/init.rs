//! `scalerl init`: a recipe for data of one's own.
//!
//! Look at the rows (`init/columns.rs`), choose how answers are asked for and judged
//! (`init/judging.rs`), measure lengths as the model will read them and size everything by them
//! (`init/sizes.rs`), write the file (`init/text.rs`). Nothing is written unless the recipe loads and
//! every row of the data fits it.

mod columns;
mod judging;
mod sizes;
mod text;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use scalerl_model::config::ModelConfig;
use scalerl_model::hub;
use scalerl_model::template::ChatTemplate;
use scalerl_model::tokenizer::Markers;
use scalerl_recipe::{Recipe, Source};
use scalerl_task::data::{ReadError, Row, column, read_rows};
use scalerl_task::{Problem, problems_of};
use scalerl_torch::tch::Device;
use scalerl_torch::{device, shim};

use crate::failure::BadInput;
use crate::train::policy::bad_model;
use crate::train::rendering::Renderer;
use columns::{Columns, Gold, Named};
use judging::{Form, Judging};
use sizes::{Facts, Machine, ModelFacts};
use text::{Choice, quoted};

/// Problems whose tokens are counted; evenly spread over the data.
const MEASURED: usize = 2_000;
/// And as many of the longest.
const LONGEST: usize = 20;
/// Of English and mathematics, for most tokenizers: on the safe side.
const CHARACTERS_PER_TOKEN: usize = 3;
/// What a chat template adds, about.
const TEMPLATE_TOKENS: usize = 32;

/// Options of `init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JSONL, JSON, CSV or Parquet file, or a folder as Hugging Face's `datasets` leaves it.
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// Model to be trained: a folder in Hugging Face format, or a hub name.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// File to write; named after the data where it is not given. Never overwritten.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Column that holds the problem, where it has no usual name.
    #[arg(long, value_name = "COLUMN")]
    problem: Option<String>,
    /// Column that holds the answer, where it has no usual name.
    #[arg(long, value_name = "COLUMN")]
    answer: Option<String>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let name = stem(&args.data);
    let path = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.toml")));
    if path.exists() {
        return Err(exists(&path));
    }
    let (rows, split) = rows(&args.data)?;
    let named = Named { problem: args.problem.as_deref(), answer: args.answer.as_deref() };
    let columns = Columns::find(&rows, &named)?;
    let model = args.model.as_deref().map(Model::find).transpose()?;
    let has_template = model.as_ref().is_none_or(|model| model.has_template);
    let judging = Judging::choose(&rows, &columns, has_template)?;

    let mut choices = Vec::new();
    if let Some(model) = &args.model {
        choices.push(Choice::new("model", "path", quoted(model), ""));
    }
    choices.extend(task(&name, args, &split, &columns, &judging));
    let facts = facts(&choices, &columns, &judging, model.as_ref())?;
    choices.extend(sizes::choose(&facts)?);
    let description = format!("{name}: {} problems", rows.len());
    let recipe = text::recipe(&head(args, &path), &description, &choices);
    load(&recipe)?;

    write_new(&path, &recipe)?;
    say(&choices, &judging, facts.model.is_none(), out)?;
    let (file, path) = (path.display(), shell_word(&path));
    let set = if args.model.is_none() { " --set model.path=FOLDER" } else { "" };
    writeln!(out, "\nwrote {file}. Next:")?;
    writeln!(
        out,
        "  scalerl train {path}{set} --dry-run   # what it would cost, and the verifier tried"
    )?;
    Ok(writeln!(out, "  scalerl train {path}{set}")?)
}

fn stem(data: &Path) -> String {
    let stem = data.file_stem().map_or("data".into(), |stem| stem.to_string_lossy().into_owned());
    if stem.is_empty() { "data".into() } else { stem }
}

/// The rows, and the split where the data is a folder. A folder with one split has no other choice.
fn rows(data: &Path) -> Result<(Vec<Row>, String)> {
    let bad = |error: &ReadError| BadInput::new(error).hint(error.hint());
    let mut split = "train".to_owned();
    let rows = match read_rows(data, &split) {
        Err(ReadError::NoSplit { found, .. })
            if !found.contains([',', ' ']) && found != "nothing" =>
        {
            split = found;
            read_rows(data, &split)
        }
        rows => rows,
    };
    Ok((rows.map_err(|error| bad(&error))?, split))
}

/// A model's folder and what matters here.
struct Model {
    folder: PathBuf,
    has_template: bool,
    facts: ModelFacts,
}

impl Model {
    fn find(name: &str) -> Result<Self> {
        let find = || {
            let folder = hub::resolve(name)?;
            let config = ModelConfig::load(&folder.join("config.json"))?;
            let has_template = ChatTemplate::load(&folder)?.is_some();
            let facts = ModelFacts {
                parameters: config.parameter_count() as u64,
                vocabulary: config.vocabulary as u64,
                positions: config.max_positions as u64,
            };
            Ok(Self { folder, has_template, facts })
        };
        Ok(find().map_err(|error| bad_model(&error))?)
    }
}

/// The keys that say what is asked and how it is judged.
fn task(name: &str, args: &Args, split: &str, columns: &Columns, judging: &Judging) -> Vec<Choice> {
    let mut source = vec![
        r#"type = "files""#.to_owned(),
        format!("path = {}", quoted(&args.data.display().to_string())),
    ];
    if split != "train" {
        source.push(format!("split = {}", quoted(split)));
    }
    source.push(format!("prompt_column = {}", quoted(&columns.problem)));
    let (answer, cut, why) = match &columns.gold {
        Gold::Whole(answer) => (answer.as_str(), "", format!("answers are in `{answer}`")),
        Gold::Marked(answer) => {
            let why = format!("answers follow #### in `{answer}`");
            (answer.as_str(), "answer_after = \"####\"", why)
        }
        Gold::Boxed(answer) => {
            (answer.as_str(), "answer_boxed = true", format!("answers are boxed in `{answer}`"))
        }
        Gold::Countdown { .. } | Gold::Tests(_) => ("", "", String::new()),
    };
    source.push(format!("answer_column = {}", quoted(answer)));
    source.extend((!cut.is_empty()).then(|| cut.to_owned()));
    let mut choices = vec![
        Choice::new("task.datasets", "name", quoted(name), ""),
        Choice::new("task.datasets", "source", format!("{{ {} }}", source.join(", ")), why),
        Choice::new("task", "prompt", &judging.prompt, ""),
        Choice::new("task", "verifier", &judging.verifier, judging.verifier_why.as_str()),
        Choice::new("format", "answer", judging.form.toml(), judging.form_why.as_str()),
    ];
    if judging.form == Form::Plain {
        choices.push(Choice::new("format", "thinking", r#""none""#, ""));
    }
    choices
}

fn load(text: &str) -> Result<scalerl_recipe::Resolved> {
    let source = Source::Text { name: "the new recipe".into(), text: text.into() };
    Ok(Recipe::load(&[source], &[]).map_err(|error| BadInput::new(&error).hint(error.hint()))?)
}

/// Measures problems as training will read them.
fn facts(
    choices: &[Choice],
    columns: &Columns,
    judging: &Judging,
    model: Option<&Model>,
) -> Result<Facts> {
    // Sizes are not known yet; the base's stand in for them.
    let mut draft = choices.to_vec();
    if judging.form == Form::Plain {
        draft.push(Choice::new("sampling", "max_thinking_tokens", 0, ""));
        draft.push(Choice::new("objective", "length_control", r#""none""#, ""));
    }
    let recipe = load(&text::recipe(&[], "draft", &draft))?;
    let problems = problems_of(&recipe.task.datasets[0], &recipe);
    let problems = problems.map_err(|error| BadInput::new(&error).hint(error.hint()))?;
    let renderer = model.map(|model| Renderer::load(&recipe, &model.folder)).transpose()?;
    let estimate = |text: &str| text.chars().count().div_ceil(CHARACTERS_PER_TOKEN);
    let count = |text: &str| match &renderer {
        Some(renderer) => {
            renderer.tokenizer().encode(text, Markers::Leave).map_or(0, |all| all.len())
        }
        None => estimate(text),
    };
    let measured = measured(&problems);
    let prompt = |problem: &&Problem| match &renderer {
        Some(renderer) => renderer.render(problem).map(|prompt| prompt.token_ids.len()),
        None => Ok(estimate(&problem.text()) + TEMPLATE_TOKENS),
    };
    let prompts: Result<Vec<usize>, _> = measured.iter().map(prompt).collect();
    let solution = |problem: &&Problem| {
        columns.solution.as_deref().and_then(|name| column(&problem.fields, name).ok())
    };
    let machine = match device::parse("auto").map_err(BadInput::new)? {
        device @ Device::Cuda(_) => Machine::Gpu { free_bytes: shim::device_memory(device)?.0 },
        _ => Machine::Cpu,
    };
    Ok(Facts {
        form: judging.form,
        prompts: prompts.map_err(|error| BadInput::new(&error).hint(error.hint()))?,
        solutions: measured.iter().filter_map(solution).map(|text| count(&text)).collect(),
        answers: measured.iter().map(|problem| count(&problem.answer)).collect(),
        distinct: problems.iter().map(Problem::text).collect::<BTreeSet<_>>().len(),
        model: model.map(|model| model.facts),
        machine,
    })
}

/// An even spread over the data, and the longest, which decide what fits.
fn measured(problems: &[Problem]) -> Vec<&Problem> {
    let spread = problems.iter().step_by(problems.len().div_ceil(MEASURED));
    let mut by_length: Vec<&Problem> = problems.iter().collect();
    by_length.sort_by_key(|problem| std::cmp::Reverse(problem.text().len()));
    spread.chain(by_length.into_iter().take(LONGEST)).collect()
}

fn head(args: &Args, path: &Path) -> Vec<String> {
    let data = args.data.display();
    let model = args.model.as_ref().map(|model| format!(" --model {model}")).unwrap_or_default();
    vec![
        format!(
            "Written by `scalerl init {data}{model}`: what it chose, and why. Change what you know better."
        ),
        format!("Every key, with its default: scalerl recipe show {}", path.display()),
    ]
}

fn write_new(path: &Path, text: &str) -> Result<()> {
    let written = OpenOptions::new().write(true).create_new(true).open(path);
    match written.and_then(|mut file| file.write_all(text.as_bytes())) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists(path)),
        Err(error) => {
            let message = format!("cannot write {}: {error}", path.display());
            Err(BadInput::new(message).hint("name another file with --out FILE").into())
        }
        Ok(()) => Ok(()),
    }
}

fn exists(path: &Path) -> anyhow::Error {
    BadInput::new(format!("{} exists", path.display()))
        .hint("name another file with --out FILE; nothing is overwritten")
        .into()
}

/// A path as a shell reads it.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_alphanumeric() || "-_./~+,@:".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

fn say(
    choices: &[Choice],
    judging: &Judging,
    is_estimated: bool,
    out: &mut dyn Write,
) -> Result<()> {
    for Choice { section, key, value, why } in choices {
        let key = format!("{section}.{key}");
        writeln!(out, "{key:29} {value}")?;
        if !why.is_empty() {
            writeln!(out, "{:31}{why}", "")?;
        }
    }
    if is_estimated {
        writeln!(
            out,
            "note: without --model, tokens are estimated by characters, and the rate is for 0.5B"
        )?;
    }
    for remark in &judging.remarks {
        writeln!(out, "note: {remark}")?;
    }
    Ok(())
}
