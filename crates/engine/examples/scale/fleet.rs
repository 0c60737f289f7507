//! Generators that take simulated time, one GPU each, behind the engine's one [`Generator`].
//!
//! As in a real cluster a request goes to one generator, and a generator has at most its share of the
//! groups that the slots allow; the rest waits, oldest first. On a GPU sequences are served oldest first while their
//! keys and values fit; the others wait and have theirs computed when their turn comes. New weights
//! are taken between two strides.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use scalerl_engine::fake;
use scalerl_rollout::{
    Completion, Generator, GeneratorError, PolicyVersion, SampleRequest, WeightHandle,
};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
    time::sleep,
};

use crate::{
    problems::{INTERRUPTION, Lengths, PROMPT_TOKENS, PlannedCompletion, STRIDE, plan},
    speeds::{Links, Rates, Shape},
};

/// What all GPUs have done until now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// GPU-seconds with something to decode.
    pub(crate) busy_s: f64,
    /// Sequences decoded at once, times GPU-seconds.
    pub(crate) sequence_s: f64,
    pub(crate) tokens: f64,
    /// Sequences whose keys and values had to give way.
    pub(crate) set_aside: u64,
}

/// What a fleet is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Make {
    pub(crate) generators: usize,
    /// Groups a generator has at most.
    pub(crate) share: usize,
    pub(crate) model: Shape,
    pub(crate) rates: Rates,
    pub(crate) links: Links,
    pub(crate) lengths: Lengths,
}

struct Job {
    plans: Vec<PlannedCompletion>,
    reply: oneshot::Sender<Vec<Completion>>,
}

struct Dispatcher {
    make: Make,
    held: Mutex<Held>,
    /// One for each GPU.
    wakers: Vec<Notify>,
}

struct Held {
    version: PolicyVersion,
    waiting: VecDeque<Job>,
    /// Given to a GPU that has not looked yet.
    inboxes: Vec<Vec<Job>>,
    /// Groups of each GPU, those in its inbox included.
    groups: Vec<usize>,
    totals: Totals,
}

/// All generators of the run; the GPUs stop when it is dropped.
pub(crate) struct Fleet {
    dispatcher: Arc<Dispatcher>,
    _gpus: JoinSet<()>,
}

impl Fleet {
    /// Starts the GPUs; to be called inside a runtime.
    pub(crate) fn start(make: Make) -> Self {
        let count = make.generators;
        let held = Held {
            version: PolicyVersion(0),
            waiting: VecDeque::new(),
            inboxes: (0..count).map(|_| Vec::new()).collect(),
            groups: vec![0; count],
            totals: Totals::default(),
        };
        let wakers = (0..count).map(|_| Notify::new()).collect();
        let dispatcher = Arc::new(Dispatcher { make, held: Mutex::new(held), wakers });
        let mut gpus = JoinSet::new();
        for index in 0..count {
            gpus.spawn(
                Gpu { dispatcher: dispatcher.clone(), index, groups: vec![], version: None }.work(),
            );
        }
        Self { dispatcher, _gpus: gpus }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.dispatcher.held().totals
    }
}

impl Dispatcher {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives waiting requests to the GPUs with the fewest groups.
    fn hand_out(&self) {
        let mut held = self.held();
        while !held.waiting.is_empty() {
            let fewest = (0..held.groups.len()).min_by_key(|index| held.groups[*index]);
            let Some(index) = fewest.filter(|index| held.groups[*index] < self.make.share) else {
                return;
            };
            let Some(job) = held.waiting.pop_front() else { return };
            held.groups[index] += 1;
            held.inboxes[index].push(job);
            self.wakers[index].notify_one();
        }
    }
}

impl Generator for Fleet {
    async fn generate(&self, request: SampleRequest) -> Result<Vec<Completion>, GeneratorError> {
        let (reply, answer) = oneshot::channel();
        let plans = plan(&request, self.dispatcher.make.lengths);
        self.dispatcher.held().waiting.push_back(Job { plans, reply });
        self.dispatcher.hand_out();
        answer.await.map_err(|_| GeneratorError::Gone { reason: "the simulation ended".into() })
    }

    async fn adopt(&self, weights: &WeightHandle) -> Result<(), GeneratorError> {
        let Make { model, links, .. } = &self.dispatcher.make;
        sleep(Duration::from_secs_f64(links.hand_over(model))).await;
        self.dispatcher.held().version = weights.version;
        Ok(())
    }
}

/// One completion on a GPU.
struct Sequence {
    plan: PlannedCompletion,
    versions: Vec<PolicyVersion>,
    /// Its keys and values are there.
    is_computed: bool,
}

struct DecodingGroup {
    sequences: Vec<Sequence>,
    reply: oneshot::Sender<Vec<Completion>>,
}

