//! Sizes that no machine holds, and things in place of files that are none.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use scalerl_model::config::ModelConfig;
use scalerl_model::folder::Model;
use scalerl_model::sft::Reader;
use scalerl_model::template::ChatTemplate;
use scalerl_model::tokenizer::Tokenizer;
use scalerl_torch::tch::{Device, Kind};
use serde_json::{Value, json};

use crate::copy;

fn load(folder: &Path) -> Result<(), String> {
    let loaded = Model::load(folder, Kind::Float, Device::Cpu);
    loaded.map(|_| ()).map_err(|error| error.to_string())
}

/// A whole model's config with some keys changed.
fn changed(changes: &[(&str, Value)]) -> Value {
    let mut config = json!({
        "model_type": "qwen3_moe", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_experts": 4,
        "num_experts_per_tok": 1, "moe_intermediate_size": 8,
    });
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    config
}

#[test]
fn sizes_beyond_any_model_are_refused_by_their_key() {
    let cases = [
        ("vocab_size", json!(1_000_000_000_000_u64)),
        ("vocab_size", json!(1e12)),
        ("hidden_size", json!(1_u64 << 39)),
        ("num_hidden_layers", json!(1_000_000_000)),
        ("num_attention_heads", json!(u64::MAX)),
        ("num_experts", json!(1_000_000_000)),
        ("num_experts", json!(-1)),
        ("moe_intermediate_size", json!(1_u64 << 62)),
        ("intermediate_size", json!(i64::MAX)),
        ("head_dim", json!(1_u64 << 40)),
        ("max_position_embeddings", json!(1e300)),
        ("rope_theta", json!("1e400")),
    ];
    for (key, value) in &cases {
        let mut changes = vec![(*key, value.clone())];
        if *key == "intermediate_size" {
            changes.push(("mlp_only_layers", json!([0])));
        }
        let said = ModelConfig::from_json(changed(&changes), Path::new("config.json"));
        let said = said.expect_err(key).to_string();
        assert!(said.contains("config.json") && said.contains(key), "{key}: {said}");
    }
    println!("hostile cases: {}", cases.len());
}

#[test]
fn sizes_that_are_sound_one_by_one_are_refused_together() {
    let cases = [
        vec![("num_experts", json!(1 << 23))],
        vec![("num_experts", json!(1 << 20)), ("num_hidden_layers", json!(4096))],
        vec![("hidden_size", json!(1 << 24)), ("vocab_size", json!(1 << 24))],
        vec![
            ("head_dim", json!(1 << 24)),
            ("num_attention_heads", json!(1 << 24)),
            ("hidden_size", json!(1 << 24)),
        ],
        vec![
            ("num_experts", json!(1 << 18)),
            ("moe_intermediate_size", json!(1 << 24)),
            ("hidden_size", json!(1 << 24)),
        ],
    ];
    for changes in &cases {
        let said = ModelConfig::from_json(changed(changes), Path::new("config.json"));
        let said = said.unwrap_err().to_string();
        assert!(said.contains("config.json: describes a model of"), "{changes:?}: {said}");
    }
    // More heads than the width has numbers leave none for a head.
    let said = ModelConfig::from_json(
        changed(&[("num_attention_heads", json!(16)), ("num_key_value_heads", json!(1))]),
        Path::new("config.json"),
    );
    assert!(said.unwrap_err().to_string().contains("head_dim"));
    println!("hostile cases: {}", cases.len() + 1);
}

#[test]
fn a_model_that_does_not_fit_is_refused_before_it_is_made() {
    let config = changed(&[
        ("hidden_size", json!(1 << 16)),
        ("moe_intermediate_size", json!(1 << 16)),
        ("num_experts", json!(100)),
    ]);
    let config = ModelConfig::from_json(config, Path::new("config.json")).unwrap();
    let said = Model::random(config, 1, Kind::Float, Device::Cpu).map(|_| ()).unwrap_err();
    assert!(said.to_string().contains("GiB for its weights"), "{said}");
    println!("hostile cases: 1");
}

