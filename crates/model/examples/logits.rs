//! Loads a model folder, writes the logits of some tokens, and optionally saves the model again.
//!
//! The counterpart of scripts/golden/compare.py, which asks transformers for the same.
//!
//! ```text
//! logits FOLDER OUT.safetensors 1,5,9,2 [SAVED_FOLDER]
//! ```

use std::path::Path;

use scalerl_model::folder::Model;
use scalerl_model::head::{Head, HeadOptions};
use scalerl_model::packed::Packed;
use scalerl_model::save::SaveKind;
use scalerl_model::tensor_file::write_tensors;
use scalerl_torch::tch::{Device, Kind};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, out, tokens, rest @ ..] = &arguments[..] else {
        return Err("logits FOLDER OUT.safetensors 1,5,9,2 [SAVED_FOLDER]".into());
    };
    let model = Model::load(Path::new(folder), Kind::Float, Device::Cpu)?;
    let tokens = tokens.split(',').map(str::parse).collect::<Result<Vec<i64>, _>>()?;
    let hidden = model.network.hidden(&Packed::new(&[tokens], Device::Cpu)?)?;
    let head = Head::new(model.network.head(), HeadOptions::of(Device::Cpu))?;
    write_tensors(Path::new(out), &[("logits".to_owned(), head.logits(&hidden)?)])?;
    if let Some(saved) = rest.first() {
        model.save(Path::new(saved), SaveKind::Float32)?;
    }
    Ok(())
}
