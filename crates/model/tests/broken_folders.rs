//! Broken model folders: each gives an error that names what is wrong, and never a panic.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod to_break;

use std::path::Path;

use scalerl_model::folder::Model;
use scalerl_model::template::ChatTemplate;
use scalerl_model::tensor_file::{read_tensors, write_tensors};
use scalerl_model::tokenizer::Tokenizer;
use scalerl_torch::tch::{Device, Kind, Tensor};
use to_break::copy;

fn change_config(folder: &Path, from: &str, to: &str) {
    let path = folder.join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

fn refused(name: &str, breaking: impl Fn(&Path), expected: &[&str]) {
    let folder = copy(name);
    breaking(folder.path());
    let said = match Model::load(folder.path(), Kind::Float, Device::Cpu) {
        Ok(_) => panic!("a broken folder was read; expected {expected:?}"),
        Err(error) => {
            assert!(!error.hint().is_empty());
            error.to_string()
        }
    };
    for word in expected {
        assert!(said.contains(word), "{expected:?} in: {said}");
    }
}

fn truncate(path: &Path, keep: impl Fn(usize) -> usize) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..keep(bytes.len())]).unwrap();
}

#[test]
fn configs_that_cannot_be_used_are_named() {
    refused("llama", |f| std::fs::remove_file(f.join("config.json")).unwrap(), &["config.json"]);
    refused("llama", |f| truncate(&f.join("config.json"), |n| n / 2), &["not valid JSON"]);
    refused("llama", |f| std::fs::write(f.join("config.json"), "[]").unwrap(), &["model_type"]);
    refused(
        "llama",
        |f| change_config(f, "\"model_type\": \"llama\"", "\"model_type\": \"gpt2\""),
        &["model_type `gpt2`"],
    );
    refused(
        "llama",
        |f| change_config(f, "\"hidden_size\": 16", "\"hidden_sizes\": 16"),
        &["`hidden_size` is missing"],
    );
    refused(
        "llama",
        |f| change_config(f, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
        &["num_key_value_heads", "3"],
    );
}

#[test]
fn weights_that_do_not_fit_are_named() {
    refused(
        "llama",
        |f| change_config(f, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
        &["model.layers.2.", "missing"],
    );
    refused(
        "llama",
        |f| change_config(f, "\"intermediate_size\": 24", "\"intermediate_size\": 25"),
        &["model.layers.0.mlp.gate_proj.weight", "[24, 16]", "[25, 16]"],
    );
    refused(
        "llama",
        |f| {
            let path = f.join("model.safetensors");
            let mut tensors = read_tensors(&path).unwrap();
            let norm = tensors.iter_mut().find(|(name, _)| name == "model.norm.weight").unwrap();
            norm.1 = Tensor::ones([16], (Kind::Int64, Device::Cpu));
            write_tensors(&path, &tensors).unwrap();
        },
        &["model.norm.weight", "I64"],
    );
    refused(
        "qwen3_moe",
        |f| change_config(f, "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9"),
        &["num_experts_per_tok", "4 experts"],
    );
}

#[test]
fn weight_files_that_are_not_whole_are_named() {
    let file = "model.safetensors";
    refused("llama", |f| std::fs::remove_file(f.join(file)).unwrap(), &["no model.safetensors"]);
    refused("llama", |f| truncate(&f.join(file), |n| n - 100), &[file, "not a whole"]);
    refused("llama", |f| truncate(&f.join(file), |_| 40), &[file, "not a whole"]);
    refused("llama", |f| truncate(&f.join(file), |_| 0), &[file]);
    refused("llama", |f| std::fs::write(f.join(file), [0xff; 64]).unwrap(), &[file, "not a whole"]);
    let shard = "model-00002-of-00003.safetensors";
    refused("qwen3", |f| std::fs::remove_file(f.join(shard)).unwrap(), &[shard]);
    let index = "model.safetensors.index.json";
    refused("qwen3", |f| std::fs::write(f.join(index), "{}").unwrap(), &[index, "weight_map"]);
    refused(
        "qwen3",
        |f| std::fs::write(f.join(index), r#"{"weight_map": {"a": "../x"}}"#).unwrap(),
        &[index, "../x"],
    );
}

#[test]
fn a_missing_folder_is_named() {
    let Err(error) = Model::load(Path::new("no/such/folder"), Kind::Float, Device::Cpu) else {
        panic!("there is no such folder")
    };
    assert!(error.to_string().contains("no/such/folder"));
}

#[test]
fn tokenizers_and_templates_that_cannot_be_used_are_named() {
    let folder = copy("llama");
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let error = Tokenizer::load(folder.path()).err().unwrap();
    assert!(said(&error).contains("tokenizer.json: no such file"));
    std::fs::write(folder.path().join("tokenizer.json"), "{\"model\": 3}").unwrap();
    let error = Tokenizer::load(folder.path()).err().unwrap();
    assert!(said(&error).contains("tokenizer.json"));
    assert!(ChatTemplate::load(folder.path()).unwrap().is_none());
    std::fs::write(folder.path().join("chat_template.jinja"), "{% for %}").unwrap();
    let error = ChatTemplate::load(folder.path()).err().unwrap();
    assert!(said(&error).contains("chat_template.jinja"), "{error}");
}
