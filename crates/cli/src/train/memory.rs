//! Whether a run fits its devices: said by `--dry-run`, refused by `train` before anything is spent.
//!
//! Not here: the bytes themselves (`scalerl_worker::memory`).

use std::io::Write;

use anyhow::Result;
use scalerl_model::config::ModelConfig;
use scalerl_recipe::Recipe;
use scalerl_torch::tch::Device;
use scalerl_torch::{device, shim};
use scalerl_worker::memory::{
    Fit, Holder, RankMemory, Setting, fit, host, of, of_generator_apart, said, usable,
};
use scalerl_worker::ranks::Launch;

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

/// Where a process of a run trains and, where the first one generates, where that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) trainer: Device,
    pub(crate) generator: Device,
    /// Which trainer it is, and of how many.
    rank: u64,
    pub(crate) ranks: u64,
}

impl Places {
    /// The generator has a GPU of its own where the machine has two or more and none was named, where it
    /// does not share the trainer's weights, and where no other ranks have the GPUs.
    pub(crate) fn first(named: &str, trainer: Device, recipe: &Recipe, ranks: u64) -> Self {
        let is_apart = trainer == Device::Cuda(0)
            && matches!(named, "auto" | "cuda")
            && ranks <= 1
            && !recipe.shares_weights()
            && device::open().cuda_devices >= 2;
        let generator = if is_apart { Device::Cuda(1) } else { trainer };
        Self { trainer, generator, rank: 0, ranks }
    }

    /// Of a trainer other than the first.
    pub(crate) fn other(trainer: Device, launch: &Launch) -> Self {
        let (rank, ranks) = (launch.rank as u64, launch.world as u64);
        Self { trainer, generator: trainer, rank, ranks }
    }

    /// A run here, as far as memory asks.
    pub(crate) fn setting<'a>(
        self,
        recipe: &'a Recipe,
        config: &'a ModelConfig,
        device_bytes: Option<u64>,
    ) -> Setting<'a> {
        Setting::of(recipe, config, self.trainer, device_bytes)
            .with_generator_on(self.generator)
            .with_ranks(self.ranks)
    }

    /// GPUs in place of these, as many as they are.
    fn as_gpus(self) -> Self {
        let generator = Device::Cuda(usize::from(self.generator != self.trainer));
        Self { trainer: Device::Cuda(0), generator, ..self }
    }
}

/// What a device has, as far as it is known.
fn device_bytes(device: Device, named: Option<u64>) -> Result<Option<u64>> {
    match (named, device) {
        (Some(bytes), _) => Ok(Some(bytes)),
        (None, Device::Cuda(_)) => Ok(Some(shim::device_memory(device)?.1)),
        (None, _) => Ok(None),
    }
}

/// Who holds how much, and all together.
fn holders(memory: &RankMemory) -> String {
    let held = Holder::ALL.iter().filter(|holder| memory.of(**holder) > 0).map(|holder| {
        let room = match holder {
            Holder::Cache => format!(" ({} tokens)", memory.cache_tokens),
            _ => String::new(),
        };
        format!("{} {}{room}", holder.name(), said(memory.of(*holder)))
    });
    format!("{}: {} in all", held.collect::<Vec<_>>().join(", "), said(memory.total()))
}

/// Says what the fullest device holds, whether that fits, and what to change where it does not; then
/// what a generator apart and the host hold. A size that is named is of GPUs that are asked about.
pub(crate) fn print(
    recipe: &Recipe,
    config: &ModelConfig,
    places: Places,
    named: Option<u64>,
    out: &mut dyn Write,
) -> Result<()> {
    let places = if named.is_some() { places.as_gpus() } else { places };
    let bytes = device_bytes(places.trainer, named)?;
    let setting = places.setting(recipe, config, bytes);
    let memory = of(&setting, 0).map_err(|error| bad_model(&error))?;
    let rank = if setting.ranks > 1 { " (the first of the trainers, the fullest)" } else { "" };
    writeln!(out, "memory    {}{rank}", holders(&memory))?;
    if let Some(bytes) = bytes {
        let found = fit(&setting, 0, bytes).map_err(|error| bad_model(&error))?;
        write!(out, "          of {} that can be used of a device", said(found.usable))?;
        match found.largest_micro_batch {
            Some(tokens) => {
                writeln!(out, "; the largest micro-batch that fits has {tokens} tokens")?;
            }
            None => writeln!(out, "; not even one sequence of the longest kind fits")?,
        }
        if !found.fits() {
            writeln!(out, "          DOES NOT FIT: {}", advice(&found))?;
        }
    }
    if let Some(apart) = of_generator_apart(&setting).map_err(|error| bad_model(&error))? {
        let fits = bytes.is_none_or(|bytes| apart.total() <= usable(bytes));
        let verdict = if fits { "" } else { "; DOES NOT FIT" };
        writeln!(out, "          the generator's device: {}{verdict}", holders(&apart))?;
    }
    if places.trainer != Device::Cpu {
        let host = host(&setting).map_err(|error| bad_model(&error))?;
        let mut held = Vec::new();
        if host.published > 0 {
            held.push(format!("published copies {}", said(host.published)));
        }
        if host.checkpoint > 0 {
            let whose = if setting.ranks > 1 { " (of all ranks)" } else { "" };
            held.push(format!("a checkpoint {}{whose} while it is written", said(host.checkpoint)));
        }
        if !held.is_empty() {
            writeln!(out, "          the host: {}", held.join(", "))?;
        }
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
    let more = found.on_more.as_ref().map(|more| {
        let sets: Vec<String> = more.sets.iter().map(|set| format!("--set '{set}'")).collect();
        format!("on {} devices with {} ({} each)", more.trainers, sets.join(" "), said(more.total))
    });
    match (found.can_fit(), all.is_empty(), more) {
        (true, _, None) => format!("it does with {all}"),
        (true, _, Some(more)) => format!("it does with {all}; or {more}"),
        (false, _, Some(more)) => format!("it does {more}"),
        (false, true, None) => "it needs larger devices, or a smaller model".to_owned(),
        (false, false, None) => {
            format!("nor with {all}: it needs larger devices, or a smaller model")
        }
    }
}

/// Refuses a run that cannot fit its GPUs.
pub(crate) fn check(recipe: &Recipe, config: &ModelConfig, places: Places) -> Result<()> {
    let Some(bytes) = device_bytes(places.trainer, None)? else { return Ok(()) };
    let setting = places.setting(recipe, config, Some(bytes));
    let found = fit(&setting, places.rank, bytes).map_err(|error| bad_model(&error))?;
    if !found.fits() {
        return Err(refusal("the run", &found.memory, found.usable).hint(advice(&found)).into());
    }
    match of_generator_apart(&setting).map_err(|error| bad_model(&error))? {
        Some(apart) if apart.total() > found.usable => {
            let hint = "it needs a larger device, or a smaller model; vLLM servers hold a model on several \
                        GPUs (docs/vllm.md)";
            Err(refusal("the generator", &apart, found.usable).hint(hint).into())
        }
        _ => Ok(()),
    }
}

fn refusal(who: &str, memory: &RankMemory, usable: u64) -> BadInput {
    let largest: Vec<String> = memory
        .largest(3)
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(holder, bytes)| format!("{} {}", holder.name(), said(bytes)))
        .collect();
    BadInput::new(format!(
        "{who} does not fit a device: it would hold {}, and {} can be used; most by {}",
        said(memory.total()),
        said(usable),
        largest.join(", "),
    ))
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
