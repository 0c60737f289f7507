//! Weights as ranks get them: rank 0 reads them one by one, and nobody holds one for longer than needed.

use tch::{Kind, Tensor};

use super::full::StartError;
use crate::adapter::Fingerprint;
use crate::error::LoadError;
use crate::train::ranks::RankError;
use crate::unloaded::UnloadedModel;
use scalerl_torch::collective::ProcessGroup;

/// A model whose weights are being read, in the order of the layout.
pub(super) struct Reading {
    unloaded: UnloadedModel,
    kind: Kind,
    has_adapter: bool,
    /// Rank 0 alone says which base an adapter is on.
    fingerprint: Fingerprint,
}

impl Reading {
    pub(super) fn of(unloaded: UnloadedModel, kind: Kind) -> Self {
        let has_adapter = unloaded.adapter.is_some() || unloaded.merged.is_some();
        Self { unloaded, kind, has_adapter, fingerprint: Fingerprint::default() }
    }

    /// The next weight, with the adapter in it that goes into the weights.
    pub(super) fn read(&mut self, index: usize) -> Result<Tensor, LoadError> {
        let weight = self.unloaded.take(index, self.kind)?;
        if self.has_adapter {
            self.fingerprint.add(&self.unloaded.layout[index], &weight)?;
        }
        match &self.unloaded.merged {
            Some(merged) => Ok(merged.merged_one(index, &weight)?),
            None => Ok(weight),
        }
    }

    /// The next weight on every rank.
    pub(super) fn on_every_rank(
        &mut self,
        index: usize,
        data: &ProcessGroup,
    ) -> Result<Tensor, StartError> {
        let weight = if data.rank() == 0 {
            self.read(index)?.f_detach()?.f_contiguous()?
        } else {
            let shape = &self.unloaded.layout[index].shape[..];
            Tensor::f_empty(shape, (self.kind, self.unloaded.device))?
        };
        data.broadcast(&[&weight], 0).map_err(RankError::from)?;
        Ok(weight)
    }

    /// All were read: at rank 0 an adapter learns which base it is on, and refuses another than its own.
    pub(super) fn end(self, rank: usize) -> Result<UnloadedModel, LoadError> {
        let Self { unloaded, fingerprint, .. } = self;
        let adapter = unloaded.adapter.as_ref().or(unloaded.merged.as_ref());
        if let Some(adapter) = adapter.filter(|_| rank == 0) {
            let letters = fingerprint.letters();
            adapter.check_base(&letters).map_err(LoadError::from)?;
            adapter.know_base(letters);
        }
        Ok(unloaded)
    }

    pub(super) fn model(&self) -> &UnloadedModel {
        &self.unloaded
    }
}
