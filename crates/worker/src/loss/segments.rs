//! Means over the tokens of each completion.
//!
//! Tokens of a completion stand together, so they become rows of a padded table and are summed
//! along them: the order of additions is fixed, which scattered additions on a GPU do not promise.
//!
//! Legend: m tokens that carry loss, s sequences, t places of the longest.

use scalerl_torch::shim::upload;
use tch::{Device, Kind, TchError, Tensor};

/// Completions end to end in a vector of m tokens.
#[derive(Debug)]
pub struct Segments {
    /// [s, t] places in the vector; m, one past its end, where a completion has ended.
    places_st: Tensor,
    /// [s] tokens of each, float64.
    count_s: Tensor,
    /// [m] the completion of each token.
    sequence_m: Tensor,
}

impl Segments {
    /// `counts[s]` tokens of completion s carry loss; none may be 0.
    pub fn new(counts: &[i64], device: Device) -> Result<Self, TchError> {
        assert!(counts.iter().all(|count| *count > 0), "completions without loss have no segment");
        let total: i64 = counts.iter().sum();
        let longest = counts.iter().max().copied().unwrap_or(0);
        let starts: Vec<i64> = counts
            .iter()
            .scan(0, |end, count| {
                *end += count;
                Some(*end - count)
            })
            .collect();
        let count_s = upload(counts, device)?;
        let start_s = upload(&starts, device)?;
        let step_t = Tensor::f_arange(longest, (Kind::Int64, device))?;
        let is_past_st = step_t.f_ge_tensor(&count_s.f_unsqueeze(1)?)?;
        let places_st =
            start_s.f_unsqueeze(1)?.f_add(&step_t)?.f_masked_fill(&is_past_st, total)?;
        let sequence_m: Vec<i64> = (0..)
            .zip(counts)
            .flat_map(|(s, count)| std::iter::repeat_n(s, *count as usize))
            .collect();
        Ok(Self {
            places_st,
            count_s: count_s.f_to_kind(Kind::Double)?,
            sequence_m: upload(&sequence_m, device)?,
        })
    }

    /// Each token gets the mean over its completion.
    pub(crate) fn mean(&self, value_m: &Tensor) -> Result<Tensor, TchError> {
        let end = Tensor::f_zeros([1], (value_m.kind(), value_m.device()))?;
        let padded = Tensor::f_cat(&[value_m, &end], 0)?;
        let sum_s = padded.f_take(&self.places_st)?.f_sum_dim_intlist(1, false, None::<Kind>)?;
        sum_s.f_div(&self.count_s)?.f_index_select(0, &self.sequence_m)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_gets_the_mean_of_its_own_completion() {
        let segments = Segments::new(&[2, 1, 3], Device::Cpu).unwrap();
        let value = Tensor::from_slice(&[1.0, 3.0, 10.0, 1.0, 2.0, 6.0]);
        let mean = Vec::<f64>::try_from(segments.mean(&value).unwrap()).unwrap();
        assert_eq!(mean, [2.0, 2.0, 10.0, 3.0, 3.0, 3.0]);
    }
}
