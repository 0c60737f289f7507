//! Errors as Python exceptions: the message, and the hint where one is known.
//!
//! The classes are Python's own (`python/scalerl/_errors.py`), which also turn options of the command
//! (`--until`) into arguments (`until=`).

use pyo3::PyErr;
use scalerl_cli::BadInput;
use scalerl_curve::FitError;
use scalerl_ingest::IngestError;

mod raised {
    pyo3::import_exception!(scalerl._errors, FitError);
    pyo3::import_exception!(scalerl._errors, OptionError);
    pyo3::import_exception!(scalerl._errors, ReadError);
}

pub(crate) fn reading(error: &IngestError) -> PyErr {
    let cause = std::error::Error::source(error);
    let message = cause.map_or(error.to_string(), |cause| format!("{error}: {cause}"));
    raised::ReadError::new_err((message, error.hint()))
}

/// Points or finished runs that cannot be used.
pub(crate) fn input(error: &BadInput) -> PyErr {
    let hint = error.advice().unwrap_or_default().to_owned();
    raised::ReadError::new_err((error.to_string(), hint))
}

pub(crate) fn fitting(run: &str, error: &FitError) -> PyErr {
    raised::FitError::new_err((format!("{run}: {error}"), error.hint()))
}

/// Runs that were fitted and cannot be compared.
pub(crate) fn comparing(error: &BadInput) -> PyErr {
    let hint = error.advice().unwrap_or_default().to_owned();
    raised::FitError::new_err((error.to_string(), hint))
}

pub(crate) fn option(error: impl std::fmt::Display) -> PyErr {
    raised::OptionError::new_err((error.to_string(), ""))
}
