//! `[pipeline]`: how much work a step is and how generation and training share it. Read by
//! `crates/engine`. How far the two may be apart is `objective.off_policy`.

use crate::{
    declare::{choice, declare, section},
    sections::{LONGEST_S, MOST_AT_ONCE, MOST_PER_STEP},
    setting::Rule,
};

section! {
    /// How much work a step is, and what happens to half-written work when weights change.
    pub struct Pipeline {
        /// Prompt groups in one optimizer step, before filtering. Source: ScaleRL, section 2 (48 ×
        /// 16 = 768 completions).
        groups_per_step: u32 = 48, Rule::Between(1.0, MOST_PER_STEP);
        /// Completions sampled per prompt. A group of one has no spread. Source: ScaleRL, section 2.
        group_size: u32 = 16, Rule::Between(2.0, MOST_AT_ONCE);
        /// The KV cache of half-written completions when new weights arrive.
        kv_after_update: KvAfterUpdate = KvAfterUpdate::default();
        /// Tokens that go through the trainer at once. Changes memory and speed, never the result.
        micro_batch_tokens: u32 = 32768, Rule::AtLeast(1.0);
        /// How trainer and generator of one process hold the weights that both compute with.
        weights: WeightSets = WeightSets::default();
        /// Who writes completions.
        generator: GeneratorChoice = GeneratorChoice::default();
    }
}

choice! {
    /// How trainer and generator of one process hold the weights that both compute with.
    pub enum WeightSets {
        /// Each its own, and one or two more on the way: the trainer goes on while the generator still
        /// writes with older weights.
        "copied" Copied,
        /// One set for both, in bf16: 4 to 6 bytes a parameter less. A step waits until the generator
        /// has taken the weights of the last one, evaluations included. An adapter's base is held once
        /// either way.
        "shared" Shared,
    }
}

choice! {
    /// Who writes completions.
    pub enum GeneratorChoice {
        /// The model code of this program, in its own process.
        "local" Local,
        /// vLLM servers that are running already (docs/vllm.md says how to start them). Each step's
        /// weights go there through a folder that they can read.
        "vllm" Vllm {
            /// Their addresses, such as `http://10.0.0.7:8000`.
            urls: Vec<String> = Vec::new(), Rule::NotEmpty;
            /// Folder for weights, on storage that the servers see under the same path; `weights` in
            /// the run's folder where it is unset.
            weights_folder: Option<String> = None;
            /// File with the token that is sent with every call, as `Authorization: Bearer`.
            token_file: Option<String> = None;
            /// Requests under way on one server; more wait for the next that has room.
            requests_at_once: u32 = 256, Rule::Between(1.0, MOST_AT_ONCE);
            /// Draws each completion from its own seed. vLLM then samples requests one by one, which is
            /// slower, and its CPU engine dies of a seeded prompt that is computed in two pieces.
            seeded: bool = false;
            /// Largest mean difference between a server's log-probs and ours, measured at the start on
            /// the same weights. f32 servers are at 1e-5, bf16 ones with an FP32 head below 0.02.
            logprob_tolerance: f64 = 0.02, Rule::Above(0.0);
            /// Seconds without an answer after which a server is taken for dead.
            silence_s: f64 = 60.0, Rule::Between(1.0, LONGEST_S);
            /// Seconds that the run waits for a server when none serves. A restart of vLLM takes
            /// minutes.
            patience_s: f64 = 900.0, Rule::Between(1.0, LONGEST_S);
        },
    }
}

choice! {
    /// The KV cache of half-written completions when new weights arrive.
    pub enum KvAfterUpdate {
        /// Kept: the completion goes on at once. Source: PipelineRL, as in ScaleRL, section 3.
        "stale" Stale,
        /// Computed anew with the new weights.
        "recompute" Recompute,
    }
}
