//! Algorithms of cuBLASLt for one product: those that it proposes, and those that it could.
//!
//! What it proposes is made for large matrices. Few rows and a narrow result leave most of a GPU
//! idle unless tiles are small or the inner side is split among blocks, so both are tried here:
//! every tile of every algorithm, whole and split. Sums are float32 throughout: algorithms that add
//! partial sums in bf16 are neither asked for nor made.
//!
//! Not here: which is the fastest (`product.rs`).

#![expect(unsafe_code, reason = "this is a boundary to C")]

use std::ffi::c_void;

use cudarc::cublaslt::sys::cublasLtMatmulAlgoCapAttributes_t as Capability;
use cudarc::cublaslt::sys::cublasLtMatmulAlgoConfigAttributes_t as Setting;
use cudarc::cublaslt::sys::cublasLtMatmulPreferenceAttributes_t as Preference;
use cudarc::cublaslt::sys::cudaDataType_t::{CUDA_R_16BF, CUDA_R_32F};
use cudarc::cublaslt::{result, sys};
use tch::TchError;

use super::product::{Case, Description, WORKSPACE_BYTES, failed};

pub(super) type Algorithm = sys::cublasLtMatmulAlgo_t;

/// Parts of the inner side.
const SPLITS: [u32; 6] = [2, 3, 4, 5, 7, 8];
/// Most algorithms of a thorough search: evenly taken from all that there are.
const MOST: usize = 320;
/// Most tiles and stages that are looked at: the library knows very many, most of no use here.
const MOST_MADE: usize = 4096;
/// Room for lists of the library.
const MOST_IDS: usize = 128;

const IN_FLOAT32: u32 =
    sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;

fn empty() -> sys::cublasLtMatmulHeuristicResult_t {
    // SAFETY: plain numbers, of which zeros are valid: `state` 0 is success.
    unsafe { std::mem::zeroed() }
}

/// What the library proposes, best guess first. Nothing is an answer: torch's product remains.
pub(super) fn asked(
    handle: sys::cublasLtHandle_t,
    description: &Description,
    most: usize,
) -> Result<Vec<Algorithm>, TchError> {
    let preference = result::create_matmul_pref().map_err(failed)?;
    let mut results: Vec<_> = (0..most).map(|_| empty()).collect();
    let mut count = 0;
    // SAFETY: descriptors are alive, values outlive the calls, `results` has room for `most`.
    let status = unsafe {
        let set = |attribute, value: *const c_void, size| {
            result::set_matmul_pref_attribute(preference, attribute, value, size)
        };
        let (bytes, mask) = (WORKSPACE_BYTES, IN_FLOAT32);
        let limit = Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let schemes = Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
        set(limit, (&raw const bytes).cast(), size_of::<usize>())
            .and_then(|()| set(schemes, (&raw const mask).cast(), size_of::<u32>()))
            .and_then(|()| {
                sys::cublasLtMatmulAlgoGetHeuristic(
                    handle,
                    description.product,
                    description.matrix,
                    description.input,
                    description.output,
                    description.output,
                    preference,
                    most as i32,
                    results.as_mut_ptr(),
                    &raw mut count,
                )
                .result()
            })
    };
    // SAFETY: made above, used no more.
    let _ = unsafe { result::destroy_matmul_pref(preference) };
    if status.is_err() {
        return Ok(Vec::new());
    }
    results.truncate(count.max(0) as usize);
    let is_good = |found: &sys::cublasLtMatmulHeuristicResult_t| found.state.result().is_ok();
    Ok(results.into_iter().filter(is_good).map(|found| found.algo).collect())
}

/// Adds variants of `candidates` and algorithms that were not proposed.
pub(super) fn search(
    handle: sys::cublasLtHandle_t,
    case: Case,
    description: &Description,
    candidates: &mut Vec<Algorithm>,
) {
    let is_valid = |algorithm: &Algorithm| is_valid(handle, description, algorithm);
    let splits = |algorithm: Algorithm| SPLITS.into_iter().filter_map(move |n| split(algorithm, n));
    let variants: Vec<Algorithm> =
        candidates.iter().flat_map(|known| splits(*known)).filter(is_valid).collect();
    // What does not work whole does not work in parts.
    let mut others = Vec::new();
    let made = made(handle, case);
    let stride = made.len().div_ceil(MOST_MADE).max(1);
    for whole in made.into_iter().step_by(stride).filter(is_valid) {
        others.push(whole);
        others.extend(splits(whole).filter(is_valid));
    }
    let stride = others.len().div_ceil(MOST).max(1);
    candidates.extend(variants);
    candidates.extend(others.into_iter().step_by(stride));
}

