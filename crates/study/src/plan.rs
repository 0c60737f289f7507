//! From a study file to runs whose recipes have all been checked.
//!
//! ```text
//! base <- study's set and evaluation <- variant's change <- variant's set <- tuned value
//!      <- budget <- seed       = one run's recipe
//! ```
//!
//! Everything that can be wrong is found here, before any run starts. Runs are named
//! `VARIANT-sSEED`, the short runs of a sweep `VARIANT-tune-VALUE`; all lie in one folder, so that
//! runs with the same warm-up share it.

use std::collections::BTreeSet;

use scalerl_recipe::Axis;
use scalerl_recipe::{Difference, Override, Recipe, Resolved, Source, Weights, diff};
use serde::Serialize;
use toml::{Table, Value};

use crate::{StudyError, StudyFile, TuneTable, VariantTable};

const USUAL_BASE_NAME: &str = "base";

/// Stands between the variant and the value in the name of a sweep's run.
const SWEEP: &str = "-tune-";

/// Is this the name of a sweep's run? These are short on purpose.
pub fn is_of_sweep(run: &str) -> bool {
    run.contains(SWEEP)
}

/// What each run may spend, on one axis.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Budget {
    /// What is counted.
    pub axis: Axis,
    /// How much of it.
    pub amount: f64,
}

/// A study that can be run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The study's name.
    pub name: String,
    /// What is asked.
    pub description: String,
    /// What each run may spend.
    pub budget: Budget,
    /// Base first, then the others as in the file.
    pub variants: Vec<Variant>,
}

/// One variant: the base, or the base with a change.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// One run each.
    pub seeds: Vec<u64>,
    /// The sweep before its runs.
    pub tune: Option<Tune>,
    /// Choices in which it differs from the base.
    pub differences: Vec<Difference>,
    sources: Vec<Source>,
    budget: Budget,
    label: String,
}

/// Short runs over the values of one key.
#[derive(Debug, Clone, PartialEq)]
pub struct Tune {
    /// Dotted key.
    pub key: String,
    /// Values as TOML.
    pub values: Vec<String>,
    /// Share of the budget that each gets.
    pub budget_share: f64,
}

/// What a run is for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// A run of the study.
    Run,
    /// A short run of a sweep, with this value.
    Tune(String),
}

/// One run to be made.
#[derive(Debug, Clone)]
pub struct Job {
    /// Name of its folder.
    pub name: String,
    /// Its variant.
    pub variant: String,
    /// Its seed.
    pub seed: u64,
    /// What it is for.
    pub purpose: Purpose,
    /// What it may spend.
    pub budget: Budget,
    /// Everything it is made of.
    pub recipe: Resolved,
}

impl Plan {
    /// Checks a study and every recipe in it.
    pub fn of(file: &StudyFile) -> Result<Self, StudyError> {
        let bad = |key: &str, problem: &str, remedy: &str| StudyError::BadKey {
            file: file.label.clone(),
            key: key.into(),
            problem: problem.into(),
            remedy: remedy.into(),
        };
        let base = file.base.as_ref().ok_or_else(|| {
            bad("base", "is missing", "name a shipped recipe or a file: base = \"scalerl\"")
        })?;
        let budget = budget(file)?;
        let base_name = file.base_name.clone().unwrap_or_else(|| USUAL_BASE_NAME.into());
        let own = file.variants.iter().find(|variant| variant.name == base_name);
        let base_table = own
            .cloned()
            .unwrap_or(VariantTable { name: base_name.clone(), ..VariantTable::default() });
        let others = file.variants.iter().filter(|variant| variant.name != base_name);
        let mut variants: Vec<Variant> = Vec::new();
        let mut names = BTreeSet::new();
        for table in std::iter::once(&base_table).chain(others) {
            check_name(file, &table.name)?;
            if !names.insert(&table.name) {
                return Err(bad(
                    "variants.name",
                    &format!("has \"{}\" twice", table.name),
                    "names tell runs apart",
                ));
            }
            let mut variant = variant(file, base, table, budget)?;
            variant.check()?;
            let first = variants.first().unwrap_or(&variant);
            variant.differences =
                diff(&first.resolve(0, budget, None)?, &variant.resolve(0, budget, None)?);
            variants.push(variant);
        }
        Ok(Self {
            name: file.name.clone(),
            description: file.description.clone().unwrap_or_default(),
            budget,
            variants,
        })
    }

