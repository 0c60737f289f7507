//! Fits that Python holds, and the finished runs they learn from.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use rayon::prelude::*;
use scalerl_board::{Size, svg};
use scalerl_cli::forecast::fit::{RunResult, Wanted, figure, result};
use scalerl_cli::forecast::history::{comparable, finished_runs, known_provenance};
use scalerl_cli::forecast::runs::Loaded;
use scalerl_curve::{
    Compute, Fit, FitOptions, FloorChoice, HistoryEntry, Method, Provenance, ValueRange, Warmup,
};
use serde::Serialize;

use crate::failure;
use crate::plain::plain;
use crate::reading::{Columns, Run, request};

/// Finished runs of the same model and evaluation.
#[pyclass(frozen, module = "scalerl._native")]
pub(crate) struct History(Arc<Vec<HistoryEntry>>);

#[pymethods]
impl History {
    /// The names of the runs.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.0.iter().map(|entry| entry.name.clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// Finished runs out of paths and of runs already read; and what is to be said of those left out.
#[pyfunction]
pub(crate) fn history(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    runs: Vec<Bound<'_, Run>>,
    columns: Columns,
    range: (f64, f64),
    provenance: (Option<String>, Option<String>),
    files: Vec<PathBuf>,
) -> PyResult<(History, Vec<String>)> {
    let request = request(columns, None)?;
    let range = ValueRange { low: range.0, high: range.1 };
    let (model, evaluation) = provenance;
    let runs: Vec<scalerl_ingest::Run> = runs.iter().map(|run| run.get().0.clone()).collect();
    let said = Mutex::new(Vec::new());
    let tell = |line: &str| {
        said.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    };
    let entries = py.detach(|| {
        let mut entries = finished_runs(&paths, &request, range, &tell)?;
        for run in runs {
            let loaded = Loaded::try_new(run, range)?;
            match HistoryEntry::summarise(&loaded.run.name, &loaded.series) {
                Ok(entry) => entries.push(entry),
                Err(error) => tell(&format!("no history: {} ({error})", loaded.run.name)),
            }
        }
        let own = known_provenance(Provenance { model, evaluation }, &files);
        Ok(comparable(entries, &own, &tell))
    });
    let entries = entries.map_err(|error| failure::input(&error))?;
    let said = said.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((History(Arc::new(entries)), said))
}

/// How to fit, as Python hands it over.
#[derive(Clone)]
pub(crate) struct Choices {
    range: ValueRange,
    method: Method,
    floor: Option<FloorChoice>,
    warmup: Warmup,
    until: Option<Compute>,
    history: Arc<Vec<HistoryEntry>>,
}

/// (range, method, floor, warmup, until, history).
pub(crate) type Given<'py> =
    ((f64, f64), String, Option<String>, String, Option<f64>, Option<Bound<'py, History>>);

impl Choices {
    pub(crate) fn try_new(given: Given<'_>) -> PyResult<Self> {
        let (range, method, floor, warmup, until, history) = given;
        let floor = floor.as_deref().map(str::parse).transpose().map_err(failure::option)?;
        Ok(Self {
            range: ValueRange { low: range.0, high: range.1 },
            method: method.parse().map_err(failure::option)?,
            floor,
            warmup: warmup.parse().map_err(failure::option)?,
            until: until.map(Compute),
            history: history.map_or_else(Arc::default, |history| history.get().0.clone()),
        })
    }

    pub(crate) fn load(&self, run: &Run) -> PyResult<Loaded> {
        Loaded::try_new(run.0.clone(), self.range).map_err(|error| failure::input(&error))
    }

    pub(crate) fn options(&self) -> FitOptions<'_> {
        FitOptions {
            method: self.method,
            floor: self.floor,
            warmup: self.warmup,
            until: self.until,
            ceiling: None,
            history: &self.history,
        }
    }
}

/// One run with its fit.
#[pyclass(frozen, module = "scalerl._native")]
pub(crate) struct Fitted {
    pub(crate) loaded: Loaded,
    pub(crate) fit: Fit,
    pub(crate) choices: Choices,
}

/// Fits every run, on all cores; the first that cannot be fitted is the error.
#[pyfunction]
pub(crate) fn fit(
    py: Python<'_>,
    runs: Vec<Bound<'_, Run>>,
    choices: Given<'_>,
) -> PyResult<Vec<Fitted>> {
    let choices = Choices::try_new(choices)?;
    let loaded: PyResult<Vec<Loaded>> = runs.iter().map(|run| choices.load(run.get())).collect();
    let fitted = |loaded: Loaded| {
        let fit = scalerl_curve::fit(&loaded.series, &choices.options())
            .map_err(|error| (loaded.run.name.clone(), error))?;
        Ok(Fitted { loaded, fit, choices: choices.clone() })
    };
    let loaded = loaded?;
    let found = py.detach(|| loaded.into_par_iter().map(fitted).collect::<Result<Vec<_>, _>>());
    found.map_err(|(name, error): (String, _)| failure::fitting(&name, &error))
}

impl Fitted {
    fn result(&self, wanted: Wanted<'_>) -> RunResult {
        result(&self.loaded, &self.fit, &self.choices.options(), wanted)
    }
}

fn computes(at: &[f64]) -> Vec<Compute> {
    at.iter().copied().map(Compute).collect()
}

#[pymethods]
impl Fitted {
    /// What `scalerl fit --json` says of the run; `has_cuts` and `has_wait` cost five and about
    /// twenty fits.
    fn record<'py>(
        &self,
        py: Python<'py>,
        at: Vec<f64>,
        more_than: f64,
        has_cuts: bool,
        has_wait: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let at = computes(&at);
        let wanted = Wanted {
            at: &at,
            targets: &[],
            more_than: Some(more_than),
            is_drawn: false,
            has_cuts,
            has_wait,
        };
        let record = py.detach(|| self.result(wanted));
        plain(py, &record)
    }

