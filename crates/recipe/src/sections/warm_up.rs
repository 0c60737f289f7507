//! `[warm_up]`: supervised steps before the first RL step. Read by the CLI, which keeps the warmed-up
//! model beside the runs: runs whose `[model]` and `[warm_up]` agree start from the same weights.

use crate::{
    declare::{choice, declare, section},
    sections::{MOST_OPERATIONS, MOST_PER_STEP},
    setting::Rule,
};

section! {
    /// Supervised steps before the first RL step.
    pub struct WarmUp {
        /// What is learned; "none" starts from the model as it is.
        examples: WarmUpExamples = WarmUpExamples::default();
        /// Optimizer steps.
        steps: u32 = 500, Rule::AtLeast(1.0);
        /// Examples of one step.
        examples_per_step: u32 = 48, Rule::Between(1.0, MOST_PER_STEP);
        /// Longer examples are left out; unset, it is the longest prompt and completion of
        /// `[sampling]`. Set it where runs of different budgets shall start from the same weights.
        max_tokens: Option<u32> = None, Rule::AtLeast(1.0);
        /// Highest learning rate; from there it falls in a line to a tenth.
        lr: f64 = 3e-3, Rule::Above(0.0);
        /// Steps over which the rate rises from 0.
        warmup_steps: u32 = 20;
        /// Seed of random weights, synthetic examples and their order. Not the run's seed, so that
        /// runs with different seeds start from the same weights.
        seed: u64 = 0;
    }
}

choice! {
    /// Examples with answers, prompt and completion. Synthetic ones have mistakes put into their
    /// steps on purpose, for RL to take back.
    pub enum WarmUpExamples {
        /// No warm-up.
        "none" None,
        /// Worked chains of arithmetic modulo 10.
        "chain" Chain {
            /// Fewest operations.
            min_steps: u32 = 1, Rule::AtLeast(1.0);
            /// Most operations.
            max_steps: u32 = 6, Rule::Between(1.0, MOST_OPERATIONS);
            /// Chance that a step's result is a random digit.
            noise: f64 = 0.15, Rule::Between(0.0, 1.0);
            /// Share of examples whose thinking is cut and followed by the true answer.
            cut: f64 = 0.1, Rule::Between(0.0, 1.0);
        },
        /// Worked multi-digit arithmetic.
        "arithmetic" Arithmetic {
            /// Fewest digits of a number.
            min_digits: u32 = 1, Rule::AtLeast(1.0);
            /// Most digits of a number.
            max_digits: u32 = 4, Rule::Between(1.0, 18.0);
            /// Which operations: `+`, `-`, `*`.
            operations: Vec<String> = vec!["+".into(), "-".into(), "*".into()];
            /// Chance that a step is wrong.
            noise: f64 = 0.05, Rule::Between(0.0, 1.0);
        },
        /// Countdown problems with a way to the target.
        "countdown" Countdown {
            /// Fewest numbers given.
            min_numbers: u32 = 3, Rule::Between(2.0, 8.0);
            /// Most numbers given.
            max_numbers: u32 = 4, Rule::Between(2.0, 8.0);
            /// Largest number given.
            max_value: u32 = 99, Rule::AtLeast(2.0);
            /// Chance that the way is wrong.
            noise: f64 = 0.15, Rule::Between(0.0, 1.0);
        },
        /// Episodes of reading and adding numbers behind letters.
        "store" Store {
            /// Fewest numbers to add.
            min_reads: u32 = 1, Rule::Between(1.0, 6.0);
            /// Most numbers to add.
            max_reads: u32 = 3, Rule::Between(1.0, 6.0);
            /// Chance that a turn does the wrong thing.
            noise: f64 = 0.2, Rule::Between(0.0, 1.0);
        },
        /// Lines of a JSONL file: `{"prompt": …, "completion": …}` or `{"messages": […]}`.
        "file" File {
            /// The file.
            path: String = String::new(), Rule::NotEmpty;
        },
    }
}
