//! `[task]`: what the model is asked, and how its answers are judged. Read by `crates/task`.

use crate::{
    declare::{choice, declare, section},
    sections::{LONGEST_S, MOST_OPERATIONS, MOST_PROBLEMS, episode::EnvironmentChoice},
    setting::Rule,
};

/// Processes that judge at once, each with an interpreter in memory.
const MOST_WORKERS: f64 = 256.0;

section! {
    /// What the model is asked, and how its answers are judged.
    pub struct Task {
        /// Prompts to train on: files, folders or synthetic problems, mixed by weight.
        datasets: Vec<Dataset> = Vec::new();
        /// How a row becomes a prompt.
        prompt: PromptTemplate = PromptTemplate::default();
        /// Prompts set apart for evaluation, drawn once from `datasets`. Source: ScaleRL, section 2.
        held_out: u32 = 1000;
        /// Seed of synthetic problems and of the prompts set apart. Not the run's seed, so that
        /// runs with different seeds are measured on the same problems.
        seed: u64 = 0;
        /// Judge of answers, for data sets that do not name their own.
        verifier: Verifier = Verifier::default();
        /// Seconds a verdict may take; later ones count as verifier errors, not as wrong. A judge
        /// with limits of its own (`code`) is given its start and clean-up on top.
        verifier_timeout_s: f64 = 30.0, Rule::AboveUpTo(0.0, LONGEST_S);
        /// Reward of a right answer. Source: ScaleRL, section 2.
        correct_reward: f64 = 1.0;
        /// Reward of a wrong one. Source: ScaleRL, section 2.
        wrong_reward: f64 = -1.0;
    }
}

section! {
    /// One set of prompts.
    pub struct Dataset {
        /// Its name in metrics and reports.
        name: String = String::new(), Rule::NotEmpty;
        /// Where its problems come from.
        source: DataSource = DataSource::default();
        /// Share of prompts drawn from it, relative to the others.
        weight: f64 = 1.0, Rule::Above(0.0);
        /// Uses only the first so many rows.
        limit: Option<u64> = None, Rule::AtLeast(1.0);
        /// Its own judge; unset uses `task.verifier` (synthetic problems bring their own).
        verifier: Option<Verifier> = None;
        /// Where its rollouts take place, in several turns; unset: each is one completion.
        environment: Option<EnvironmentChoice> = None;
    }
}

