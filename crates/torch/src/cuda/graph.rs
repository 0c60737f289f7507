//! CUDA graphs and flash attention of chunks through the shim (`shim/graph.cpp`).

#![expect(unsafe_code, reason = "this is a boundary to C++")]

use std::ffi::{c_int, c_void};
use std::time::Instant;

use tch::{Device, TchError, Tensor};
use torch_sys::C_tensor;

use crate::shim;

unsafe extern "C" {
    fn scalerl_graph_new(graph: *mut *mut c_void) -> c_int;
    fn scalerl_graph_drop(graph: *mut c_void);
    fn scalerl_graph_begin(graph: *mut c_void, device: i32, first: u64, second: u64) -> c_int;
    fn scalerl_graph_end(graph: *mut c_void, first: *mut u64, second: *mut u64) -> c_int;
    fn scalerl_graph_replay(graph: *mut c_void) -> c_int;
    fn scalerl_flash_chunks(
        q: *mut C_tensor,
        k: *mut C_tensor,
        v: *mut C_tensor,
        q_starts: *mut C_tensor,
        k_starts: *mut C_tensor,
        q_longest: i64,
        k_longest: i64,
        window: i64,
        scale: f64,
        out: *mut *mut C_tensor,
    ) -> c_int;
}

fn checked(code: c_int) -> Result<(), TchError> {
    if code == 0 { Ok(()) } else { Err(TchError::Torch(shim::last_error())) }
}

/// The memory that captured graphs work in.
pub type GraphPool = (u64, u64);

/// Recorded work, to be done again as often as wanted.
pub struct Graph(*mut c_void);

// SAFETY: a graph is used by whoever owns the generator, one thread at a time; CUDA does not care
// which one.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `body` does on the device. `body` must not wait for it, and what it reads and
    /// writes must outlive the graph.
    ///
    /// Graphs may share a pool as long as one runs at a time and results are taken before the next.
    pub fn capture(
        device: Device,
        pool: GraphPool,
        body: impl FnOnce() -> Result<(), TchError>,
    ) -> Result<(Self, GraphPool), TchError> {
        let Device::Cuda(index) = device else {
            return Err(TchError::Torch("graphs need a CUDA device".to_owned()));
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes a graph that we own.
        checked(unsafe { scalerl_graph_new(&raw mut raw) })?;
        let graph = Self(raw);
        let _alone = shim::whole_device();
        // SAFETY: the graph is alive; `end` follows whatever happens in between.
        checked(unsafe { scalerl_graph_begin(graph.0, index as i32, pool.0, pool.1) })?;
        let outcome = body();
        let (mut first, mut second) = (0, 0);
        // SAFETY: both targets live through the call.
        let ended = checked(unsafe { scalerl_graph_end(graph.0, &raw mut first, &raw mut second) });
        outcome?;
        ended?;
        Ok((graph, (first, second)))
    }

    /// Does it, on torch's current stream.
    pub fn replay(&self) -> Result<(), TchError> {
        // SAFETY: the graph is alive.
        checked(unsafe { scalerl_graph_replay(self.0) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `scalerl_graph_new`, dropped once.
        unsafe { scalerl_graph_drop(self.0) };
    }
}

/// Seconds of `body` as a graph: the mean of `runs` replays in a row, after one that warms up.
pub fn timed(
    device: Device,
    runs: usize,
    body: impl FnOnce() -> Result<(), TchError>,
) -> Result<f64, TchError> {
    let (graph, _) = Graph::capture(device, (0, 0), body)?;
    graph.replay()?;
    shim::synchronize(device)?;
    let start = Instant::now();
    for _ in 0..runs {
        graph.replay()?;
    }
    shim::synchronize(device)?;
    Ok(start.elapsed().as_secs_f64() / runs as f64)
}

/// Where the queries and the keys of each sequence begin, and the longest of each.
pub struct ChunkStarts {
    /// [sequences + 1] int32
    pub queries: Tensor,
    pub keys: Tensor,
    pub longest: [i64; 2],
}

/// Causal flash attention where each sequence's queries are its last tokens; `window` is how many
/// tokens a query sees, itself among them.
pub fn flash_chunks(
    [q, k, v]: [&Tensor; 3],
    starts: &ChunkStarts,
    window: Option<i64>,
) -> Result<Tensor, TchError> {
    let scale = 1.0 / (q.size()[2] as f64).sqrt();
    let handle = |tensor: &Tensor| tensor.as_ptr().cast_mut();
    let mut out = std::ptr::null_mut();
    // SAFETY: five borrowed tensors; the shim writes one that we own.
    checked(unsafe {
        scalerl_flash_chunks(
            handle(q),
            handle(k),
            handle(v),
            handle(&starts.queries),
            handle(&starts.keys),
            starts.longest[0],
            starts.longest[1],
            window.unwrap_or(0),
            scale,
            &raw mut out,
        )
    })?;
    // SAFETY: the call succeeded, so the shim wrote a tensor.
    Ok(unsafe { Tensor::from_ptr(out) })
}
