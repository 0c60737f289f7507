//! Matrix products of the decode step, each by the algorithm of cuBLASLt that is fastest here.
//!
//! A decode step multiplies a few hundred rows by matrices whose other side is small: there the
//! library's first guess is often not its best. Before a graph is captured, many algorithms
//! (`proposals.rs`) are timed over the matrices of all layers, in the order in which a step meets
//! them, so that no cache flatters any; torch's own product takes part. The first number of rows
//! between two powers of two is searched for thoroughly, its neighbours try what did well there.
//!
//! Not here: products of prompt chunks, which torch does.

#![expect(unsafe_code, reason = "this is a boundary to C")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as Attribute;
use cudarc::cublaslt::{result, sys};
use tch::{Device, Kind, TchError, Tensor};

use super::proposals::{self, Algorithm};
use scalerl_model::network::{Matrix, Multiply};
use scalerl_torch::cuda::graph::timed;
use scalerl_torch::shim;

pub(super) const WORKSPACE_BYTES: usize = 64 << 20;
/// Algorithms that the library is asked for, and those of a first round that are timed again, with
/// this many runs each.
const ASKED: usize = 16;
const FINALISTS: usize = 10;
const RUNS: usize = 8;
/// A first round ends after this, whoever is left.
const ROUND: Duration = Duration::from_millis(1500);
/// Fewer rows than this read the matrix and little else: the library's proposals do.
const FEW_ROWS: i64 = 33;
/// How far from torch's product a result may be, as a share of the largest number: both are sums in
/// float32, rounded once.
const APART: f64 = 0.01;
/// How much faster than torch's product an algorithm has to be: below is noise.
const WORTH: f64 = 0.97;

/// `cublasOperation_t` of cublas_api.h.
const CUBLAS_OP_T: i32 = 1;

/// One kind of product: [rows, inner] times the transpose of [outer, inner].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Case {
    rows: i64,
    inner: i64,
    outer: i64,
    has_bias: bool,
    /// Whether the result is float32.
    pub(super) is_wide: bool,
}

impl Case {
    /// The case whose search serves this one too.
    fn neighbourhood(self) -> Self {
        Self { rows: (self.rows as u64).next_power_of_two() as i64, ..self }
    }
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
    chosen: RefCell<BTreeMap<Case, (Option<Algorithm>, Found)>>,
    /// What did well in a thorough search, by neighbourhood.
    known: RefCell<BTreeMap<Case, Vec<Algorithm>>>,
}

// SAFETY: used by whoever owns the generator, one thread at a time; the library allows any.
unsafe impl Send for Products {}

pub(super) fn failed(error: result::CublasError) -> TchError {
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
            known: RefCell::default(),
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
        let expected = torch_product(&x, matrices[0], is_wide)?;
        let torch = timed(self.device, RUNS, || {
            matrices.iter().try_for_each(|matrix| torch_product(&x, *matrix, is_wide).map(drop))
        })? / count;
        let mut found = Found { torch, best: torch * WORTH };
        let description = Description::new(case)?;
        let mut chosen = None;
        for algorithm in self.finalists(case, &description, &x, matrices, &out)? {
            let run = |matrix: &Matrix| self.multiply(&description, &algorithm, &x, *matrix, &out);
            let each = timed(self.device, RUNS, || matrices.iter().try_for_each(run))? / count;
            if each < found.best {
                run(&matrices[0])?;
                if is_near(&out, &expected)? {
                    (found.best, chosen) = (each, Some(algorithm));
                }
            }
        }
        if chosen.is_none() {
            found.best = torch;
        }
        self.chosen.borrow_mut().insert(case, (chosen, found));
        Ok(found)
    }

    /// The fastest of a first round, without a recording for each.
    fn finalists(
        &self,
        case: Case,
        description: &Description,
        x: &Tensor,
        matrices: &[Matrix],
        out: &Tensor,
    ) -> Result<Vec<Algorithm>, TchError> {
        let mut candidates = proposals::asked(self.handle, description, ASKED)?;
        let known = self.known.borrow().get(&case.neighbourhood()).cloned();
        let is_thorough = known.is_none() && case.rows >= FEW_ROWS;
        match known {
            Some(known) => candidates.extend(known),
            None if is_thorough => {
                proposals::search(self.handle, case, description, &mut candidates);
            }
            None => {}
        }
        let (mut times, begun) = (Vec::new(), Instant::now());
        for algorithm in candidates {
            if begun.elapsed() > ROUND {
                break;
            }
            let run = |matrix: &Matrix| self.multiply(description, &algorithm, x, *matrix, out);
            // Some turn out not to be supported; the first call says so.
            if run(&matrices[0]).is_err() {
                continue;
            }
            shim::synchronize_stream(self.device)?;
            let start = Instant::now();
            matrices.iter().try_for_each(run)?;
            shim::synchronize_stream(self.device)?;
            times.push((start.elapsed(), algorithm));
        }
        times.sort_by_key(|(time, _)| *time);
        let mut best: Vec<Algorithm> = Vec::new();
        for (_, algorithm) in times {
            if best.len() < FINALISTS && !best.contains(&algorithm) {
                best.push(algorithm);
            }
        }
        if is_thorough {
            self.known.borrow_mut().insert(case.neighbourhood(), best.clone());
        }
        Ok(best)
    }

    fn empty(&self, case: Case) -> Result<Tensor, TchError> {
        let kind = if case.is_wide { Kind::Float } else { Kind::BFloat16 };
        Tensor::f_empty([case.rows, case.outer], (kind, self.device))
    }

    fn multiply(
        &self,
        description: &Description,
        algorithm: &Algorithm,
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

fn is_near(found: &Tensor, expected: &Tensor) -> Result<bool, TchError> {
    let [found, expected] = [found, expected].map(|x| x.f_to_kind(Kind::Float));
    let (found, expected) = (found?, expected?);
    let apart = found.f_sub(&expected)?.f_abs()?.f_max()?.f_double_value(&[])?;
    Ok(apart <= APART * expected.f_abs()?.f_max()?.f_double_value(&[])?)
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
pub(super) struct Description {
    pub(super) product: sys::cublasLtMatmulDesc_t,
    pub(super) matrix: sys::cublasLtMatrixLayout_t,
    pub(super) input: sys::cublasLtMatrixLayout_t,
    pub(super) output: sys::cublasLtMatrixLayout_t,
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
