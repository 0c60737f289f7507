//! The studies that ship: all can be planned, all are listed, and they ask what they say.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{fs, path::Path};

use scalerl_study::{Plan, StudyFile, export, shipped::STUDIES};

fn plan(name: &str) -> Plan {
    let plan = Plan::of(&StudyFile::load(name).unwrap());
    plan.unwrap_or_else(|error| panic!("{name}: {error}\n{}", error.hint()))
}

#[test]
fn every_shipped_study_can_be_planned_and_says_what_it_asks() {
    for study in STUDIES {
        let plan = plan(study.name);
        assert!(!plan.description.is_empty(), "{}", study.name);
        assert!(plan.variants.len() >= 2, "{}", study.name);
        for variant in &plan.variants[1..] {
            assert!(!variant.differences.is_empty(), "{}: {}", study.name, variant.name);
        }
    }
}

#[test]
fn every_study_in_the_folder_is_shipped() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/studies");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(STUDIES.iter().any(|study| study.name == name), "{name} is not shipped");
    }
}

/// Those that a result or a script stands on.
#[test]
fn every_other_study_of_the_project_can_be_planned() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut planned = Vec::new();
    for folder in ["docs/results/lora-quickstart", "docs/results/quickstart", "scripts/h200/real"] {
        for entry in fs::read_dir(project.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let is_base = path.file_stem().is_some_and(|stem| stem == "base");
            if is_base || path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let plan = plan(path.to_str().unwrap());
            assert!(!plan.description.is_empty(), "{}", path.display());
            planned.push(path);
        }
    }
    assert!(planned.len() >= 9, "{planned:?}");
}

#[test]
fn leave_one_out_changes_one_choice_at_a_time() {
    let plan = plan("leave-one-out");
    assert_eq!(plan.variants.len(), 9);
    for variant in &plan.variants[1..] {
        assert_eq!(variant.differences.len(), 1, "{}: {:?}", variant.name, variant.differences);
    }
    assert_eq!(plan.base().seeds.len(), 3);
}

#[test]
fn each_recipe_tunes_its_own_learning_rate() {
    let plan = plan("recipes");
    let names: Vec<&str> = plan.variants.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(
        names,
        ["scalerl", "minimax-m1", "magistral", "dapo-qwen2.5", "grpo-deepseek", "gspo"]
    );
    for variant in &plan.variants {
        assert_eq!(variant.tuning().unwrap().len(), 3, "{}", variant.name);
        let runs = variant.runs(Some("1e-4")).unwrap();
        assert!((runs[0].recipe.optimizer.lr - 1e-4).abs() < 1e-12);
        assert_eq!(runs[0].recipe.model, plan.base().runs(None).unwrap()[0].recipe.model);
    }
}

#[test]
fn generations_per_prompt_hold_the_batch() {
    let plan = plan("generations-per-prompt");
    for variant in &plan.variants {
        let pipeline = &variant.runs(None).unwrap()[0].recipe.pipeline;
        let batch = pipeline.groups_per_step * pipeline.group_size;
        assert_eq!(batch, 768, "{}", variant.name);
    }
}

#[test]
fn the_examples_in_the_guide_can_be_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/studies.md");
    let text = fs::read_to_string(path).unwrap();
    let blocks: Vec<&str> = text.split("```toml\n").skip(1).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        let block = block.split("```").next().unwrap();
        let study = StudyFile::parse("guide.toml", block).unwrap_or_else(|error| panic!("{error}"));
        assert!(study.variants.len() >= 2, "{block}");
    }
}

#[test]
fn the_points_of_a_shipped_result_are_written_as_they_were_read() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    for name in ["off-policy", "leave-one-out"] {
        let (kept, folder) = (results.join(name), tempfile::tempdir().unwrap());
        export::write(folder.path(), &export::read(&kept).unwrap()).unwrap();
        let text = |folder: &Path| fs::read_to_string(folder.join("points.csv")).unwrap();
        assert_eq!(text(folder.path()), text(&kept), "{name}");
    }
}
