//! Collectives among processes.

#![expect(unsafe_code, reason = "this is the boundary to C++")]

use std::borrow::Borrow;
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use tch::{Device, TchError, Tensor};

use super::store::{GRACE, Store, text};
use super::{CollectiveError, milliseconds, timed};
use crate::device;
use crate::shim::{Handle, handle, handles};

mod exchange;
mod underway;

pub use exchange::{Parcels, Record};
pub use underway::Underway;

unsafe extern "C" {
    fn scalerl_group_new(
        store: *mut c_void,
        prefix: *const c_char,
        rank: c_int,
        size: c_int,
        address: *const c_char,
        timeout_ms: i64,
        out: *mut *mut c_void,
    ) -> c_int;
    fn scalerl_group_drop(group: *mut c_void);
    fn scalerl_group_abort(group: *mut c_void) -> c_int;
    fn scalerl_group_broadcast(
        group: *mut c_void,
        tensors: *const Handle,
        count: i64,
        root: i64,
        timeout_ms: i64,
    ) -> c_int;
    fn scalerl_group_all_reduce(
        group: *mut c_void,
        tensor: Handle,
        is_max: c_int,
        timeout_ms: i64,
    ) -> c_int;
    fn scalerl_group_reduce_scatter(
        group: *mut c_void,
        output: Handle,
        input: Handle,
        timeout_ms: i64,
    ) -> c_int;
    fn scalerl_group_all_gather(
        group: *mut c_void,
        output: Handle,
        input: Handle,
        timeout_ms: i64,
    ) -> c_int;
    fn scalerl_group_all_to_all(
        group: *mut c_void,
        output: Handle,
        input: Handle,
        received: *const i64,
        sent: *const i64,
        ranks: i64,
        timeout_ms: i64,
    ) -> c_int;
    fn scalerl_group_gather(
        group: *mut c_void,
        outputs: *const Handle,
        count: i64,
        input: Handle,
        timeout_ms: i64,
    ) -> c_int;
    fn scalerl_group_scatter(
        group: *mut c_void,
        output: Handle,
        inputs: *const Handle,
        count: i64,
        timeout_ms: i64,
    ) -> c_int;
    fn scalerl_group_barrier(group: *mut c_void, timeout_ms: i64) -> c_int;
}

/// How tensors travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP between CPUs.
    Gloo,
    /// NVIDIA's library between GPUs.
    Nccl,
}

impl Transport {
    /// What fits tensors on a device.
    pub fn of(device: Device) -> Self {
        if device == Device::Cpu { Self::Gloo } else { Self::Nccl }
    }
}

/// How numbers of several processes become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    Sum,
    Max,
}

/// `size` processes that call the same operations in the same order. Not shared between threads:
/// the order would be lost.
#[derive(Debug)]
pub struct ProcessGroup {
    raw: Arc<Raw>,
    name: String,
    rank: usize,
    size: usize,
    timeout: Duration,
    transport: Transport,
    /// Host memory that tensors of a GPU travel through, kept from one broadcast to the next.
    host: RefCell<Vec<Tensor>>,
    /// What became of its exchanges, shared with those that a backward pass makes.
    record: Record,
}

/// The shim's group.
#[derive(Debug)]
struct Raw(*mut c_void);

// SAFETY: a process group may be used from any thread, by one at a time.
unsafe impl Send for Raw {}
// SAFETY: two owners are a group and the backward pass that its thread waits for: one at a time.
unsafe impl Sync for Raw {}

impl ProcessGroup {
    /// Forms a group under a name of its own in the store. Returns when all have come (NCCL meets
    /// in the first operation instead).
    pub fn form(
        store: &Store,
        name: &str,
        (rank, size): (usize, usize),
        transport: Transport,
        timeout: Duration,
    ) -> Result<Self, CollectiveError> {
        assert!(rank < size, "rank {rank} of {size}");
        // Opens libtorch_cuda, where NCCL's side lives.
        device::open();
        let address = match transport {
            Transport::Gloo => Some(text(&store.own_address()?.to_string())),
            Transport::Nccl => None,
        };
        let prefix = text(name);
        let act = || format!("forming group `{name}` as rank {rank} of {size}");
        let (own, all) = (rank as c_int, size as c_int);
        // Gloo waits for each of its peers for as long as for all of them. On a connection of its own,
        // so that whoever does not come costs this group and not the store.
        let line = store.another()?;
        let raw = line.call(act, timeout, timeout + GRACE, move |store| {
            let address = address.as_ref().map_or(std::ptr::null(), |address| address.as_ptr());
            let (wait, mut raw) = (milliseconds(timeout), std::ptr::null_mut());
            let out = &raw mut raw;
            // SAFETY: all texts outlive the call.
            let code =
                unsafe { scalerl_group_new(store, prefix.as_ptr(), own, all, address, wait, out) };
            (code, Raw(raw))
        })?;
        let (raw, name) = (Arc::new(raw), name.to_owned());
        let (host, record) = (RefCell::default(), Record::default());
        Ok(Self { raw, name, rank, size, timeout, transport, host, record })
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// The deadline of operations from here on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    fn run(&self, what: &str, call: impl FnOnce(i64) -> c_int) -> Result<(), CollectiveError> {
        let ended = timed(|| self.act(what), self.timeout, || call(milliseconds(self.timeout)));
        ended.inspect_err(|error| self.record.note(error))
    }

    fn act(&self, what: &str) -> String {
        format!("{what} in group `{}` as rank {} of {}", self.name, self.rank, self.size)
    }

