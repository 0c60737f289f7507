//! Experts that stay with their owners: every rank computes with its own, for the rows of all.
//!
//! Their weights are not gathered for a pass, and their gradients are whole where they are made. What
//! travels is rows of tokens (`network/experts/owners.rs`), so a rank without rows of its own serves:
//!
//! ```text
//! forward      counts | rows there | rows back
//! and back     the same again | gradients there | gradients back
//! ```
//! A rank that fails before or after these does the rest of the pass as one without rows. One that fails
//! between them cannot: the others wait for rows that only it could make. It ends the group then, and they
//! hear of it at once instead of at a deadline.

use tch::{TchError, Tensor};

use super::order::Operation;
use super::units::Units;
use crate::network::Network;
use crate::train::ranks::RankError;
use scalerl_torch::collective::{CollectiveError, ProcessGroup};
use scalerl_torch::shim;

/// Exchanges of a layer.
const FORWARD: usize = 3;
const AND_BACK: usize = FORWARD + 2;

impl Units {
    /// Puts a unit's own experts where the network reads them.
    pub(super) fn bring_own(&self, unit: usize) -> Result<(), TchError> {
        let kind = self.pass.as_ref().expect("a pass is under way").kind;
        let home = self.home(kind);
        self.owned(unit).into_iter().try_for_each(|row| home.bring_own(&self.rows[row], row))
    }

    /// Adds up the gradients of a unit's own experts: tokens of all ranks are in them.
    pub(super) fn keep_own(
        &mut self,
        unit: usize,
        grads: &mut [Option<Tensor>],
    ) -> Result<(), TchError> {
        if !self.is_trained() {
            return Ok(());
        }
        for row in self.owned(unit) {
            let parameter = &self.policy.parameters[self.rows[row].parameters().start];
            let Some(grad) = shim::take_grad(parameter)? else { continue };
            let (numbers, kind) = (self.rows[row].part, grad.kind());
            self.count(numbers, kind);
            let sum = grads[row].as_mut().expect("sums begin at zero");
            let _ = sum.f_add_(&grad.f_reshape([numbers])?)?;
            self.count(-numbers, kind);
        }
        Ok(())
    }

    /// A unit has computed: what its rows needed of the owners is done.
    pub(super) fn served(&mut self, unit: usize) {
        let pass = self.pass.as_mut().expect("a pass is under way");
        let front = pass.left.front();
        if front.is_some_and(|next| {
            *next == Operation::Serve(unit) || *next == Operation::ServeBack(unit)
        }) {
            pass.left.pop_front();
        }
    }

    /// Computes with a unit's own experts for the others.
    pub(super) fn serve(
        &mut self,
        unit: usize,
        network: &Network,
        data: &ProcessGroup,
        grads: &mut [Option<Tensor>],
    ) -> Result<(), RankError> {
        let pass = self.pass.as_ref().expect("a pass is under way");
        let (kind, goes_back) = (pass.kind, pass.left.front() == Some(&Operation::ServeBack(unit)));
        self.bring_own(unit)?;
        // Layers follow the embedding.
        network.serve(unit - 1, data, goes_back)?;
        if goes_back {
            self.keep_own(unit, grads)?;
        }
        let home = self.home(kind);
        self.owned(unit).into_iter().try_for_each(|row| home.send_away(&self.rows[row]))?;
        self.served(unit);
        Ok(())
    }

    /// Whether the pass under way can be seen through after a failure: not from between the exchanges of a
    /// layer, and not in a group that has failed.
    pub(super) fn can_be_seen_through(&mut self, data: &ProcessGroup) -> bool {
        if data.record().failure().is_some() {
            return false;
        }
        let Some(pass) = &mut self.pass else { return true };
        let begun = data.record().exchanges() - pass.exchanges;
        let all = match pass.left.front() {
            Some(Operation::Serve(_)) => FORWARD,
            Some(Operation::ServeBack(_)) => AND_BACK,
            _ => return true,
        };
        if begun == all {
            pass.left.pop_front();
        }
        begun == all || begun == 0
    }

    /// Ends the pass for all ranks: this one cannot do its part of it. Who was waited for in vain is waited
    /// for no longer.
    pub(super) fn cut_short(&mut self, data: &ProcessGroup) -> Result<(), RankError> {
        if matches!(data.record().failure(), Some(CollectiveError::Late { .. })) {
            return Ok(());
        }
        // What is under way holds on to the group; weights stay where they are, since to send them away
        // takes memory.
        self.pass = None;
        Ok(data.abort()?)
    }
}

/// Whose failure it was: one in an exchange is between ranks, whatever autograd calls it, and one for want of
/// memory is this rank's, whatever it was doing.
pub(super) fn between(error: RankError, data: &ProcessGroup) -> RankError {
    match (data.record().failure(), error) {
        (Some(failure), _) if failure.is_for_want_of_memory() => {
            RankError::Torch(TchError::Torch(failure.to_string()))
        }
        (Some(failure), RankError::Torch(_)) => RankError::Collective(failure),
        (_, error) => error,
    }
}
