//! Generation on CUDA: kernels compiled for the model at hand, attention over pages with them.
//!
//! A step's decoding sequences run as one graph (`decode.rs`): attention over pages that reads each
//! key and value once for all query heads that share it, and drawing without a word to the host
//! but the tokens drawn. Prompt chunks run beside it with flash attention. Where the kernels do not
//! fit a model (heads of an odd width) torch operations take their place (`cache.rs`).

pub(crate) mod breakdown;
pub(crate) mod decode;
pub(crate) mod product;
mod proposals;

use std::cell::Cell;

use tch::{Device, Kind, TchError, Tensor};

use super::cache::{Batch, KvCache, PagedAttention};
use scalerl_model::config::{ModelConfig, Span};
use scalerl_model::network::{Attend, Heads, Rotary};
use scalerl_torch::cuda::graph::{ChunkStarts, flash_chunks};
use scalerl_torch::cuda::launch::{Argument, Functions, Grid, load};
use scalerl_torch::ops::Angles;

pub(crate) const SOURCE: &str =
    concat!(include_str!("cuda/attention.cu"), include_str!("cuda/draw.cu"));
const NAMES: [&str; 7] =
    ["decode_attention", "decode_join", "append", "rotate_append", "feed", "draw", "draw_join"];

/// Query heads that one block serves: their sums live in registers.
const MOST_HEADS: i64 = 8;
/// Tokens of a sequence that one block looks at, at most and at least. Splits cost a second kernel.
const SPLIT_TOKENS: (i64, i64) = (2048, 64);
/// Blocks that keep every multiprocessor of a large GPU busy.
const ENOUGH_BLOCKS: i64 = 512;
/// The same for blocks that each draw from a part of a row (6 fit on a multiprocessor, and each has a
/// few tiles to go through), and the most parts of a row.
const ENOUGH_DRAWING: i64 = 1536;
const MOST_DRAWING: i64 = 32;
/// Candidates that a block of `draw` looks at together, one group per thread.
const DRAWN_TILE: i64 = 4096;
const DRAWN_GROUPS: i64 = 256;
/// Words of what `draw` leaves for `draw_join`.
const PART_WORDS: i64 = 5;

/// What a step begins with.
pub(crate) struct Fed {
    /// [rows] int64, both.
    pub(crate) tokens: Tensor,
    pub(crate) positions: Tensor,
    /// One for each distinct rotation of the layers.
    pub(crate) angles: Vec<Angles>,
}

/// Where tokens belong, on the device: `tables` [rows, pages] int32, `positions` [tokens] int32.
pub(crate) struct DevicePlaces {
    pub(crate) tables: Tensor,
    pub(crate) positions: Tensor,
    /// Row of each token; `None`: token i is row i.
    pub(crate) rows: Option<Tensor>,
    /// No position is at or beyond this.
    pub(crate) longest: i64,
}

impl DevicePlaces {
    /// Of a batch in which every sequence has one token.
    pub(crate) fn of_single_tokens(batch: &Batch, cache: &KvCache) -> Result<Self, TchError> {
        Ok(Self {
            tables: batch.tables.shallow_clone(),
            positions: batch.positions.f_to_kind(Kind::Int)?,
            rows: None,
            longest: batch.tables.size()[1] * cache.tokens_per_page(),
        })
    }
}

/// The kernels of one model on one device.
pub(crate) struct Kernels {
    functions: Functions,
    device: Device,
    heads: i64,
    kv_heads: i64,
    width: i64,
    page: i64,
}

/// The numbers that the kernels are compiled for.
pub(crate) fn defines(config: &ModelConfig, page: i64) -> String {
    let group = config.heads / config.kv_heads;
    format!(
        "#define GROUP {group}\n#define TILE {}\n#define KV_HEADS {}\n#define WIDTH {}\n#define PAGE {page}\n",
        group.min(MOST_HEADS),
        config.kv_heads,
        config.head_width
    )
}

impl Kernels {
    /// Compiles; the error says why torch operations are used instead.
    pub(crate) fn new(config: &ModelConfig, page: i64, device: Device) -> Result<Self, String> {
        let Device::Cuda(index) = device else { return Err("not a CUDA device".to_owned()) };
        if ![32, 64, 128, 256].contains(&config.head_width) {
            return Err(format!("heads of width {}", config.head_width));
        }
        let source = format!("{}{SOURCE}", defines(config, page));
        Ok(Self {
            functions: load(index, &source, &NAMES)?,
            device,
            heads: config.heads,
            kv_heads: config.kv_heads,
            width: config.head_width,
            page,
        })
    }

