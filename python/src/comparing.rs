//! Several runs at once: comparison and backtest.

use pyo3::prelude::*;
use rayon::prelude::*;
use scalerl_board::{Size, svg};
use scalerl_cli::forecast::backtest::{Output, tested};
use scalerl_cli::forecast::compare::compared;
use scalerl_cli::forecast::runs::Loaded;
use scalerl_curve::Fit;

use crate::failure;
use crate::fitting::{Choices, Fitted, Given};
use crate::plain::plain;
use crate::reading::Run;

/// What `scalerl compare --json` says, its sentences, and its figure as SVG. All runs must have been
/// fitted by one call of `fit`.
#[pyfunction]
pub(crate) fn compare<'py>(
    py: Python<'py>,
    fitted: Vec<Bound<'py, Fitted>>,
    baseline: Option<&str>,
) -> PyResult<(Bound<'py, PyAny>, Vec<String>, String)> {
    let fitted: Vec<&Fitted> = fitted.iter().map(Bound::get).collect();
    let Some(first) = fitted.first() else { return Err(failure::option("no runs to compare")) };
    let runs: Vec<(&Loaded, &Fit)> = fitted.iter().map(|one| (&one.loaded, &one.fit)).collect();
    let options = first.choices.options();
    let compared = py.detach(|| {
        let compared = compared(&runs, baseline, &options, true)?;
        let figure = svg(&compared.figure(), Size::WIDE);
        Ok((compared.sentences(), figure, compared.into_output(Vec::new())))
    });
    let (sentences, figure, output) = compared.map_err(|error| failure::comparing(&error))?;
    Ok((plain(py, &output)?, sentences, figure))
}

/// What `scalerl backtest --json` says, and the figure of each run as SVG.
#[pyfunction]
pub(crate) fn backtest<'py>(
    py: Python<'py>,
    runs: Vec<Bound<'py, Run>>,
    choices: Given<'py>,
    fractions: Vec<f64>,
    horizon: f64,
) -> PyResult<(Bound<'py, PyAny>, Vec<String>)> {
    let choices = Choices::try_new(choices)?;
    let loaded: PyResult<Vec<Loaded>> = runs.iter().map(|run| choices.load(run.get())).collect();
    let loaded = loaded?;
    let (output, figures) = py.detach(|| {
        let test = |run: &Loaded| tested(run, &choices.options(), &fractions, horizon);
        let (output, drawn) = Output::of(loaded.par_iter().map(test).collect());
        (output, drawn.iter().map(|figure| svg(figure, Size::WIDE)).collect())
    });
    Ok((plain(py, &output)?, figures))
}
