//! A model by name: a folder where there is one, otherwise the Hugging Face hub's local cache,
//! otherwise a download into that cache.

use std::path::{Path, PathBuf};

use hf_hub::api::sync::{ApiBuilder, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};

use crate::error::LoadError;
use crate::json;

/// Everything a folder needs before its weights; only the first must exist.
const SMALL_FILES: [&str; 6] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
];

/// The folder of a model given as a folder or as a hub name (`owner/model`).
pub fn resolve(name: &str) -> Result<PathBuf, LoadError> {
    resolve_revision(name, "main")
}

/// The same, at a branch, tag or commit of the hub. Folders have no revisions.
pub fn resolve_revision(name: &str, revision: &str) -> Result<PathBuf, LoadError> {
    let folder = Path::new(name);
    if folder.is_dir() {
        return Ok(folder.to_path_buf());
    }
    let looks_like_hub = name.split('/').count() == 2
        && !name.starts_with(['/', '.', '~'])
        && name.split('/').all(|part| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        });
    if !looks_like_hub {
        return Err(LoadError::NoFolder { name: name.to_owned() });
    }
    if let Some(cached) = cached(name, revision) {
        return Ok(cached);
    }
    download(name, revision)
}

/// A complete snapshot that an earlier download (ours or Python's) left in the cache.
fn cached(name: &str, revision: &str) -> Option<PathBuf> {
    let repo = Cache::from_env().repo(repository(name, revision));
    let folder = repo.get("config.json")?.parent()?.to_path_buf();
    let complete = weight_files(&folder)
        .is_some_and(|files| files.iter().all(|file| folder.join(file).is_file()));
    complete.then_some(folder)
}

/// The weight files of a folder: those its index names, or the single one.
fn weight_files(folder: &Path) -> Option<Vec<String>> {
    let Some(index) = json::read_if_there(&folder.join("model.safetensors.index.json")).ok()?
    else {
        return Some(vec!["model.safetensors".to_owned()]);
    };
    let mut files: Vec<String> = index
        .get("weight_map")?
        .as_object()?
        .values()
        .filter_map(|file| file.as_str().map(str::to_owned))
        .collect();
    files.sort();
    files.dedup();
    Some(files)
}

fn repository(name: &str, revision: &str) -> Repo {
    Repo::with_revision(name.to_owned(), RepoType::Model, revision.to_owned())
}

fn download(name: &str, revision: &str) -> Result<PathBuf, LoadError> {
    let failed = |file: &str| {
        let (name, file) = (name.to_owned(), file.to_owned());
        move |error: hf_hub::api::sync::ApiError| LoadError::Hub {
            name,
            file,
            problem: error.to_string(),
        }
    };
    let api = ApiBuilder::from_env().with_progress(false).build().map_err(failed("config.json"))?;
    let repo: ApiRepo = api.repo(repository(name, revision));
    let config = repo.get("config.json").map_err(failed("config.json"))?;
    let folder = config.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    for file in &SMALL_FILES[1..] {
        // Optional: what a model lacks is reported when it is needed.
        repo.get(file).ok();
    }
    repo.get("model.safetensors.index.json").ok();
    for file in weight_files(&folder).unwrap_or_default() {
        repo.get(&file).map_err(failed(&file))?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_hub_name_is_a_missing_folder() {
        for name in ["/no/such/folder", "./nothing", "nothing", "a/b/c", "a/b c"] {
            assert!(matches!(resolve(name), Err(LoadError::NoFolder { .. })), "{name}");
        }
    }
}
