//! The fullest moment of a step: what is there for a while, beside what always is.
//!
//! ```text
//! the head           activations of all layers, logits; in parts also the head, the last layer on its
//!                    way, and a float32 row for the head's gradient
//! the last layer     activations of all layers and of the one that goes back
//! the first layer    the one that goes back; all others have left their gradients
//! a unit leaves      in parts: its gradients, the float32 row they are copied to, and the row before it;
//!                    those of experts that stay with their owner are added where they are
//! the embedding      the same, larger, without a layer's activations
//! the optimizer      ranks: the own part of everybody's gradients
//! ```

use scalerl_model::train::KeptIn;

use super::Setting;
use super::activations::Pass;
use super::numbers::Numbers;
use crate::options::learner_options;

/// Bytes that come and go.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moment {
    pub(super) weights: u64,
    pub(super) gradients: u64,
    pub(super) activations: u64,
    pub(super) logits: u64,
}

impl Moment {
    pub(super) fn total(&self) -> u64 {
        self.weights + self.gradients + self.activations + self.logits
    }
}

/// Bytes of gradients' sums that a rank has from its start to its end.
pub(super) fn lasting_gradients(setting: &Setting, numbers: &Numbers) -> u64 {
    match (setting.ranks, setting.is_in_parts() && !numbers.is_adapter) {
        (1, _) => 0,
        (_, true) => setting.share(4 * numbers.trained),
        (_, false) => 4 * numbers.trained,
    }
}

/// The fullest moment.
pub(super) fn fullest(setting: &Setting, numbers: &Numbers) -> Moment {
    let pass = Pass::of(setting, numbers.width);
    let moments = if setting.is_in_parts() {
        in_parts(setting, numbers, &pass)
    } else {
        whole(setting, numbers, &pass)
    };
    moments.into_iter().max_by_key(Moment::total).unwrap_or_default()
}

fn whole(setting: &Setting, numbers: &Numbers, pass: &Pass) -> Vec<Moment> {
    let Numbers { trained, head, .. } = *numbers;
    let leaf = numbers.leaf();
    let is_in_bf16 = learner_options(setting.recipe, setting.device).gradients == KeptIn::BFloat16
        && leaf == 2
        && setting.ranks == 1;
    // Sums from the first micro-batch on, and more at the end of each backward pass.
    let (sums, of_one_pass) = match (is_in_bf16, setting.ranks) {
        // The head's is float32.
        (true, _) => (2 * trained + 2 * head, 0),
        (false, 1) => (4 * trained, leaf * numbers.left_by_a_pass()),
        // Ranks have theirs always.
        (false, _) => (0, leaf * numbers.left_by_a_pass()),
    };
    let of_a_layer = leaf * numbers.largest_layer.min(of_one_pass / leaf);
    let mut moments = vec![
        Moment {
            gradients: sums,
            activations: pass.kept + pass.around_the_head,
            logits: pass.logits,
            ..Moment::default()
        },
        Moment {
            gradients: sums + of_a_layer,
            activations: pass.kept + pass.one_layer,
            ..Moment::default()
        },
        Moment { gradients: sums + of_one_pass, activations: pass.one_layer, ..Moment::default() },
    ];
    if setting.ranks > 1 {
        moments.push(Moment { gradients: setting.share(4 * trained), ..Moment::default() });
    }
    moments
}

fn in_parts(setting: &Setting, numbers: &Numbers, pass: &Pass) -> Vec<Moment> {
    let Numbers { head, embedding, gathered_layer: layer, width, .. } = *numbers;
    // A layer that computes, and the next one on its way.
    let two_layers = 2 * width * layer;
    let at_the_head = width * (head + layer);
    let going_back = pass.kept + pass.one_layer;
    if numbers.is_adapter {
        let leaves = 4 * numbers.trained;
        return vec![
            Moment {
                weights: at_the_head,
                gradients: 0,
                activations: pass.kept + pass.around_the_head,
                logits: pass.logits,
            },
            Moment { weights: two_layers, gradients: 0, activations: going_back, logits: 0 },
            Moment {
                weights: width * layer,
                gradients: leaves,
                activations: pass.one_layer,
                logits: 0,
            },
        ];
    }
    let leaf = numbers.leaf();
    // Of own experts, which go nowhere.
    let own = leaf * setting.share(numbers.owned_layer);
    // On its way to the ranks that own it, with the part that comes back.
    let leaving = |unit: u64| 4 * unit + setting.share(4 * unit);
    vec![
        Moment {
            weights: at_the_head,
            gradients: 4 * head,
            activations: pass.kept + pass.around_the_head,
            logits: pass.logits,
        },
        Moment {
            weights: two_layers,
            gradients: leaf * layer + own + leaving(layer),
            activations: going_back,
            logits: 0,
        },
        Moment {
            weights: two_layers,
            gradients: (4 + leaf) * layer + own + leaving(layer),
            activations: pass.kept,
            logits: 0,
        },
        Moment { gradients: (4 + leaf) * embedding + leaving(layer), ..Moment::default() },
    ]
}