    fn forecasts<'py>(&self, py: Python<'py>, at: Vec<f64>) -> PyResult<Bound<'py, PyAny>> {
        let forecast = |compute| self.fit.forecast(compute);
        plain(py, &py.detach(|| computes(&at).into_iter().map(forecast).collect::<Vec<_>>()))
    }

    /// Forecasts as a figure needs them: many, to about 0.0005.
    fn curve<'py>(&self, py: Python<'py>, at: Vec<f64>) -> PyResult<Bound<'py, PyAny>> {
        plain(py, &py.detach(|| self.fit.curve(computes(&at))))
    }

    fn compute_to<'py>(&self, py: Python<'py>, target: f64) -> PyResult<Bound<'py, PyAny>> {
        plain(py, &py.detach(|| self.fit.compute_for(target)))
    }

    fn gain<'py>(&self, py: Python<'py>, factor: f64) -> PyResult<Bound<'py, PyAny>> {
        plain(py, &py.detach(|| self.fit.gain(factor)))
    }

    fn more_compute<'py>(
        &self,
        py: Python<'py>,
        factor: f64,
        more_than: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        plain(py, &py.detach(|| self.fit.more_compute(factor, more_than)))
    }

    /// The points that were used and those that were left out, and what the axes are called.
    fn drawing<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let labels = self.loaded.labels();
        plain(
            py,
            &Drawing {
                used: &self.fit.used,
                left_out: &self.fit.left_out,
                compute: &labels.compute,
                value: &labels.value,
            },
        )
    }

    /// The figure of `scalerl fit --plot`.
    fn svg(&self, py: Python<'_>, at: Vec<f64>) -> String {
        let at = computes(&at);
        py.detach(|| {
            let wanted = Wanted { at: &at, ..Wanted::of_comparison(true) };
            svg(&figure(&[self.result(wanted)]), Size::WIDE)
        })
    }
}

#[derive(Serialize)]
struct Drawing<'a> {
    used: &'a [scalerl_curve::Point],
    left_out: &'a [scalerl_curve::Point],
    compute: &'a str,
    value: &'a str,
}
