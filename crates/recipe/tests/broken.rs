//! Broken files, and the error each gives: what a user sees, word for word.

use std::path::Path;

use scalerl_recipe::{Override, Recipe, Source};

fn error_of(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/broken");
    let error =
        Recipe::load(&[Source::File(folder.join(name))], &[]).expect_err("the file is broken");
    format!("error: {error}\nhint: {}", error.hint()).replace(&format!("{}/", folder.display()), "")
}

fn set_error(overrides: &[&str]) -> String {
    let parse = |text: &&str| Override::parse(text);
    let result = overrides
        .iter()
        .map(parse)
        .collect::<Result<Vec<_>, _>>()
        .and_then(|overrides| Recipe::load(&[Source::named("scalerl")], &overrides));
    let error = result.expect_err("the overrides are wrong");
    format!("error: {error}\nhint: {}", error.hint())
}

#[test]
fn an_unknown_key_names_its_line_and_the_nearest_known_one() {
    insta::assert_snapshot!(error_of("unknown-key.toml"), @"
    error: unknown-key.toml:4: unknown key `sampling.temprature`; did you mean `sampling.temperature`?
    hint: known here: temperature, top_p, top_k, max_prompt_tokens, max_thinking_tokens, max_answer_tokens, stop
    ");
}

#[test]
fn a_key_of_another_section_is_found_there() {
    insta::assert_snapshot!(error_of("wrong-section.toml"), @"
    error: wrong-section.toml:3: unknown key `optimizer.groups_per_step`; did you mean `pipeline.groups_per_step`?
    hint: known here: lr, warmup_steps, weight_decay, beta1, beta2, epsilon, max_gradient_norm, moments, gradients
    ");
}

#[test]
fn a_name_of_several_sections_is_given_with_each_the_run_before_its_warm_up() {
    let change = Override::parse("lr=1e-6").unwrap();
    let error = Recipe::load(&[], &[change]).unwrap_err().to_string();
    let asked = "did you mean `optimizer.lr` or `warm_up.lr`?";
    assert_eq!(error, format!("--set lr=1e-6: unknown key `lr`; {asked}"));
}

#[test]
fn a_wrong_type_says_what_to_write() {
    insta::assert_snapshot!(error_of("wrong-type.toml"), @r#"
    error: wrong-type.toml:2: `pipeline.group_size` must be a whole number, 0 or more, found the text "sixteen"
    hint: write a whole number, 0 or more
    "#);
}

#[test]
fn a_negative_count_is_refused() {
    insta::assert_snapshot!(error_of("negative.toml"), @"
    error: negative.toml:2: `budget.steps` must be a whole number, 0 or more, found the number -5
    hint: write a whole number, 0 or more
    ");
}

#[test]
fn a_value_out_of_range_names_the_range() {
    insta::assert_snapshot!(error_of("out-of-range.toml"), @"
    error: out-of-range.toml:3: `pipeline.group_size` is 1, it must be between 2 and 65536
    hint: set `pipeline.group_size` to a value that is between 2 and 65536
    ");
}

#[test]
fn an_unknown_choice_lists_the_known_ones() {
    insta::assert_snapshot!(error_of("unknown-choice.toml"), @r#"
    error: unknown-choice.toml:2: `objective.surrogate` cannot be "cipso"; did you mean `cispo`?
    hint: choose one of: cispo, clip, none
    "#);
}

#[test]
fn a_key_of_another_alternative_is_refused() {
    insta::assert_snapshot!(error_of("foreign-key.toml"), @"
    error: foreign-key.toml:3: unknown key `objective.surrogate.cap`
    hint: known here: type, low, high
    ");
}

#[test]
fn a_word_where_a_section_belongs_is_refused() {
    insta::assert_snapshot!(error_of("not-a-table.toml"), @r#"
    error: not-a-table.toml:1: `objective` must be a table, found the text "scalerl"
    hint: write a table
    "#);
}

#[test]
fn a_syntax_error_names_its_line() {
    insta::assert_snapshot!(error_of("syntax.toml"), @"
    error: syntax.toml:3: not valid TOML: string values must be quoted, expected literal string
    hint: texts need quotes, tables are written [section]
    ");
}

#[test]
fn a_cut_distribution_is_refused_with_the_reason() {
    insta::assert_snapshot!(error_of("conflict-top-p.toml"), @r#"
    error: conflict-top-p.toml:2: `sampling.top_p` does not go with `objective.surrogate`: both sides of the ratio must be of the distribution that was sampled from, and the trainer cannot rebuild which tokens the generator cut away
    hint: leave top_p at 1 and top_k at 0 in training, or set objective.surrogate = "none"
    "#);
}

#[test]
fn an_interruption_past_the_budget_is_refused_where_the_budget_was_set() {
    insta::assert_snapshot!(error_of("conflict-interruption.toml"), @"
    error: conflict-interruption.toml:4: `objective.length_control.latest` does not go with `sampling.max_thinking_tokens`: thinking would be cut at 4096 tokens, before an interruption at 12000
    hint: lower earliest and latest (the paper has 10,000 and 12,000 of 12,288), or raise the thinking budget
    ");
}

#[test]
fn recipes_that_extend_each_other_are_found_out() {
    insta::assert_snapshot!(error_of("loop.toml"), @"
    error: recipes extend each other in a circle: loop.toml → loop-other.toml → loop.toml
    hint: remove one `extends`
    ");
}

#[test]
fn an_unknown_base_suggests_the_nearest_recipe() {
    insta::assert_snapshot!(error_of("unknown-base.toml"), @r#"
    error: unknown-base.toml:1: `extends` cannot be "scalrl"; did you mean `scalerl`?
    hint: choose one of: scalerl, quickstart, first-run, episodes, minimax-m1, magistral, dapo-qwen2.5, grpo-deepseek, gspo, dr-grpo, small, leave-one-out/ppo-off-policy, leave-one-out/dapo-loss, leave-one-out/bf16-head, leave-one-out/sample-average, leave-one-out/group-normalisation, leave-one-out/length-penalty, leave-one-out/no-zero-variance-filter, leave-one-out/uniform-sampling, examples/gsm8k, examples/gsm8k-python
    "#);
}

#[test]
fn a_data_set_without_a_path_is_refused_by_its_number() {
    insta::assert_snapshot!(error_of("dataset-without-path.toml"), @r#"
    error: dataset-without-path.toml:2: `task.datasets[0].source.path` is "", it must be not empty
    hint: set `task.datasets[0].source.path` to a value that is not empty
    "#);
}

#[test]
fn an_answer_that_nothing_closes_is_refused() {
    insta::assert_snapshot!(error_of("empty-answer-close.toml"), @r#"
    error: empty-answer-close.toml:2: `format.answer.close` is "", it must be not empty
    hint: set `format.answer.close` to a value that is not empty
    "#);
}

#[test]
fn a_missing_file_is_named() {
    insta::assert_snapshot!(error_of("missing.toml"), @"
    error: cannot read missing.toml: No such file or directory (os error 2)
    hint: check the path; `scalerl recipe list` names the recipes that need no file
    ");
}

#[test]
fn overrides_are_checked_like_files() {
    insta::assert_snapshot!(set_error(&["objective.surrogate.kap=4"]), @"
    error: --set objective.surrogate.kap=4: unknown key `objective.surrogate.kap`; did you mean `objective.surrogate.cap`?
    hint: known here: type, cap
    ");
    insta::assert_snapshot!(set_error(&["objective.surrogate=none", "objective.ratio=sequence"]), @r#"
    error: --set objective.ratio=sequence: `objective.ratio` does not go with `objective.surrogate`: a surrogate of "none" uses no ratio, so there is nothing to take per sequence
    hint: set objective.ratio = "token", or choose a surrogate that uses the ratio
    "#);
    insta::assert_snapshot!(set_error(&["optimizer.lr"]), @"
    error: --set optimizer.lr: there is no `=`
    hint: write --set section.key=value, e.g. --set optimizer.lr=1e-6
    ");
    insta::assert_snapshot!(set_error(&["optimizer.lr=nan"]), @"
    error: --set optimizer.lr=nan: `optimizer.lr` must be a number, found the number NaN
    hint: write a number
    ");
    insta::assert_snapshot!(set_error(&["objective.kl=k1"]), @r#"
    error: --set objective.kl=k1: `objective.kl` does not go with `objective.kl.coefficient`: the gradient of k1 does not depend on the reference model, so its penalty pulls nowhere
    hint: choose "k3" (GRPO's) or "k2"; k1 is reported as a diagnostic anyway
    "#);
}

/// What does not go together, and the key that the error must name.
const REFUSED: &[(&str, &str)] = &[
    ("objective = { surrogate = 'none', ratio = 'sequence' }", "objective.ratio"),
    ("sampling.top_k = 50", "sampling.top_k"),
    ("format.thinking = 'none'\nsampling.max_thinking_tokens = 0", "format.thinking"),
    ("objective.length_control.earliest = 12001", "objective.length_control.earliest"),
    (
        "objective.length_control = { type = 'penalty', max_tokens = 99999 }",
        "objective.length_control.max_tokens",
    ),
    (
        "objective.length_control = { type = 'penalty', cache_tokens = 14336 }",
        "objective.length_control.cache_tokens",
    ),
    (
        "objective.length_control = 'none'\nsampling.max_thinking_tokens = 0",
        "sampling.max_thinking_tokens",
    ),
    ("objective.length_control = 'none'\nformat.thinking = 'none'", "sampling.max_thinking_tokens"),
    ("task.correct_reward = -1", "task.correct_reward"),
    ("pipeline.micro_batch_tokens = 8192", "pipeline.micro_batch_tokens"),
    ("evaluation.every_steps = 'unset'", "evaluation.every_steps"),
    ("evaluation.pass_at = [1, 32]", "evaluation.pass_at"),
    ("task.prompt = { type = 'plain', template = 'Solve it.' }", "task.prompt.template"),
    ("evaluation.primary = 'aime'", "evaluation.primary"),
    ("task.held_out = 0", "task.held_out"),
    ("task.verifier = 'program'", "task.verifier.command"),
    ("task.verifier = { type = 'program', command = ['a'], url = 'b' }", "task.verifier.command"),
    ("task.verifier = { type = 'code', time_s = 31 }", "task.verifier.time_s"),
    ("task.verifier = { type = 'code', time_s = 31 }", "task.verifier_timeout_s"),
    ("task.verifier = 'code'\ntask.verifier_timeout_s = 4", "task.verifier.time_per_test_s"),
    ("task.verifier = 'code'\ntask.verifier_timeout_s = 4", "task.verifier_timeout_s"),
    ("task.verifier = { type = 'code', time_s = 4 }", "task.verifier.time_per_test_s"),
    ("task.verifier = { type = 'code', time_s = 4 }", "task.verifier.time_s"),
    (
        "task.datasets = [{ name = 'a', source = 'chain', verifier = { type = 'code', time_s = 99 } }]",
        "task.datasets[0].verifier.time_s",
    ),
    ("task.verifier_timeout_s = 1e300", "task.verifier_timeout_s"),
    (
        "task.datasets = [{ name = 'a', source = 'chain' }, { name = 'a', source = 'chain' }]",
        "task.datasets[1].name",
    ),
    (
        "task.datasets = [{ name = 'a', source = { type = 'chain', min_steps = 9 } }]",
        "task.datasets[0].source.min_steps",
    ),
    (
        "task.datasets = [{ name = 'a', source = { type = 'arithmetic', operations = ['/'] } }]",
        "task.datasets[0].source.operations",
    ),
    (
        "task.datasets = [{ name = 'a', source = { type = 'countdown', min_numbers = 5 } }]",
        "task.datasets[0].source.min_numbers",
    ),
    ("task.datasets = [{ source = 'chain' }]", "task.datasets[0].name"),
    ("task.verifier = 'python'", "task.verifier.file"),
    ("task.verifier = { type = 'python', file = 'r.py', workers = 0 }", "task.verifier.workers"),
    (
        "task.verifier = { type = 'python', file = 'r.py', max_score = 0.4 }",
        "task.verifier.pass_score",
    ),
    ("task.verifier = { type = 'python', file = 'r.py', time_s = 31.0 }", "task.verifier.time_s"),
    ("task.verifier = { type = 'program', command = ['s'], workers = 2 }", "task.verifier.workers"),
    (
        "task.verifier = { type = 'program', url = 'http://a/', keep_alive = true }",
        "task.verifier.keep_alive",
    ),
];

#[test]
fn what_cannot_work_is_refused_by_its_key_and_line() {
    for (text, key) in REFUSED {
        let source = Source::Text { name: "recipe".into(), text: format!("seed = 1\n{text}") };
        let error = Recipe::load(&[source], &[]).expect_err(text);
        let (message, hint) = (error.to_string(), error.hint());
        assert!(message.contains(&format!("`{key}`")), "{text}\n{message}");
        let line = message.strip_prefix("recipe:").and_then(|rest| rest.chars().next());
        assert!(matches!(line, Some('2' | '3')), "{text}\n{message}");
        assert!(!hint.is_empty(), "{text}");
    }
}

#[test]
fn servers_are_named_once_and_by_their_address() {
    let with = |urls: &str| {
        set_error(&["pipeline.generator.type=vllm", &format!("pipeline.generator.urls={urls}")])
    };
    for (urls, said) in [
        ("[]", "needs servers"),
        ("[\"10.0.0.7:8000\"]", "\"10.0.0.7:8000\" is not the address of a server"),
        ("[\"http://\"]", "\"http://\" is not the address of a server"),
        ("[\"http://a:1\", \"http://a:1/\"]", "named twice"),
        ("[\"http://token@a:1\"]", "is not the address of a server"),
    ] {
        let error = with(urls);
        assert!(error.contains(said) && error.contains("pipeline.generator.urls"), "{error}");
    }
    let error = set_error(&["pipeline.generator=vlm"]);
    assert!(error.contains("did you mean \"vllm\"") || error.contains("vllm"), "{error}");
}

#[test]
fn experts_that_are_owned_where_everybody_has_all_weights_are_refused() {
    let owned = "cluster.experts=\"owned\"";
    let said = set_error(&[owned]);
    assert!(said.contains("cluster.experts") && said.contains("cluster.sharding"), "{said}");
    assert!(said.contains("set cluster.sharding = \"full\""), "{said}");
    let full = ["cluster.sharding=\"full\"", "model.activation_checkpointing=true", owned];
    let full = full.map(|text| Override::parse(text).unwrap());
    Recipe::load(&[Source::named("scalerl")], &full).unwrap();
}

#[test]
fn weights_in_parts_without_recomputed_activations_are_refused() {
    let full = "cluster.sharding=\"full\"";
    let said = set_error(&[full]);
    assert!(said.contains("cluster.sharding"), "{said}");
    assert!(said.contains("set model.activation_checkpointing = true"), "{said}");
    let both =
        ["model.activation_checkpointing=true", full].map(|text| Override::parse(text).unwrap());
    Recipe::load(&[Source::named("scalerl")], &both).unwrap();
}
