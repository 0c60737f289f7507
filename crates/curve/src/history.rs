//! What finished runs teach the forecast of a new one.
//!
//! Half of one short curve does not hold its ceiling; the runs that a user has already finished on
//! the same task do. Each is fitted once with all its points and kept as a [`HistoryEntry`]: its
//! ceiling, and how steep its rise was under each tail. A new run is then "like run j up to its own
//! floor and time scale", or like none of them, and its points decide ([`crate::FitOptions`]).
//!
//! **Comparable** are runs that start from the same model and are measured on the same evaluation:
//! another model size is another ceiling, another evaluation another scale. [`Provenance`] says
//! which they are, where it is known.
//!
//! **Twins.** A run of the same recipe with another seed is a forecast by itself: its value at the
//! same compute ([`HistoryEntry::value_near`]).
//!
//! Not here: files (the command line keeps a library of entries), and how branches are weighed
//! (`fit/mixture/posterior.rs`).

use serde::{Deserialize, Serialize};

use crate::compute::Compute;
use crate::fit::FitError;
use crate::fit::mixture::{self, Branch, TailSummary};
use crate::points::{Point, Series, ValueRange};

/// At most so many finished runs are used, the latest.
pub const MOST_HISTORY: usize = 24;
/// A finished run needs so many points to teach anything.
pub const LEAST_POINTS: usize = 8;
/// Points that an entry keeps; longer runs are averaged.
const MOST_KEPT: usize = 200;
/// Points of a twin that are averaged for its value at a compute.
const TWIN_POINTS: usize = 3;

/// Which model a run started from and how it was measured, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// The starting weights: a hash, or a name that stands for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The held-out prompts and how they are sampled: a hash, or a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<String>,
}

/// Why a finished run is no history of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mismatch {
    /// It started from another model.
    Model,
    /// It was measured on another evaluation.
    Evaluation,
}

impl Provenance {
    /// Is it known of both runs that they started from one model and are measured on one
    /// evaluation? What is taken without being asked for must be known.
    pub fn is_known_same(&self, other: &Self) -> bool {
        self.model.is_some() && self.evaluation.is_some() && self == other
    }

    /// What speaks against taking one run as history of the other; what is not known does not.
    pub fn mismatch(&self, other: &Self) -> Option<Mismatch> {
        let differs = |a: &Option<String>, b: &Option<String>| {
            a.as_ref().zip(b.as_ref()).is_some_and(|(a, b)| a != b)
        };
        if differs(&self.model, &other.model) {
            Some(Mismatch::Model)
        } else {
            differs(&self.evaluation, &other.evaluation).then_some(Mismatch::Evaluation)
        }
    }
}

/// A finished run in a few numbers. On the scale of the values, as `range` has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// The run's name.
    pub name: String,
    /// What it can be compared with.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// Its recipe or variant: what runs share that differ in their seed only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<String>,
    /// Its seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// When it ended, Unix time in seconds: the latest runs count first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<f64>,
    /// Points behind it.
    pub points: usize,
    /// Compute of the last of them.
    pub last_compute: Compute,
    /// Range of the values.
    #[serde(default, skip_serializing_if = "is_unit")]
    pub range: ValueRange,
    /// The ceiling A.
    pub ceiling: f64,
    /// Its standard deviation.
    pub ceiling_sd: f64,
    /// The rise under each tail.
    pub tails: Vec<TailEntry>,
    /// What was measured: compute and value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<(Compute, f64)>,
}

/// One tail of an entry: g = 1 - (1 + u/q)^-q.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TailEntry {
    /// q.
    pub tail: f64,
    /// Its posterior share.
    pub share: f64,
    /// Mean of ln B under it.
    pub log_steepness: f64,
    /// Standard deviation of ln B.
    pub log_steepness_sd: f64,
}

fn is_unit(range: &ValueRange) -> bool {
    *range == ValueRange::default()
}

