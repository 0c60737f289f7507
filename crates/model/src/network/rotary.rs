//! Rotary frequencies, stretched as the config asks, and the angles of a packed batch.

use std::f64::consts::PI;

use tch::{Device, Kind, TchError, Tensor};

use crate::config::{Llama3, RotaryConfig, RotaryScaling, Yarn};
use scalerl_torch::ops::Angles;

/// One frequency per pair of a head.
pub(super) fn frequencies(config: RotaryConfig, head_width: i64) -> Vec<f32> {
    (0..head_width / 2)
        .map(|pair| {
            // In float32, as transformers computes them: positions multiply the rounding.
            let exponent = (2 * pair) as f32 / head_width as f32;
            let frequency = 1.0 / (config.theta as f32).powf(exponent);
            match config.scaling {
                None => frequency,
                Some(RotaryScaling::Linear { factor }) => frequency / factor as f32,
                Some(RotaryScaling::Llama3(scaling)) => llama3(frequency, scaling),
                Some(RotaryScaling::Yarn(yarn)) => {
                    let kept = kept(pair, head_width, config.theta, &yarn);
                    frequency / yarn.factor as f32 * (1.0 - kept) + frequency * kept
                }
            }
        })
        .collect()
}

fn llama3(frequency: f32, scaling: Llama3) -> f32 {
    let wavelength = 2.0 * PI / f64::from(frequency);
    let [low, high] = [scaling.low_frequency_factor, scaling.high_frequency_factor];
    if wavelength < scaling.original_positions / high {
        return frequency;
    }
    if wavelength > scaling.original_positions / low {
        return frequency / scaling.factor as f32;
    }
    let smooth = (scaling.original_positions / wavelength - low) / (high - low);
    ((1.0 - smooth) * f64::from(frequency) / scaling.factor + smooth * f64::from(frequency)) as f32
}

/// The share of a pair's own frequency that `YaRN` keeps: 1 for pairs that turn fast, 0 for slow ones,
/// a straight line between them (arXiv 2309.00071, eq. 18 and 23, bounds as transformers has them).
fn kept(pair: i64, head_width: i64, theta: f64, yarn: &Yarn) -> f32 {
    let width = head_width as f64;
    // The pair that turns this often over the original positions.
    let pair_of = |turns: f64| {
        width * (yarn.original_positions / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln())
    };
    let (mut low, mut high) = (pair_of(yarn.fast), pair_of(yarn.slow));
    if yarn.is_truncated {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(width - 1.0));
    // Where the two meet transformers puts them a little apart.
    let length = if (high - low).abs() > 0.0 { high - low } else { 0.001 };
    (1.0 - ((pair as f64 - low) / length).clamp(0.0, 1.0)) as f32
}

/// What cosines and sines are multiplied by.
fn factor(config: RotaryConfig) -> f32 {
    match config.scaling {
        Some(RotaryScaling::Yarn(yarn)) => yarn.attention_factor as f32,
        _ => 1.0,
    }
}

/// Turns positions into angles, once for every distinct rotation of a model's layers.
pub struct Rotary {
    /// [tables, width / 2], float32.
    frequencies: Tensor,
    /// [tables], float32.
    factors: Tensor,
    tables: Vec<Table>,
}

struct Table {
    factor: f32,
    is_interleaved: bool,
}

impl Rotary {
    /// One table for each of `rotations`, of which there is at least one.
    pub fn new(
        rotations: &[RotaryConfig],
        head_width: i64,
        device: Device,
    ) -> Result<Self, TchError> {
        let shape = [rotations.len() as i64, head_width / 2];
        let all: Vec<f32> =
            rotations.iter().flat_map(|rotation| frequencies(*rotation, head_width)).collect();
        let factors: Vec<f32> = rotations.iter().map(|rotation| factor(*rotation)).collect();
        let table = |rotation: &RotaryConfig| Table {
            factor: factor(*rotation),
            is_interleaved: rotation.interleaved,
        };
        Ok(Self {
            frequencies: Tensor::f_from_slice(&all)?.f_view(shape)?.f_to_device(device)?,
            factors: Tensor::f_from_slice(&factors)?.f_to_device(device)?,
            tables: rotations.iter().map(table).collect(),
        })
    }

    /// One row per table: a frequency per pair of a head, float32.
    pub fn frequencies(&self) -> &Tensor {
        &self.frequencies
    }

    /// What cosines and sines of each table are multiplied by, float32.
    pub fn factors(&self) -> &Tensor {
        &self.factors
    }

    /// For each table, whether its pairs are neighbours.
    pub fn are_interleaved(&self) -> impl Iterator<Item = bool> {
        self.tables.iter().map(|table| table.is_interleaved)
    }

    /// The angles of some positions, table by table.
    pub fn angles(&self, positions: &Tensor) -> Result<Vec<Angles>, TchError> {
        let positions = positions.f_to_kind(Kind::Float)?;
        self.tables
            .iter()
            .enumerate()
            .map(|(index, table)| {
                let angles = positions.f_outer(&self.frequencies.f_select(0, index as i64)?)?;
                let (mut cosine, mut sine) = (angles.f_cos()?, angles.f_sin()?);
                if (table.factor - 1.0).abs() > 0.0 {
                    for part in [&mut cosine, &mut sine] {
                        *part = part.f_mul_scalar(f64::from(table.factor))?;
                    }
                }
                Ok(Angles { cosine, sine, is_interleaved: table.is_interleaved })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stretching_keeps_fast_frequencies_and_divides_slow_ones() {
        let scaling = Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_positions: 8192.0,
        };
        let plain = RotaryConfig { theta: 500_000.0, scaling: None, interleaved: false };
        let scaled = RotaryConfig { scaling: Some(RotaryScaling::Llama3(scaling)), ..plain };
        let (plain, scaled) = (frequencies(plain, 128), frequencies(scaled, 128));
        assert!((plain[0] - scaled[0]).abs() < f32::EPSILON);
        assert!((plain[63] / 8.0 - scaled[63]).abs() < 1e-12);
        assert!(scaled.windows(2).all(|pair| pair[0] > pair[1]), "still falling");
    }

    proptest! {
        /// Whatever the numbers, no pair turns faster than without, none slower than divided by the
        /// factor, and a pair that turns more often than another keeps more of its frequency.
        #[test]
        fn yarn_mixes_each_frequency_with_its_stretched_one(
            theta in 10.0_f64..1e7,
            width in (1_i64..64).prop_map(|half| 2 * half),
            factor in 1.0_f64..64.0,
            original_positions in (4.0_f64..20.0).prop_map(f64::exp2),
            bounds in (0.1_f64..4.0, 4.0_f64..64.0),
            is_truncated: bool,
        ) {
            let (slow, fast) = bounds;
            let yarn = Yarn {
                factor, attention_factor: 1.0, fast, slow, original_positions, is_truncated,
            };
            let plain = RotaryConfig { theta, scaling: None, interleaved: false };
            let scaled = RotaryConfig { scaling: Some(RotaryScaling::Yarn(yarn)), ..plain };
            let shares: Vec<f64> = frequencies(plain, width)
                .into_iter()
                .zip(frequencies(scaled, width))
                .map(|(own, stretched)| f64::from(stretched / own))
                .collect();
            prop_assert!(shares.iter().all(|x| (1.0 / factor - 1e-5..=1.0 + 1e-5).contains(x)), "{shares:?}");
            prop_assert!(shares.windows(2).all(|pair| pair[1] <= pair[0] + 1e-5), "{shares:?}");
        }
    }
}
