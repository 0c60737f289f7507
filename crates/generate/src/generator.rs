//! The generator: submit requests, call [`Generator::step`], exchange weights between two steps.
//!
//! A step asks the scheduler for what runs next, runs its tokens through the network (the trainer's own
//! layers, with attention over pages), draws a token for every sequence whose tokens are all
//! computed, and hands out what was drawn and what has ended.
//!
//! Not here: threads and channels. Whoever owns the generator calls it from one thread.

use std::sync::Arc;

use tch::{Device, Kind, TchError, Tensor};

use super::cache::{Batch, KvCache, PagedAttention, Piece};
use super::cuda::breakdown::{self, PartTime};
use super::cuda::decode::{DecodeGraphs, Parts, drawn, settings};
use super::cuda::product::Products;
use super::cuda::{ChunkAttention, DecodeAttention, DevicePlaces, Kernels};
use super::flight::{Ahead, Drawn, Flight};
use super::pool::{PagePool, PoolUsage};
use super::request::{Completion, Finish, GenerateError, Request, RequestError, RequestId, Token};
use super::sampler::{self, RowSampling};
use super::schedule::{Chunk, Limits, Scheduler};
use super::sequence::Sequence;
use scalerl_model::folder::Model;
use scalerl_model::head::{Head, HeadMode, HeadOptions};
use scalerl_model::network::{Attend, Context, TorchProducts};
use scalerl_model::tokenizer::Tokenizer;
use scalerl_torch::shim;
use scalerl_torch::stopwatch::Stopwatch;

/// Sizes of a generator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeneratorOptions {
    /// Tokens that the KV cache holds, all sequences together.
    pub cache_tokens: usize,
    /// Tokens of one page.
    pub page_tokens: usize,
    /// Most sequences that are written at once; others wait.
    pub running: usize,
    /// Most prompt tokens of one step, beside the sequences that decode.
    pub chunk_tokens: usize,
    /// Arithmetic of the head.
    pub head: HeadMode,
    /// Whether what ended sequences computed is kept for those that begin alike: worth it where
    /// conversations go on.
    pub keeps_prefixes: bool,
}

impl GeneratorOptions {
    /// The defaults of a device.
    pub fn of(device: Device) -> Self {
        let head = HeadOptions::of(device).mode;
        match device {
            Device::Cpu => Self {
                cache_tokens: 1 << 16,
                page_tokens: 16,
                running: 64,
                chunk_tokens: 512,
                head,
                keeps_prefixes: false,
            },
            _ => Self {
                cache_tokens: 1 << 19,
                page_tokens: 16,
                running: 256,
                chunk_tokens: 8192,
                head,
                keeps_prefixes: false,
            },
        }
    }
}

/// What happens to the KV cache of half-written completions when weights change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheAfterExchange {
    /// Kept: later tokens follow the new weights over old keys and values (PipelineRL).
    Stale,
    /// Computed again with the new weights.
    Recompute,
}

/// Matrix products of fewer rows than this go through other code in MKL, whose sums differ in the
/// last bit; a sequence alone would then not draw what it draws in a crowd.
const FEWEST_ROWS: usize = 16;

/// Tokens of prompts that a decode graph takes along: a pass of its own costs as much as thousands.
const PROMPT_ROWS: usize = 512;
/// Tokens of prompts that are worth being waited for, and the same as a share of the sequences that
/// run: the more run, the sooner places come free.
const GATHERED: usize = 128;
const GATHERED_SHARE: usize = 3;

/// What one step did.
#[derive(Debug, Default)]
pub struct StepReport {
    /// Tokens sampled in this step, in no particular order; injected ones follow the token that
    /// they were injected after.
    pub tokens: Vec<(RequestId, usize, Token)>,
    pub finished: Vec<Completion>,
    /// Tokens that ran through the network.
    pub computed: usize,
}

/// What CUDA adds.
pub(super) struct CudaParts {
    pub(super) kernels: Kernels,
    pub(super) graphs: DecodeGraphs,
    pub(super) products: Option<Products>,
}