/// Every tile and number of stages of every algorithm for these kinds of numbers.
fn made(handle: sys::cublasLtHandle_t, case: Case) -> Vec<Algorithm> {
    let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
    let out = if case.is_wide { CUDA_R_32F } else { CUDA_R_16BF };
    let (mut ids, mut count) = ([0_i32; MOST_IDS], 0);
    // SAFETY: the handle is alive, `ids` has room for as many as are asked for.
    let status = unsafe {
        sys::cublasLtMatmulAlgoGetIds(
            handle,
            compute,
            CUDA_R_32F,
            CUDA_R_16BF,
            CUDA_R_16BF,
            out,
            out,
            MOST_IDS as i32,
            ids.as_mut_ptr(),
            &raw mut count,
        )
    };
    if status.result().is_err() {
        return Vec::new();
    }
    let mut made = Vec::new();
    for &id in &ids[..count.clamp(0, MOST_IDS as i32) as usize] {
        let mut plain = empty().algo;
        // SAFETY: the handle is alive; the library writes the algorithm.
        let status = unsafe {
            sys::cublasLtMatmulAlgoInit(
                handle,
                compute,
                CUDA_R_32F,
                CUDA_R_16BF,
                CUDA_R_16BF,
                out,
                out,
                id,
                &raw mut plain,
            )
        };
        if status.result().is_err() {
            continue;
        }
        let stages = listed(&plain, Capability::CUBLASLT_ALGO_CAP_STAGES_IDS);
        for tile in listed(&plain, Capability::CUBLASLT_ALGO_CAP_TILE_IDS) {
            for &stage in &stages {
                let tiled = with(plain, Setting::CUBLASLT_ALGO_CONFIG_TILE_ID, tile);
                let staged = tiled
                    .and_then(|tiled| with(tiled, Setting::CUBLASLT_ALGO_CONFIG_STAGES_ID, stage));
                made.extend(staged);
            }
        }
    }
    made
}

/// A list of numbers that an algorithm has; one 0 ("undefined") where it has none.
fn listed(algorithm: &Algorithm, what: Capability) -> Vec<u32> {
    let (mut list, mut bytes) = ([0_u32; 1024], 0);
    // SAFETY: the library writes at most as many bytes as the list has.
    let status = unsafe {
        sys::cublasLtMatmulAlgoCapGetAttribute(
            algorithm,
            what,
            list.as_mut_ptr().cast(),
            size_of_val(&list),
            &raw mut bytes,
        )
    };
    let count = if status.result().is_ok() { bytes / size_of::<u32>() } else { 0 };
    if count == 0 { vec![0] } else { list[..count.min(list.len())].to_vec() }
}

/// The algorithm with the inner side in parts, summed in float32.
fn split(algorithm: Algorithm, parts: u32) -> Option<Algorithm> {
    let parted = with(algorithm, Setting::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, parts)?;
    with(parted, Setting::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, IN_FLOAT32)
}

/// The algorithm with one setting changed. All but the shapes of clusters, which are not changed
/// here, are 32-bit numbers.
fn with(mut algorithm: Algorithm, what: Setting, value: u32) -> Option<Algorithm> {
    // SAFETY: the value lives through the call, which copies it.
    let status = unsafe {
        sys::cublasLtMatmulAlgoConfigSetAttribute(
            &raw mut algorithm,
            what,
            (&raw const value).cast(),
            size_of::<u32>(),
        )
    };
    status.result().is_ok().then_some(algorithm)
}

/// Whether the library can multiply so, within our workspace.
fn is_valid(
    handle: sys::cublasLtHandle_t,
    description: &Description,
    algorithm: &Algorithm,
) -> bool {
    let mut found = empty();
    // SAFETY: descriptors are alive; the library writes `found`.
    let status = unsafe {
        sys::cublasLtMatmulAlgoCheck(
            handle,
            description.product,
            description.matrix,
            description.input,
            description.output,
            description.output,
            algorithm,
            &raw mut found,
        )
    };
    let is_supported = status.result().is_ok() && found.state.result().is_ok();
    is_supported && found.workspaceSize <= WORKSPACE_BYTES
}
