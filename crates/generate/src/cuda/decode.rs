//! The decode step as CUDA graphs: one per number of rows and pages, both rounded up.
//!
//! Everything a step needs goes over in one copy, everything it drew comes back in one. Rows
//! without a sequence attend to one token on a spare page and are drawn for nobody. All graphs leave
//! what they drew in one place, so that the next can begin with it before the host has seen it.
//!
//! ```text
//! inputs   tokens [r] positions [r] settings [r, 5] tables [r, p]     int32 words
//!          token -1 - i: what row i of the step before has drawn
//! outputs  ids [r] log-probs [r]                                      int32 words
//! ```

use std::collections::BTreeMap;

use tch::{Device, Kind, TchError, Tensor};

use super::product::Products;
use super::{DecodeAttention, DevicePlaces, Kernels};
use crate::cache::KvCache;
use crate::pool::Page;
use crate::sampler::RowSampling;
use scalerl_model::folder::Model;
use scalerl_model::head::Head;
use scalerl_model::network::{Context, Multiply, Network, TorchProducts};
use scalerl_torch::cuda::graph::{Graph, GraphPool};
use scalerl_torch::cuda::mailbox::{Mailbox, Ticket};

/// What the graphs run.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) network: &'a Network,
    pub(crate) head: &'a Head,
    pub(crate) cache: &'a KvCache,
    pub(crate) kernels: &'a Kernels,
    pub(crate) products: &'a dyn Multiply,
    /// The same, where it can be tuned.
    pub(crate) tuned: Option<&'a Products>,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(
        model: &'a Model,
        head: &'a Head,
        cache: &'a KvCache,
        (kernels, tuned): (&'a Kernels, Option<&'a Products>),
    ) -> Self {
        let products = tuned.map_or(&TorchProducts as &dyn Multiply, |products| products);
        Self { network: &model.network, head, cache, kernels, products, tuned }
    }

    /// Finds the fastest products for a number of rows.
    pub(crate) fn tune(&self, rows: i64) -> Result<(), TchError> {
        let Some(products) = self.tuned else { return Ok(()) };
        for (_, matrices) in self.network.matrices() {
            products.tune(rows, &matrices, false)?;
        }
        if let Some(head) = self.head.wide_matrix() {
            products.tune(rows, &[(head, None)], true)?;
        }
        Ok(())
    }

    /// float32 logits [rows, v].
    pub(crate) fn logits(&self, hidden_rd: &Tensor) -> Result<Tensor, TchError> {
        match (self.tuned, self.head.wide_matrix()) {
            (Some(products), Some(head)) => products.product(hidden_rd, (head, None), true),
            _ => self.head.logits(hidden_rd),
        }
    }
}

/// The token of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowToken {
    Known(i64),
    /// What this row of the step before has drawn.
    Drawn(usize),
}

/// One token of a decode step.
pub(crate) struct DecodeRow<'a> {
    pub(crate) token: RowToken,
    pub(crate) position: usize,
    pub(crate) pages: &'a [Page],
    pub(crate) sampling: RowSampling,
}

/// Rows and pages per row of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size {
    pub(super) rows: usize,
    pub(super) pages: usize,
    /// Whether a sequence may have several rows: then all keys are on their pages before any row
    /// attends to them. Otherwise one kernel does both.
    pub(super) has_neighbours: bool,
}

impl Size {
    /// Every size of steps with at most `plain` rows of sequences of their own, or `shared` rows with
    /// prompts among them, while no sequence is longer than the shortest tables hold.
    pub(crate) fn of_short(plain: usize, shared: usize, page: usize) -> Vec<Self> {
        let sizes = |most: usize, has_neighbours: bool| {
            let mut rows: Vec<usize> = (1..=most).map(padded).collect();
            rows.dedup();
            rows.into_iter().map(move |rows| Self { rows, pages: pages(1, page), has_neighbours })
        };
        sizes(plain, false).chain(sizes(shared, true)).collect()
    }

    /// Rounded up so that few graphs serve every load.
    pub(crate) fn for_rows(rows: &[DecodeRow], page: usize, has_neighbours: bool) -> Self {
        let longest = rows.iter().map(|row| row.position + 1).max().unwrap_or(1);
        Self { rows: padded(rows.len()), pages: pages(longest, page), has_neighbours }
    }
}

/// Rows of the graph that serves so many.
pub(crate) fn padded(rows: usize) -> usize {
    let step = match rows {
        0..=8 => return rows.next_power_of_two(),
        9..=64 => 8,
        65..=512 => 32,
        _ => 64,
    };
    rows.next_multiple_of(step)
}

/// A multiple of 512 tokens, beyond 2,048 a power of two, in pages.
fn pages(longest: usize, page: usize) -> usize {
    let tokens =
        if longest <= 2048 { longest.next_multiple_of(512) } else { longest.next_power_of_two() };
    tokens.div_ceil(page)
}