impl HistoryEntry {
    /// Fits all points of a finished run.
    ///
    /// ```
    /// use scalerl_curve::{Compute, FitOptions, HistoryEntry, Point, Series, Sigmoid, fit};
    /// let run = |midpoint: Compute, last: u32| {
    ///     let law = Sigmoid { floor: 0.4, ceiling: 0.7, steepness: 1.8, midpoint };
    ///     let computes = (1..=last).map(|i| Compute(f64::from(i)));
    ///     let points = computes.map(|compute| Point::new(compute, law.value_at(compute)));
    ///     Series::try_new(points.collect()).unwrap()
    /// };
    /// let finished = HistoryEntry::summarise("run-1", &run(Compute(10.0), 60)).unwrap();
    /// assert!((finished.ceiling - 0.7).abs() < 0.02);
    ///
    /// let history = [finished];
    /// let options = FitOptions { history: &history, ..FitOptions::default() };
    /// let young = fit(&run(Compute(30.0), 30), &options).unwrap();
    /// assert!(young.history_weight() > 0.5);
    /// ```
    pub fn summarise(name: &str, series: &Series) -> Result<Self, FitError> {
        let range = series.range();
        let unit: Vec<Point> = series
            .points()
            .iter()
            .map(|point| Point { value: range.to_unit(point.value), ..*point })
            .collect();
        if !unit[unit.len() - 1].compute.is_positive() {
            return Err(FitError::NoCompute);
        }
        if unit.len() < LEAST_POINTS {
            return Err(FitError::ShortHistory { found: unit.len(), needed: LEAST_POINTS });
        }
        let Branch { ceiling, ceiling_sd, tails } = mixture::summarise(&unit);
        let entry = |(tail, summary): (f64, TailSummary)| TailEntry {
            tail,
            share: summary.share,
            log_steepness: summary.log_steepness,
            log_steepness_sd: summary.log_steepness_sd,
        };
        Ok(Self {
            name: name.to_owned(),
            provenance: Provenance::default(),
            recipe: None,
            seed: None,
            finished_at: None,
            points: unit.len(),
            last_compute: series.last_compute(),
            range,
            ceiling: range.from_unit(ceiling),
            ceiling_sd: ceiling_sd * range.width(),
            tails: mixture::TAILS.into_iter().zip(tails).map(entry).collect(),
            measured: averages(series.points(), series.points().len().div_ceil(MOST_KEPT)),
        })
    }

    /// The same with the model and evaluation it belongs to.
    #[must_use]
    pub fn with_provenance(self, provenance: Provenance) -> Self {
        Self { provenance, ..self }
    }

    /// The same with what tells runs of one recipe apart.
    #[must_use]
    pub fn with_recipe(self, recipe: impl Into<String>, seed: u64) -> Self {
        Self { recipe: Some(recipe.into()), seed: Some(seed), ..self }
    }

    /// The same with the time of its end.
    #[must_use]
    pub fn with_end(self, finished_at: f64) -> Self {
        Self { finished_at: Some(finished_at), ..self }
    }

    /// Does this entry hold the very points of `series`? A run is not its own history.
    pub fn is_of(&self, series: &Series) -> bool {
        self.holds(series.points())
    }

    pub(crate) fn holds(&self, points: &[Point]) -> bool {
        let known = |(compute, value): &(Compute, f64)| {
            let place = self.measured.partition_point(|known| known.0 < *compute);
            self.measured
                .get(place)
                .is_some_and(|known| known.0 == *compute && known.1.total_cmp(value).is_eq())
        };
        let averaged = self.points.div_ceil(MOST_KEPT).max(1);
        let whole = points.len() / averaged * averaged;
        let means = averages(&points[..whole], averaged);
        !means.is_empty() && means.iter().all(known)
    }

    /// The recipe this run shares with its twins: as recorded, or its name without a seed
    /// (`-s2`, `_seed2`) at its end.
    pub fn recipe_name(&self) -> &str {
        self.recipe.as_deref().unwrap_or_else(|| without_seed(&self.name))
    }