    /// Refuses a study whose runs would all stop at their first line: a recipe may be checked
    /// without a model and without problems, and not be run.
    pub fn check_runnable(&self, file: &StudyFile) -> Result<(), StudyError> {
        for variant in &self.variants {
            let recipe = variant.resolve(0, self.budget, None)?;
            let is_new = matches!(recipe.model.weights, Weights::New { .. });
            let missing = if recipe.model.path.is_none() && !is_new {
                Some(("model.path", "set.model.path = \"models/mine\", or a base that has one"))
            } else if recipe.task.datasets.is_empty() {
                Some(("task.datasets", "[[set.task.datasets]], or a base that has some"))
            } else {
                None
            };
            if let Some((key, remedy)) = missing {
                return Err(StudyError::BadKey {
                    file: file.label.clone(),
                    key: key.into(),
                    problem: format!("is not set for variant `{}`", variant.name),
                    remedy: remedy.into(),
                });
            }
        }
        Ok(())
    }

    /// The base.
    pub fn base(&self) -> &Variant {
        &self.variants[0]
    }

    /// The plan with the named variants or runs only: variants keep the seeds that were asked for.
    pub fn only(mut self, names: &[String]) -> Result<Self, StudyError> {
        if names.is_empty() {
            return Ok(self);
        }
        let run_name = |variant: &Variant, seed: u64| format!("{}-s{seed}", variant.name);
        let known: Vec<String> = self
            .variants
            .iter()
            .flat_map(|one| {
                let runs = one.seeds.iter().map(|seed| run_name(one, *seed));
                std::iter::once(one.name.clone()).chain(runs)
            })
            .collect();
        if let Some(name) = names.iter().find(|name| !known.contains(name)) {
            return Err(StudyError::UnknownRun { name: name.clone(), known });
        }
        for variant in &mut self.variants {
            if !names.contains(&variant.name) {
                let kept = |seed: &u64| names.contains(&format!("{}-s{seed}", variant.name));
                variant.seeds = variant.seeds.iter().copied().filter(kept).collect();
            }
        }
        self.variants.retain(|variant| !variant.seeds.is_empty());
        Ok(self)
    }
}

impl Variant {
    /// The short runs of its sweep.
    pub fn tuning(&self) -> Result<Vec<Job>, StudyError> {
        let Some(tune) = &self.tune else { return Ok(Vec::new()) };
        let amount = self.budget.amount * tune.budget_share;
        // Steps and tokens are whole.
        let amount = match self.budget.axis {
            Axis::DeviceHours | Axis::Flops => amount,
            Axis::Tokens | Axis::Steps => amount.ceil().max(1.0),
        };
        let budget = Budget { amount, ..self.budget };
        let job = |value: &String| {
            Ok(Job {
                name: format!("{}{SWEEP}{}", self.name, file_name(value)),
                variant: self.name.clone(),
                seed: self.seeds[0],
                purpose: Purpose::Tune(value.clone()),
                budget,
                recipe: self.resolve(self.seeds[0], budget, Some((&tune.key, value)))?,
            })
        };
        tune.values.iter().map(job).collect()
    }

    /// Its runs, with the value that the sweep has chosen.
    pub fn runs(&self, chosen: Option<&str>) -> Result<Vec<Job>, StudyError> {
        let tuned = self.tune.as_ref().map(|tune| tune.key.as_str()).zip(chosen);
        let job = |seed: &u64| {
            Ok(Job {
                name: format!("{}-s{seed}", self.name),
                variant: self.name.clone(),
                seed: *seed,
                purpose: Purpose::Run,
                budget: self.budget,
                recipe: self.resolve(*seed, self.budget, tuned)?,
            })
        };
        self.seeds.iter().map(job).collect()
    }

    /// Every recipe that it can come to.
    fn check(&self) -> Result<(), StudyError> {
        self.tuning()?;
        let values = self.tune.as_ref().map(|tune| tune.values.clone()).unwrap_or_default();
        for value in &values {
            self.runs(Some(value))?;
        }
        self.runs(None).map(|_| ())
    }

    fn resolve(
        &self,
        seed: u64,
        budget: Budget,
        tuned: Option<(&str, &str)>,
    ) -> Result<Resolved, StudyError> {
        let bad = |source| StudyError::Recipe {
            file: self.label.clone(),
            variant: self.name.clone(),
            source: Box::new(source),
        };
        let mut set: Vec<String> = Vec::new();
        set.extend(tuned.map(|(key, value)| format!("{key}={value}")));
        let axis = budget.axis.name();
        let key = axis.replace('-', "_");
        for other in ["steps", "tokens", "device_hours"] {
            let value = if other == key { amount_text(budget) } else { "unset".into() };
            set.push(format!("budget.{other}={value}"));
        }
        set.push(format!("budget.axis={axis}"));
        set.push(format!("seed={seed}"));
        let overrides: Result<Vec<Override>, _> =
            set.iter().map(|text| Override::parse(text)).collect();
        Recipe::load(&self.sources, &overrides.map_err(bad)?).map_err(bad)
    }
}

