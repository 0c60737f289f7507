//! Safe faces of the CPU loops of generation (`shim/paged.cpp`): shapes are checked here.

#![expect(unsafe_code, reason = "the loops take plain pointers")]

use tch::{Device, Kind, TchError, Tensor};

use scalerl_model::config::Span;
use scalerl_model::network::Heads;

#[repr(C)]
struct PagedTokens {
    q: *const f32,
    k: *const f32,
    v: *const f32,
    strides: [i64; 3],
    keys: *mut f32,
    values: *mut f32,
    tables: *const i32,
    table_stride: i64,
    rows: *const i32,
    positions: *const i64,
    out: *mut f32,
    tokens: i64,
    heads: i64,
    kv_heads: i64,
    width: i64,
    page: i64,
    /// Of a chunk and of a window.
    sizes: [i64; 2],
    scale: f32,
}

unsafe extern "C" {
    fn scalerl_cpu_paged_attention(tokens: *const PagedTokens);
    fn scalerl_cpu_draw(
        logits: *const f32,
        rows: i64,
        v: i64,
        inverse_temperature: *const f32,
        floor: *const f32,
        keys: *const u32,
        ids: *mut i64,
        logprobs: *mut f32,
    );
}

/// Where the tokens of a step belong. `tables` [sequences, pages of the longest], int32 on the CPU;
/// `rows` and `positions` have one entry per token.
pub(crate) struct TokenPages<'a> {
    pub(crate) tables: &'a Tensor,
    pub(crate) rows: &'a [i32],
    pub(crate) positions: &'a [i64],
}

/// Whether the loop takes these tensors: float32 on the CPU, heads side by side in each row.
pub(crate) fn takes(heads: &Heads) -> bool {
    [&heads.q, &heads.k, &heads.v].iter().all(|x| {
        x.device() == Device::Cpu && x.kind() == Kind::Float && {
            let (size, stride) = (x.size(), x.stride());
            stride[2] == 1 && stride[1] == size[2]
        }
    })
}

/// Writes keys and values into `keys` and `values` [pages, kv heads, page, width] and attends to
/// everything that each token's `span` lets it see.
pub(crate) fn paged_attention(
    heads: &Heads,
    [keys, values]: [&Tensor; 2],
    paged: &TokenPages,
    span: Span,
) -> Result<Tensor, TchError> {
    let (tokens, query_heads, width) = heads.q.size3()?;
    let (pages, kv_heads, page, cache_width) = keys.size4()?;
    assert!(takes(heads), "the loop takes float32 rows on the CPU");
    assert!(keys.is_contiguous() && values.is_contiguous() && keys.kind() == Kind::Float);
    assert!(values.size() == keys.size() && cache_width == width);
    assert!(heads.k.size() == [tokens, kv_heads, width] && heads.v.size() == heads.k.size());
    assert!(paged.rows.len() as i64 == tokens && paged.positions.len() as i64 == tokens);
    let (sequences, table_stride) = paged.tables.size2()?;
    assert!(paged.tables.kind() == Kind::Int && paged.tables.is_contiguous());
    // SAFETY: int32, contiguous and of that size, as asserted; alive through this function.
    let table = unsafe {
        std::slice::from_raw_parts(
            paged.tables.data_ptr().cast::<i32>(),
            (sequences * table_stride) as usize,
        )
    };
    for (&row, &position) in paged.rows.iter().zip(paged.positions) {
        let at = i64::from(row) * table_stride + position / page;
        assert!(position / page < table_stride && i64::from(table[at as usize]) < pages);
    }
    let out = Tensor::f_empty([tokens, query_heads, width], (Kind::Float, Device::Cpu))?;
    let call = PagedTokens {
        q: heads.q.data_ptr().cast(),
        k: heads.k.data_ptr().cast(),
        v: heads.v.data_ptr().cast(),
        strides: [&heads.q, &heads.k, &heads.v].map(|x| x.stride()[0]),
        keys: keys.data_ptr().cast(),
        values: values.data_ptr().cast(),
        tables: table.as_ptr(),
        table_stride,
        rows: paged.rows.as_ptr(),
        positions: paged.positions.as_ptr(),
        out: out.data_ptr().cast(),
        tokens,
        heads: query_heads,
        kv_heads,
        width,
        page,
        sizes: span.sizes(),
        scale: 1.0 / (width as f32).sqrt(),
    };
    // SAFETY: every pointer was checked against the sizes above, and pages against the cache.
    unsafe { scalerl_cpu_paged_attention(&raw const call) };
    Ok(out)
}

/// How one row of logits is drawn from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Draw {
    /// 0: the most probable token.
    pub(crate) inverse_temperature: f32,
    /// Logits below are left out.
    pub(crate) floor: f32,
    pub(crate) keys: [u32; 2],
}

/// One token and its log-prob per row of float32 logits on the CPU.
pub(crate) fn draw(logits: &Tensor, draws: &[Draw]) -> Result<Vec<(i64, f32)>, TchError> {
    let (rows, v) = logits.size2()?;
    assert!(logits.device() == Device::Cpu && logits.kind() == Kind::Float);
    assert!(logits.is_contiguous() && draws.len() as i64 == rows);
    let temperatures: Vec<f32> = draws.iter().map(|draw| draw.inverse_temperature).collect();
    let floors: Vec<f32> = draws.iter().map(|draw| draw.floor).collect();
    let keys: Vec<u32> = draws.iter().flat_map(|draw| draw.keys).collect();
    let (mut ids, mut logprobs) = (vec![0_i64; draws.len()], vec![0_f32; draws.len()]);
    // SAFETY: all arrays have `rows` entries (keys twice that), the logits rows × v.
    unsafe {
        scalerl_cpu_draw(
            logits.data_ptr().cast(),
            rows,
            v,
            temperatures.as_ptr(),
            floors.as_ptr(),
            keys.as_ptr(),
            ids.as_mut_ptr(),
            logprobs.as_mut_ptr(),
        );
    }
    Ok(ids.into_iter().zip(logprobs).collect())
}

/// The rows of a float32 matrix on the CPU.
pub(crate) fn rows(logits: &Tensor) -> impl Iterator<Item = &[f32]> {
    assert!(logits.device() == Device::Cpu && logits.kind() == Kind::Float);
    assert!(logits.is_contiguous() && logits.dim() == 2);
    let columns = logits.size()[1] as usize;
    // SAFETY: contiguous float32 of that many numbers, borrowed as long as the tensor is.
    let all =
        unsafe { std::slice::from_raw_parts(logits.data_ptr().cast::<f32>(), logits.numel()) };
    all.chunks_exact(columns)
}
