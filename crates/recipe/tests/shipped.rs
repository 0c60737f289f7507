//! The recipes that ship: all load, all are listed, and they differ where they should.

use std::{
    fs,
    path::{Path, PathBuf},
};

use scalerl_recipe::{
    Kl, LengthControl, Origin, Override, Recipe, Resolved, Source, Surrogate, diff, reference_page,
    shipped::{EXAMPLES, RECIPES},
};

fn load(name: &str) -> Resolved {
    Recipe::load(&[Source::named(name)], &[])
        .unwrap_or_else(|error| panic!("{name}: {error}\n{}", error.hint()))
}

fn differences(left: &str, right: &str) -> String {
    let lines: Vec<_> = diff(&load(left), &load(right)).iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_shipped_recipe_loads_and_describes_itself() {
    for recipe in RECIPES {
        assert!(!load(recipe.name).description.is_empty(), "{} has no description", recipe.name);
    }
}

#[test]
fn every_recipe_in_the_folder_is_shipped() {
    for (folder, prefix) in [("recipes", ""), ("recipes/leave-one-out", "leave-one-out/")] {
        for entry in fs::read_dir(repository().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "toml") {
                let name = format!("{prefix}{}", path.file_stem().unwrap().to_str().unwrap());
                assert!(RECIPES.iter().any(|recipe| recipe.name == name), "{name} is not shipped");
            }
        }
    }
}

#[test]
fn every_example_is_shipped_under_its_path() {
    for entry in fs::read_dir(repository().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            let name = format!("examples/{}", path.file_stem().unwrap().to_str().unwrap());
            assert!(!load(&name).description.is_empty(), "{name}");
            assert!(EXAMPLES.iter().any(|example| example.name == name), "{name} is not shipped");
        }
    }
}

#[test]
fn the_defaults_are_scalerl() {
    let defaults = Recipe::load(&[], &[]).unwrap();
    assert_eq!(diff(&defaults, &load("scalerl")), vec![]);
}

#[test]
fn a_leave_one_out_variant_differs_from_scalerl_in_one_choice() {
    let variants: Vec<_> =
        RECIPES.iter().filter(|recipe| recipe.name.starts_with("leave-one-out/")).collect();
    assert_eq!(variants.len(), 8);
    for recipe in variants {
        let found = diff(&load("scalerl"), &load(recipe.name));
        assert_eq!(found.len(), 1, "{}: {found:?}", recipe.name);
        let is_setting = |line: &&str| line.contains('=') && !line.starts_with('#');
        let settings = recipe.text.lines().filter(is_setting).count();
        assert_eq!(settings, 3, "{}: extends, description and one override", recipe.name);
    }
}

#[test]
fn a_second_recipe_changes_the_first_and_leaves_the_rest_of_it() {
    let own = Source::Text {
        name: "own.toml".into(),
        text: "extends = \"scalerl\"\nseed = 7\nobjective.entropy_bonus = 0.01\n".into(),
    };
    // Magistral stands on DAPO, which stands on ScaleRL, as the first one does.
    let both = Recipe::load(&[own, Source::named("magistral")], &[]).unwrap();
    assert_eq!((both.seed, both.objective.entropy_bonus), (7, 0.01));
    assert_eq!(both.pipeline.groups_per_step, 80, "from DAPO");
    let named_again = [Source::named("magistral"), Source::named("scalerl")];
    let named_again = Recipe::load(&named_again, &[]).unwrap();
    assert_eq!(diff(&named_again, &load("scalerl")), vec![], "what is named is always laid");
}

