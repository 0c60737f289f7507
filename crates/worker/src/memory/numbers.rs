//! How many numbers a model has, and in which parts of it.

use scalerl_model::adapter::AdapterConfig;
use scalerl_model::error::LoadError;
use scalerl_model::layout::layout;
use scalerl_model::train::ComputeKind;

use super::Setting;
use crate::options::{adapter_config, learner_options};

/// Numbers of a model and of its parts.
pub(super) struct Numbers {
    pub(super) all: u64,
    /// Of the matrix that the head multiplies with.
    pub(super) head: u64,
    /// Of the embedding, which may be the head too.
    pub(super) embedding: u64,
    pub(super) largest_layer: u64,
    /// What ranks in parts gather of a layer, at most, and the experts of one that stay with their owners.
    pub(super) gathered_layer: u64,
    pub(super) owned_layer: u64,
    pub(super) trained: u64,
    /// Bytes of a number that is computed with.
    pub(super) width: u64,
    pub(super) is_adapter: bool,
    /// Whether the head is a matrix of its own.
    is_head_apart: bool,
}

impl Numbers {
    pub(super) fn of(setting: &Setting) -> Result<Self, LoadError> {
        let config = setting.config;
        let adapter: Option<AdapterConfig> = adapter_config(setting.recipe);
        let is_adapter = adapter.is_some();
        let count = adapter.map(|adapter| adapter.parameter_count(config)).transpose()?;
        let all = config.parameter_count() as u64;
        // Numbers of each layer, and those of its experts.
        let mut layers = vec![(0, 0); config.layers.len()];
        for parameter in layout(config) {
            let place = parameter.name.strip_prefix("layers.");
            let place = place.and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
            if let Some(layer) = place.and_then(|place| layers.get_mut(place)) {
                let numbers = parameter.shape.iter().product::<i64>() as u64;
                layer.0 += numbers;
                layer.1 += if parameter.is_of_experts() { numbers } else { 0 };
            }
        }
        let most =
            |of: &dyn Fn(&(u64, u64)) -> u64| layers.iter().map(of).max().unwrap_or_default();
        let largest_layer = most(&|(all, _)| *all);
        let (gathered_layer, owned_layer) = if setting.owns_experts() {
            (most(&|(all, experts)| all - experts), most(&|(_, experts)| *experts))
        } else {
            (largest_layer, 0)
        };
        let compute = learner_options(setting.recipe, setting.device).compute;
        let matrix = (config.vocabulary * config.width) as u64;
        Ok(Self {
            all,
            head: matrix,
            embedding: matrix,
            largest_layer,
            gathered_layer,
            owned_layer,
            trained: count.map_or(all, |count| count as u64),
            width: if compute == ComputeKind::Float32 { 4 } else { 2 },
            is_adapter,
            is_head_apart: !config.is_head_tied,
        })
    }

    /// Whether the masters are what is computed with.
    pub(super) fn is_wide(&self) -> bool {
        self.width == 4 || self.is_adapter
    }

    /// Bytes of a gradient as a backward pass leaves it.
    pub(super) fn leaf(&self) -> u64 {
        if self.is_adapter { 4 } else { self.width }
    }

    /// Numbers whose gradients a backward pass leaves: those of a head apart go to a sum of their own.
    pub(super) fn left_by_a_pass(&self) -> u64 {
        let head = if self.is_head_apart && !self.is_adapter { self.head } else { 0 };
        self.trained - head
    }

    /// Bytes of all weights in the kind that is computed in.
    pub(super) fn whole_copy(&self) -> u64 {
        self.all * self.width
    }

    /// Bytes of what generators get after a step.
    pub(super) fn exchanged(&self) -> u64 {
        if self.is_adapter { 4 * self.trained } else { self.whole_copy() }
    }
}
