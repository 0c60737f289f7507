//! Rotary frequencies, with Llama 3.1's stretching, and the angles of a packed batch.

use tch::{Device, Kind, TchError, Tensor};

use crate::config::{RotaryConfig, RotaryScaling};
use scalerl_torch::ops::Angles;

/// One frequency per pair of a head.
pub(super) fn frequencies(config: RotaryConfig, head_width: i64) -> Vec<f32> {
    (0..head_width / 2)
        .map(|pair| {
            // In float32, as transformers computes them: positions multiply the rounding.
            let exponent = (2 * pair) as f32 / head_width as f32;
            let frequency = 1.0 / (config.theta as f32).powf(exponent);
            config.scaling.map_or(frequency, |scaling| stretched(frequency, scaling))
        })
        .collect()
}

fn stretched(frequency: f32, scaling: RotaryScaling) -> f32 {
    let wavelength = 2.0 * std::f64::consts::PI / f64::from(frequency);
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

/// Turns positions into angles, once for every distinct rotation of a model's layers.
pub struct Rotary {
    /// [tables, width / 2], float32.
    frequencies: Tensor,
    are_interleaved: Vec<bool>,
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
        Ok(Self {
            frequencies: Tensor::f_from_slice(&all)?.f_view(shape)?.f_to_device(device)?,
            are_interleaved: rotations.iter().map(|rotation| rotation.interleaved).collect(),
        })
    }

    /// One row per table: a frequency per pair of a head, float32.
    pub fn frequencies(&self) -> &Tensor {
        &self.frequencies
    }

    /// For each table, whether its pairs are neighbours.
    pub fn are_interleaved(&self) -> &[bool] {
        &self.are_interleaved
    }

    /// The angles of some positions, table by table.
    pub fn angles(&self, positions: &Tensor) -> Result<Vec<Angles>, TchError> {
        let positions = positions.f_to_kind(Kind::Float)?;
        let tables = self.are_interleaved.iter().enumerate();
        tables
            .map(|(table, &is_interleaved)| {
                let angles = positions.f_outer(&self.frequencies.f_select(0, table as i64)?)?;
                Ok(Angles { cosine: angles.f_cos()?, sine: angles.f_sin()?, is_interleaved })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretching_keeps_fast_frequencies_and_divides_slow_ones() {
        let scaling = RotaryScaling {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_positions: 8192.0,
        };
        let plain = RotaryConfig { theta: 500_000.0, scaling: None, interleaved: false };
        let scaled = RotaryConfig { scaling: Some(scaling), ..plain };
        let (plain, scaled) = (frequencies(plain, 128), frequencies(scaled, 128));
        assert!((plain[0] - scaled[0]).abs() < f32::EPSILON);
        assert!((plain[63] / 8.0 - scaled[63]).abs() < 1e-12);
        assert!(scaled.windows(2).all(|pair| pair[0] > pair[1]), "still falling");
    }
}
