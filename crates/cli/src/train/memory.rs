//! Whether a run fits its devices: said by `--dry-run`, refused by `train` before anything is spent.
//!
//! Not here: the bytes themselves (`scalerl_worker::memory`).

use std::io::Write;

use anyhow::Result;
use scalerl_model::config::ModelConfig;
use scalerl_recipe::Recipe;
use scalerl_torch::shim;
use scalerl_torch::tch::Device;
use scalerl_worker::memory::{Fit, Holder, Setting, fit, of, said};

use crate::failure::BadInput;
use crate::train::policy::bad_model;

/// A size as people write it: 80GB, 141 GB, 79.6GiB, 500MB.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "gb" => 1e9,
        "gib" => (1_u64 << 30) as f64,
        "mb" => 1e6,
        "mib" => (1_u64 << 20) as f64,
        _ => return Err(format!("`{text}` is not a size: write 80GB, 79.6GiB or 500MB")),
    };
    let number: Option<f64> = digits.trim().parse().ok();
    let bytes = number.unwrap_or(f64::NAN) * unit;
    if !(1e6..1e15).contains(&bytes) {
        return Err(format!("`{text}` is no device's memory: write 80GB, 79.6GiB or 500MB"));
    }
    Ok(bytes as u64)
}

/// What a device has, as far as it is known.
fn device_bytes(device: Device, named: Option<u64>) -> Result<Option<u64>> {
    match (named, device) {
        (Some(bytes), _) => Ok(Some(bytes)),
        (None, Device::Cuda(_)) => Ok(Some(shim::device_memory(device)?.1)),
        (None, _) => Ok(None),
    }
}

/// The device whose sizes are asked about: a GPU where a size was named.
fn asked(device: Device, named: Option<u64>) -> Device {
    if named.is_some() { Device::Cuda(0) } else { device }
}

/// Says what the fullest device holds, whether that fits, and what to change where it does not.
pub(crate) fn print(
    recipe: &Recipe,
    config: &ModelConfig,
    device: Device,
    named: Option<u64>,
    out: &mut dyn Write,
) -> Result<()> {
    let bytes = device_bytes(device, named)?;
    let setting = Setting::of(recipe, config, asked(device, named), bytes);
    let memory = of(&setting, 0).map_err(|error| bad_model(&error))?;
    let rank = if setting.ranks() > 1 { " (the first of the trainers, the fullest)" } else { "" };
    let held: Vec<String> = Holder::ALL
        .iter()
        .filter(|holder| memory.of(**holder) > 0)
        .map(|holder| {
            let room = match holder {
                Holder::Cache => format!(" ({} tokens)", memory.cache_tokens),
                _ => String::new(),
            };
            format!("{} {}{room}", holder.name(), said(memory.of(*holder)))
        })
        .collect();
    writeln!(out, "memory    {}: {} in all{rank}", held.join(", "), said(memory.total()))?;
    let Some(bytes) = bytes else { return Ok(()) };
    let found = fit(&setting, bytes).map_err(|error| bad_model(&error))?;
    write!(out, "          of {} that can be used of a device", said(found.usable))?;
    match found.largest_micro_batch {
        Some(tokens) => writeln!(out, "; the largest micro-batch that fits has {tokens} tokens")?,
        None => writeln!(out, "; not even one sequence of the longest kind fits")?,
    }
    if !found.fits() {
        writeln!(out, "          DOES NOT FIT: {}", advice(&found))?;
    }
    Ok(())
}

/// What to change, in one line.
fn advice(found: &Fit) -> String {
    let sets: Vec<String> = found
        .changes
        .iter()
        .map(|change| format!("--set '{}' ({})", change.set, said(change.total)))
        .collect();
    let all = sets.join(", then ");
    if found.can_fit() {
        format!("it does with {all}")
    } else if all.is_empty() {
        "it needs larger devices, or a smaller model".to_owned()
    } else {
        format!("nor with {all}: it needs larger devices, or a smaller model")
    }
}

/// Refuses a run that cannot fit its GPU.
pub(crate) fn check(recipe: &Recipe, config: &ModelConfig, device: Device) -> Result<()> {
    let Some(bytes) = device_bytes(device, None)? else { return Ok(()) };
    let setting = Setting::of(recipe, config, device, Some(bytes));
    let found = fit(&setting, bytes).map_err(|error| bad_model(&error))?;
    if found.fits() {
        return Ok(());
    }
    let largest: Vec<String> = found
        .memory
        .largest(3)
        .into_iter()
        .map(|(holder, bytes)| format!("{} {}", holder.name(), said(bytes)))
        .collect();
    let message = format!(
        "the run does not fit a device: it would hold {}, and {} can be used; most by {}",
        said(found.memory.total()),
        said(found.usable),
        largest.join(", "),
    );
    Err(BadInput::new(message).hint(advice(&found)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(size("80GB").unwrap(), 80_000_000_000);
        assert_eq!(size(" 141 gb").unwrap(), 141_000_000_000);
        assert_eq!(size("0.5GiB").unwrap(), 1 << 29);
        for bad in ["80", "GB", "-1GB", "1e9GB", "80 apples", "", "nanGB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
