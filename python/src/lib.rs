//! The native half of the Python package `scalerl`, as the module `scalerl._native`.
//!
//! ```text
//! paths, columns ──reading──> Run ──fitting──> Fitted ──> plain dicts, SVG
//!                    history ───────┘             └─comparing──> plain dicts, SVG
//! ```
//!
//! Numbers and sentences come from the functions behind `scalerl fit`, `compare` and `backtest`, so
//! the package cannot say anything else than the command. Results are handed over as plain dicts,
//! spelled as in `--json`; the classes that a user sees are Python (`python/scalerl/`), as are the
//! exceptions. The interpreter's lock is released while anything is read or fitted.
//!
//! Not here: data frames and plots by matplotlib (Python), the commands (`scalerl_cli`).

#![expect(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

mod comparing;
mod failure;
mod fitting;
mod plain;
mod reading;

use std::ffi::OsString;

use pyo3::prelude::*;

/// The command `scalerl`, with `arguments[0]` as its name; gives the exit code.
#[pyfunction]
fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| scalerl_cli::run(arguments))
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::command;
    #[pymodule_export]
    use super::comparing::{backtest, compare};
    #[pymodule_export]
    use super::fitting::{Fitted, History, fit, history};
    #[pymodule_export]
    use super::reading::{Run, read, read_columns};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
