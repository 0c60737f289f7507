//! AdamW with a linear warm-up and then a constant or falling rate, over all parameters at once.
//!
//! Not here: how a step is computed on a device (`scalerl_torch::adamw`), the formula in plain
//! numbers (`adamw/reference.rs`).

pub mod reference;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use tch::{Kind, TchError, Tensor};

use scalerl_torch::adamw::{self, Lists, Numbers};
use scalerl_torch::cuda::mailbox::Mailbox;
use scalerl_torch::shim::AdamWNumbers;

/// In which numbers something is kept for each number that is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeptIn {
    #[default]
    Float32,
    /// Half the memory.
    BFloat16,
}

impl KeptIn {
    pub fn kind(self) -> Kind {
        match self {
            Self::Float32 => Kind::Float,
            Self::BFloat16 => Kind::BFloat16,
        }
    }
}

/// Settings of the optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdamWConfig {
    /// Rate after the warm-up.
    pub lr: f64,
    /// Steps over which the rate rises from `lr / warmup_steps` to `lr`. 0 starts at `lr`.
    pub warmup_steps: u64,
    /// Steps, the warm-up included, over which the rate falls in a line to a tenth. 0 never falls.
    pub decay_steps: u64,
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    /// On every parameter, norms and embeddings included.
    pub weight_decay: f64,
    /// Gradients are scaled down to this norm; 0 leaves them alone.
    pub max_gradient_norm: f64,
    /// In which numbers the two moments are kept. bf16 is rounded by chance: right in the mean.
    pub moments: KeptIn,
    /// What that chance follows from, beside step and place.
    pub seed: u64,
}

impl Default for AdamWConfig {
    /// ScaleRL (arXiv 2510.13786), section 2: lr, warm-up, weight decay, epsilon. Betas and
    /// clipping are not stated there; these are PyTorch's second-beta-0.95 practice and norm 1.
    fn default() -> Self {
        Self {
            lr: 5e-7,
            warmup_steps: 100,
            decay_steps: 0,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-15,
            weight_decay: 0.01,
            max_gradient_norm: 1.0,
            moments: KeptIn::Float32,
            seed: 0,
        }
    }
}

impl AdamWConfig {
    /// The rate of the step that follows `steps_taken` steps.
    pub fn rate(&self, steps_taken: u64) -> f64 {
        let rise = (steps_taken + 1) as f64 / self.warmup_steps.max(1) as f64;
        let fall = match self.decay_steps {
            0 => 0.0,
            steps => (steps_taken as f64 / steps as f64).min(1.0),
        };
        self.lr * rise.min(1.0) * (1.0 - 0.9 * fall)
    }
}

/// The optimizer's memory: two moments per parameter, and step counts in float32.
pub struct AdamW {
    pub config: AdamWConfig,
    pub(crate) first: Vec<Tensor>,
    pub(crate) second: Vec<Tensor>,
    /// One a parameter; views of `counts`.
    pub(crate) steps: Vec<Tensor>,
    counts: Tensor,
    /// By which a device says the norm.
    mail: Mailbox,
    /// Place of each parameter's first number among all that the model trains. Parts of it have others
    /// than [`AdamW::new`] gives them.
    pub(crate) places: Vec<i64>,
}

impl AdamW {
    pub fn new(parameters: &[Tensor], config: AdamWConfig) -> Result<Self, TchError> {
        let kind = config.moments.kind();
        let zeros = || {
            parameters
                .iter()
                .map(|p| Tensor::f_zeros(p.size(), (kind, p.device())))
                .collect::<Result<Vec<_>, _>>()
        };
        let count = parameters.len() as i64;
        let device = parameters.first().map_or(tch::Device::Cpu, Tensor::device);
        let counts = Tensor::f_zeros([count], (Kind::Float, device))?;
        let steps = (0..count).map(|index| counts.f_select(0, index)).collect::<Result<_, _>>()?;
        let mail = Mailbox::default();
        let mut end = 0;
        let places = parameters.iter().map(|parameter| {
            let start = end;
            end += parameter.numel() as i64;
            start
        });
        let places = places.collect();
        Ok(Self { config, first: zeros()?, second: zeros()?, steps, counts, mail, places })
    }

    /// First and second moments, in the order of the parameters.
    pub fn moments(&self) -> (&[Tensor], &[Tensor]) {
        (&self.first, &self.second)
    }

    /// Steps that were taken: one that is skipped does not count.
    pub fn steps_counted(&self) -> Result<u64, TchError> {
        Ok(self.counts.f_double_value(&[0])? as u64)
    }

    /// One step. Returns the gradient norm before clipping; where it is not finite, everything is left
    /// as it was. `rounded` are bf16 copies of the parameters that are renewed along. A device may
    /// still be at it.
    pub fn step(
        &mut self,
        parameters: &[Tensor],
        grads: &[Tensor],
        rounded: Option<&[Tensor]>,
        lr: f64,
    ) -> Result<f64, TchError> {
        let mut mail = std::mem::take(&mut self.mail);
        let lists = self.lists(parameters, grads, rounded);
        let norm = adamw::step(&lists, None, &self.numbers(lr), &mut mail);
        self.mail = mail;
        Ok(norm?.expect("a norm that was not given is taken"))
    }

    /// As [`AdamW::step`], with a norm taken elsewhere: over more gradients than these.
    pub(crate) fn apply(
        &mut self,
        parameters: &[Tensor],
        grads: &[Tensor],
        norm: &Tensor,
        lr: f64,
    ) -> Result<(), TchError> {
        let lists = self.lists(parameters, grads, None);
        adamw::step(&lists, Some(norm), &self.numbers(lr), &mut Mailbox::default()).map(drop)
    }

    fn lists<'a>(
        &'a self,
        parameters: &'a [Tensor],
        grads: &'a [Tensor],
        rounded: Option<&'a [Tensor]>,
    ) -> Lists<'a> {
        let (first, second) = (&self.first[..], &self.second[..]);
        let (steps, places) = (&self.counts, &self.places[..]);
        Lists { parameters, grads, first, second, rounded, steps, places }
    }

    fn numbers(&self, lr: f64) -> Numbers {
        let config = &self.config;
        Numbers {
            adamw: AdamWNumbers {
                lr,
                betas: (config.beta1, config.beta2),
                weight_decay: config.weight_decay,
                epsilon: config.epsilon,
            },
            largest_norm: config.max_gradient_norm,
            seed: config.seed,
        }
    }
}
