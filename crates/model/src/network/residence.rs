//! Weights that may be elsewhere: a pass says which it needs next and which it needs no more.

use scalerl_torch::collective::ProcessGroup;
use tch::TchError;

/// Weights of a network that come and go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Embedding,
    Layer(usize),
    /// The final one.
    Norm,
    Head,
}

/// Whoever has the weights that a pass computes with.
///
/// ```text
/// forward    embedding, layers: entered and left; norm: entered
/// backward   norm: left; layers in reverse: entered and left; embedding: left, with its gradient
/// ```
/// The head is its caller's. The gradient of an embedding asks nothing of its weights.
pub trait Residence {
    type Error: From<TchError>;
    /// Its weights are about to be used.
    fn enter(&mut self, part: Part) -> Result<(), Self::Error>;
    /// They have been used, and in a backward pass have their gradients.
    fn leave(&mut self, part: Part) -> Result<(), Self::Error>;
    /// Among whom a layer's experts are divided, where they are; every rank then makes the same pass.
    fn owners(&self) -> Option<&ProcessGroup> {
        None
    }
}

/// Weights that are always there.
pub struct Resident;

impl Residence for Resident {
    type Error = TchError;

    fn enter(&mut self, _: Part) -> Result<(), TchError> {
        Ok(())
    }

    fn leave(&mut self, _: Part) -> Result<(), TchError> {
        Ok(())
    }
}
