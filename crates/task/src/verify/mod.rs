//! Verifiers, one file each.

pub mod math;
