//! Rows that travel from every rank to every rank, and their gradients the way back.
//!
//! ```text
//! rank 0   rows for 0 | for 1        rank 0   rows of 0 | of 1
//! rank 1   rows for 0 | for 1   ->   rank 1   rows of 0 | of 1
//! ```
//! Autograd knows one kind of error. What failed between processes is therefore kept in the group's
//! [`Record`] too, for whoever called the backward pass, with how many exchanges were begun: a rank that
//! fails beside them can tell how far the others count on it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tch::{TchError, Tensor};

use super::super::CollectiveError;
use super::{ProcessGroup, RefCell, scalerl_group_all_to_all};
use crate::shim::{attach, handle};

/// How many rows go to each rank and come from each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcels {
    pub sent: Vec<i64>,
    pub received: Vec<i64>,
}

impl Parcels {
    /// The way back.
    #[must_use]
    pub fn returned(&self) -> Self {
        Self { sent: self.received.clone(), received: self.sent.clone() }
    }
}

/// What became of a group's operations.
#[derive(Debug, Clone, Default)]
pub struct Record {
    exchanges: Arc<AtomicUsize>,
    failure: Arc<Mutex<Option<CollectiveError>>>,
    is_aborted: Arc<AtomicBool>,
}

impl Record {
    /// Exchanges that were begun so far.
    pub fn exchanges(&self) -> usize {
        self.exchanges.load(Ordering::Relaxed)
    }

    /// The first failure.
    pub fn failure(&self) -> Option<CollectiveError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this rank has ended the group.
    pub fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Relaxed)
    }

    pub(super) fn note_abort(&self) {
        self.is_aborted.store(true, Ordering::Relaxed);
    }

    pub(super) fn note(&self, error: &CollectiveError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| error.clone());
    }
}

impl ProcessGroup {
    /// What became of its operations so far.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The same group for a backward pass that this thread will wait for.
    fn for_backward(&self) -> Self {
        Self {
            raw: Arc::clone(&self.raw),
            name: self.name.clone(),
            rank: self.rank,
            size: self.size,
            timeout: self.timeout,
            transport: self.transport,
            host: RefCell::default(),
            record: self.record.clone(),
        }
    }

    /// Rows of `input`, in the order of ranks, go to the ranks; `output` becomes what they have sent here.
    pub fn all_to_all(
        &self,
        output: &Tensor,
        input: &Tensor,
        parcels: &Parcels,
    ) -> Result<(), CollectiveError> {
        let Parcels { sent, received } = parcels;
        assert!([sent, received].iter().all(|list| list.len() == self.size), "one number a rank");
        let rows = [output, input].map(|tensor| tensor.size()[0]);
        let told = [received, sent].map(|list| list.iter().sum::<i64>());
        assert_eq!(rows, told, "as many rows as are told");
        self.record.exchanges.fetch_add(1, Ordering::Relaxed);
        let (to, from, ranks) = (handle(output), handle(input), self.size as i64);
        // SAFETY: two borrowed tensors and two lists of `ranks` numbers.
        self.run("all-to-all", |timeout| unsafe {
            let (received, sent) = (received.as_ptr(), sent.as_ptr());
            scalerl_group_all_to_all(self.raw.0, to, from, received, sent, ranks, timeout)
        })
    }

    /// The rows that others have sent here; in a backward pass their gradients go back, so that pass, too,
    /// is one that all ranks make. A failure between ranks is in the [`Record`].
    pub fn exchange(&self, rows: &Tensor, parcels: &Parcels) -> Result<Tensor, TchError> {
        let received = self.carry(rows, parcels)?;
        let (group, back) = (self.for_backward(), parcels.returned());
        attach(received, &[rows], move |grad| Ok(vec![Some(group.carry(grad, &back)?)]))
    }

    fn carry(&self, rows: &Tensor, parcels: &Parcels) -> Result<Tensor, TchError> {
        let rows = rows.f_detach()?.f_contiguous()?;
        let mut shape = rows.size();
        shape[0] = parcels.received.iter().sum();
        let received = Tensor::f_empty(shape, (rows.kind(), rows.device()))?;
        let carried = self.all_to_all(&received, &rows, parcels);
        carried.map_err(|error| TchError::Torch(error.to_string()))?;
        Ok(received)
    }
}
