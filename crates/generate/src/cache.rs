//! The tensors of the KV cache, and attention over it.
//!
//! Every layer has keys and values [pages, kv heads, page, width]. One page more than the pool
//! knows takes what rows without a sequence write (padding). The network's layers see all this as
//! an [`Attend`]: keys and values of new tokens are written to their pages, then each token attends
//! to its sequence up to its own position.
//!
//! float32 on the CPU runs in one loop (`shim/paged.cpp`), bf16 on CUDA in kernels (`cuda.rs`);
//! [`PagedAttention::plain`] is the same in torch operations, for everything else and as the judge.

use std::cell::Cell;
use std::time::Instant;

use tch::{Device, Kind, TchError, Tensor};

use super::loops::{self, TokenPages};
use super::pool::Page;
use scalerl_model::config::{ModelConfig, Span};
use scalerl_model::network::{Attend, Heads};

pub(crate) struct KvCache {
    /// [2 layers, pages + 1, kv heads, page, width]
    storage: Tensor,
    layers: Vec<[Tensor; 2]>,
    pages: usize,
    page: i64,
}

impl KvCache {
    pub(crate) fn new(
        config: &ModelConfig,
        pages: usize,
        tokens_per_page: usize,
        (kind, device): (Kind, Device),
    ) -> Result<Self, TchError> {
        let (layers, page) = (config.layers.len() as i64, tokens_per_page as i64);
        let shape = [2 * layers, pages as i64 + 1, config.kv_heads, page, config.head_width];
        let storage = Tensor::f_zeros(shape, (kind, device))?;
        let layer = |index: i64| -> Result<[Tensor; 2], TchError> {
            Ok([storage.f_select(0, 2 * index)?, storage.f_select(0, 2 * index + 1)?])
        };
        let layers = (0..layers).map(layer).collect::<Result<_, _>>()?;
        Ok(Self { storage, layers, pages, page })
    }

    /// Where rows without a sequence write.
    pub(crate) fn spare_page(&self) -> Page {
        self.pages as Page
    }

    pub(crate) fn tokens_per_page(&self) -> i64 {
        self.page
    }

    pub(crate) fn layer(&self, index: usize) -> [&Tensor; 2] {
        self.layers[index].each_ref()
    }

    /// Bytes that one token takes in all layers.
    pub(crate) fn bytes_per_token(&self) -> usize {
        self.storage.numel() * self.storage.kind().elt_size_in_bytes()
            / ((self.pages + 1) * self.page as usize)
    }

    /// Copies whole pages; all are read before any is written.
    pub(crate) fn copy_pages(&mut self, copies: &[(Page, Page)]) -> Result<(), TchError> {
        if copies.is_empty() {
            return Ok(());
        }
        let index = |pick: fn(&(Page, Page)) -> Page| {
            let list: Vec<i64> = copies.iter().map(|copy| i64::from(pick(copy))).collect();
            Tensor::f_from_slice(&list)?.f_to_device(self.storage.device())
        };
        let (from, to) = (index(|copy| copy.0)?, index(|copy| copy.1)?);
        let content = self.storage.f_index_select(1, &from)?;
        let _ = self.storage.f_index_copy_(1, &to, &content)?;
        Ok(())
    }
}

/// Neighbouring tokens of one sequence in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// First of its tokens in the batch.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Position of the first.
    pub(crate) from: usize,
}

/// The tokens of one step, end to end. Segment `i` belongs to row `i` of the tables.
pub(crate) struct Batch {
    /// [n] int64
    pub(crate) tokens: Tensor,
    /// [n] int64
    pub(crate) positions: Tensor,
    pub(crate) segments: Vec<Segment>,
    /// [segments, pages of the longest] int32
    pub(crate) tables: Tensor,
    pub(crate) host_positions: Vec<i64>,
    pub(crate) rows: Vec<i32>,
}

/// What a batch is made of: tokens, the position of the first, and the sequence's pages.
pub(crate) struct Piece<'a> {
    pub(crate) tokens: &'a [i64],
    pub(crate) from: usize,
    pub(crate) pages: &'a [Page],
}

impl Batch {
    pub(crate) fn new(pieces: &[Piece], device: Device) -> Result<Self, TchError> {
        let longest = pieces.iter().map(|piece| piece.pages.len()).max().unwrap_or(0);
        let (mut tokens, mut host_positions, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        let (mut segments, mut tables) = (Vec::new(), vec![0_i32; pieces.len() * longest]);
        for (row, piece) in pieces.iter().enumerate() {
            let (first, count, from) = (tokens.len(), piece.tokens.len(), piece.from);
            segments.push(Segment { first, count, from });
            tokens.extend_from_slice(piece.tokens);
            host_positions.extend(from as i64..(from + count) as i64);
            rows.extend(std::iter::repeat_n(row as i32, count));
            for (at, page) in piece.pages.iter().enumerate() {
                tables[row * longest + at] = *page as i32;
            }
        }
        let shape = [pieces.len() as i64, longest as i64];
        Ok(Self {
            tokens: Tensor::f_from_slice(&tokens)?.f_to_device(device)?,
            positions: Tensor::f_from_slice(&host_positions)?.f_to_device(device)?,
            tables: Tensor::f_from_slice(&tables)?.f_view(shape)?.f_to_device(device)?,
            segments,
            host_positions,
            rows,
        })
    }
}

/// Attention of one batch over the cache.
pub(crate) struct PagedAttention<'a> {
    pub(crate) cache: &'a KvCache,
    pub(crate) batch: &'a Batch,
    /// Seconds spent here, for those who ask where the time goes.
    pub(crate) seconds: Cell<f64>,
}

