//! `[episode]`: the limits of rollouts of several turns, and the environments they take place in
//! (`task.datasets.environment`). Read by `crates/environment` and `crates/engine`.

use crate::{
    declare::{choice, declare, section},
    free_table::FreeTable,
    sections::{LONGEST_S, MOST_AT_ONCE, MOST_TOKENS},
    setting::Rule,
};

section! {
    /// Limits of one rollout of several turns. Only data sets with an `environment` have such rollouts.
    pub struct Episode {
        /// Turns of the policy; an episode that wants more is truncated. `sampling` and
        /// `objective.length_control` hold for every turn by itself.
        max_turns: u32 = 8, Rule::Between(1.0, MOST_TOKENS);
        /// Tokens of all turns together, the environment's included, beside
        /// `sampling.max_prompt_tokens`; an episode without room for a turn is truncated.
        max_tokens: u32 = 4096, Rule::Between(1.0, MOST_TOKENS);
        /// Seconds the environment may take to answer one turn.
        turn_timeout_s: f64 = 60.0, Rule::AboveUpTo(0.0, LONGEST_S);
        /// Seconds the environment may take for a whole episode; time in which the policy writes does
        /// not count. Later ones count as errors of the episode, not as wrong.
        timeout_s: f64 = 600.0, Rule::AboveUpTo(0.0, LONGEST_S);
        /// Episodes played at once.
        at_once: u32 = 256, Rule::Between(1.0, MOST_AT_ONCE);
    }
}

choice! {
    /// Where the rollouts of a data set take place, turn by turn.
    pub enum EnvironmentChoice {
        /// Numbers behind letters, read one a turn: a small exact environment of two tools, for tests
        /// and first tries. Needs problems of `source.type = "store"`.
        "store" Store,
        /// Tools that the model calls in its chat template's own format. The data set's verifier reads
        /// the last turn.
        "tools" Tools {
            /// Which: `python` runs a program in the sandbox and answers with what it prints.
            tools: Vec<String> = vec!["python".into()];
            /// Seconds one call may take.
            time_s: f64 = 5.0, Rule::AboveUpTo(0.0, LONGEST_S);
            /// Memory of one call in MiB.
            memory_mib: u32 = 512, Rule::Between(16.0, 4_194_304.0);
            /// Runs programs without a sandbox when none is installed. Say so only where whatever the
            /// model writes may run.
            allow_without_sandbox: bool = false;
        },
        /// A Python class with `reset` and `step`, in worker processes that are kept alive.
        "python" Python {
            /// Its file.
            file: String = String::new(), Rule::NotEmpty;
            /// Its name in that file.
            class: String = "Environment".into(), Rule::NotEmpty;
            /// The Python to run it with; that of a virtual environment brings its packages.
            python: String = "python3".into(), Rule::NotEmpty;
            /// Worker processes; each holds many episodes and works on one turn at a time.
            workers: u32 = 2, Rule::Between(1.0, MOST_AT_ONCE);
            /// Sum of rewards from which an episode counts as right in pass rates.
            pass_score: f64 = 0.5;
        },
        /// An agent of yours, a command or a service, that calls the policy at an OpenAI-style address
        /// as it likes and answers with a reward: one of the two keys.
        "program" Program {
            /// Program and arguments, started for every episode; it reads a JSON line and writes one.
            command: Vec<String> = Vec::new();
            /// Address that takes a JSON object by POST and answers with one.
            url: Option<String> = None, Rule::NotEmpty;
            /// Reward from which an episode counts as right in pass rates.
            pass_score: f64 = 0.5;
        },
        /// A server of OpenEnv environments: one WebSocket, one episode.
        "openenv" OpenEnv {
            /// `ws://host:port/ws`, or the same with http.
            url: String = String::new(), Rule::NotEmpty;
            /// Key of the action that a turn's text goes into; unset: the only text the server's schema
            /// requires.
            action_key: Option<String> = None, Rule::NotEmpty;
            /// Key of the observation that the policy is shown; unset: the whole observation as JSON.
            observation_key: Option<String> = None, Rule::NotEmpty;
            /// Sum of rewards from which an episode counts as right in pass rates.
            pass_score: f64 = 0.5;
        },
        /// An environment of the verifiers package, in a process of its own virtual environment.
        "verifiers" Verifiers {
            /// The Python that has `verifiers` and the environment's package installed.
            python: String = String::new(), Rule::NotEmpty;
            /// The environment: what `verifiers` calls it (an installed module with a taskset), or a
            /// Python file.
            environment: String = String::new(), Rule::NotEmpty;
            /// What `verifiers` has in its own `[env]`: keys of the taskset under `taskset`, and of
            /// each seat under its name (`agent` where the environment has no seats of its own).
            arguments: FreeTable = FreeTable::default();
            /// Reward from which an episode counts as right in pass rates.
            pass_score: f64 = 0.5;
        },
    }
}