/// A model that continues prompts.
pub struct Generator {
    pub(super) model: Model,
    pub(super) head: Head,
    pub(super) cache: KvCache,
    pub(super) scheduler: Scheduler,
    tokenizer: Option<Arc<Tokenizer>>,
    pub(super) cuda: Option<CudaParts>,
    /// The next step, where it could begin before the last one's tokens were known.
    pub(super) ahead: Option<Ahead>,
    why_no_kernels: Option<String>,
    options: GeneratorOptions,
    version: u64,
    next_request: u64,
    next_order: u64,
    /// Handed in by benches.
    pub stopwatch: Option<Stopwatch>,
    /// Seconds of attention on the CPU, where a stopwatch is there.
    pub attention_seconds: f64,
}

fn scheduler(pages: usize, options: GeneratorOptions, limits: Limits) -> Scheduler {
    let scheduler = Scheduler::new(PagePool::new(pages, options.page_tokens), limits);
    if options.keeps_prefixes { scheduler.keeping_prefixes() } else { scheduler }
}

impl Generator {
    /// A generator over a model of its own: weights change by [`Generator::exchange`] only.
    pub fn new(model: Model, options: GeneratorOptions) -> Result<Self, GenerateError> {
        let (device, kind) = (model.device(), model.network.head().kind());
        let pages = options.cache_tokens / options.page_tokens;
        let cache = KvCache::new(&model.config, pages, options.page_tokens, (kind, device))?;
        let (cuda, why_no_kernels) = match cuda_parts(&model, options) {
            Ok(parts) => (Some(parts), None),
            Err(why) => (None, Some(why)),
        };
        let limits = Limits {
            running: options.running,
            chunk: options.chunk_tokens,
            gather: if cuda.is_some() { GATHERED.max(options.running / GATHERED_SHARE) } else { 0 },
        };
        Ok(Self {
            head: head_of(&model, options.head)?,
            cache,
            scheduler: scheduler(pages, options, limits),
            tokenizer: None,
            cuda,
            ahead: None,
            why_no_kernels,
            options,
            version: 0,
            next_request: 0,
            next_order: 0,
            model,
            stopwatch: None,
            attention_seconds: 0.0,
        })
    }

    /// Lets requests have stop strings.
    #[must_use]
    pub fn with_tokenizer(mut self, tokenizer: Arc<Tokenizer>) -> Self {
        self.tokenizer = Some(tokenizer);
        self
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Turns hidden states into logits, with the weights in force.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Why torch operations are used in place of kernels, if they are.
    pub fn why_no_kernels(&self) -> Option<&str> {
        self.why_no_kernels.as_deref()
    }

    /// The policy version of the next token.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How full the cache is.
    pub fn usage(&self) -> PoolUsage {
        self.scheduler.usage()
    }

    /// Bytes of the cache that one token takes.
    pub fn bytes_per_token(&self) -> usize {
        self.cache.bytes_per_token()
    }

    /// Rows of the largest decode graphs: of sequences alone, and with prompts among them.
    pub(super) fn most_rows(&self) -> (usize, usize) {
        (self.options.running, self.options.running + PROMPT_ROWS)
    }

    /// Sequences being written, and sequences waiting.
    pub fn load(&self) -> (usize, usize) {
        (self.scheduler.running.len(), self.scheduler.waiting())
    }

    pub fn is_idle(&self) -> bool {
        self.load() == (0, 0)
    }

    /// Takes a request; its completions come out of later steps.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, RequestError> {
        request.check(self.model.config.vocabulary)?;
        let (tokens, positions) = (request.longest(), self.model.config.max_positions);
        if tokens as i64 > positions {
            return Err(RequestError::LongerThanTheModel { tokens, positions });
        }
        let room = self.scheduler.pool.pages() * self.options.page_tokens;
        if tokens > room {
            let prompt = request.prompt.len();
            return Err(RequestError::LongerThanTheCache { tokens, prompt, room });
        }
        if !request.stop_strings.is_empty() && self.tokenizer.is_none() {
            return Err(RequestError::NoTokenizer);
        }
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let request = Arc::new(request);
        for index in 0..request.completions {
            self.scheduler.push(Sequence::new(id, index, request.clone(), self.next_order));
            self.next_order += 1;
        }
        Ok(id)
    }

