//! Tokenizers whose patterns or settings take for ever, or all memory there is.

use scalerl_model::tokenizer::{Markers, Tokenizer};
use serde_json::{Value, json};

use crate::{folder_with, testdata};

/// A tokenizer of two letters and a space.
fn small() -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"x": 0, "y": 1, " ": 2, "?": 3}, "unk_token": "?"},
    })
}

fn load(tokenizer: &Value) -> Result<Tokenizer, String> {
    let folder = folder_with("tokenizer.json", &tokenizer.to_string());
    Tokenizer::load(folder.path()).map_err(|error| error.to_string())
}

fn split(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

fn replace(pattern: &str, content: &str) -> Value {
    json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
}

#[test]
fn patterns_that_backtrack_without_end_are_refused() {
    let patterns =
        ["(x+x+)+y", "(a|a)*b", "(\\s+)+$y", "([a-z]+)*\\d", "(\\p{L}+)+\\p{N}", "x*x*x*x*x*y|x"];
    std::thread::scope(|scope| {
        let case = |pattern: &str| {
            let mut tokenizer = small();
            tokenizer["pre_tokenizer"] = split(pattern);
            load(&tokenizer).map(|_| ())
        };
        let started = patterns.map(|pattern| (pattern, scope.spawn(move || case(pattern))));
        for (pattern, case) in started {
            let said = case.join().unwrap().expect_err(pattern);
            assert!(said.contains("tokenizer.json: tried on 256 equal"), "{pattern}: {said}");
            println!("{pattern}: {said}");
        }
    });
    println!("hostile cases: {}", patterns.len());
}

#[test]
fn a_pattern_that_fails_on_a_real_text_only_is_an_error_then() {
    let mut tokenizer = small();
    // No letter in a row and no hint of which: only the text itself brings it out.
    tokenizer["pre_tokenizer"] = split("(\\x71\\x72|\\x71\\x72)*\\x73");
    let tokenizer = load(&tokenizer).unwrap();
    let text = format!("{}!s", "qr".repeat(64));
    let error = tokenizer.encode(&text, Markers::Leave).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json") && error.contains("limit"), "{error}");
    println!("hostile cases: 1");
}

#[test]
fn rules_that_grow_a_text_without_end_are_refused() {
    let doubling: Vec<Value> = (0..60).map(|_| replace("x", "xx")).collect();
    let long = "y".repeat(1 << 20);
    let cases = [
        ("normalizer", json!({"type": "Sequence", "normalizers": doubling.clone()})),
        (
            "normalizer",
            json!({"type": "Sequence", "normalizers": [replace("x", &long), replace("y", &long)]}),
        ),
        ("decoder", json!({"type": "Sequence", "decoders": doubling})),
    ];
    for (part, rule) in cases.clone() {
        let mut tokenizer = small();
        tokenizer["pre_tokenizer"] = split("[\\s\\S]");
        tokenizer[part] = rule;
        let said = load(&tokenizer).map(|_| ()).expect_err(part);
        assert!(said.contains("memory") || said.contains("longer"), "{part}: {said}");
    }
    println!("hostile cases: {}", cases.len());
}

#[test]
fn padding_and_truncation_of_whoever_saved_the_file_are_put_aside() {
    let mut tokenizer = small();
    tokenizer["pre_tokenizer"] = split("[\\s\\S]");
    tokenizer["padding"] = json!({"strategy": {"Fixed": 1_000_000_000_000_u64}, "direction": "Right",
        "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"});
    tokenizer["truncation"] =
        json!({"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0});
    let tokens = load(&tokenizer).unwrap().encode("xyx", Markers::Add).unwrap();
    assert_eq!(tokens, [0, 1, 0]);
    println!("hostile cases: 2");
}

#[test]
fn broken_settings_are_errors_and_no_panics() {
    let with = |part: &str, value: Value| {
        let mut tokenizer = small();
        tokenizer[part] = value;
        tokenizer
    };
    let cases = [
        with("normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"})),
        with("normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "/////wAA"})),
        with(
            "decoder",
            json!({"type": "Strip", "content": "x", "start": u64::MAX, "stop": u64::MAX}),
        ),
        with("pre_tokenizer", split("(((((x{1,999}){1,999}){1,999}){1,999}){1,999})")),
        with("pre_tokenizer", split(&"(".repeat(100_000))),
        with("pre_tokenizer", split(&format!("{}x{}", "(".repeat(50_000), ")".repeat(50_000)))),
        with("pre_tokenizer", split("[")),
        with("model", json!({"type": "Unigram", "unk_id": 7, "vocab": [["x", -1e300]]})),
        with(
            "model",
            json!({"type": "BPE", "vocab": {"x": 4_294_967_295_u64}, "merges": [["x", "x"]]}),
        ),
        with(
            "model",
            json!({"type": "WordPiece", "unk_token": "?", "vocab": {}, "continuing_subword_prefix": "##", "max_input_chars_per_word": 0}),
        ),
        with(
            "added_tokens",
            json!([{"id": 4_294_967_295_u64, "content": "x", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}]),
        ),
        with(
            "post_processor",
            json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "z", "type_id": 0}}], "pair": [], "special_tokens": {}}),
        ),
    ];
    for (index, tokenizer) in cases.iter().enumerate() {
        match load(tokenizer) {
            Ok(loaded) => println!(
                "{index}: {:?}",
                loaded.encode("xyx", Markers::Add).map_err(|e| e.to_string())
            ),
            Err(said) => {
                assert!(said.contains("tokenizer.json"), "{said}");
                println!("{index}: {}", &said[..said.len().min(160)]);
            }
        }
    }
    println!("hostile cases: {}", cases.len());
}

#[test]
fn sound_tokenizers_pass() {
    assert!(Tokenizer::load(&testdata("tiny_chat")).is_ok());
}
