//! Where a trainer leaves weights for the generators of its process.
//!
//! The optimizer changes weights in place, so generators never read the trainer's own: publishing
//! copies them, in the kind the network computes in, into memory that nobody holds. With one
//! generator that keeps up, two copies take turns and nothing is allocated after the second.
//!
//! [`Weights`] are held by whoever took them; as long as they live, their memory is not written.
//! A generator on a CUDA stream of its own waits for it before it lets go.
//!
//! Where both compute with one set of bf16 weights (`pipeline.weights = "shared"`), the trainer lends
//! its float32 masters, which it does not touch before they were returned, and the generator rounds
//! them into the set between two decode steps:
//!
//! ```text
//! trainer    step v: masters | lend              | v + 1: forward, backward, masters | lend …
//! generator  … decode, v - 1 | round, return     | decode, v                         | …
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use scalerl_rollout::{PolicyVersion, WeightHandle};
use scalerl_torch::shim;
use tch::{Device, Kind, TchError, Tensor};
use thiserror::Error;

/// Weights of one version: detached, those that are trained, in their order.
#[derive(Debug)]
pub struct Weights {
    /// The policy these weights are.
    pub version: PolicyVersion,
    /// `Model::with_trained` makes a model of them without copying.
    pub parameters: Vec<Tensor>,
    /// Counted by the store: alone in it means free.
    lease: Arc<Lease>,
}

/// What weights are held by. The trainer sees by it whether what it lent was returned.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    is_taken_over: AtomicBool,
}

impl Lease {
    /// Whether a generator computes with these weights.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.is_taken_over.load(Ordering::Acquire)
    }
}

impl Weights {
    fn share(&self) -> Self {
        Self {
            version: self.version,
            parameters: self.parameters.iter().map(Tensor::shallow_clone).collect(),
            lease: Arc::clone(&self.lease),
        }
    }

    /// Lets go of them: the generator computes with these weights from here on.
    pub(crate) fn taken_over(self) {
        self.lease.is_taken_over.store(true, Ordering::Release);
    }

    fn is_free(&self) -> bool {
        Arc::strong_count(&self.lease) == 1
    }
}

/// What weights look like, without the weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// In the order of the model's layout.
    pub shapes: Vec<Vec<i64>>,
    pub kind: Kind,
    pub device: Device,
}

impl Form {
    /// The form of a model's trained weights, which are all of one kind and on one device.
    pub fn of(parameters: &[Tensor]) -> Self {
        let first = parameters.first().expect("a model has parameters");
        Self {
            shapes: parameters.iter().map(Tensor::size).collect(),
            kind: first.kind(),
            device: first.device(),
        }
    }
}

/// Why weights cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum WeightStoreError {
    #[error(
        "{location} of {version} is not in the weight store of this process, which holds {held:?}"
    )]
    NotHere { version: PolicyVersion, location: String, held: Vec<String> },
}

/// Published weights. Shared by one trainer and any number of generators.
#[derive(Debug, Default)]
pub struct WeightStore {
    /// A lock, because a tensor may move between threads but not be looked at by two; held for a
    /// copy on the device at most.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    published: u64,
    /// Newest last.
    slots: Vec<(WeightHandle, Weights)>,
}

impl State {
    /// Takes off all but the newest; returns one that nobody holds. Others that are still held live
    /// on with their holders.
    fn free(&mut self) -> Option<Weights> {
        let newest = self.slots.pop();
        let free = self.slots.drain(..).map(|(_, weights)| weights).find(Weights::is_free);
        self.slots.extend(newest);
        free
    }

    fn place(&mut self, version: PolicyVersion, parameters: Vec<Tensor>) -> WeightHandle {
        self.published += 1;
        let handle = WeightHandle { version, location: format!("weight_store:{}", self.published) };
        let weights = Weights { version, parameters, lease: Arc::default() };
        self.slots.push((handle.clone(), weights));
        handle
    }
}