    /// Its value near `compute`: the mean of the three points nearest in log compute. `None` where
    /// the run was not measured as far as that.
    pub fn value_near(&self, compute: Compute) -> Option<f64> {
        let last = self.measured.last()?;
        let first = self.measured.iter().find(|(c, _)| c.is_positive())?;
        // The last evaluation of a run with the same budget may come a little earlier.
        if compute > last.0 * 1.05 || compute < first.0 {
            return None;
        }
        let mut near: Vec<(f64, f64)> = self
            .measured
            .iter()
            .filter(|(c, _)| c.is_positive())
            .map(|(c, value)| ((*c / compute).ln().abs(), *value))
            .collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        near.truncate(TWIN_POINTS);
        Some(near.iter().map(|(_, value)| value).sum::<f64>() / near.len() as f64)
    }

    /// On the unit scale, for the mixture; `None` where its tails are not the ones in use.
    pub(crate) fn branch(&self) -> Option<Branch> {
        let mut tails = Vec::with_capacity(mixture::TAILS.len());
        for wanted in mixture::TAILS {
            let found = self.tails.iter().find(|entry| (entry.tail - wanted).abs() < 1e-9)?;
            tails.push(TailSummary {
                share: found.share,
                log_steepness: found.log_steepness,
                log_steepness_sd: found.log_steepness_sd,
            });
        }
        Some(Branch {
            ceiling: self.range.to_unit(self.ceiling),
            ceiling_sd: self.ceiling_sd / self.range.width(),
            tails: tails.try_into().ok()?,
        })
    }
}

/// The latest of `entries`, each run once, as many as a forecast uses; the latest last. Those that
/// do not say when they ended count as the oldest.
pub fn latest(mut entries: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
    let ended = |entry: &HistoryEntry| entry.finished_at.unwrap_or(f64::NEG_INFINITY);
    entries.sort_by(|a, b| ended(b).total_cmp(&ended(a)));
    let mut kept: Vec<HistoryEntry> = Vec::new();
    for entry in entries {
        if kept.len() < MOST_HISTORY && !kept.iter().any(|known| known.measured == entry.measured) {
            kept.push(entry);
        }
    }
    kept.reverse();
    kept
}

/// A run of the same recipe with another seed, as a forecast.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Twin {
    /// Its name.
    pub name: String,
    /// The compute that was asked for.
    pub at: Compute,
    /// What it had reached there.
    pub value: f64,
}

/// Twins of the run `name` among finished runs, and what they had reached at `at`.
pub fn twins(history: &[HistoryEntry], name: &str, series: &Series, at: Compute) -> Vec<Twin> {
    let recipe = without_seed(name);
    let is_twin = |entry: &&HistoryEntry| entry.recipe_name() == recipe && !entry.is_of(series);
    let twin = |entry: &HistoryEntry| {
        Some(Twin { name: entry.name.clone(), at, value: entry.value_near(at)? })
    };
    history.iter().filter(is_twin).filter_map(twin).collect()
}

/// A name without what marks its seed.
fn without_seed(name: &str) -> &str {
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if digits.len() == name.len() {
        return name;
    }
    let marks = ["-seed-", "_seed_", "-seed", "_seed", "-s", "_s"];
    marks
        .iter()
        .find_map(|mark| digits.strip_suffix(mark))
        .filter(|s| !s.is_empty())
        .unwrap_or(name)
}