fn amount_text(budget: Budget) -> String {
    match budget.axis {
        Axis::DeviceHours => format!("{:?}", budget.amount),
        _ => format!("{:.0}", budget.amount),
    }
}

fn budget(file: &StudyFile) -> Result<Budget, StudyError> {
    let bad = |problem: &str| StudyError::BadKey {
        file: file.label.clone(),
        key: "budget".into(),
        problem: problem.into(),
        remedy: "one axis for all runs: budget = { steps = 200 }, { tokens = 1000000 } or \
                 { device_hours = 0.5 }"
            .into(),
    };
    let table = file.budget.as_ref().ok_or_else(|| bad("is missing"))?;
    let given: Vec<(Axis, f64)> = [
        (Axis::Steps, table.steps.map(|count| count as f64)),
        (Axis::Tokens, table.tokens.map(|count| count as f64)),
        (Axis::DeviceHours, table.device_hours),
    ]
    .into_iter()
    .filter_map(|(axis, amount)| amount.map(|amount| (axis, amount)))
    .collect();
    match given[..] {
        [(axis, amount)] if amount.is_finite() && amount > 0.0 => Ok(Budget { axis, amount }),
        [_] => Err(bad("must be above zero")),
        [] => Err(bad("names no axis")),
        _ => Err(bad("names more than one axis")),
    }
}

fn variant(
    file: &StudyFile,
    base: &str,
    table: &VariantTable,
    budget: Budget,
) -> Result<Variant, StudyError> {
    let bad = |key: &str, problem: String, remedy: &str| StudyError::BadKey {
        file: file.label.clone(),
        key: format!("variants.{}.{key}", table.name),
        problem,
        remedy: remedy.into(),
    };
    let seeds = table.seeds.clone().or_else(|| file.seeds.clone()).unwrap_or_else(|| vec![0]);
    if seeds.is_empty() || seeds.iter().collect::<BTreeSet<_>>().len() < seeds.len() {
        let problem = format!("is {seeds:?}: one seed at least, each once");
        return Err(bad("seeds", problem, "seeds = [1, 2, 3]"));
    }
    let mut common = file.set.clone();
    if !file.evaluation.is_empty() {
        let evaluation = common.entry("evaluation").or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(keys) = evaluation {
            keys.extend(file.evaluation.clone());
        }
    }
    let text = |part: &str, table: &Table| Source::Text {
        name: format!("{} {part}", file.label),
        text: table.to_string(),
    };
    let mut sources = vec![Source::named(base), text("[set]", &common)];
    sources.extend(table.change.as_deref().map(Source::named));
    sources.push(text(&format!("[{}.set]", table.name), &table.set));
    let tune = table.tune.as_ref().or(file.tune.as_ref()).map(tune).transpose();
    let tune = tune.map_err(|problem| {
        bad(
            "tune",
            problem,
            "tune = { key = \"optimizer.lr\", values = [1e-5, 3e-5], budget_share = 0.2 }",
        )
    })?;
    Ok(Variant {
        name: table.name.clone(),
        seeds,
        tune,
        differences: Vec::new(),
        sources,
        budget,
        label: file.label.clone(),
    })
}

fn tune(table: &TuneTable) -> Result<Tune, String> {
    let values: Vec<String> = table.values.iter().map(value_text).collect();
    let names: BTreeSet<String> = values.iter().map(|value| file_name(value)).collect();
    if names.len() < 2 || names.len() < values.len() {
        return Err(format!("has the values {}: two at least, each once", values.join(", ")));
    }
    if !(table.budget_share > 0.0 && table.budget_share <= 1.0) {
        return Err(format!("has a budget_share of {}, it lies in (0, 1]", table.budget_share));
    }
    Ok(Tune { key: table.key.clone(), values, budget_share: table.budget_share })
}

/// As a person would write it: 5e-7, not 0.0000005.
fn value_text(value: &Value) -> String {
    match value {
        Value::Float(number) => format!("{number:?}"),
        other => other.to_string(),
    }
}

/// A value as a part of a folder's name.
fn file_name(value: &str) -> String {
    let is_safe = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    value
        .chars()
        .filter(|letter| *letter != '"')
        .map(|l| if is_safe(l) { l } else { '_' })
        .collect()
}