impl WeightStore {
    /// An empty store.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the weight_store")
    }

    /// Copies `parameters` and makes them the newest. What was newest stays until the next call.
    pub fn publish(
        &self,
        version: PolicyVersion,
        parameters: &[Tensor],
    ) -> Result<WeightHandle, TchError> {
        let mut state = self.state();
        let free = state.free();
        let copies = copy(parameters, free)?;
        Ok(state.place(version, copies))
    }

    /// Memory like `form` that nobody holds, for weights that come from elsewhere: fill it, then
    /// hand it to [`WeightStore::place`].
    pub fn spare(&self, form: &Form) -> Result<Vec<Tensor>, TchError> {
        let free = self.state().free();
        match free.filter(|weights| Form::of(&weights.parameters) == *form) {
            Some(weights) => Ok(weights.parameters),
            None => {
                form.shapes.iter().map(|s| Tensor::f_zeros(s, (form.kind, form.device))).collect()
            }
        }
    }

    /// Makes filled memory the newest weights.
    pub fn place(&self, version: PolicyVersion, parameters: Vec<Tensor>) -> WeightHandle {
        self.state().place(version, parameters)
    }

    /// Makes the trainer's own masters the newest weights, without copying; none but these can be had
    /// any more. The trainer leaves them alone until the lease says that they were taken over.
    pub(crate) fn lend(
        &self,
        version: PolicyVersion,
        masters: &[Tensor],
    ) -> Result<(WeightHandle, Arc<Lease>), TchError> {
        // The generator is on another stream.
        if let Some(first) = masters.first() {
            shim::synchronize_stream(first.device())?;
        }
        let mut state = self.state();
        state.slots.clear();
        let handle = state.place(version, masters.iter().map(Tensor::shallow_clone).collect());
        let lease = Arc::clone(&state.slots[0].1.lease);
        Ok((handle, lease))
    }

    /// The weights a handle names, without copying.
    pub fn take(&self, handle: &WeightHandle) -> Result<Weights, WeightStoreError> {
        let state = self.state();
        let found = state.slots.iter().find(|(held, _)| held == handle);
        found.map(|(_, weights)| weights.share()).ok_or_else(|| WeightStoreError::NotHere {
            version: handle.version,
            location: handle.location.clone(),
            held: state.slots.iter().map(|(held, _)| held.location.clone()).collect(),
        })
    }
}

fn copy(parameters: &[Tensor], free: Option<Weights>) -> Result<Vec<Tensor>, TchError> {
    let _guard = tch::no_grad_guard();
    let copies = if let Some(free) = free {
        let sources = parameters.iter().map(Tensor::f_detach).collect::<Result<Vec<_>, _>>()?;
        shim::copy_each(&free.parameters, &sources)?;
        free.parameters
    } else {
        parameters.iter().map(Tensor::f_detach_copy).collect::<Result<_, _>>()?
    };
    // Readers are on another stream.
    if let Some(first) = copies.first() {
        shim::synchronize_stream(first.device())?;
    }
    Ok(copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(weights: &Weights) -> f64 {
        weights.parameters[0].double_value(&[0])
    }

    fn publish(weight_store: &WeightStore, version: u64) -> WeightHandle {
        let parameter = Tensor::from_slice(&[version as f32]);
        weight_store.publish(PolicyVersion(version), &[parameter]).unwrap()
    }

    #[test]
    fn a_handle_stays_valid_until_the_call_after_the_next() {
        let weight_store = WeightStore::default();
        let (first, second) = (publish(&weight_store, 1), publish(&weight_store, 2));
        assert!((value(&weight_store.take(&first).unwrap()) - 1.0).abs() < 1e-9);
        let _ = publish(&weight_store, 3);
        assert!((value(&weight_store.take(&second).unwrap()) - 2.0).abs() < 1e-9);
        let said = weight_store.take(&first).unwrap_err().to_string();
        assert!(said.contains("weight_store:1 of v1") && said.contains("weight_store:2"), "{said}");
    }

    #[test]
    fn held_weights_are_never_written_and_free_ones_are_used_again() {
        let weight_store = WeightStore::default();
        let held = weight_store.take(&publish(&weight_store, 1)).unwrap();
        for version in 2..6 {
            let _ = publish(&weight_store, version);
        }
        assert!((value(&held) - 1.0).abs() < 1e-9);
        let older = weight_store.take(&publish(&weight_store, 6)).unwrap().parameters[0].data_ptr();
        let _ = publish(&weight_store, 7);
        let newer = weight_store.take(&publish(&weight_store, 8)).unwrap().parameters[0].data_ptr();
        assert_eq!(older, newer, "two copies take turns");
    }

    #[test]
    fn the_trainer_may_go_on_with_its_own_weights() {
        let weight_store = WeightStore::default();
        let mut own = Tensor::from_slice(&[1.0_f32]);
        let handle = weight_store.publish(PolicyVersion(1), &[own.shallow_clone()]).unwrap();
        let _ = own.fill_(9.0);
        assert!((value(&weight_store.take(&handle).unwrap()) - 1.0).abs() < 1e-9);
    }
}
