//! Matrix products of the decode step, each by the algorithm of cuBLASLt that is fastest here.
//!
//! A decode step multiplies a few hundred rows by matrices whose other side is small: there the
//! library's first guess is often not its best. Before a graph is captured, every algorithm that
//! cuBLASLt proposes for a product is timed over the matrices of all layers, in the order in which
//! a step meets them, so that no cache flatters any; torch's own product takes part. Sums are
//! float32 throughout: algorithms that add partial sums in bf16 are not asked for.
//!
//! Not here: products of prompt chunks, which torch does.

#![expect(unsafe_code, reason = "this is a boundary to C")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;

use cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as Attribute;
use cudarc::cublaslt::sys::cublasLtMatmulPreferenceAttributes_t as Preference;
use cudarc::cublaslt::{result, sys};
use tch::{Device, Kind, TchError, Tensor};

use super::graph::timed;
use crate::network::{Matrix, Multiply};
use crate::shim;

const WORKSPACE_BYTES: usize = 64 << 20;
/// Algorithms asked for, and runs of each that are timed.
const PROPOSALS: usize = 16;
const RUNS: usize = 4;
/// How much faster than torch's product an algorithm has to be: below is noise.
const WORTH: f64 = 0.97;

/// `cublasOperation_t` of cublas_api.h.
const CUBLAS_OP_T: i32 = 1;

/// One kind of product: [rows, inner] times the transpose of [outer, inner].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    rows: i64,
    inner: i64,
    outer: i64,
    has_bias: bool,
    /// Whether the result is float32.
    is_wide: bool,
}

/// What tuning found for one product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// Seconds of one product: torch's, and the best.
    pub(crate) torch: f64,
    pub(crate) best: f64,
}

pub(crate) struct Products {
    handle: sys::cublasLtHandle_t,
    workspace: Tensor,
    device: Device,
    /// `None`: torch's own is the best.
    chosen: RefCell<BTreeMap<Case, (Option<sys::cublasLtMatmulAlgo_t>, Found)>>,
}

// SAFETY: used by whoever owns the generator, one thread at a time; the library allows any.
unsafe impl Send for Products {}

fn failed(error: result::CublasError) -> TchError {
    TchError::Torch(format!("cuBLASLt: {error}"))
}

impl Products {
    /// The error says why torch's products are used instead.
    pub(crate) fn new(device: Device) -> Result<Self, String> {
        // SAFETY: only looks for the library; without this check cudarc panics where it is absent.
        if !unsafe { sys::is_culib_present() } {
            return Err("libcublasLt was not found".to_owned());
        }
        let options = (Kind::Uint8, device);
        let workspace = Tensor::f_empty([WORKSPACE_BYTES as i64], options);
        Ok(Self {
            workspace: workspace.map_err(|error| error.to_string())?,
            handle: result::create_handle().map_err(|error| error.to_string())?,
            device,
            chosen: RefCell::default(),
        })
    }

    /// Finds the fastest way to multiply `rows` rows by matrices of one shape, unless it is known.
    pub(crate) fn tune(
        &self,
        rows: i64,
        matrices: &[Matrix],
        is_wide: bool,
    ) -> Result<Found, TchError> {
        let (outer, inner) = matrices[0].0.size2()?;
        let case = Case { rows, inner, outer, has_bias: matrices[0].1.is_some(), is_wide };
        if let Some((_, found)) = self.chosen.borrow().get(&case) {
            return Ok(*found);
        }
        let x = Tensor::f_randn([rows, inner], (Kind::BFloat16, self.device))?;
        let out = self.empty(case)?;
        let count = matrices.len() as f64;
        // What the first call sets up for itself must not be part of a recording.
        drop(torch_product(&x, matrices[0], is_wide)?);
        let torch = timed(self.device, RUNS, || {
            matrices.iter().try_for_each(|matrix| torch_product(&x, *matrix, is_wide).map(drop))
        })? / count;
        let mut found = Found { torch, best: torch * WORTH };
        let description = Description::new(case)?;
        let mut chosen = None;
        for algorithm in self.proposals(&description)? {
            let run = |matrix: &Matrix| self.multiply(&description, &algorithm, &x, *matrix, &out);
            // Some proposals turn out not to be supported; the first call says so.
            if run(&matrices[0]).is_err() {
                continue;
            }
            let each = timed(self.device, RUNS, || matrices.iter().try_for_each(run))? / count;
            if each < found.best {
                (found.best, chosen) = (each, Some(algorithm));
            }
        }
        if chosen.is_none() {
            found.best = torch;
        }
        self.chosen.borrow_mut().insert(case, (chosen, found));
        Ok(found)
    }