choice! {
    /// Where problems come from.
    pub enum DataSource {
        /// Rows of a file or folder.
        "files" Files {
            /// JSONL, JSON, CSV or Parquet file, or a folder as Hugging Face's `datasets` leaves it.
            path: String = String::new(), Rule::NotEmpty;
            /// Which split of a Hugging Face dataset folder.
            split: String = "train".into();
            /// Column that holds the problem: a text, or a list of messages.
            prompt_column: String = "prompt".into(), Rule::NotEmpty;
            /// Column that holds what the verifier compares with; empty where there is none, as for
            /// programs that tests judge.
            answer_column: String = "answer".into();
            /// Only what follows the last such mark in that column: `####` in GSM8K.
            answer_after: String = String::new();
            /// Only what the last `\\boxed{}` in that column holds, as in MATH's solutions.
            answer_boxed: bool = false;
        },
        /// Left-to-right chained arithmetic modulo 10, one worked step per operation.
        "chain" Chain {
            /// Fewest operations.
            min_steps: u32 = 2, Rule::AtLeast(1.0);
            /// Most operations.
            max_steps: u32 = 7, Rule::Between(1.0, MOST_OPERATIONS);
            /// Distinct problems.
            count: u64 = 4096, Rule::Between(1.0, MOST_PROBLEMS);
        },
        /// Multi-digit arithmetic with worked steps.
        "arithmetic" Arithmetic {
            /// Fewest digits of a number.
            min_digits: u32 = 2, Rule::AtLeast(1.0);
            /// Most digits of a number.
            max_digits: u32 = 5, Rule::Between(1.0, 18.0);
            /// Which operations: `+`, `-`, `*`.
            operations: Vec<String> = vec!["+".into(), "-".into(), "*".into()];
            /// Distinct problems.
            count: u64 = 16384, Rule::Between(1.0, MOST_PROBLEMS);
        },
        /// Reach a target with given numbers and + - * /.
        "countdown" Countdown {
            /// Fewest numbers given.
            min_numbers: u32 = 3, Rule::Between(2.0, 8.0);
            /// Most numbers given.
            max_numbers: u32 = 4, Rule::Between(2.0, 8.0);
            /// Largest number given.
            max_value: u32 = 99, Rule::AtLeast(2.0);
            /// Distinct problems.
            count: u64 = 16384, Rule::Between(1.0, MOST_PROBLEMS);
        },
        /// The sum of numbers that an environment keeps behind letters, modulo 10: one turn reads one.
        /// Brings `environment = "store"` with it.
        "store" Store {
            /// Fewest numbers to add.
            min_reads: u32 = 2, Rule::Between(1.0, 6.0);
            /// Most numbers to add.
            max_reads: u32 = 3, Rule::Between(1.0, 6.0);
            /// Distinct problems.
            count: u64 = 4096, Rule::Between(1.0, MOST_PROBLEMS);
        },
        /// The same text for every problem, and a seed: for environments that make their own tasks.
        "seeds" Seeds {
            /// What the policy is told first.
            prompt: String = String::new();
            /// How many; the environment is given 0 to this, in `seed`.
            count: u64 = 1000, Rule::Between(1.0, MOST_PROBLEMS);
        },
    }
}

choice! {
    /// How a row becomes a prompt. `{prompt}` stands for the row's problem, `{column}` for any other
    /// column (`{a.b}` where it is nested), `{{` for a brace.
    pub enum PromptTemplate {
        /// By the model's own chat template.
        "chat" Chat {
            /// System message; unset sends none.
            system: Option<String> = None;
            /// User message.
            user: String = "{prompt}".into(), Rule::NotEmpty;
        },
        /// As plain text.
        "plain" Plain {
            /// The text.
            template: String = "{prompt}".into(), Rule::NotEmpty;
        },
    }
}