    fn launch(
        &self,
        name: &'static str,
        blocks: i64,
        threads: i64,
        arguments: &mut [Argument],
    ) -> Result<(), TchError> {
        let grid = Grid { blocks: blocks as u32, threads: threads as u32, shared_bytes: 0 };
        self.functions.launch(name, self.device, grid, arguments)
    }

    /// A tensor whose rows hold whole heads side by side, and the distance of its rows.
    fn strided(&self, x: &Tensor, heads: i64) -> [Argument; 2] {
        let (size, stride) = (x.size(), x.stride());
        assert!(
            x.kind() == Kind::BFloat16
                && x.device() == self.device
                && size[1..] == [heads, self.width]
                && stride[1..] == [self.width, 1]
                && stride[0] % 8 == 0,
            "a kernel needs bf16 rows of {heads} heads, got {x:?} with strides {stride:?}"
        );
        [Argument::Pointer(x.data_ptr()), Argument::Long(stride[0])]
    }

    fn whole(&self, x: &Tensor, kind: Kind) -> Argument {
        assert!(
            x.kind() == kind && x.device() == self.device && x.is_contiguous(),
            "a kernel needs contiguous {kind:?} on {:?}, got {x:?}",
            self.device
        );
        Argument::Pointer(x.data_ptr())
    }

    fn cache(&self, cache: [&Tensor; 2]) -> [Argument; 2] {
        cache.map(|x| {
            assert_eq!(x.size()[1..], [self.kv_heads, self.page, self.width], "another model's");
            self.whole(x, Kind::BFloat16)
        })
    }

    fn table(&self, places: &DevicePlaces) -> [Argument; 2] {
        let columns = places.tables.size()[1];
        assert!(columns * self.page >= places.longest, "tables are shorter than sequences");
        [self.whole(&places.tables, Kind::Int), Argument::Int(columns as i32)]
    }

    /// Writes keys and values of new tokens to their pages.
    pub(crate) fn append(
        &self,
        heads: &Heads,
        cache: [&Tensor; 2],
        places: &DevicePlaces,
    ) -> Result<(), TchError> {
        let tokens = heads.k.size()[0];
        assert_eq!(places.positions.size(), [tokens], "one position per token");
        let ([k, k_stride], [v, v_stride]) =
            (self.strided(&heads.k, self.kv_heads), self.strided(&heads.v, self.kv_heads));
        let [keys, values] = self.cache(cache);
        let [table, stride] = self.table(places);
        let rows = places.rows.as_ref();
        let rows =
            rows.map_or(Argument::Pointer(std::ptr::null_mut()), |r| self.whole(r, Kind::Int));
        let positions = self.whole(&places.positions, Kind::Int);
        let mut arguments =
            [k, k_stride, v, v_stride, keys, values, table, stride, rows, positions];
        let threads = ((self.kv_heads * self.width / 8 + 31) / 32 * 32).min(256);
        self.launch("append", tokens, threads, &mut arguments)
    }

    /// Rotates queries in place, and writes keys, rotated, and values to their pages. `qkv` [rows,
    /// heads + 2 kv_heads, width] as the layer's product gave them; one token per row.
    pub(crate) fn rotate_append(
        &self,
        qkv: &Tensor,
        angles: &Angles,
        cache: [&Tensor; 2],
        places: &DevicePlaces,
    ) -> Result<(), TchError> {
        let rows = qkv.size()[0];
        let half = [rows, self.width / 2];
        assert_eq!(qkv.size(), [rows, self.heads + 2 * self.kv_heads, self.width]);
        assert!(!angles.is_interleaved && angles.cosine.size() == half);
        assert!(places.rows.is_none() && places.positions.size() == [rows], "one token per row");
        let [keys, values] = self.cache(cache);
        let [table, stride] = self.table(places);
        let mut arguments = [
            self.whole(qkv, Kind::BFloat16),
            self.whole(&angles.cosine, Kind::Float),
            self.whole(&angles.sine, Kind::Float),
            keys,
            values,
            table,
            stride,
            self.whole(&places.positions, Kind::Int),
        ];
        let pieces = (self.heads + self.kv_heads) * self.width / 16;
        self.launch("rotate_append", rows, ((pieces + 31) / 32 * 32).min(512), &mut arguments)
    }

