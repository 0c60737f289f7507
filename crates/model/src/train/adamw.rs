//! AdamW with a linear warm-up and then a constant or falling rate; one fused kernel for all
//! parameters.

use serde::{Deserialize, Serialize};
use tch::{Kind, TchError, Tensor};

use scalerl_torch::shim::{self, AdamWNumbers, AdamWTensors};

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

/// The optimizer's memory: two moments and a step count per parameter, all float32.
pub struct AdamW {
    pub config: AdamWConfig,
    pub(crate) first: Vec<Tensor>,
    pub(crate) second: Vec<Tensor>,
    pub(crate) steps: Vec<Tensor>,
}

impl AdamW {
    pub fn new(parameters: &[Tensor], config: AdamWConfig) -> Result<Self, TchError> {
        let zeros = || {
            parameters
                .iter()
                .map(|p| Tensor::f_zeros(p.size(), (Kind::Float, p.device())))
                .collect::<Result<Vec<_>, _>>()
        };
        let steps = parameters
            .iter()
            .map(|p| Tensor::f_zeros(&[] as &[i64], (Kind::Float, p.device())))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { config, first: zeros()?, second: zeros()?, steps })
    }

    /// One step. Returns the gradient norm before clipping, still on the device; where it is not
    /// finite, parameters and moments are left as they were.
    pub fn step(
        &mut self,
        parameters: &[Tensor],
        grads: &[Tensor],
        lr: f64,
    ) -> Result<Tensor, TchError> {
        let norm = shim::global_norm(grads)?;
        self.apply(parameters, grads, &norm, lr)?;
        Ok(norm)
    }

    /// As [`AdamW::step`], with a norm taken elsewhere: over more gradients than these.
    pub(crate) fn apply(
        &mut self,
        parameters: &[Tensor],
        grads: &[Tensor],
        norm: &Tensor,
        lr: f64,
    ) -> Result<(), TchError> {
        let skip = norm.f_isfinite()?.f_logical_not()?.f_to_kind(Kind::Float)?;
        let divisor = if self.config.max_gradient_norm > 0.0 {
            norm.f_div_scalar(self.config.max_gradient_norm)?.f_clamp_min(1.0)?
        } else {
            norm.f_ones_like()?
        };
        let tensors = AdamWTensors {
            parameters,
            grads,
            first: &self.first,
            second: &self.second,
            steps: &self.steps,
            divisor: &divisor,
            skip: &skip,
        };
        let numbers = AdamWNumbers {
            lr,
            betas: (self.config.beta1, self.config.beta2),
            weight_decay: self.config.weight_decay,
            epsilon: self.config.epsilon,
        };
        shim::fused_adamw(&tensors, numbers)
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    #[test]
    fn the_rate_rises_linearly_and_stays() {
        let config = AdamWConfig { lr: 1.0, warmup_steps: 4, ..AdamWConfig::default() };
        let rates: Vec<f64> = (0..6).map(|step| config.rate(step)).collect();
        assert_eq!(rates, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
        let falling = AdamWConfig { warmup_steps: 0, decay_steps: 2, ..config };
        let rates: Vec<f64> = (0..4).map(|step| falling.rate(step)).collect();
        assert!((rates[1] - 0.55).abs() < 1e-12 && (rates[3] - 0.1).abs() < 1e-12, "{rates:?}");
        let none = AdamWConfig { warmup_steps: 0, ..config };
        assert!((none.rate(0) - 1.0).abs() < f64::EPSILON);
    }

    /// The textbook formula in float64, with clipping, against the fused kernel.
    #[test]
    fn the_fused_step_is_the_formula() {
        let config = AdamWConfig {
            lr: 0.1,
            epsilon: 1e-8,
            weight_decay: 0.3,
            max_gradient_norm: 2.0,
            ..AdamWConfig::default()
        };
        let mut x = [0.5, -1.5, 2.0];
        let (mut m, mut v) = ([0.0; 3], [0.0; 3]);
        let parameter = Tensor::from_slice(&x).to_kind(Kind::Float);
        let mut optimizer = AdamW::new(&[parameter.shallow_clone()], config).unwrap();
        for step in 1..=5 {
            let g: Vec<f64> = (0..3).map(|i| f64::from(i * step) - 2.0).collect();
            let grad = Tensor::from_slice(&g).to_kind(Kind::Float);
            let list = [parameter.shallow_clone()];
            let _ = optimizer.step(&list, &[grad], 0.1).unwrap();
            let norm = g.iter().map(|g| g * g).sum::<f64>().sqrt();
            let scale = (norm / 2.0).max(1.0);
            for i in 0..3 {
                let g = g[i] / scale;
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.95 * v[i] + 0.05 * g * g;
                let (m_hat, v_hat) =
                    (m[i] / (1.0 - 0.9_f64.powi(step)), v[i] / (1.0 - 0.95_f64.powi(step)));
                x[i] -= 0.1 * 0.3 * x[i];
                x[i] -= 0.1 * m_hat / (v_hat.sqrt() + 1e-8);
            }
        }
        let got = Vec::<f64>::try_from(parameter.to_kind(Kind::Double)).unwrap();
        for (got, expected) in got.iter().zip(x) {
            assert!((got - expected).abs() < 1e-5, "{got} {expected}");
        }
    }

    #[test]
    fn the_norm_of_many_numbers_is_as_exact_as_that_of_few() {
        let many = Tensor::full([1 << 22], 0.1, (Kind::Float, Device::Cpu));
        let norm = shim::global_norm(&[many.shallow_clone(), many]).unwrap().double_value(&[]);
        let expected = f64::from(0.1_f32) * f64::from(1 << 23).sqrt();
        assert!((norm / expected - 1.0).abs() < 1e-6, "{norm} {expected}");
    }

    #[test]
    fn a_gradient_that_is_not_finite_changes_nothing() {
        let parameter = Tensor::from_slice(&[1.0_f32, 2.0]);
        let list = [parameter.shallow_clone()];
        let mut optimizer = AdamW::new(&list, AdamWConfig::default()).unwrap();
        let grad = Tensor::from_slice(&[f32::NAN, 1.0]);
        let norm = optimizer.step(&list, &[grad], 0.1).unwrap();
        assert!(!norm.double_value(&[]).is_finite());
        assert_eq!(Vec::<f32>::try_from(&parameter).unwrap(), [1.0, 2.0]);
        assert_eq!(optimizer.first[0].abs().max(), Tensor::from(0.0_f32));
        assert!(optimizer.steps[0].double_value(&[]).abs() < f64::EPSILON);
        assert_eq!(optimizer.first[0].device(), Device::Cpu);
    }
}