choice! {
    /// Judge of answers. It is shown the answer alone, as `[format]` cuts it out of the completion.
    pub enum Verifier {
        /// Mathematical equality of the final answer.
        "math" Math {
            /// Decimal places that must agree when one side is written as a decimal.
            precision: u32 = 6, Rule::Between(0.0, 50.0);
            /// Whether names of variables, brackets and bases matter: f(x) is not f(y), {1, 2} is not
            /// (1, 2), 1010 in base 2 is not 1010.
            strict: bool = true;
            /// Whether the answer must be worked out as far as the right one is: a number where that
            /// is a number (56 + 52 is none), no arithmetic left to do, no formula of the question.
            evaluated: bool = true;
            /// Asks math-verify (Python) about what the built-in grader cannot decide.
            second_opinion: bool = false;
        },
        /// The same text.
        "exact" Exact {
            /// Capital and small letters are the same.
            ignore_case: bool = false;
            /// Runs of blanks are one blank, and none at the ends.
            ignore_blanks: bool = true;
        },
        /// A pattern finds the answer; the last match counts.
        "regex" Regex {
            /// The pattern. The text of its group must equal the row's answer; without a group a
            /// match alone is right.
            pattern: String = String::new(), Rule::NotEmpty;
        },
        /// An expression over the given numbers that reaches the target.
        "countdown" Countdown {
            /// Where the row holds the numbers, as a dotted path.
            numbers: String = "nums".into(), Rule::NotEmpty;
            /// Where the row holds the target, as a dotted path.
            target: String = "target".into(), Rule::NotEmpty;
            /// Whether every number must be used.
            use_all: bool = true;
        },
        /// A Python program run against tests in a sandbox.
        "code" Code {
            /// Where the row holds the tests, as a dotted path: statements (a list or one text), or
            /// a list of `input` and `output`.
            tests: String = "tests".into(), Rule::NotEmpty;
            /// Runs programs without a sandbox when none is installed. Say so only where whatever
            /// the model writes may run.
            allow_without_sandbox: bool = false;
            /// Memory of one program with all its processes and files, in MiB.
            memory_mib: u32 = 512, Rule::Between(16.0, 4_194_304.0);
            /// Seconds one test may take; a program that takes longer fails it.
            time_per_test_s: f64 = 10.0, Rule::AboveUpTo(0.0, LONGEST_S);
            /// Seconds all tests of a program may take together; a program that takes longer is
            /// wrong. Unset: `task.verifier_timeout_s`.
            time_s: Option<f64> = None, Rule::AboveUpTo(0.0, LONGEST_S);
            /// Whether the reward is the share of tests passed. Right in pass rates is a program that
            /// passes all of them either way.
            partial_credit: bool = false;
        },
        /// A Python function of yours that scores, in processes that are kept alive. TRL's reward
        /// functions and verl's `compute_score` are taken as they are. It is not sandboxed.
        "python" Python {
            /// The file, from where scalerl is started. The run keeps its text: a change under a live
            /// run changes nothing, and a resume with another text is refused.
            file: String = String::new(), Rule::NotEmpty;
            /// The function in it; its parameters say how it is called.
            function: String = "score".into(), Rule::NotEmpty;
            /// The interpreter, such as that of a virtual environment (`venv/bin/python`).
            python: String = "python3".into(), Rule::NotEmpty;
            /// Processes at once. Unset: one for each CPU thread, at most 16.
            workers: Option<u32> = None, Rule::Between(1.0, MOST_WORKERS);
            /// Most completions in one call, for functions that take several.
            batch_size: u32 = 64, Rule::Between(1.0, 4096.0);
            /// Seconds one call may take; then the process is killed and started anew. Unset:
            /// `task.verifier_timeout_s`.
            time_s: Option<f64> = None, Rule::AboveUpTo(0.0, LONGEST_S);
            /// Seconds a process may take to start and to import the file.
            start_s: f64 = 120.0, Rule::AboveUpTo(0.0, LONGEST_S);
            /// Smallest score it gives. A score outside its range is an error of the verifier.
            min_score: f64 = 0.0;
            /// Largest score it gives.
            max_score: f64 = 1.0;
            /// Score from which an answer counts as right in pass rates and in the curriculum. The
            /// reward is the score itself.
            pass_score: f64 = 0.5;
        },
        /// An executable or a service of yours that scores: one of the two keys.
        "program" Program {
            /// Program and arguments; it reads a JSON line and writes a score.
            command: Vec<String> = Vec::new();
            /// Whether the command is started once and asked again and again: a JSON line in, a JSON
            /// line out with the same `id`. Otherwise it is started for every completion.
            keep_alive: bool = false;
            /// Processes at once, with `keep_alive`. Unset: one for each CPU thread, at most 16.
            workers: Option<u32> = None, Rule::Between(1.0, MOST_WORKERS);
            /// Address that takes a JSON object by POST and answers with a score.
            url: Option<String> = None, Rule::NotEmpty;
            /// Smallest score it gives. A score outside its range is an error of the verifier.
            min_score: f64 = 0.0;
            /// Largest score it gives.
            max_score: f64 = 1.0;
            /// Score from which an answer counts as right in pass rates and in the curriculum. The
            /// reward is the score itself.
            pass_score: f64 = 0.5;
        },
    }
}

impl Dataset {
    /// Where its rollouts take place; `None` where each is one completion. Some sources bring their own.
    pub fn environment(&self) -> Option<EnvironmentChoice> {
        match self.source {
            DataSource::Store { .. } => Some(EnvironmentChoice::Store),
            _ => self.environment.clone(),
        }
    }
}
