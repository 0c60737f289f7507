//! The compute axes of a run, by name.

use clap::ValueEnum;
use scalerl_journal::Axis;

/// What `--x` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Chosen {
    /// Device-hours without evaluations.
    #[value(alias = "gpu-hours", alias = "gpu_hours")]
    DeviceHours,
    /// Tokens generated for training.
    Tokens,
    /// Operations of the model in generating and training.
    Flops,
    /// Optimizer steps.
    Steps,
}

impl Chosen {
    pub(crate) fn axis(self) -> Axis {
        match self {
            Self::DeviceHours => Axis::DeviceHours,
            Self::Tokens => Axis::Tokens,
            Self::Flops => Axis::Flops,
            Self::Steps => Axis::Steps,
        }
    }
}

/// Name and unit, for axes and columns.
pub(crate) fn label(axis: Axis) -> &'static str {
    match axis {
        Axis::DeviceHours => "device-hours",
        Axis::Tokens => "tokens",
        Axis::Flops => "FLOPs",
        Axis::Steps => "optimizer steps",
    }
}