    /// Everybody's tensors become those of `root`: over Gloo by the time this returns, over NCCL in the
    /// order of the thread's stream.
    pub fn broadcast<T: Borrow<Tensor>>(
        &self,
        tensors: &[T],
        root: usize,
    ) -> Result<(), CollectiveError> {
        let is_on_host = tensors.iter().all(|tensor| tensor.borrow().device() == Device::Cpu);
        if is_on_host || self.transport == Transport::Nccl {
            return self.broadcast_in_place(tensors, root);
        }
        let failed = |error: TchError| {
            let act = format!("copies for a broadcast in group `{}`", self.name);
            CollectiveError::Failed { act, reason: error.to_string() }
        };
        // Gloo's own way from a GPU takes torch's streams in turn, also one that another thread is
        // recording a graph on, which ends the process.
        let mut host = self.host.borrow_mut();
        if !has_forms_of(&host, tensors) {
            *host = tensors.iter().map(host_like).collect::<Result<_, _>>().map_err(failed)?;
        }
        let _guard = tch::no_grad_guard();
        if self.rank == root {
            for (copy, tensor) in host.iter_mut().zip(tensors) {
                copy.f_copy_(tensor.borrow()).map_err(failed)?;
            }
        }
        self.broadcast_in_place(&host, root)?;
        if self.rank != root {
            for (tensor, copy) in tensors.iter().zip(host.iter()) {
                tensor.borrow().shallow_clone().f_copy_(copy).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn broadcast_in_place<T: Borrow<Tensor>>(
        &self,
        tensors: &[T],
        root: usize,
    ) -> Result<(), CollectiveError> {
        let list = handles(tensors);
        let (count, root) = (list.len() as i64, root as i64);
        // SAFETY: `count` borrowed tensors.
        self.run("broadcast", |timeout| unsafe {
            scalerl_group_broadcast(self.raw.0, list.as_ptr(), count, root, timeout)
        })
    }

    /// Everybody's tensor becomes the sum (or maximum) of all.
    pub fn all_reduce(&self, tensor: &Tensor, how: Reduce) -> Result<(), CollectiveError> {
        let is_max = c_int::from(how == Reduce::Max);
        // SAFETY: one borrowed tensor.
        self.run("all-reduce", |timeout| unsafe {
            scalerl_group_all_reduce(self.raw.0, handle(tensor), is_max, timeout)
        })
    }

    /// `output` becomes this rank's part of the sum of everybody's `input`, which has `size` parts.
    pub fn reduce_scatter(&self, output: &Tensor, input: &Tensor) -> Result<(), CollectiveError> {
        assert_eq!(input.numel(), output.numel() * self.size, "one part a rank");
        // SAFETY: two borrowed tensors.
        self.run("reduce-scatter", |timeout| unsafe {
            scalerl_group_reduce_scatter(self.raw.0, handle(output), handle(input), timeout)
        })
    }

    /// `output` becomes everybody's `input` in the order of ranks.
    pub fn all_gather(&self, output: &Tensor, input: &Tensor) -> Result<(), CollectiveError> {
        assert_eq!(output.numel(), input.numel() * self.size, "one part a rank");
        // SAFETY: two borrowed tensors.
        self.run("all-gather", |timeout| unsafe {
            scalerl_group_all_gather(self.raw.0, handle(output), handle(input), timeout)
        })
    }

    /// Rank 0 gets everybody's `input`; it hands in one tensor a rank, the others none.
    pub fn gather(&self, outputs: &[Tensor], input: &Tensor) -> Result<(), CollectiveError> {
        assert_eq!(outputs.len(), if self.rank == 0 { self.size } else { 0 }, "outputs at rank 0");
        let list = handles(outputs);
        // SAFETY: `len` and one borrowed tensors.
        self.run("gather", |timeout| unsafe {
            let (outputs, count) = (list.as_ptr(), list.len() as i64);
            scalerl_group_gather(self.raw.0, outputs, count, handle(input), timeout)
        })
    }

    /// Everybody's `output` becomes its tensor among rank 0's `inputs`; the others hand in none.
    pub fn scatter(&self, output: &Tensor, inputs: &[Tensor]) -> Result<(), CollectiveError> {
        assert_eq!(inputs.len(), if self.rank == 0 { self.size } else { 0 }, "inputs at rank 0");
        let list = handles(inputs);
        // SAFETY: one and `len` borrowed tensors.
        self.run("scatter", |timeout| unsafe {
            let (inputs, count) = (list.as_ptr(), list.len() as i64);
            scalerl_group_scatter(self.raw.0, handle(output), inputs, count, timeout)
        })
    }

    /// Returns when everybody has come.
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        // SAFETY: takes no tensor.
        self.run("barrier", |timeout| unsafe { scalerl_group_barrier(self.raw.0, timeout) })
    }

    /// Ends what is under way, here and, by closing connections, at the peers. Every operation fails from
    /// here on.
    pub fn abort(&self) -> Result<(), CollectiveError> {
        self.record.note_abort();
        // SAFETY: takes no tensor.
        self.run("abort", |_| unsafe { scalerl_group_abort(self.raw.0) })
    }
}

fn has_forms_of<T: Borrow<Tensor>>(host: &[Tensor], tensors: &[T]) -> bool {
    let is_alike =
        |(a, b): (&Tensor, &T)| (a.size(), a.kind()) == (b.borrow().size(), b.borrow().kind());
    host.len() == tensors.len() && host.iter().zip(tensors).all(is_alike)
}

/// Memory of the host that a GPU copies from and to at full speed.
fn host_like<T: Borrow<Tensor>>(tensor: &T) -> Result<Tensor, TchError> {
    let tensor = tensor.borrow();
    let host = Tensor::f_empty(tensor.size(), (tensor.kind(), Device::Cpu))?;
    host.f_pin_memory(tensor.device())
}

impl Drop for Raw {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by the shim, dropped once.
            unsafe { scalerl_group_drop(self.0) };
        }
    }
}

#[cfg(test)]
mod tests;