    /// The tokens of rows (those given, or -1 - row: drawn by a row of the step before), their
    /// positions and the angles of these.
    pub(crate) fn feed(
        &self,
        [given, positions]: [&Tensor; 2],
        drawn: &Tensor,
        rotary: &Rotary,
    ) -> Result<Fed, TchError> {
        let (rows, (tables, half)) = (given.size1()?, rotary.frequencies().size2()?);
        assert_eq!(positions.size(), [rows], "one position per row");
        let empty = |shape: &[i64], kind| Tensor::f_empty(shape, (kind, self.device));
        let [tokens, places] = [empty(&[rows], Kind::Int64)?, empty(&[rows], Kind::Int64)?];
        let cosine = empty(&[tables, rows, half], Kind::Float)?;
        let sine = empty(&[tables, rows, half], Kind::Float)?;
        let mut arguments = [
            self.whole(given, Kind::Int),
            self.whole(drawn, Kind::Int),
            self.whole(positions, Kind::Int),
            self.whole(rotary.frequencies(), Kind::Float),
            self.whole(rotary.factors(), Kind::Float),
            self.whole(&tokens, Kind::Int64),
            self.whole(&places, Kind::Int64),
            self.whole(&cosine, Kind::Float),
            self.whole(&sine, Kind::Float),
            Argument::Int(rows as i32),
            Argument::Int(half as i32),
            Argument::Int(tables as i32),
        ];
        self.launch("feed", (tables * rows * half + 127) / 128, 128, &mut arguments)?;
        let angles = rotary.are_interleaved().enumerate().map(|(table, is_interleaved)| {
            let of = |all: &Tensor| all.f_select(0, table as i64);
            Ok(Angles { cosine: of(&cosine)?, sine: of(&sine)?, is_interleaved })
        });
        let angles = angles.collect::<Result<_, TchError>>()?;
        Ok(Fed { tokens, positions: places, angles })
    }

    /// Attention of one token per row over its sequence. `q` [rows, heads, width].
    pub(crate) fn attend(
        &self,
        q: &Tensor,
        cache: [&Tensor; 2],
        places: &DevicePlaces,
        span: Span,
    ) -> Result<Tensor, TchError> {
        self.attention(q, None, cache, places, span)
    }

    /// The same from the layer's product `qkv` [rows, heads + 2 kv_heads, width], of which keys,
    /// rotated, and values go to their pages. No two rows may be of one sequence.
    pub(crate) fn rotate_and_attend(
        &self,
        qkv: &Tensor,
        angles: &Angles,
        cache: [&Tensor; 2],
        places: &DevicePlaces,
        span: Span,
    ) -> Result<Tensor, TchError> {
        let rows = qkv.size()[0];
        assert_eq!(qkv.size(), [rows, self.heads + 2 * self.kv_heads, self.width]);
        assert!(qkv.is_contiguous() && !angles.is_interleaved);
        assert_eq!(angles.cosine.size(), [rows, self.width / 2]);
        assert_eq!(angles.sine.size(), [rows, self.width / 2]);
        let queries = qkv.f_narrow(1, 0, self.heads)?;
        self.attention(&queries, Some(angles), cache, places, span)
    }