/// The settings of one row, as in draw.cu.
pub(crate) fn settings(row: &RowSampling) -> [i32; 5] {
    let keys = row.keys().map(u32::cast_signed);
    let bits = |x: f32| x.to_bits().cast_signed();
    let top_k = i32::try_from(row.sampling.top_k).unwrap_or(i32::MAX);
    [bits(row.inverse_temperature()), bits(row.sampling.top_p as f32), top_k, keys[0], keys[1]]
}

/// What `draw` wrote, read from words of `padded` rows: ids, then log-probs.
pub(crate) fn drawn(words: &[i32], padded: usize) -> impl Iterator<Item = (i64, f32)> {
    let (ids, logprobs) = words.split_at(padded);
    let logprob = |word: &i32| f32::from_bits(word.cast_unsigned());
    ids.iter().map(|id| i64::from(*id)).zip(logprobs.iter().map(logprob))
}

struct Captured {
    graph: Graph,
    inputs: Tensor,
}

/// A step that the device has been asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launched {
    ticket: Ticket,
    padded: usize,
}

pub(crate) struct DecodeGraphs {
    captured: BTreeMap<Size, Captured>,
    pool: GraphPool,
    mailbox: Mailbox,
    /// [2 most rows] int32: what the last step drew.
    outputs: Tensor,
}

impl DecodeGraphs {
    /// Graphs of up to `rows` rows.
    pub(crate) fn new(rows: usize, device: Device) -> Result<Self, TchError> {
        let outputs = Tensor::f_zeros([2 * padded(rows) as i64], (Kind::Int, device))?;
        let mailbox = Mailbox::default();
        Ok(Self { captured: BTreeMap::new(), pool: (0, 0), mailbox, outputs })
    }

    /// Forgets all graphs: something they hold by its address has moved. Nothing may be under way.
    pub(crate) fn clear(&mut self) {
        self.captured.clear();
        self.pool = (0, 0);
    }

    /// Whether a step of this size can begin at once.
    pub(crate) fn is_ready(&self, size: Size) -> bool {
        self.captured.contains_key(&size)
    }

    /// Records a graph, unless it is there. Draws tokens: nothing may be under way.
    pub(crate) fn record(&mut self, size: Size, parts: Parts) -> Result<(), TchError> {
        if !self.captured.contains_key(&size) {
            let outputs = self.outputs.f_narrow(0, 0, 2 * size.rows as i64)?;
            let (captured, pool) = capture(size, self.pool, &outputs, parts)?;
            self.pool = pool;
            self.captured.insert(size, captured);
        }
        Ok(())
    }

    /// Asks for one decode step. Rows with [`RowToken::Drawn`] need a size that is ready: recording
    /// a graph draws tokens too.
    pub(crate) fn launch(
        &mut self,
        size: Size,
        rows: &[DecodeRow],
        parts: Parts,
    ) -> Result<Launched, TchError> {
        let count = 2 * size.rows;
        self.record(size, parts)?;
        let outputs = self.outputs.f_narrow(0, 0, count as i64)?;
        let captured = &self.captured[&size];
        self.mailbox.send(&captured.inputs, size.words(), |words| {
            fill(words, size, rows, parts.cache);
        })?;
        captured.graph.replay()?;
        let ticket = self.mailbox.collect(&outputs, count)?;
        Ok(Launched { ticket, padded: size.rows })
    }

    /// Waits for a step: a token and its log-prob per row.
    pub(crate) fn land(&self, step: Launched) -> Result<Vec<(i64, f32)>, TchError> {
        Ok(drawn(self.mailbox.receive(step.ticket)?, step.padded).collect())
    }
}

impl Size {
    fn words(self) -> usize {
        self.rows * (7 + self.pages)
    }
}

pub(super) fn words(size: Size, rows: &[DecodeRow], cache: &KvCache) -> Vec<i32> {
    let mut words = vec![0; size.words()];
    fill(&mut words, size, rows, cache);
    words
}

/// Writes every word.
fn fill(words: &mut [i32], size: Size, rows: &[DecodeRow], cache: &KvCache) {
    let r = size.rows;
    // Rows without a sequence: token 0 at position 0 of the spare page.
    words[..7 * r].fill(0);
    words[7 * r..].fill(cache.spare_page() as i32);
    for (at, row) in rows.iter().enumerate() {
        words[at] = match row.token {
            RowToken::Known(id) => id as i32,
            RowToken::Drawn(row) => -1 - row as i32,
        };
        words[r + at] = row.position as i32;
        words[2 * r + 5 * at..][..5].copy_from_slice(&settings(&row.sampling));
        let table = &mut words[7 * r + at * size.pages..][..size.pages];
        for (word, page) in table.iter_mut().zip(row.pages) {
            *word = *page as i32;
        }
    }
}

