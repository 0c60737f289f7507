//! What a compute axis means, and the names under which logs write it.
//!
//! A column counts as an axis by its whole name or by its last path part (`train/gpu_hours`), in
//! any case, with `-` and spaces read as `_`. Earlier names in a list win over later ones: the
//! running total (`total_tokens`) before the ambiguous one (`tokens`), which prime-rl uses for
//! the tokens of one step.

use std::fmt;

use serde::Serialize;

/// The meaning of the compute axis of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Devices × hours they were held.
    GpuHours,
    /// Tokens trained on or generated so far.
    Tokens,
    /// Floating-point operations so far.
    Flops,
    /// Optimizer steps taken.
    Steps,
    /// A column the user chose whose meaning is not known.
    Other,
}

impl Axis {
    /// Text for the axis of a plot.
    pub fn label(self) -> &'static str {
        match self {
            Self::GpuHours => "GPU-hours",
            Self::Tokens => "tokens",
            Self::Flops => "FLOPs",
            Self::Steps => "optimizer steps",
            Self::Other => "compute",
        }
    }

    /// Unit to print after a number; empty where it is not known.
    pub fn unit(self) -> &'static str {
        match self {
            Self::GpuHours => "GPU-hours",
            Self::Tokens => "tokens",
            Self::Flops => "FLOPs",
            Self::Steps => "steps",
            Self::Other => "",
        }
    }

    /// The axis that `--x` names, if it names one and not a column.
    pub(crate) fn named(text: &str) -> Option<Self> {
        let name = normalise(text);
        [Self::GpuHours, Self::Tokens, Self::Flops, Self::Steps]
            .into_iter()
            .find(|axis| axis.column_names().contains(&name.as_str()))
    }

    /// The axis that a column of this name holds.
    pub(crate) fn of_column(column: &str) -> Self {
        [Self::GpuHours, Self::Flops, Self::Tokens, Self::Steps]
            .into_iter()
            .find(|axis| axis.rank(column).is_some())
            .unwrap_or(Self::Other)
    }

    /// How well a column name fits this axis; smaller is better.
    pub(crate) fn rank(self, column: &str) -> Option<usize> {
        let name = normalise(column);
        let leaf = name.rsplit('/').next().unwrap_or(&name);
        let names = self.column_names();
        let place = |text: &str| names.iter().position(|known| *known == text);
        place(&name).or_else(|| place(leaf).map(|rank| rank + names.len()))
    }

    fn column_names(self) -> &'static [&'static str] {
        match self {
            Self::GpuHours => &[
                "gpu_hours",
                "gpuhours",
                "gpu_hour",
                "gpu_h",
                "device_hours",
                "devicehours",
                "accelerator_hours",
                "total_gpu_hours",
                "cumulative_gpu_hours",
            ],
            Self::Tokens => &[
                "total_tokens",
                "tokens_total",
                "cumulative_tokens",
                "tokens_seen",
                "num_tokens_seen",
                "num_input_tokens_seen",
                "train_tokens",
                "num_tokens",
                "n_tokens",
                "tokens",
            ],
            Self::Flops => {
                &["total_flops", "flops", "total_flos", "flos", "train_flops", "cumulative_flops"]
            }
            Self::Steps => &[
                "step",
                "steps",
                "global_step",
                "global_steps",
                "_step",
                "train_step",
                "training_step",
                "optimizer_step",
                "iteration",
                "iterations",
                "iter",
                "update",
                "updates",
            ],
            Self::Other => &[],
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GpuHours => "gpu_hours",
            Self::Tokens => "tokens",
            Self::Flops => "flops",
            Self::Steps => "steps",
            Self::Other => "other",
        })
    }
}

/// One spelling for names that differ in case, dashes and spaces only.
pub(crate) fn normalise(name: &str) -> String {
    name.trim()
        .chars()
        .map(|c| if c == '-' || c == ' ' { '_' } else { c.to_ascii_lowercase() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_spellings_name_their_axis() {
        for (name, axis) in [
            ("GPU-hours", Axis::GpuHours),
            ("train/gpu_hours", Axis::GpuHours),
            ("_step", Axis::Steps),
            ("Step", Axis::Steps),
            ("trainer/global_step", Axis::Steps),
            ("progress/total_tokens", Axis::Tokens),
            ("total_flos", Axis::Flops),
            ("timing_s/gen", Axis::Other),
        ] {
            assert_eq!(Axis::of_column(name), axis, "{name}");
        }
    }

    #[test]
    fn running_totals_win_over_ambiguous_names() {
        assert!(Axis::Tokens.rank("progress/total_tokens") < Axis::Tokens.rank("progress/tokens"));
        assert!(Axis::Steps.rank("step") < Axis::Steps.rank("timing_s/step"));
    }
}
