//! The sections of a recipe, one file each.

pub mod budget;
pub mod cluster;
pub mod evaluation;
pub mod format;
pub mod model;
pub mod objective;
pub mod optimizer;
pub mod output;
pub mod pipeline;
pub mod sampling;
pub mod stopping;
pub mod task;
pub mod warm_up;