#[test]
fn dapo_differs_from_scalerl_in_exactly_these_choices() {
    insta::assert_snapshot!(differences("scalerl", "dapo-qwen2.5"), @r#"
    pipeline.groups_per_step: 48 → 80
    objective.advantage: "batch" → "group"
    objective.surrogate: { type = "cispo", cap = 5.0 } → { type = "clip", low = 0.2, high = 0.26 }
    objective.off_policy: { type = "pipeline", steps_behind = 8 } → { type = "ppo-off-policy", steps_per_phase = 8 }
    objective.head_precision: "fp32" → "bf16"
    objective.curriculum: { type = "no-positive-resampling", threshold = 0.9 } → "none"
    "#);
}

#[test]
fn rivals_differ_from_each_other_where_the_paper_says() {
    insta::assert_snapshot!(differences("dapo-qwen2.5", "magistral"), @r#"objective.off_policy: { type = "ppo-off-policy", steps_per_phase = 8 } → { type = "pipeline", steps_behind = 8 }"#);
    insta::assert_snapshot!(differences("scalerl", "minimax-m1"), @r#"
    pipeline.groups_per_step: 48 → 80
    objective.advantage: "batch" → "group"
    objective.off_policy: { type = "pipeline", steps_behind = 8 } → { type = "ppo-off-policy", steps_per_phase = 8 }
    objective.curriculum: { type = "no-positive-resampling", threshold = 0.9 } → "none"
    "#);
    insta::assert_snapshot!(differences("scalerl", "grpo-deepseek"), @r#"
    objective.advantage: "batch" → "group"
    objective.surrogate: { type = "cispo", cap = 5.0 } → { type = "clip", low = 0.2, high = 0.2 }
    objective.aggregation: "prompt" → "sample"
    objective.filter: "zero-variance-shrink" → "none"
    objective.off_policy: { type = "pipeline", steps_behind = 8 } → { type = "ppo-off-policy", steps_per_phase = 8 }
    objective.head_precision: "fp32" → "bf16"
    objective.curriculum: { type = "no-positive-resampling", threshold = 0.9 } → "none"
    "#);
    insta::assert_snapshot!(differences("grpo-deepseek", "dr-grpo"), @r#"
    objective.advantage: "group" → "none"
    objective.aggregation: "sample" → { type = "constant", tokens = 14336 }
    "#);
}

#[test]
fn a_written_recipe_loads_as_the_same_recipe() {
    for recipe in RECIPES {
        let resolved = load(recipe.name);
        let source = Source::Text { name: "written".into(), text: resolved.to_toml() };
        let again = Recipe::load(&[source], &[]).unwrap();
        assert_eq!(*again, *resolved, "{}", recipe.name);
        assert_eq!(again.to_toml(), resolved.to_toml());
    }
}

#[test]
fn data_sets_and_texts_survive_being_written() {
    let text = r#"
        [[task.datasets]]
        name = "gsm8k"
        source = { type = "files", path = "data/gsm8k", answer_column = "answer" }
        verifier = { type = "regex", pattern = "\\d+ \"x\"" }
        [[task.datasets]]
        name = "numbers"
        weight = 0.25
        source = { type = "countdown", max_numbers = 5 }
        [[evaluation.datasets]]
        name = "aime-24"
        source = { type = "files", path = "data/aime.jsonl" }
        [evaluation]
        primary = "aime-24"
        every_steps = "unset"
        every_device_minutes = 2
        pass_at = [1, 8]
    "#;
    let resolved =
        Recipe::load(&[Source::Text { name: "text".into(), text: text.into() }], &[]).unwrap();
    let written = Source::Text { name: "written".into(), text: resolved.to_toml() };
    let again = Recipe::load(&[written], &[]).unwrap();
    assert_eq!(*again, *resolved);
    assert_eq!(again.task.datasets.len(), 2);
    assert_eq!(again.evaluation.every_steps, None);
}

#[test]
fn other_crates_can_take_a_part_by_serde() {
    let overrides = [Override::parse("task.verifier=countdown").unwrap()];
    let resolved = Recipe::load(&[Source::named("scalerl")], &overrides).unwrap();
    let verifier = serde_json::to_value(&resolved.task.verifier).unwrap();
    let wanted = serde_json::json!({
        "type": "countdown", "numbers": "nums", "target": "target", "use_all": true,
    });
    assert_eq!(verifier, wanted);
    let objective = serde_json::to_value(&resolved.objective).unwrap();
    assert_eq!(objective["advantage"], "batch");
    assert_eq!(objective["surrogate"]["type"], "cispo");
    assert_eq!(objective["kl"]["type"], "none");
}

#[test]
fn later_files_and_overrides_win_and_places_are_remembered() {
    let file = |name: &str, text: &str| Source::Text { name: name.into(), text: text.into() };
    let overrides =
        ["optimizer.lr=1e-6", "model.path=models/tiny", "optimizer.max_gradient_norm=unset"]
            .map(|text| Override::parse(text).unwrap());
    let resolved = Recipe::load(
        &[
            Source::named("grpo-deepseek"),
            file("a.toml", "[objective]\nsurrogate = { high = 0.28 }\n[optimizer]\nlr = 2e-6"),
            file("b.toml", "objective.kl = { type = \"k3\", coefficient = 0.04 }"),
        ],
        &overrides,
    )
    .unwrap();
    assert_eq!(resolved.objective.surrogate, Surrogate::Clip { low: 0.2, high: 0.28 });
    assert_eq!(resolved.objective.kl, Kl::K3 { coefficient: 0.04 });
    assert_eq!(resolved.optimizer.lr.to_bits(), 1e-6_f64.to_bits());
    assert_eq!(resolved.optimizer.max_gradient_norm, None);
    assert_eq!(resolved.model.path.as_deref(), Some("models/tiny"));
    assert_eq!(resolved.place("optimizer.lr"), Origin::Set("optimizer.lr=1e-6".into()));
    assert_eq!(resolved.place("objective.kl").to_string(), "b.toml:1");
    assert_eq!(resolved.place("seed"), Origin::Default);
    assert!(resolved.to_annotated_toml().contains("# b.toml:1"));
}

#[test]
fn files_extend_files_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("base.toml"), "extends = \"scalerl\"\nseed = 7").unwrap();
    let variant = folder.path().join("variant.toml");
    fs::write(&variant, "extends = \"base.toml\"\nobjective.length_control = \"none\"").unwrap();
    let resolved = Recipe::load(&[Source::File(variant)], &[]).unwrap();
    assert_eq!(resolved.seed, 7);
    assert_eq!(resolved.objective.length_control, LengthControl::None);
}

#[test]
fn whole_numbers_may_be_written_in_every_way_toml_knows() {
    let text = "seed = 0x10\n[pipeline]\nmicro_batch_tokens = 65_536";
    let resolved =
        Recipe::load(&[Source::Text { name: "text".into(), text: text.into() }], &[]).unwrap();
    assert_eq!((resolved.seed, resolved.pipeline.micro_batch_tokens), (16, 65_536));
}

#[test]
fn the_reference_page_is_fresh() {
    let page = fs::read_to_string(repository().join("docs/recipe-reference.md")).unwrap();
    assert!(
        page == reference_page(),
        "stale; run: cargo run -p scalerl-recipe --example reference > docs/recipe-reference.md"
    );
}