#[test]
fn headers_that_claim_more_than_the_file_are_refused() {
    let header = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let one = |shape: &str, offsets: &str| {
        header(&format!(
            "{{\"a\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":{offsets}}}}}"
        ))
    };
    let cases = [
        u64::MAX.to_le_bytes().to_vec(),
        (1_u64 << 60).to_le_bytes().to_vec(),
        one("[1152921504606846976]", "[0, 4611686018427387904]"),
        one("[4294967296, 4294967296, 4294967296]", "[0, 4]"),
        one("[18446744073709551615, 2]", "[0, 4]"),
        one("[1]", "[4, 0]"),
        one("[1]", "[0, 18446744073709551615]"),
        header(&"[".repeat(1 << 20)),
        vec![0; 8],
        Vec::new(),
    ];
    for bytes in &cases {
        let folder = copy("llama");
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        let said = load(folder.path()).unwrap_err();
        assert!(said.contains("model.safetensors"), "{said}");
    }
    println!("hostile cases: {}", cases.len());
}

/// What an impostor is called, and how it is put there.
type Impostor = (&'static str, fn(&Path));

/// Puts something that is no file, or far too large a one, in a file's place.
fn impostors() -> [Impostor; 4] {
    [
        ("a named pipe", |path| {
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
        ("a device", |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap()),
        ("a folder", |path| std::fs::create_dir(path).unwrap()),
        ("larger than", |path| File::create(path).unwrap().set_len(1 << 40).unwrap()),
    ]
}

#[test]
fn only_regular_files_of_a_sound_size_are_read() {
    let mut count = 0;
    for (what, put) in impostors() {
        for name in [
            "config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "generation_config.json",
        ] {
            let folder = copy("tiny_chat");
            let path = folder.path().join(name);
            std::fs::remove_file(&path).ok();
            put(&path);
            let said = match name {
                "config.json" => ModelConfig::load(&path).map(|_| ()),
                "tokenizer.json" | "generation_config.json" => {
                    Tokenizer::load(folder.path()).map(|_| ())
                }
                _ => ChatTemplate::load(folder.path()).map(|_| ()),
            };
            let said = said.unwrap_err().to_string();
            assert!(said.contains(name) && said.contains(what), "{name}, {what}: {said}");
            count += 1;
        }
        for name in ["model.safetensors", "model.safetensors.index.json"] {
            let folder = copy("llama");
            let path = folder.path().join(name);
            std::fs::remove_file(&path).ok();
            put(&path);
            let said = load(folder.path()).unwrap_err();
            assert!(said.contains(name), "{name}, {what}: {said}");
            count += 1;
        }
    }
    println!("hostile cases: {count}");
}

#[test]
fn a_shard_may_be_no_device() {
    let folder = copy("llama");
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("shard")).unwrap();
    let index = json!({"weight_map": {"model.norm.weight": "shard"}}).to_string();
    std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    let said = load(folder.path()).unwrap_err();
    assert!(said.contains("shard") && said.contains("a device"), "{said}");
    println!("hostile cases: 1");
}

#[test]
fn examples_for_training_are_read_line_by_line_within_limits() {
    let reader = Reader::load(&crate::testdata("tiny_chat"), 64).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.jsonl");
    for (what, put) in impostors().into_iter().take(3) {
        put(&path);
        let said = reader.read(&path).unwrap_err().to_string();
        assert!(said.contains("data.jsonl") && said.contains(what), "{what}: {said}");
        std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path)).unwrap();
    }
    // A line of a gigabyte, all holes.
    let mut file = File::create(&path).unwrap();
    writeln!(file, "{{\"prompt\": \"a\", \"completion\": \"b\"}}").unwrap();
    file.set_len(1 << 30).unwrap();
    let said = reader.read(&path).unwrap_err().to_string();
    assert!(said.contains("line 2: this line is larger than 64 MiB"), "{said}");
    println!("hostile cases: 4");
}