/// Mean compute and value of every `count` neighbours.
fn averages(points: &[Point], count: usize) -> Vec<(Compute, f64)> {
    let mean = |points: &[Point]| {
        let count = points.len() as f64;
        let compute = points.iter().map(|p| p.compute.0).sum::<f64>() / count;
        (Compute(compute), points.iter().map(|p| p.value).sum::<f64>() / count)
    };
    points.chunks(count).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Sigmoid;

    fn run(last: u32) -> Series {
        let law = Sigmoid { floor: 0.3, ceiling: 0.7, steepness: 1.6, midpoint: Compute(12.0) };
        let wiggle = |i: u32| 0.004 * (f64::from(i) * 2.4).sin();
        let points = (1..=last).map(|i| {
            let compute = Compute(f64::from(i));
            Point::new(compute, law.value_at(compute) + wiggle(i)).with_samples(4096.0)
        });
        Series::try_new(points.collect()).unwrap()
    }

    #[test]
    fn an_entry_survives_being_written_down() {
        let entry = HistoryEntry::summarise("a", &run(40)).unwrap().with_recipe("base", 2);
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<HistoryEntry>(&text).unwrap(), entry);
        assert!(!text.contains("range") && !text.contains("model"), "{text}");
    }

    #[test]
    fn the_early_part_of_a_run_is_known_as_its_own() {
        let entry = HistoryEntry::summarise("a", &run(40)).unwrap();
        assert!(entry.is_of(&run(40)) && entry.is_of(&run(12)));
        let long = HistoryEntry::summarise("a", &run(1000)).unwrap();
        assert!(long.measured.len() <= MOST_KEPT && long.is_of(&run(500)));
        let other =
            Series::try_new(vec![Point::new(Compute(1.0), 0.3), Point::new(Compute(2.0), 0.31)])
                .unwrap();
        assert!(!entry.is_of(&other));
    }

    #[test]
    fn a_twin_is_read_near_the_same_compute_and_not_beyond_its_end() {
        let entry = HistoryEntry::summarise("a", &run(40)).unwrap();
        let wanted = (19..=21).map(|i| run(40).points()[i - 1].value).sum::<f64>() / 3.0;
        assert!((entry.value_near(Compute(20.0)).unwrap() - wanted).abs() < 1e-12);
        assert_eq!(entry.value_near(Compute(80.0)), None);
    }

    #[test]
    fn seeds_are_taken_off_names() {
        for (name, recipe) in [
            ("scalerl-s1", "scalerl"),
            ("dapo_seed12", "dapo"),
            ("lr-1e-5", "lr-1e-5"),
            ("run7", "run7"),
            ("-s1", "-s1"),
        ] {
            assert_eq!(without_seed(name), recipe);
        }
    }

    #[test]
    fn another_model_or_evaluation_is_a_mismatch_and_the_unknown_is_not() {
        let of = |model: Option<&str>, evaluation: Option<&str>| Provenance {
            model: model.map(str::to_owned),
            evaluation: evaluation.map(str::to_owned),
        };
        let known = of(Some("a"), Some("x"));
        assert_eq!(known.mismatch(&known), None);
        assert_eq!(known.mismatch(&of(None, Some("x"))), None);
        assert_eq!(known.mismatch(&of(Some("b"), Some("x"))), Some(Mismatch::Model));
        assert_eq!(known.mismatch(&of(Some("a"), Some("y"))), Some(Mismatch::Evaluation));
    }

    #[test]
    fn the_latest_runs_are_kept_each_once() {
        let made = HistoryEntry::summarise("a", &run(40)).unwrap();
        let entry = |i: usize| HistoryEntry {
            name: format!("run-{i}"),
            measured: vec![(Compute(1.0), i as f64)],
            ..made.clone().with_end(i as f64)
        };
        let mut entries: Vec<HistoryEntry> = (0..30).map(entry).collect();
        entries.extend((20..30).map(entry));
        entries.push(HistoryEntry { finished_at: None, ..entry(99) });
        let kept = latest(entries);
        let names: Vec<&str> = kept.iter().map(|entry| entry.name.as_str()).collect();
        let wanted: Vec<String> = (6..30).map(|i| format!("run-{i}")).collect();
        assert_eq!(names, wanted);
    }

    #[test]
    fn a_run_of_few_points_teaches_nothing() {
        let error = HistoryEntry::summarise("a", &run(7)).unwrap_err();
        assert!(error.to_string().contains("7 points"), "{error}");
    }
}
