//! Greedy continuations of the tiny golden models: token for token those of transformers.
//!
//! Fixtures: scripts/golden/models.py (torch 2.11.0, transformers 5.3.0), whose `generate` made them
//! with a cache of its own, over more tokens than any window of these models.

use std::collections::HashMap;
use std::path::Path;

use scalerl_generate::{Generator, GeneratorOptions, Request, Sampling};
use scalerl_model::folder::Model;
use scalerl_model::tensor_file::read_tensors;
use scalerl_torch::tch::{Device, Kind, Tensor};

const NAMES: [&str; 4] = ["qwen2_yarn", "qwen3_yarn", "mistral", "gemma3_text"];

#[test]
fn greedy_continuations_are_those_of_transformers() {
    for name in NAMES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata").join(name);
        let golden = read_tensors(&folder.join("golden.safetensors")).unwrap();
        let golden: HashMap<String, Tensor> = golden.into_iter().collect();
        let ids = |key: &str| Vec::<i64>::try_from(&golden[key]).unwrap();
        let (prompt, expected) = (ids("ids_0"), ids("greedy"));
        // Prompts are read in chunks shorter than they are, pages end in the middle of them.
        for (chunk_tokens, page_tokens) in [(4, 8), (64, 16)] {
            let options =
                GeneratorOptions { chunk_tokens, page_tokens, ..GeneratorOptions::of(Device::Cpu) };
            let model = Model::load(&folder, Kind::Float, Device::Cpu).unwrap();
            let mut generator = Generator::new(model, options).unwrap();
            let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
            let request = Request { sampling, ..Request::new(prompt.clone(), expected.len()) };
            generator.submit(request).unwrap();
            let completion = generator.finish_all().unwrap().pop().unwrap();
            let found: Vec<i64> = completion.tokens.iter().map(|token| token.id).collect();
            assert_eq!(found, expected, "{name}, chunks of {chunk_tokens}");
        }
    }
}
