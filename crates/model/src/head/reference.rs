//! The head's formulas for one token, in plain float64: the judge of every faster version.

/// Log-prob of the target and entropy of softmax(logits / temperature).
pub fn score(logits: &[f64], target: usize, temperature: f64) -> (f64, f64) {
    let logprobs = logprobs(logits, temperature);
    (logprobs[target], -logprobs.iter().map(|l| l.exp() * l).sum::<f64>())
}

/// d loss / d logits, given d loss / d logprob and d loss / d entropy.
pub fn gradient(
    logits: &[f64],
    target: usize,
    temperature: f64,
    (d_logprob, d_entropy): (f64, f64),
) -> Vec<f64> {
    let (_, entropy) = score(logits, target, temperature);
    logprobs(logits, temperature)
        .iter()
        .enumerate()
        .map(|(index, logprob)| {
            let (p, hit) = (logprob.exp(), f64::from(u8::from(index == target)));
            (d_logprob * (hit - p) - d_entropy * p * (logprob + entropy)) / temperature
        })
        .collect()
}

fn logprobs(logits: &[f64], temperature: f64) -> Vec<f64> {
    let scaled: Vec<f64> = logits.iter().map(|logit| logit / temperature).collect();
    let top = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log_sum = top + scaled.iter().map(|logit| (logit - top).exp()).sum::<f64>().ln();
    scaled.iter().map(|logit| logit - log_sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_the_finite_difference() {
        let logits = [0.3, -1.2, 2.0, 0.1, -0.4];
        let loss = |logits: &[f64]| {
            let (logprob, entropy) = score(logits, 2, 0.7);
            1.3 * logprob - 0.4 * entropy
        };
        let slope = gradient(&logits, 2, 0.7, (1.3, -0.4));
        for index in 0..logits.len() {
            let (mut up, mut down) = (logits, logits);
            up[index] += 1e-6;
            down[index] -= 1e-6;
            let difference = (loss(&up) - loss(&down)) / 2e-6;
            assert!((difference - slope[index]).abs() < 1e-8, "logit {index}");
        }
    }
}