    fn attention(
        &self,
        q: &Tensor,
        angles: Option<&Angles>,
        cache: [&Tensor; 2],
        places: &DevicePlaces,
        span: Span,
    ) -> Result<Tensor, TchError> {
        let rows = q.size()[0];
        assert!(places.rows.is_none() && places.positions.size() == [rows], "one token per row");
        let tiles = (self.heads / self.kv_heads + MOST_HEADS - 1) / MOST_HEADS;
        let blocks = rows * self.kv_heads * tiles;
        // Few sequences: short splits, so that there are blocks for everybody.
        let wanted = (ENOUGH_BLOCKS + blocks - 1) / blocks.max(1);
        let (most, least) = SPLIT_TOKENS;
        let split_tokens = ((places.longest / wanted.max(1) + 15) / 16 * 16).clamp(least, most);
        let splits = (places.longest + split_tokens - 1) / split_tokens;
        let out = Tensor::f_empty([rows, self.heads, self.width], (Kind::BFloat16, self.device))?;
        let parts = if splits > 1 { rows * self.heads * splits } else { 0 };
        let partial = Tensor::f_empty([parts * self.width], (Kind::Float, self.device))?;
        let stats = Tensor::f_empty([parts * 2], (Kind::Float, self.device))?;
        let [query, stride] = self.strided(q, self.heads);
        let [keys, values] = self.cache(cache);
        let [table, table_stride] = self.table(places);
        let scale = std::f32::consts::LOG2_E / (self.width as f32).sqrt();
        let [chunk, window] = span.sizes();
        let nothing = Argument::Pointer(std::ptr::null_mut());
        let [cosine, sine] = angles.map_or([nothing; 2], |angles| {
            [&angles.cosine, &angles.sine].map(|x| self.whole(x, Kind::Float))
        });
        let mut arguments = [
            query,
            stride,
            keys,
            values,
            table,
            table_stride,
            self.whole(&places.positions, Kind::Int),
            self.whole(&out, Kind::BFloat16),
            self.whole(&partial, Kind::Float),
            self.whole(&stats, Kind::Float),
            Argument::Int(splits as i32),
            Argument::Int(split_tokens as i32),
            Argument::Int(chunk as i32),
            Argument::Int(window as i32),
            Argument::Float(scale),
            cosine,
            sine,
        ];
        self.launch("decode_attention", blocks * splits, 128, &mut arguments)?;
        if splits > 1 {
            let mut arguments = [
                self.whole(&partial, Kind::Float),
                self.whole(&stats, Kind::Float),
                self.whole(&out, Kind::BFloat16),
                Argument::Int(splits as i32),
            ];
            self.launch("decode_join", rows * self.heads, self.width, &mut arguments)?;
        }
        Ok(out)
    }

    /// Draws a token per row of float32 logits. `settings` [rows, 5] and `out` [2 rows] are int32
    /// words as in draw.cu.
    pub(crate) fn draw(
        &self,
        logits: &Tensor,
        settings: &Tensor,
        out: &Tensor,
    ) -> Result<(), TchError> {
        let (rows, v) = logits.size2()?;
        assert!(settings.numel() as i64 == 5 * rows && out.numel() as i64 == 2 * rows);
        let tiles = (v + DRAWN_TILE - 1) / DRAWN_TILE;
        let parts = (ENOUGH_DRAWING / rows.max(1)).clamp(1, MOST_DRAWING).min(tiles);
        let partial = Tensor::f_empty([rows * parts * PART_WORDS], (Kind::Int, self.device))?;
        let mut arguments = [
            self.whole(logits, Kind::Float),
            self.whole(settings, Kind::Int),
            self.whole(out, Kind::Int),
            self.whole(&partial, Kind::Int),
            Argument::Int(rows as i32),
            Argument::Int(v as i32),
            Argument::Int(parts as i32),
        ];
        self.launch("draw", rows * parts, DRAWN_GROUPS, &mut arguments)?;
        self.launch("draw_join", rows, 32, &mut arguments)
    }
}

/// Attention of one token per sequence, for the decode step.
pub(crate) struct DecodeAttention<'a> {
    pub(crate) kernels: &'a Kernels,
    pub(crate) cache: &'a KvCache,
    pub(crate) places: &'a DevicePlaces,
    /// Whether two rows may be of one sequence.
    pub(crate) has_neighbours: bool,
}

impl Attend for DecodeAttention<'_> {
    fn attend(&self, layer: usize, span: Span, heads: &Heads) -> Result<Tensor, TchError> {
        let cache = self.cache.layer(layer);
        self.kernels.append(heads, cache, self.places)?;
        self.kernels.attend(&heads.q, cache, self.places, span)
    }

    fn rotate_and_attend(
        &self,
        layer: usize,
        span: Span,
        (qkv, _): (&Tensor, i64),
        angles: &Angles,
    ) -> Result<Option<Tensor>, TchError> {
        if angles.is_interleaved {
            return Ok(None);
        }
        let cache = self.cache.layer(layer);
        if !self.has_neighbours {
            let out = self.kernels.rotate_and_attend(qkv, angles, cache, self.places, span)?;
            return Ok(Some(out));
        }
        self.kernels.rotate_append(qkv, angles, cache, self.places)?;
        let queries = qkv.f_narrow(1, 0, self.kernels.heads)?;
        Ok(Some(self.kernels.attend(&queries, cache, self.places, span)?))
    }
}