fn check_name(file: &StudyFile, name: &str) -> Result<(), StudyError> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let begins_well = name.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    if begins_well && name.chars().all(is_letter) {
        return Ok(());
    }
    Err(StudyError::BadKey {
        file: file.label.clone(),
        key: "variants.name".into(),
        problem: format!("is {name:?}, and runs are folders named after it"),
        remedy: "letters, digits, and - _ . inside".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, StudyError> {
        Plan::of(&StudyFile::parse("my.toml", text)?)
    }

    fn refusal(text: &str) -> String {
        plan(text).unwrap_err().to_string()
    }

    #[test]
    fn a_variant_keeps_the_base_and_changes_what_it_names() {
        let plan = plan(
            "base = \"scalerl\"\nseeds = [1, 2]\nbudget = { tokens = 9000 }\n\
             evaluation = { every_steps = 7 }\nset.pipeline.groups_per_step = 32\n\
             [[variants]]\nname = \"magistral\"\nchange = \"magistral\"\nseeds = [5]\n\
             set.objective.surrogate.high = 0.28\n",
        )
        .unwrap();
        let runs: Vec<Job> =
            plan.variants.iter().flat_map(|variant| variant.runs(None).unwrap()).collect();
        let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["base-s1", "base-s2", "magistral-s5"]);
        let (base, rival) = (&runs[1].recipe, &runs[2].recipe);
        assert_eq!((base.seed, rival.seed), (2, 5));
        assert_eq!((base.budget.tokens, base.budget.steps), (Some(9000), None));
        assert_eq!(rival.evaluation.every_steps, Some(7));
        assert_eq!(base.pipeline.groups_per_step, 32);
        // The change comes after the common set-up: it is what the variant is about.
        assert_eq!(rival.pipeline.groups_per_step, 80);
        let changed: Vec<&str> =
            plan.variants[1].differences.iter().map(|one| one.key.as_str()).collect();
        assert!(changed.contains(&"objective.surrogate"), "{changed:?}");
        assert!(!changed.contains(&"seed"), "{changed:?}");
    }

    #[test]
    fn a_sweep_gives_each_value_a_share_of_the_budget() {
        let plan = plan(
            "base = \"scalerl\"\nbudget = { steps = 50 }\n\
             tune = { key = \"optimizer.lr\", values = [1e-6, 5e-6], budget_share = 0.25 }\n",
        )
        .unwrap();
        let short = plan.base().tuning().unwrap();
        assert_eq!(short.len(), 2);
        assert_eq!(short[1].recipe.budget.steps, Some(13), "rounded up");
        assert!((short[1].recipe.optimizer.lr - 5e-6).abs() < 1e-18);
        let runs = plan.base().runs(Some("5e-6")).unwrap();
        assert!((runs[0].recipe.optimizer.lr - 5e-6).abs() < 1e-18);
        assert_eq!(runs[0].recipe.budget.steps, Some(50));
    }

    #[test]
    fn only_keeps_the_named_variants_and_runs() {
        let text = "base = \"scalerl\"\nseeds = [1, 2]\nbudget = { steps = 5 }\n\
                    [[variants]]\nname = \"a\"\n[[variants]]\nname = \"b\"\n";
        let plan = plan(text).unwrap();
        let kept = plan.clone().only(&["a".into(), "b-s2".into()]).unwrap();
        let runs: Vec<String> = kept
            .variants
            .iter()
            .flat_map(|variant| variant.runs(None).unwrap())
            .map(|job| job.name)
            .collect();
        assert_eq!(runs, ["a-s1", "a-s2", "b-s2"]);
        let error = plan.only(&["c".into()]).unwrap_err();
        assert_eq!(error.hint(), "known: base, base-s1, base-s2, a, a-s1, a-s2, b, b-s1, b-s2");
    }

    #[test]
    fn what_cannot_work_is_refused_before_anything_starts() {
        let base = "base = \"scalerl\"\n";
        let cases = [
            (String::new(), "my.toml: `base` is missing"),
            (base.into(), "my.toml: `budget` is missing"),
            (format!("{base}budget = {{ steps = 1, tokens = 1 }}"), "names more than one axis"),
            (format!("{base}budget = {{ device_hours = 0 }}"), "must be above zero"),
            (
                format!("{base}budget = {{ steps = 1 }}\nset.sampling.temprature = 1"),
                "my.toml: variant `base`: my.toml [set]:2: unknown key `sampling.temprature`",
            ),
            (
                format!(
                    "{base}budget = {{ steps = 1 }}\n[[variants]]\nname = \"a\"\nchange = \"dapo\""
                ),
                "variant `a`: there is no recipe `dapo`",
            ),
            (
                format!("{base}budget = {{ steps = 1 }}\n[[variants]]\nname = \"a/b\""),
                "`variants.name` is \"a/b\"",
            ),
            (
                format!("{base}budget = {{ steps = 1 }}\nseeds = [1, 1]"),
                "`variants.base.seeds` is [1, 1]",
            ),
            (
                format!(
                    "{base}budget = {{ steps = 1 }}\ntune = {{ key = \"optimizer.rate\", values = [1, 2] }}"
                ),
                "unknown key `optimizer.rate`",
            ),
        ];
        for (text, wanted) in cases {
            let found = refusal(&text);
            assert!(found.contains(wanted), "{found}\nlacks {wanted}");
        }
    }
}
