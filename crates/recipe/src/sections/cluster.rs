//! `[cluster]`: the run as several processes. Read by `crates/cli`.

use crate::{
    declare::{choice, declare, section},
    sections::{LONGEST_S, MOST_AT_ONCE},
    setting::Rule,
};

section! {
    /// The run as several processes. The defaults are one process, which needs no server.
    pub struct Cluster {
        /// Processes that train together, data parallel.
        trainers: u32 = 1, Rule::Between(1.0, MOST_AT_ONCE);
        /// What trainers share out among them, so that each holds a part.
        sharding: Sharding = Sharding::default();
        /// How trainers compute with a layer's experts, where weights are shared out.
        experts: Experts = Experts::default();
        /// Processes that generate; 0 generates in the (first) trainer's own.
        generators: u32 = 0, Rule::Between(0.0, MOST_AT_ONCE);
        /// Address of the Redis server that carries requests and completions: redis://HOST:PORT, or
        /// rediss://… for TLS. Unset: the variable SCALERL_REDIS, which is the place for an address
        /// with a password, since recipes are kept in run folders.
        redis: Option<String> = None, Rule::NotEmpty;
        /// Name under which processes of this run find each other in Redis. Unset: made of the
        /// launcher's address, or of the run folder.
        name: Option<String> = None, Rule::NotEmpty;
        /// Seconds between two signs of life of a generator.
        heartbeat_s: f64 = 1.0, Rule::Between(0.1, 60.0);
        /// Seconds of silence after which a generator is suspect.
        suspect_s: f64 = 5.0, Rule::AboveUpTo(0.0, LONGEST_S);
        /// Seconds of silence after which a generator is given up: its requests go to others, and it
        /// must take the current weights before it serves again.
        dead_s: f64 = 20.0, Rule::AboveUpTo(0.0, LONGEST_S);
        /// Seconds that trainer ranks wait for the slowest in one operation of a step.
        rank_deadline_s: f64 = 300.0, Rule::Between(1.0, LONGEST_S);
    }
}

choice! {
    /// What trainers share out among them, so that each holds a part.
    pub enum Sharding {
        /// Masters and moments; every trainer has all weights and its own sums of gradients. Least
        /// traffic. Source: ZeRO stage 1 (arXiv 1910.02054).
        "optimizer" Optimizer,
        /// Weights and gradients too, layer by layer: a layer is whole only while it computes. Least
        /// memory; needs `model.activation_checkpointing`. Source: ZeRO stage 3, FSDP
        /// (arXiv 2304.11277).
        "full" Full,
    }
}

choice! {
    /// How trainers compute with a layer's experts, where weights are shared out.
    pub enum Experts {
        /// Every trainer gathers all of them, as it does a layer's other weights.
        "gathered" Gathered,
        /// Every trainer has some experts whole and computes with them for all: tokens travel to the
        /// experts. Needs `cluster.sharding = "full"`, and as many experts for one trainer as for
        /// another. Source: GShard (arXiv 2006.16668).
        "owned" Owned,
    }
}

impl Cluster {
    /// Whether everything happens in one process.
    pub fn is_alone(&self) -> bool {
        self.trainers <= 1 && self.generators == 0
    }
}