    fn proposals(
        &self,
        description: &Description,
    ) -> Result<Vec<sys::cublasLtMatmulAlgo_t>, TchError> {
        let preference = result::create_matmul_pref().map_err(failed)?;
        // SAFETY: an all-zero result is a valid value; the library overwrites `count` of them.
        let mut results: Vec<sys::cublasLtMatmulHeuristicResult_t> =
            (0..PROPOSALS).map(|_| unsafe { std::mem::zeroed() }).collect();
        let mut count = 0;
        // SAFETY: descriptors are alive, `results` has room for as many as are asked for.
        let status = unsafe {
            let set = |attribute, value: *const c_void, size| {
                result::set_matmul_pref_attribute(preference, attribute, value, size)
            };
            let bytes = WORKSPACE_BYTES;
            let scheme = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
            let mask = scheme as u32;
            set(
                Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const bytes).cast(),
                size_of::<usize>(),
            )
            .and_then(|()| {
                set(
                    Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                    (&raw const mask).cast(),
                    size_of::<u32>(),
                )
            })
            .and_then(|()| {
                sys::cublasLtMatmulAlgoGetHeuristic(
                    self.handle,
                    description.product,
                    description.matrix,
                    description.input,
                    description.output,
                    description.output,
                    preference,
                    PROPOSALS as i32,
                    results.as_mut_ptr(),
                    &raw mut count,
                )
                .result()
            })
        };
        // SAFETY: made above, used no more.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        // Nothing proposed is an answer: torch's product remains.
        if status.is_err() {
            return Ok(Vec::new());
        }
        results.truncate(count.max(0) as usize);
        let is_good = |found: &sys::cublasLtMatmulHeuristicResult_t| found.state.result().is_ok();
        Ok(results.into_iter().filter(is_good).map(|found| found.algo).collect())
    }

    fn empty(&self, case: Case) -> Result<Tensor, TchError> {
        let kind = if case.is_wide { Kind::Float } else { Kind::BFloat16 };
        Tensor::f_empty([case.rows, case.outer], (kind, self.device))
    }

    fn multiply(
        &self,
        description: &Description,
        algorithm: &sys::cublasLtMatmulAlgo_t,
        x: &Tensor,
        (matrix, bias): Matrix,
        out: &Tensor,
    ) -> Result<(), TchError> {
        if let Some(bias) = bias {
            let pointer = bias.data_ptr();
            description.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointer)?;
        }
        let stream = shim::current_stream(self.device)?;
        let (one, zero) = (1.0_f32, 0.0_f32);
        // SAFETY: the tensors have the shapes and kinds that the descriptors say (`case_of`), the
        // workspace is used by one product at a time, and the stream is torch's own.
        unsafe {
            result::matmul(
                self.handle,
                description.product,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                matrix.data_ptr(),
                description.matrix,
                x.data_ptr(),
                description.input,
                out.data_ptr(),
                description.output,
                out.data_ptr(),
                description.output,
                algorithm,
                self.workspace.data_ptr(),
                WORKSPACE_BYTES,
                stream.cast(),
            )
        }
        .map_err(failed)
    }

    /// `x` times the matrix' transpose, plus the bias; float32 where `is_wide`.
    pub(crate) fn product(
        &self,
        x: &Tensor,
        matrix: Matrix,
        is_wide: bool,
    ) -> Result<Tensor, TchError> {
        let Some(case) = case_of(x, matrix, is_wide) else {
            return torch_product(x, matrix, is_wide);
        };
        let chosen = self.chosen.borrow().get(&case).and_then(|(algorithm, _)| *algorithm);
        let Some(algorithm) = chosen else { return torch_product(x, matrix, is_wide) };
        let out = self.empty(case)?;
        self.multiply(&Description::new(case)?, &algorithm, x, matrix, &out)?;
        Ok(out)
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: made by `new`, dropped once.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

impl Multiply for Products {
    fn linear(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Tensor, TchError> {
        self.product(x, (weight, bias), false)
    }
}

fn torch_product(x: &Tensor, (w, bias): Matrix, is_wide: bool) -> Result<Tensor, TchError> {
    if is_wide { x.f_mm_dtype(&w.f_tr()?, Kind::Float) } else { x.f_linear(w, bias) }
}

/// The case of a product, where its tensors lie as the descriptors will say.
fn case_of(x: &Tensor, (w, bias): Matrix, is_wide: bool) -> Option<Case> {
    let is_plain = |x: &Tensor| {
        x.kind() == Kind::BFloat16
            && x.is_contiguous()
            && matches!(x.device(), Device::Cuda(_))
            && x.data_ptr().addr().is_multiple_of(16)
    };
    let ((rows, inner), (outer, shared)) = (x.size2().ok()?, w.size2().ok()?);
    let fits = inner == shared && [Some(x), Some(w), bias].into_iter().flatten().all(is_plain);
    fits.then_some(Case { rows, inner, outer, has_bias: bias.is_some(), is_wide })
}

/// What the library wants to know of a product. It counts down columns: our rows are its columns.
struct Description {
    product: sys::cublasLtMatmulDesc_t,
    matrix: sys::cublasLtMatrixLayout_t,
    input: sys::cublasLtMatrixLayout_t,
    output: sys::cublasLtMatrixLayout_t,
}

impl Description {
    fn new(case: Case) -> Result<Self, TchError> {
        use sys::cudaDataType_t::{CUDA_R_16BF, CUDA_R_32F};
        let layout = |kind, rows: i64, columns: i64| {
            result::create_matrix_layout(kind, rows as u64, columns as u64, rows).map_err(failed)
        };
        let kind = if case.is_wide { CUDA_R_32F } else { CUDA_R_16BF };
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let description = Self {
            product: result::create_matmul_desc(compute, CUDA_R_32F).map_err(failed)?,
            matrix: layout(CUDA_R_16BF, case.inner, case.outer)?,
            input: layout(CUDA_R_16BF, case.inner, case.rows)?,
            output: layout(kind, case.outer, case.rows)?,
        };
        let transposed = CUBLAS_OP_T;
        description.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposed)?;
        if case.has_bias {
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
            description.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        }
        Ok(description)
    }

    fn set<T>(
        &self,
        attribute: sys::cublasLtMatmulDescAttributes_t,
        value: &T,
    ) -> Result<(), TchError> {
        let value: *const T = value;
        // SAFETY: the value lives through the call, which copies it; sizes are those of the header.
        let set = unsafe {
            let size = size_of::<T>();
            result::set_matmul_desc_attribute(self.product, attribute, value.cast(), size)
        };
        set.map_err(failed)
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: all four were made by `new`, dropped once.
        unsafe {
            let _ = result::destroy_matmul_desc(self.product);
            for layout in [self.matrix, self.input, self.output] {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}
