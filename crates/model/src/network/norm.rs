//! RMSNorm with a learned weight, multiplied as it is or added to one (Gemma).

use tch::{Kind, TchError, Tensor};

use crate::config::NormWeight;
use scalerl_torch::ops::{add_rms_norm, rms_norm};

pub(crate) struct Norm {
    pub(crate) weight: Tensor,
    pub(crate) epsilon: f64,
    pub(crate) kind: NormWeight,
}

impl Norm {
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor, TchError> {
        match self.kind {
            NormWeight::Plain => rms_norm(x, &self.weight, self.epsilon),
            NormWeight::OnePlus => {
                // 1 + weight has more digits than bf16: all of it in float32, rounded once.
                let wide = if x.kind() == Kind::Double { Kind::Double } else { Kind::Float };
                let weight = self.weight.f_to_kind(wide)?.f_add_scalar(1.0)?;
                rms_norm(&x.f_to_kind(wide)?, &weight, self.epsilon)?.f_to_kind(x.kind())
            }
        }
    }

    /// `x`, or `x + beside`, and its norm.
    pub(crate) fn of_sum(
        &self,
        x: &Tensor,
        beside: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor), TchError> {
        match beside {
            Some(y) => self.after_sum(x, y),
            None => Ok((x.shallow_clone(), self.forward(x)?)),
        }
    }

    /// `x + y`, and the norm of that sum.
    pub(crate) fn after_sum(&self, x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor), TchError> {
        if self.kind == NormWeight::Plain {
            return add_rms_norm(x, y, &self.weight, self.epsilon);
        }
        let sum = x.f_add(y)?;
        let normed = self.forward(&sum)?;
        Ok((sum, normed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// x / sqrt(mean x² + ε) times the weight, or times one more than it, number by number.
        #[test]
        fn a_norm_is_its_formula(
            rows in prop::collection::vec(prop::array::uniform4(-3.0_f32..3.0), 1..5),
            weight in prop::array::uniform4(-2.0_f32..2.0),
        ) {
            let x = Tensor::from_slice2(&rows);
            for (kind, offset) in [(NormWeight::Plain, 0.0), (NormWeight::OnePlus, 1.0)] {
                let norm = Norm { weight: Tensor::from_slice(&weight), epsilon: 1e-3, kind };
                let found = norm.forward(&x).unwrap();
                let (_, after) = norm.after_sum(&(&x * 0.25), &(&x * 0.75)).unwrap();
                for (r, row) in rows.iter().enumerate() {
                    let mean = row.iter().map(|x| f64::from(x * x)).sum::<f64>() / 4.0;
                    for (c, (x, w)) in row.iter().zip(weight).enumerate() {
                        let expected = f64::from(*x) / (mean + 1e-3).sqrt() * (offset + f64::from(w));
                        for found in [&found, &after] {
                            let found = found.double_value(&[r as i64, c as i64]);
                            prop_assert!((found - expected).abs() < 1e-5, "{found} {expected}");
                        }
                    }
                }
            }
        }
    }
}
