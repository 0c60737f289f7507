//! Runs out of files, and out of columns that Python holds.

use std::path::PathBuf;

use pyo3::prelude::*;
use scalerl_curve::Compute;
use scalerl_ingest::{Cell, Request};

use crate::failure;

/// One run as it was read.
#[pyclass(frozen, module = "scalerl._native")]
pub(crate) struct Run(pub(crate) scalerl_ingest::Run);

#[pymethods]
impl Run {
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn axis(&self) -> String {
        self.0.axis.to_string()
    }

    #[getter]
    fn unit(&self) -> &'static str {
        self.0.axis.unit()
    }

    #[getter]
    fn x(&self) -> &str {
        &self.0.x
    }

    #[getter]
    fn metric(&self) -> &str {
        &self.0.metric
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes.clone()
    }

    /// (compute, value, samples) of each evaluation.
    #[getter]
    fn points(&self) -> Vec<(f64, f64, Option<f64>)> {
        self.0.points.iter().map(|p| (p.compute.0, p.value, p.samples)).collect()
    }

    /// (compute, entropy), where the log has it.
    #[getter]
    fn entropy(&self) -> Vec<(f64, f64)> {
        self.0.entropy.iter().map(|(Compute(compute), value)| (*compute, *value)).collect()
    }

    /// The same run under another name.
    fn renamed(&self, name: String) -> Self {
        Self(scalerl_ingest::Run { name, ..self.0.clone() })
    }
}

/// The arguments of reading, as Python hands them over: (x, y, by, gpus, samples).
pub(crate) type Columns =
    (Option<String>, Option<String>, Option<String>, Option<f64>, Option<f64>);

pub(crate) fn request(columns: Columns, format: Option<&str>) -> PyResult<Request> {
    let (x, y, by, gpus, samples) = columns;
    let format = format.map(str::parse).transpose().map_err(failure::option)?;
    Ok(Request { format, x, y, by, gpus, samples })
}

/// Every run in some files.
#[pyfunction]
pub(crate) fn read(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    columns: Columns,
    format: Option<&str>,
) -> PyResult<Vec<Run>> {
    let request = request(columns, format)?;
    let runs = py.detach(|| scalerl_ingest::read(&paths, &request));
    let runs = runs.map_err(|error| failure::reading(&error))?;
    Ok(runs.into_iter().map(Run).collect())
}

/// A cell of a column: a number, a text, or nothing.
#[derive(FromPyObject)]
pub(crate) enum Given {
    Number(f64),
    Text(String),
}

/// Every run in columns that are in memory.
#[pyfunction]
pub(crate) fn read_columns(
    py: Python<'_>,
    name: &str,
    columns: Vec<(String, Vec<Option<Given>>)>,
    wanted: Columns,
) -> PyResult<Vec<Run>> {
    let request = request(wanted, None)?;
    let cell = |given: Given| match given {
        Given::Number(value) => Cell::Number(value),
        Given::Text(text) => Cell::Text(text),
    };
    let cells = |column: Vec<Option<Given>>| column.into_iter().map(|c| c.map(cell)).collect();
    let columns = columns.into_iter().map(|(name, column)| (name, cells(column))).collect();
    let runs = py.detach(|| scalerl_ingest::read_columns(name, columns, &request));
    let runs = runs.map_err(|error| failure::reading(&error))?;
    Ok(runs.into_iter().map(Run).collect())
}
