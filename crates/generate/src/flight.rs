//! A step while it is under way, and the one after it.
//!
//! ```text
//! device   step 1 | step 2 | step 3 |
//! host       begin 2 | take 1, begin 3 | take 2, begin 4 |
//! ```
//! A decode graph leaves what it drew where the next one finds it. So the host asks for the next
//! step first, and then looks at the tokens of this one while the device works. Who can be part of
//! a step that begins so early is decided in `schedule/ahead.rs`; whoever turns out to have ended
//! has a row in it that nobody reads. Anything but plain decoding (a prompt, an interruption, new
//! weights, a graph not yet recorded) waits until the device has nothing under way.

use super::cuda::decode::{DecodeRow, Launched, Parts, RowToken, Size};
use super::generator::{Generator, row_sampling};
use super::request::GenerateError;
use super::schedule::{AheadRow, Chunk};

/// A token for a running sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub(super) place: usize,
    pub(super) id: i64,
    pub(super) logprob: f32,
}

impl Drawn {
    pub(super) fn new(place: usize, (id, logprob): (i64, f32)) -> Self {
        Self { place, id, logprob }
    }
}

/// A step whose tokens are booked as computed.
pub(super) struct Flight {
    /// Tokens that run through the network.
    pub(super) computed: usize,
    state: State,
}

enum State {
    Over(Vec<Drawn>),
    /// Places that are drawn for, in their order, and their rows.
    UnderWay(Launched, Vec<(usize, usize)>),
}

impl Flight {
    /// A step that is over.
    pub(super) fn over(chunks: &[Chunk], drawn: Vec<Drawn>) -> Self {
        let computed = chunks.iter().map(|chunk| chunk.count).sum();
        Self { computed, state: State::Over(drawn) }
    }
}

/// A step that was begun before the tokens of the last one were known, and is not booked yet.
pub(super) struct Ahead {
    step: Launched,
    /// One per row.
    rows: Vec<AheadRow>,
}

impl Generator {
    fn parts_and_graphs(
        &mut self,
    ) -> (Parts<'_>, &mut super::cuda::decode::DecodeGraphs, &super::schedule::Scheduler) {
        let cuda = self.cuda.as_mut().expect("only where there are graphs");
        let fast = (&cuda.kernels, cuda.products.as_ref());
        let parts = Parts::new(&self.model, &self.head, &self.cache, fast);
        (parts, &mut cuda.graphs, &self.scheduler)
    }

    /// Records the decode graphs of all loads of sequences of up to 512 tokens, and finds their
    /// fastest products, so that no request waits for either. Takes tens of seconds on CUDA, and
    /// nothing elsewhere; returns the number of graphs. Nothing may be running yet.
    pub fn warm_up(&mut self) -> Result<usize, GenerateError> {
        let _guard = tch::no_grad_guard();
        if self.cuda.is_none() {
            return Ok(0);
        }
        let (plain, shared) = self.most_rows();
        let (parts, graphs, _) = self.parts_and_graphs();
        let sizes = Size::of_short(plain, shared, parts.cache.tokens_per_page() as usize);
        for size in &sizes {
            graphs.record(*size, parts)?;
        }
        Ok(sizes.len())
    }

    /// Begins a step by a decode graph: every token of the chunks is a row.
    pub(super) fn begin(&mut self, chunks: &[Chunk]) -> Result<Flight, GenerateError> {
        let (parts, graphs, scheduler) = self.parts_and_graphs();
        let (mut rows, mut ends) = (Vec::new(), Vec::new());
        for chunk in chunks {
            let sequence = &scheduler.running[chunk.place];
            for position in chunk.from..chunk.from + chunk.count {
                rows.push(DecodeRow {
                    token: RowToken::Known(sequence.tokens[position]),
                    position,
                    pages: &sequence.pages,
                    sampling: row_sampling(sequence),
                });
            }
            if chunk.is_last {
                ends.push((chunk.place, rows.len() - 1));
            }
        }
        let page = parts.cache.tokens_per_page() as usize;
        let size = Size::for_rows(&rows, page, rows.len() > chunks.len());
        let computed = rows.len();
        let step = graphs.launch(size, &rows, parts)?;
        Ok(Flight { computed, state: State::UnderWay(step, ends) })
    }

    /// Begins the step after one that is under way, if it is certain to be plain decoding.
    pub(super) fn begin_ahead(&mut self, flight: &Flight) -> Result<Option<Ahead>, GenerateError> {
        let State::UnderWay(_, ends) = &flight.state else { return Ok(None) };
        // A stopwatch asks how long each part takes: one after the other.
        if self.stopwatch.is_some() {
            return Ok(None);
        }
        let Some(ahead) = self.scheduler.ahead(ends.len()) else { return Ok(None) };
        let (parts, graphs, scheduler) = self.parts_and_graphs();
        let row = |ahead: &AheadRow| {
            let sequence = &scheduler.running[ahead.place];
            let mut sampling = row_sampling(sequence);
            sampling.place += 1;
            // Everybody is drawn for, in the order of places.
            let token = RowToken::Drawn(ends[ahead.place].1);
            DecodeRow { token, position: ahead.position, pages: &sequence.pages, sampling }
        };
        let rows: Vec<DecodeRow> = ahead.iter().map(row).collect();
        let size = Size::for_rows(&rows, parts.cache.tokens_per_page() as usize, false);
        if !graphs.is_ready(size) {
            return Ok(None);
        }
        let step = graphs.launch(size, &rows, parts)?;
        Ok(Some(Ahead { step, rows: ahead }))
    }

    /// The step that was begun ahead, as far as it is still wanted.
    pub(super) fn confirmed(&mut self) -> Option<Flight> {
        let ahead = self.ahead.take()?;
        let ends: Vec<(usize, usize)> = ahead
            .rows
            .iter()
            .enumerate()
            .filter_map(|(at, row)| Some((self.scheduler.confirm(row)?, at)))
            .collect();
        let flight = Flight { computed: ends.len(), state: State::UnderWay(ahead.step, ends) };
        (flight.computed > 0).then_some(flight)
    }

    /// Waits for the tokens of a step.
    pub(super) fn landed(&mut self, flight: Flight) -> Result<Vec<Drawn>, GenerateError> {
        match flight.state {
            State::Over(drawn) => Ok(drawn),
            State::UnderWay(step, ends) => {
                let cuda = self.cuda.as_ref().expect("the step is under way there");
                let tokens = cuda.graphs.land(step)?;
                self.lap("decode graph")?;
                Ok(ends.iter().map(|&(place, row)| Drawn::new(place, tokens[row])).collect())
            }
        }
    }

    /// Waits for a step that was begun ahead and forgets it: it was never booked.
    pub(super) fn drop_ahead(&mut self) -> Result<(), GenerateError> {
        if let (Some(ahead), Some(cuda)) = (self.ahead.take(), &self.cuda) {
            let _ = cuda.graphs.land(ahead.step)?;
        }
        Ok(())
    }
}