struct Gpu {
    dispatcher: Arc<Dispatcher>,
    index: usize,
    /// Oldest first.
    groups: Vec<DecodingGroup>,
    /// The weights in use.
    version: Option<PolicyVersion>,
}

impl Gpu {
    async fn work(mut self) {
        loop {
            self.take();
            if self.groups.is_empty() {
                // A request that came since has left a permit.
                self.dispatcher.wakers[self.index].notified().await;
                continue;
            }
            let (seconds, places, version) = self.plan_stride();
            sleep(Duration::from_secs_f64(seconds)).await;
            {
                let totals = &mut self.dispatcher.held().totals;
                totals.busy_s += seconds;
                totals.sequence_s += seconds * places.len() as f64;
                totals.tokens += places.len() as f64 * f64::from(STRIDE);
            }
            for (group, sequence) in places {
                self.groups[group].sequences[sequence].versions.push(version);
            }
            self.deliver();
        }
    }

    /// Takes what was handed out, drops what nobody waits for any more.
    fn take(&mut self) {
        let jobs = std::mem::take(&mut self.dispatcher.held().inboxes[self.index]);
        for Job { plans, reply } in jobs {
            let start = |plan| Sequence { plan, versions: Vec::new(), is_computed: false };
            self.groups
                .push(DecodingGroup { sequences: plans.into_iter().map(start).collect(), reply });
        }
        let before = self.groups.len();
        self.groups.retain(|group| !group.reply.is_closed());
        self.give_room(before);
    }

    fn give_room(&self, before: usize) {
        if self.groups.len() < before {
            self.dispatcher.held().groups[self.index] -= before - self.groups.len();
            self.dispatcher.hand_out();
        }
    }

    /// Who writes the next stride, how long it takes, and by which weights.
    fn plan_stride(&mut self) -> (f64, Vec<(usize, usize)>, PolicyVersion) {
        let Make { model, rates, .. } = self.dispatcher.make;
        let room = model.kv_tokens();
        let (mut context, mut computed, mut places) = (0.0, 0.0, Vec::new());
        let mut set_aside = 0;
        for (place, group) in self.groups.iter_mut().enumerate() {
            // The prompt of a group is computed once and its pages are shared.
            let mut is_prompt_here = group.sequences.iter().any(|one| one.is_computed);
            for (index, one) in group.sequences.iter_mut().enumerate() {
                if one.versions.len() >= one.plan.length as usize {
                    continue;
                }
                let written = one.versions.len() as f64 * f64::from(STRIDE);
                let needed = PROMPT_TOKENS + written + f64::from(STRIDE);
                if context + needed > room {
                    set_aside += u64::from(one.is_computed);
                    one.is_computed = false;
                    continue;
                }
                if !one.is_computed {
                    computed += written + if is_prompt_here { 0.0 } else { PROMPT_TOKENS };
                    is_prompt_here = true;
                    one.is_computed = true;
                }
                context += needed;
                places.push((place, index));
            }
        }
        let mut held = self.dispatcher.held();
        held.totals.set_aside += set_aside;
        let version = held.version;
        let is_new = self.version.replace(version).is_some_and(|old| old != version);
        let pause = if is_new { rates.copy(&model) } else { 0.0 };
        let step = rates.decode_step(&model, places.len() as f64, context);
        let seconds = f64::from(STRIDE) * step + rates.prefill(&model, computed) + pause;
        (seconds, places, version)
    }

    /// Answers for groups that are all written.
    fn deliver(&mut self) {
        let is_open = |one: &Sequence| one.versions.len() < one.plan.length as usize;
        let before = self.groups.len();
        for group in std::mem::take(&mut self.groups) {
            if group.sequences.iter().any(is_open) {
                self.groups.push(group);
            } else {
                let written = group.sequences.into_iter().map(completion).collect();
                // Nobody listens any more when the run is ending.
                let _ = group.reply.send(written);
            }
        }
        self.give_room(before);
    }
}

fn completion(sequence: Sequence) -> Completion {
    let Sequence { plan, versions, .. } = sequence;
    let length = versions.len();
    let is_injected = (0..length as u32).map(|at| plan.interrupted_at == Some(at)).collect();
    let mut token_ids = fake::tokens_saying(plan.is_right, length);
    let mut logprobs = vec![-0.5; length];
    if let Some(at) = plan.interrupted_at {
        (token_ids[at as usize], logprobs[at as usize]) = (INTERRUPTION, 0.0);
    }
    Completion {
        token_ids,
        logprobs,
        versions,
        is_injected,
        text: if plan.is_right { "right" } else { "wrong" }.into(),
        thinking_tokens: plan.thinking,
        finish: plan.finish,
    }
}