fn capture(
    size: Size,
    pool: GraphPool,
    outputs: &Tensor,
    parts: Parts,
) -> Result<(Captured, GraphPool), TchError> {
    let device = parts.network.device();
    parts.tune(size.rows as i64)?;
    let upload = |words: &[i32]| Tensor::f_from_slice(words)?.f_to_device(device);
    let inputs = upload(&words(size, &[], parts.cache))?;
    // What the first calls set up for themselves must not be part of the recording.
    for _ in 0..2 {
        body(size, &inputs, outputs, parts)?;
    }
    let (graph, pool) = Graph::capture(device, pool, || body(size, &inputs, outputs, parts))?;
    Ok((Captured { graph, inputs }, pool))
}

pub(super) fn body(
    size: Size,
    inputs: &Tensor,
    outputs: &Tensor,
    parts: Parts,
) -> Result<(), TchError> {
    let (r, p) = (size.rows as i64, size.pages as i64);
    let places = DevicePlaces {
        positions: inputs.f_narrow(0, r, r)?,
        tables: inputs.f_narrow(0, 7 * r, r * p)?.f_view([r, p])?,
        rows: None,
        longest: p * parts.cache.tokens_per_page(),
    };
    let given = [&inputs.f_narrow(0, 0, r)?, &places.positions];
    let fed = parts.kernels.feed(given, outputs, parts.network.rotary())?;
    let attention = DecodeAttention {
        kernels: parts.kernels,
        cache: parts.cache,
        places: &places,
        has_neighbours: size.has_neighbours,
    };
    let context = Context {
        angles: &fed.angles,
        positions: &fed.positions,
        attention: &attention,
        products: parts.products,
    };
    let hidden_rd = parts.network.run(&fed.tokens, &context)?;
    let logits_rv = parts.logits(&hidden_rd)?;
    parts.kernels.draw(&logits_rv, &inputs.f_narrow(0, 2 * r, 5 * r)?, outputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Sampling;
    use scalerl_model::bench::Shape;

    #[test]
    fn a_step_goes_over_as_the_words_that_the_graph_reads() {
        let shape =
            Shape { layers: 1, width: 8, heads: 1, kv_heads: 1, feed_forward: 8, vocabulary: 8 };
        let config = shape.config().unwrap();
        let cache = KvCache::new(&config, 9, 16, (Kind::Float, Device::Cpu)).unwrap();
        let sampling = |place| RowSampling {
            sampling: Sampling { temperature: 0.5, top_p: 0.9, top_k: 3 },
            seed: 1,
            place,
        };
        let row = |token, position, pages: &'static [Page]| DecodeRow {
            token,
            position,
            pages,
            sampling: sampling(position),
        };
        let known = RowToken::Known;
        let rows =
            [row(known(5), 17, &[4, 2]), row(RowToken::Drawn(6), 3, &[7]), row(known(7), 0, &[8])];
        let size = Size::for_rows(&rows, 16, false);
        assert_eq!(size, Size { rows: 4, pages: 32, has_neighbours: false });
        let words = words(size, &rows, &cache);
        assert_eq!(words[..8], [5, -7, 7, 0, 17, 3, 0, 0], "tokens and positions");
        assert_eq!(words[8 + 5..8 + 10], settings(&sampling(3)), "settings of the second row");
        assert!((f32::from_bits(words[8].cast_unsigned()) - 2.0).abs() < 1e-6);
        let tables: Vec<&[i32]> = words[28..].chunks(32).collect();
        assert_eq!(tables.len(), 4);
        assert_eq!((tables[0][..3].to_vec(), tables[1][0]), (vec![4, 2, 9], 7));
        assert!(tables[3].iter().all(|page| *page == 9), "no sequence: the spare page");
    }

    #[test]
    fn sizes_of_short_sequences_are_those_that_rows_ask_for() {
        let known = Size::of_short(40, 70, 16);
        let sampling = RowSampling {
            sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
            seed: 1,
            place: 0,
        };
        for (most, has_neighbours) in [(40, false), (70, true)] {
            for count in 1..=most {
                let row = |_| DecodeRow {
                    token: RowToken::Known(1),
                    position: 500,
                    pages: &[],
                    sampling,
                };
                let rows: Vec<DecodeRow> = (0..count).map(row).collect();
                assert!(known.contains(&Size::for_rows(&rows, 16, has_neighbours)), "{count}");
            }
        }
        assert_eq!(known.len(), 8 + 12, "1, 2, 4, 8, then by 8 to 40; by 8 to 64, and 96");
    }

    #[test]
    fn few_sizes_serve_every_load() {
        let sizes: std::collections::BTreeSet<usize> =
            (1..=2048).map(|longest| pages(longest, 16)).collect();
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [32, 64, 96, 128]);
        assert_eq!(pages(5000, 16), 512);
    }
}
