//! The flags that say where a model computes and how exactly, the same wherever a model is run.

use clap::ValueEnum;
use scalerl_model::head::HeadMode;
use scalerl_torch::device;
use scalerl_torch::tch::{Device, Kind};

use crate::failure::BadInput;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    Exact,
    Split,
    Bf16,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Precision {
    F32,
    Bf16,
}

impl Precision {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::F32 => Kind::Float,
            Self::Bf16 => Kind::BFloat16,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ArithmeticArgs {
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Kind of weights, activations and cache [default: bf16 on CUDA, f32 on the CPU].
    #[arg(long)]
    dtype: Option<Precision>,
    /// Arithmetic of the head [default: split on CUDA, exact on the CPU].
    #[arg(long)]
    head: Option<Mode>,
}

impl ArithmeticArgs {
    pub(crate) fn device(&self) -> Result<Device, BadInput> {
        device::parse(&self.device).map_err(BadInput::new)
    }

    /// As given, or what suits the device.
    pub(crate) fn kind(&self, device: Device) -> Kind {
        let suiting = if device == Device::Cpu { Precision::F32 } else { Precision::Bf16 };
        self.dtype.unwrap_or(suiting).kind()
    }

    /// As given; otherwise what the work itself chooses.
    pub(crate) fn head(&self) -> Option<HeadMode> {
        self.head.map(|mode| match mode {
            Mode::Exact => HeadMode::Exact,
            Mode::Split => HeadMode::Split,
            Mode::Bf16 => HeadMode::Bf16,
        })
    }
}
