//! Collectives that go on while their caller computes.
//!
//! Every rank starts the same operations in the same order, and sees each through with
//! [`ProcessGroup::finish`]. Gloo works on threads of its own, NCCL on a stream of its own, which first
//! waits for what the caller's stream had been given by then: start early what is needed late.

#![expect(unsafe_code, reason = "this is the boundary to C++")]

use std::ffi::{c_int, c_void};
use std::time::Instant;

use tch::Tensor;

use super::super::{CollectiveError, failure, milliseconds};
use super::ProcessGroup;
use crate::shim::{Handle, handle, last_error};

unsafe extern "C" {
    fn scalerl_group_start_all_gather(
        group: *mut c_void,
        output: Handle,
        input: Handle,
        timeout_ms: i64,
        out: *mut *mut c_void,
    ) -> c_int;
    fn scalerl_group_start_reduce_scatter(
        group: *mut c_void,
        output: Handle,
        input: Handle,
        timeout_ms: i64,
        out: *mut *mut c_void,
    ) -> c_int;
    fn scalerl_underway_finish(group: *mut c_void, started: *mut c_void, timeout_ms: i64) -> c_int;
    fn scalerl_underway_drop(started: *mut c_void);
}

/// An operation that was started. Until it is finished its tensors are neither read nor written;
/// dropping it forgets the result.
#[derive(Debug)]
#[must_use = "its tensors are not ready before it is finished"]
pub struct Underway {
    /// The shim's; it keeps the tensors alive.
    raw: *mut c_void,
    what: &'static str,
    /// Its deadline counts from here.
    begun: Instant,
}

// SAFETY: a work handle may be waited for from any thread, by one at a time.
unsafe impl Send for Underway {}

impl Drop for Underway {
    fn drop(&mut self) {
        // SAFETY: made by the shim, dropped once; what is still at work holds its own references.
        unsafe { scalerl_underway_drop(self.raw) };
    }
}

impl ProcessGroup {
    /// Starts what [`ProcessGroup::all_gather`] does.
    pub fn start_all_gather(
        &self,
        output: &Tensor,
        input: &Tensor,
    ) -> Result<Underway, CollectiveError> {
        assert_eq!(output.numel(), input.numel() * self.size, "one part a rank");
        let (to, from) = (handle(output), handle(input));
        // SAFETY: two borrowed tensors, which the shim takes references to.
        self.start("all-gather", |timeout, out| unsafe {
            scalerl_group_start_all_gather(self.raw.0, to, from, timeout, out)
        })
    }

    /// Starts what [`ProcessGroup::reduce_scatter`] does; what becomes of `input` is left open.
    pub fn start_reduce_scatter(
        &self,
        output: &Tensor,
        input: &Tensor,
    ) -> Result<Underway, CollectiveError> {
        assert_eq!(input.numel(), output.numel() * self.size, "one part a rank");
        let (to, from) = (handle(output), handle(input));
        // SAFETY: two borrowed tensors, which the shim takes references to.
        self.start("reduce-scatter", |timeout, out| unsafe {
            scalerl_group_start_reduce_scatter(self.raw.0, to, from, timeout, out)
        })
    }

    /// Waits for an operation that was started in this group.
    #[expect(clippy::needless_pass_by_value, reason = "what is over cannot be waited for again")]
    pub fn finish(&self, underway: Underway) -> Result<(), CollectiveError> {
        let left = self.timeout.saturating_sub(underway.begun.elapsed());
        // SAFETY: made by the shim and not dropped yet.
        let code = unsafe { scalerl_underway_finish(self.raw.0, underway.raw, milliseconds(left)) };
        if code == 0 {
            return Ok(());
        }
        let error = failure(self.act(underway.what), self.timeout, underway.begun, &last_error());
        self.record.note(&error);
        Err(error)
    }

    fn start(
        &self,
        what: &'static str,
        call: impl FnOnce(i64, *mut *mut c_void) -> c_int,
    ) -> Result<Underway, CollectiveError> {
        let (begun, mut raw) = (Instant::now(), std::ptr::null_mut());
        self.run(what, |timeout| call(timeout, &raw mut raw))?;
        Ok(Underway { raw, what, begun })
    }
}