    /// Ends all completions of a request; what they have so far comes back.
    pub fn cancel(&mut self, id: RequestId) -> Vec<Completion> {
        let gone = self.scheduler.cancel(id);
        gone.into_iter().map(|sequence| sequence.finish(Finish::Cancelled)).collect()
    }

    /// Takes new weights, those of the model that are trained, in their order. The next token follows them.
    pub fn exchange(
        &mut self,
        parameters: &[Tensor],
        version: u64,
        cache: CacheAfterExchange,
    ) -> Result<(), GenerateError> {
        let (given, expected) = (parameters.len(), self.model.trained().len());
        if given != expected {
            return Err(GenerateError::WrongWeights { given, expected });
        }
        for ((known, ours), given) in
            self.model.trained_layout().iter().zip(self.model.trained()).zip(parameters)
        {
            if ours.size() != given.size() {
                let (given, expected) = (given.size(), ours.size());
                return Err(GenerateError::WrongShape {
                    name: known.name.clone(),
                    given,
                    expected,
                });
            }
        }
        let _guard = tch::no_grad_guard();
        // What the old weights have begun is taken back: its tokens would come too late.
        self.drop_ahead()?;
        shim::copy_each(self.model.trained(), parameters)?;
        // An adapter's base has its head for good.
        if self.model.adapter.is_none() {
            self.head = head_of(&self.model, self.options.head)?;
            // The exact head is a float32 copy of its own, at a new address.
            if let Some(cuda) = self.cuda.as_mut().filter(|_| self.options.head == HeadMode::Exact)
            {
                cuda.graphs.clear();
            }
        }
        self.version = version;
        self.scheduler.weights_changed(cache == CacheAfterExchange::Recompute);
        Ok(())
    }

    /// Runs until every request is done, and returns the completions in the order of requests.
    pub fn finish_all(&mut self) -> Result<Vec<Completion>, GenerateError> {
        let mut finished = Vec::new();
        while !self.is_idle() {
            finished.extend(self.step()?.finished);
        }
        finished.sort_by_key(|completion| (completion.request, completion.index));
        Ok(finished)
    }

    /// One step; does nothing when there is nothing to do.
    ///
    /// Where the next step is certain to be plain decoding, a device begins it before this one's
    /// tokens are looked at (`flight.rs`).
    pub fn step(&mut self) -> Result<StepReport, GenerateError> {
        let _guard = tch::no_grad_guard();
        let flight = match self.confirmed() {
            Some(flight) => flight,
            None => match self.planned()? {
                Some(flight) => flight,
                None => return Ok(StepReport::default()),
            },
        };
        let ahead = self.begin_ahead(&flight)?;
        let computed = flight.computed;
        let drawn = self.landed(flight)?;
        let mut report = self.accept(&drawn)?;
        report.computed = computed;
        self.ahead = ahead;
        self.lap("accept")?;
        Ok(report)
    }

    /// Plans a step and begins it.
    fn planned(&mut self) -> Result<Option<Flight>, GenerateError> {
        let step = self.scheduler.schedule();
        if step.chunks.is_empty() {
            return Ok(None);
        }
        self.cache.copy_pages(&step.copies)?;
        self.lap("schedule")?;
        let flight = self.compute(&step.chunks)?;
        self.scheduler.computed(&step);
        Ok(Some(flight))
    }

    /// Milliseconds of each kind of work of a decode step of `rows` sequences of `length` tokens,
    /// each recorded apart for all layers and replayed; empty without CUDA.
    pub fn breakdown(&self, rows: usize, length: usize) -> Result<Vec<PartTime>, GenerateError> {
        let _guard = tch::no_grad_guard();
        let Some(cuda) = &self.cuda else {
            return Ok(Vec::new());
        };
        let fast = (&cuda.kernels, cuda.products.as_ref());
        let parts = Parts::new(&self.model, &self.head, &self.cache, fast);
        Ok(breakdown::of(&self.model.config, [rows, length], parts)?)
    }