/// Attention of prompt chunks: flash attention over keys gathered from pages.
pub(crate) struct ChunkAttention<'a> {
    kernels: &'a Kernels,
    plain: PagedAttention<'a>,
    places: DevicePlaces,
    starts: ChunkStarts,
    /// Page and place of every key; `None` where every chunk begins its sequence.
    gather: Option<[Tensor; 2]>,
    /// For those who ask where the time goes.
    pub(crate) calls: Cell<usize>,
}

impl<'a> ChunkAttention<'a> {
    pub(crate) fn new(
        kernels: &'a Kernels,
        cache: &'a KvCache,
        batch: &'a Batch,
    ) -> Result<Self, TchError> {
        let device = kernels.device;
        let upload = |list: &[i32]| Tensor::f_from_slice(list)?.f_to_device(device);
        let (mut queries, mut keys, mut longest) = (vec![0], vec![0], [0, 0]);
        for segment in &batch.segments {
            let length = segment.from + segment.count;
            queries.push((segment.first + segment.count) as i32);
            keys.push(keys[keys.len() - 1] + length as i32);
            longest = [longest[0].max(segment.count as i64), longest[1].max(length as i64)];
        }
        let is_continued = batch.segments.iter().any(|segment| segment.from > 0);
        let gather = is_continued.then(|| gather_of(cache, batch)).transpose()?;
        Ok(Self {
            kernels,
            plain: PagedAttention::new(cache, batch),
            places: DevicePlaces {
                tables: batch.tables.shallow_clone(),
                positions: batch.positions.f_to_kind(Kind::Int)?,
                rows: Some(upload(&batch.rows)?),
                longest: longest[1],
            },
            starts: ChunkStarts { queries: upload(&queries)?, keys: upload(&keys)?, longest },
            gather,
            calls: Cell::new(0),
        })
    }
}

fn gather_of(cache: &KvCache, batch: &Batch) -> Result<[Tensor; 2], TchError> {
    let (page, tables) = (cache.tokens_per_page(), batch.tables.f_to_kind(Kind::Int64)?);
    let (mut rows, mut columns, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for (row, segment) in batch.segments.iter().enumerate() {
        for position in 0..(segment.from + segment.count) as i64 {
            rows.push(row as i64);
            columns.push(position / page);
            places.push(position % page);
        }
    }
    let upload = |list: &[i64]| Tensor::f_from_slice(list)?.f_to_device(tables.device());
    let pages = tables.f_index(&[Some(upload(&rows)?), Some(upload(&columns)?)])?;
    Ok([pages, upload(&places)?])
}

impl Attend for ChunkAttention<'_> {
    fn attend(&self, layer: usize, span: Span, heads: &Heads) -> Result<Tensor, TchError> {
        self.calls.set(self.calls.get() + 1);
        let window = match span {
            Span::Full => None,
            Span::Window(size) => Some(size),
            Span::Chunk(_) => return self.plain.plain(layer, span, heads),
        };
        let cache = self.plain.cache.layer(layer);
        self.kernels.append(heads, cache, &self.places)?;
        let Some([pages, places]) = &self.gather else {
            return flash_chunks([&heads.q, &heads.k, &heads.v], &self.starts, window);
        };
        let gathered = |x: &Tensor| {
            let index = [Some(pages.shallow_clone()), Some(places.shallow_clone())];
            x.f_transpose(1, 2)?.f_index(&index)
        };
        flash_chunks([&heads.q, &gathered(cache[0])?, &gathered(cache[1])?], &self.starts, window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_model::bench::Shape;
    use scalerl_torch::cuda::launch::compile;

    #[test]
    fn the_kernels_compile_for_every_kind_of_heads_where_nvrtc_is_there() {
        // SAFETY: only looks for the library.
        #[expect(unsafe_code, reason = "cudarc marks it so")]
        let is_there = unsafe { cudarc::nvrtc::sys::is_culib_present() };
        if !is_there {
            println!("skipped: libnvrtc was not found");
            return;
        }
        for (heads, kv_heads, width) in [(16, 8, 64), (14, 2, 64), (32, 8, 128), (32, 2, 256)] {
            let (layers, feed_forward, vocabulary) = (1, 8, 8);
            let width = heads * width;
            let shape = Shape { layers, width, heads, kv_heads, feed_forward, vocabulary };
            let source = format!("{}{SOURCE}", defines(&shape.config().unwrap(), 16));
            let ptx = compile("compute_90", &source).unwrap();
            assert!(NAMES.iter().all(|name| ptx.contains(name)));
        }
    }
}
