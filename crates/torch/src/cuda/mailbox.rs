//! Words to the device and back without waiting: page-locked memory and an event per message.
//!
//! Two messages may be under way. What goes over is copied into page-locked memory, from there to
//! the device in the order of the stream; what comes back likewise. An event tells when it is here.

#![expect(unsafe_code, reason = "this is a boundary to C")]

use cudarc::driver::{result, sys};
use tch::{Device, Kind, TchError, Tensor};

use crate::shim;

/// `CU_MEMHOSTALLOC_PORTABLE`: a generator may move to another thread.
const PORTABLE: u32 = 1;
const SLOTS: usize = 2;

fn failed(error: result::DriverError) -> TchError {
    TchError::Torch(format!("CUDA: {error}"))
}

/// Page-locked memory.
struct Locked {
    words: *mut i32,
    count: usize,
}

impl Locked {
    fn empty() -> Self {
        Self { words: std::ptr::null_mut(), count: 0 }
    }

    /// Room for `count` words. Nothing may be under way in it.
    fn grow(&mut self, count: usize) -> Result<(), TchError> {
        if self.count >= count {
            return Ok(());
        }
        *self = Self::empty();
        let count = count.next_power_of_two();
        // SAFETY: asks for memory; torch has made a context current on this thread.
        let words = unsafe { result::malloc_host(count * size_of::<i32>(), PORTABLE) };
        *self = Self { words: words.map_err(failed)?.cast(), count };
        // SAFETY: just allocated with that many words; zeros are words.
        unsafe { self.words.write_bytes(0, count) };
        Ok(())
    }

    fn slice(&self, count: usize) -> &[i32] {
        assert!(count <= self.count, "{count} words of {}", self.count);
        if count == 0 {
            return &[];
        }
        // SAFETY: allocated and filled with zeros for at least so many words.
        unsafe { std::slice::from_raw_parts(self.words, count) }
    }

    fn slice_mut(&mut self, count: usize) -> &mut [i32] {
        assert!(count <= self.count, "{count} words of {}", self.count);
        if count == 0 {
            return &mut [];
        }
        // SAFETY: as in `slice`, and we are borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.words, count) }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if !self.words.is_null() {
            // SAFETY: made by `malloc_host`, given back once.
            let _ = unsafe { result::free_host(self.words.cast()) };
        }
    }
}

struct Slot {
    over: Locked,
    back: Locked,
    /// Recorded behind the last copy; null before the first use.
    event: sys::CUevent,
}

impl Slot {
    fn wait(&self) -> Result<(), TchError> {
        if self.event.is_null() {
            return Ok(());
        }
        // SAFETY: the event is alive.
        unsafe { result::event::synchronize(self.event) }.map_err(failed)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The device may still be copying. A context that is gone has taken all this with it.
        let _ = self.wait();
        if !self.event.is_null() {
            // SAFETY: made by `Mailbox::collect`, dropped once.
            let _ = unsafe { result::event::destroy(self.event) };
        }
    }
}

/// Names a message under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    slot: usize,
    /// Words that come back.
    count: usize,
}

pub struct Mailbox {
    slots: [Slot; SLOTS],
    next: usize,
}

// SAFETY: used by whoever owns the generator, one thread at a time; the driver allows any.
unsafe impl Send for Mailbox {}

impl Default for Mailbox {
    fn default() -> Self {
        let slot =
            || Slot { over: Locked::empty(), back: Locked::empty(), event: std::ptr::null_mut() };
        Self { slots: [slot(), slot()], next: 0 }
    }
}

fn address(tensor: &Tensor, count: usize) -> sys::CUdeviceptr {
    assert!(
        matches!(tensor.device(), Device::Cuda(_))
            && tensor.kind() == Kind::Int
            && tensor.is_contiguous()
            && tensor.numel() >= count,
        "a message of {count} words needs as many on the device, got {tensor:?}"
    );
    tensor.data_ptr().addr() as sys::CUdeviceptr
}

impl Mailbox {
    /// Sends what `fill` writes (into words of an earlier message) to `target`.
    pub fn send(
        &mut self,
        target: &Tensor,
        count: usize,
        fill: impl FnOnce(&mut [i32]),
    ) -> Result<(), TchError> {
        let slot = &mut self.slots[self.next];
        // Of two messages ago: over long since, unless it was dropped.
        slot.wait()?;
        slot.over.grow(count)?;
        fill(slot.over.slice_mut(count));
        let stream: sys::CUstream = shim::current_stream(target.device())?.cast();
        // SAFETY: both sides have `count` words; ours are not touched before the event has come.
        unsafe { result::memcpy_htod_async(address(target, count), slot.over.slice(count), stream) }
            .map_err(failed)
    }

    /// Asks for the first `count` words of `source`, as they will be after all work so far. Ends
    /// the message that `send` began.
    pub fn collect(&mut self, source: &Tensor, count: usize) -> Result<Ticket, TchError> {
        let slot = &mut self.slots[self.next];
        slot.back.grow(count)?;
        if slot.event.is_null() {
            let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
            slot.event = result::event::create(flags).map_err(failed)?;
        }
        let stream: sys::CUstream = shim::current_stream(source.device())?.cast();
        let from = address(source, count);
        // SAFETY: as in `send`; the event is alive.
        unsafe {
            result::memcpy_dtoh_async(slot.back.slice_mut(count), from, stream)
                .and_then(|()| result::event::record(slot.event, stream))
        }
        .map_err(failed)?;
        let ticket = Ticket { slot: self.next, count };
        self.next = (self.next + 1) % SLOTS;
        Ok(ticket)
    }

    /// Waits for what was asked for. A ticket is good until two more messages have begun.
    pub fn receive(&self, ticket: Ticket) -> Result<&[i32], TchError> {
        let slot = &self.slots[ticket.slot];
        slot.wait()?;
        Ok(slot.back.slice(ticket.count))
    }
}