impl<'a> PagedAttention<'a> {
    pub(crate) fn new(cache: &'a KvCache, batch: &'a Batch) -> Self {
        Self { cache, batch, seconds: Cell::new(0.0) }
    }

    /// Pages and places inside them, [n] each.
    fn destinations(&self) -> Result<[Tensor; 2], TchError> {
        let (batch, page) = (self.batch, self.cache.page);
        let rows = Tensor::f_from_slice(&batch.rows)?.f_to_kind(Kind::Int64)?;
        let rows = rows.f_to_device(batch.tables.device())?;
        let columns = batch.positions.f_floor_divide_scalar(page)?;
        let tables = batch.tables.f_to_kind(Kind::Int64)?;
        let pages = tables.f_index(&[Some(rows), Some(columns)])?;
        Ok([pages, batch.positions.f_remainder(page)?])
    }

    /// Writes keys and values of new tokens to their pages, in torch operations.
    pub(crate) fn append_plainly(&self, layer: usize, heads: &Heads) -> Result<(), TchError> {
        let [pages, places] = self.destinations()?;
        let index = [Some(pages), None, Some(places)];
        for (cache, new) in self.cache.layer(layer).into_iter().zip([&heads.k, &heads.v]) {
            let _ = cache.shallow_clone().f_index_put_(&index, new, false)?;
        }
        Ok(())
    }

    /// A segment's keys and values [kv heads, positions, width], up to its last token.
    pub(crate) fn gathered(&self, layer: usize, row: usize) -> Result<[Tensor; 2], TchError> {
        let segment = self.batch.segments[row];
        let length = (segment.from + segment.count) as i64;
        let count = (length + self.cache.page - 1) / self.cache.page;
        let pages = self.batch.tables.f_select(0, row as i64)?.f_narrow(0, 0, count)?;
        let pages = pages.f_to_kind(Kind::Int64)?;
        let gather = |cache: &Tensor| {
            let (_, h, page, d) = cache.size4()?;
            let rows = cache.f_index_select(0, &pages)?.f_permute([1, 0, 2, 3])?;
            rows.f_reshape([h, count * page, d])?.f_narrow(1, 0, length)
        };
        let [keys, values] = self.cache.layer(layer);
        Ok([gather(keys)?, gather(values)?])
    }

    /// The definition, in torch operations: sequence by sequence, with a mask.
    pub(crate) fn plain(
        &self,
        layer: usize,
        span: Span,
        heads: &Heads,
    ) -> Result<Tensor, TchError> {
        self.append_plainly(layer, heads)?;
        let (kind, device) = (heads.q.kind(), heads.q.device());
        let mut parts = Vec::with_capacity(self.batch.segments.len());
        for (row, segment) in self.batch.segments.iter().enumerate() {
            let (first, count) = (segment.first as i64, segment.count as i64);
            let q = heads.q.f_narrow(0, first, count)?.f_transpose(0, 1)?;
            let [keys, values] = self.gathered(layer, row)?;
            let seen = Tensor::f_arange(keys.size()[1], (Kind::Int64, device))?.f_unsqueeze(0)?;
            let asking = self.batch.positions.f_narrow(0, first, count)?.f_unsqueeze(1)?;
            let mut is_hidden = seen.f_gt_tensor(&asking)?;
            let start = match span {
                Span::Full => None,
                Span::Chunk(size) => Some(asking.f_floor_divide_scalar(size)?.f_mul_scalar(size)?),
                Span::Window(size) => Some(asking.f_add_scalar(1 - size)?),
            };
            if let Some(start) = start {
                is_hidden = is_hidden.f_logical_or(&seen.f_lt_tensor(&start)?)?;
            }
            let mask = Tensor::f_zeros(is_hidden.size(), (kind, device))?;
            let mask = mask.f_masked_fill(&is_hidden, f64::NEG_INFINITY)?;
            let out = Tensor::f_scaled_dot_product_attention(
                &q.f_unsqueeze(0)?,
                &keys.f_unsqueeze(0)?,
                &values.f_unsqueeze(0)?,
                Some(&mask),
                0.0,
                false,
                None,
                q.size()[0] != keys.size()[0],
            )?;
            parts.push(out.f_squeeze_dim(0)?.f_transpose(0, 1)?);
        }
        Tensor::f_cat(&parts, 0)?.f_contiguous()
    }
}

impl Attend for PagedAttention<'_> {
    fn attend(&self, layer: usize, span: Span, heads: &Heads) -> Result<Tensor, TchError> {
        let start = Instant::now();
        let out = if loops::takes(heads) {
            let paged = TokenPages {
                tables: &self.batch.tables,
                rows: &self.batch.rows,
                positions: &self.batch.host_positions,
            };
            loops::paged_attention(heads, self.cache.layer(layer), &paged, span)?
        } else {
            self.plain(layer, span, heads)?
        };
        self.seconds.set(self.seconds.get() + start.elapsed().as_secs_f64());
        Ok(out)
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