    pub(super) fn lap(&mut self, part: &'static str) -> Result<(), TchError> {
        self.stopwatch.as_mut().map_or(Ok(()), |watch| watch.lap(part))
    }

    /// Runs chunks, of which each that is the last of its sequence is drawn for.
    fn compute(&mut self, chunks: &[Chunk]) -> Result<Flight, GenerateError> {
        if self.cuda.is_none() {
            return Ok(Flight::over(chunks, self.compute_eagerly(chunks)?));
        }
        // Sequences that decode go into the graph, and so do a few tokens of prompts, each a row of
        // its own; longer chunks run beside it, where flash attention reads a prompt once.
        let (decoding, others): (Vec<Chunk>, Vec<Chunk>) =
            chunks.iter().partition(|chunk| chunk.count == 1 && chunk.is_last);
        if others.iter().map(|chunk| chunk.count).sum::<usize>() <= PROMPT_ROWS {
            return self.begin(chunks);
        }
        let mut drawn = self.compute_eagerly(&others)?;
        if !decoding.is_empty() {
            let flight = self.begin(&decoding)?;
            drawn.extend(self.landed(flight)?);
        }
        drawn.sort_by_key(|drawn| drawn.place);
        Ok(Flight::over(chunks, drawn))
    }

    fn compute_eagerly(&mut self, chunks: &[Chunk]) -> Result<Vec<Drawn>, GenerateError> {
        let mut pieces: Vec<Piece> = chunks.iter().map(|chunk| self.piece(chunk)).collect();
        let spare = [self.cache.spare_page()];
        let count: usize = pieces.iter().map(|piece| piece.tokens.len()).sum();
        for _ in count..self.fewest_rows() {
            pieces.push(Piece { tokens: &[0], from: 0, pages: &spare });
        }
        let batch = Batch::new(&pieces, self.model.device())?;
        let hidden_nd = self.hidden(&batch)?;
        self.lap("network")?;
        let is_last = chunks.iter().zip(&batch.segments).filter(|(chunk, _)| chunk.is_last);
        let mut ends: Vec<i64> =
            is_last.map(|(_, segment)| (segment.first + segment.count - 1) as i64).collect();
        if ends.is_empty() {
            return Ok(Vec::new());
        }
        let count = ends.len() as i64;
        ends.resize(ends.len().max(self.fewest_rows()), 0);
        let ends = Tensor::f_from_slice(&ends)?.f_to_device(batch.tokens.device())?;
        let logits_sv = self.head.logits(&hidden_nd.f_index_select(0, &ends)?)?;
        let logits_sv = logits_sv.f_narrow(0, 0, count)?;
        self.lap("head")?;
        let ready: Vec<&Chunk> = chunks.iter().filter(|chunk| chunk.is_last).collect();
        let rows: Vec<RowSampling> =
            ready.iter().map(|chunk| row_sampling(&self.scheduler.running[chunk.place])).collect();
        let tokens = match &self.cuda {
            Some(cuda) => draw_on_device(&cuda.kernels, &logits_sv, &rows)?,
            None => sampler::draw(&logits_sv.f_to_device(Device::Cpu)?.f_contiguous()?, &rows)?,
        };
        self.lap("draw")?;
        Ok(ready.iter().zip(tokens).map(|(chunk, token)| Drawn::new(chunk.place, token)).collect())
    }

    fn fewest_rows(&self) -> usize {
        if self.model.device() == Device::Cpu { FEWEST_ROWS } else { 1 }
    }

