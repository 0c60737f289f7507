//! What speaks to libtorch and CUDA, and knows no network.
//!
//! libtorch comes through tch; what tch lacks is in the C++ shim (`shim.rs`, `shim/`). CUDA is looked for
//! at run time (`device.rs`, `nvidia.rs`): the same binary runs with and without a GPU. What the CPU can do is
//! settled before `main` (`cpu.rs`, `mkl.rs`). `adamw.rs` takes an optimizer's step. `ops.rs` has the operations of a layer, fused where a kernel exists
//! (`fused.rs` on the CPU, `cuda` on a GPU), `attention.rs` that of packed sequences on a GPU; `collective` forms groups of processes over c10d.
//!
//! Not here: networks and their training (`model`), decoding (`generate`).

pub mod adamw;
pub mod attention;
pub mod collective;
pub mod cpu;
pub mod cuda;
pub mod device;
pub mod fused;
pub mod mkl;
pub mod nvidia;
pub mod ops;
pub mod profile;
pub mod shim;
pub mod stopwatch;

pub use tch;