    fn piece(&self, chunk: &Chunk) -> Piece<'_> {
        let sequence = &self.scheduler.running[chunk.place];
        Piece {
            tokens: &sequence.tokens[chunk.from..chunk.from + chunk.count],
            from: chunk.from,
            pages: &sequence.pages,
        }
    }

    /// Hidden states [n, d] of a batch, its keys and values written to the cache.
    fn hidden(&mut self, batch: &Batch) -> Result<Tensor, TchError> {
        let angles = self.model.network.angles(&batch.positions)?;
        let run = |attention: &dyn Attend| {
            let context = Context {
                angles: &angles,
                positions: &batch.positions,
                attention,
                products: &TorchProducts,
            };
            self.model.network.run(&batch.tokens, &context)
        };
        if let Some(cuda) = &self.cuda {
            let (kernels, cache) = (&cuda.kernels, &self.cache);
            if batch.segments.iter().all(|segment| segment.count == 1) {
                let places = DevicePlaces::of_single_tokens(batch, cache)?;
                let attention =
                    DecodeAttention { kernels, cache, places: &places, has_neighbours: false };
                return run(&attention);
            }
            return run(&ChunkAttention::new(kernels, cache, batch)?);
        }
        let attention = PagedAttention::new(&self.cache, batch);
        let hidden = run(&attention)?;
        self.attention_seconds += attention.seconds.get();
        Ok(hidden)
    }

    /// Hands every drawn token to its sequence. `drawn` is in the order of places.
    fn accept(&mut self, drawn: &[Drawn]) -> Result<StepReport, GenerateError> {
        let mut report = StepReport::default();
        // From behind: sequences that end leave, and places before them stay what they are.
        for &Drawn { place, id, logprob } in drawn.iter().rev() {
            let sequence = &mut self.scheduler.running[place];
            if !logprob.is_finite() {
                return Err(GenerateError::NotNumbers { request: sequence.id.0 });
            }
            let token =
                Token { id, logprob: Some(logprob), version: self.version, is_injected: false };
            let before = sequence.written.len();
            let finish = sequence.accept(token, self.tokenizer.as_deref())?;
            let (request, index) = (sequence.id, sequence.index);
            let new = sequence.written[before..].iter().map(|&token| (request, index, token));
            report.tokens.extend(new);
            if let Some(finish) = finish {
                report.finished.push(self.scheduler.remove(place).finish(finish));
            }
        }
        Ok(report)
    }
}

fn head_of(model: &Model, mode: HeadMode) -> Result<Head, TchError> {
    let options = HeadOptions { mode, ..HeadOptions::of(model.device()) };
    Head::new(model.network.head(), options)
}

/// Kernels where they fit: bf16 on CUDA, heads of a width they know.
fn cuda_parts(model: &Model, options: GeneratorOptions) -> Result<CudaParts, String> {
    if model.network.head().kind() != Kind::BFloat16 {
        return Err("kernels work in bf16".to_owned());
    }
    let kernels = Kernels::new(&model.config, options.page_tokens as i64, model.device())?;
    // Without cuBLASLt torch's products do.
    let products = Products::new(model.device()).ok();
    let graphs = DecodeGraphs::new(options.running + PROMPT_ROWS, model.device());
    let graphs = graphs.map_err(|error| error.to_string())?;
    Ok(CudaParts { kernels, graphs, products })
}

/// How the next token of a sequence is drawn.
pub(super) fn row_sampling(sequence: &Sequence) -> RowSampling {
    RowSampling {
        sampling: sequence.request.sampling,
        seed: sequence.request.seed.wrapping_add(sequence.index as u64),
        place: sequence.written.len(),
    }
}

pub(super) fn draw_on_device(
    kernels: &Kernels,
    logits: &Tensor,
    rows: &[RowSampling],
) -> Result<Vec<(i64, f32)>, TchError> {
    let device = logits.device();
    let words: Vec<i32> = rows.iter().flat_map(settings).collect();
    let out = Tensor::f_zeros([2 * rows.len() as i64], (Kind::Int, device))?;
    let settings = Tensor::f_from_slice(&words)?.f_to_device(device)?;
    kernels.draw(&logits.f_contiguous()?, &settings, &out)?;
    let words = Vec::<i32>::try_from(&out.f_to_device(Device::Cpu)?)?;
    Ok(drawn(&words, rows.len()).collect())
}
