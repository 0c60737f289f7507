//! Writing a model folder that transformers and vLLM load.
//!
//! A folder appears whole or not at all: everything is written and synced under a temporary name
//! beside the target and renamed at the end. Weights are cut back into Hugging Face's tensors
//! (`layout.rs`), in shards of at most [`SHARD_BYTES`].

use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tch::{Kind, Tensor};

use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::families;
use crate::layout::{Parameter, layout};
use crate::tensor_writer::{Entry, TensorWriter};

/// Large enough that small models stay in one file, small enough for any file system and hub.
pub const SHARD_BYTES: usize = 4 << 30;

/// What belongs to a model beside its weights and is copied as it is.
const COMPANIONS: [&str; 10] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
];

/// The kind of numbers in a saved file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveKind {
    Float32,
    BFloat16,
}

impl SaveKind {
    fn names(self) -> (Kind, &'static str) {
        match self {
            Self::Float32 => (Kind::Float, "float32"),
            Self::BFloat16 => (Kind::BFloat16, "bfloat16"),
        }
    }
}

/// What to save, without its numbers.
#[derive(Debug, Clone, Copy)]
pub struct FolderToSave<'a> {
    pub config: &'a ModelConfig,
    pub kind: SaveKind,
    /// A model folder whose tokenizer and generation settings are copied.
    pub companions: Option<&'a Path>,
}

/// What to save: the parameters in the order of [`layout`], and where the tokenizer comes from.
pub struct ModelToSave<'a> {
    pub config: &'a ModelConfig,
    pub parameters: &'a [Tensor],
    pub kind: SaveKind,
    /// A model folder whose tokenizer and generation settings are copied.
    pub companions: Option<&'a Path>,
}

/// Writes the folder, replacing one that is there.
pub fn save_model(model: &ModelToSave, folder: &Path) -> Result<(), LoadError> {
    save_model_in_shards(model, folder, SHARD_BYTES)
}

/// As [`save_model`], with a size of shards of one's own.
pub fn save_model_in_shards(
    model: &ModelToSave,
    folder: &Path,
    shard_bytes: usize,
) -> Result<(), LoadError> {
    let &ModelToSave { config, parameters, kind, companions } = model;
    let about = FolderToSave { config, kind, companions };
    assert_eq!(layout(config).len(), parameters.len(), "parameters do not follow the layout");
    write_model(&about, folder, shard_bytes, |writer| {
        parameters.iter().try_for_each(|parameter| writer.write(parameter))
    })
}

/// Writes the folder, whose parameters `fill` hands over one by one in the order of the layout.
pub fn save_model_of<E: From<LoadError>>(
    about: &FolderToSave,
    folder: &Path,
    fill: impl FnOnce(&mut ModelWriter) -> Result<(), E>,
) -> Result<(), E> {
    write_model(about, folder, SHARD_BYTES, fill)
}

fn write_model<E: From<LoadError>>(
    about: &FolderToSave,
    folder: &Path,
    shard_bytes: usize,
    fill: impl FnOnce(&mut ModelWriter) -> Result<(), E>,
) -> Result<(), E> {
    in_new_folder(folder, |work| {
        write_config(about, work)?;
        let mut writer = ModelWriter::new(about, work, shard_bytes);
        fill(&mut writer)?;
        writer.finish()?;
        Ok(about.companions.map_or(Ok(()), |from| copy_companions(from, work))?)
    })
}

/// Has a folder filled under another name and puts it in the place of one that may be there.
pub(crate) fn in_new_folder<E: From<LoadError>>(
    folder: &Path,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(LoadError::io(parent))?;
    // As readable as any other folder; the default of a temporary one is private.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let work = tempfile::Builder::new()
        .prefix(".saving-")
        .permissions(permissions)
        .tempdir_in(parent)
        .map_err(LoadError::io(parent))?;
    fill(work.path())?;
    Ok(replace_folder(&work.keep(), folder)?)
}

/// Writes a file that is whole or not there: a process killed in between leaves no half of one.
pub(crate) fn write_json(path: &Path, value: &Value) -> Result<(), LoadError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let draft = path.with_file_name(name);
    let text = format!("{value:#}\n");
    std::fs::write(&draft, text).map_err(LoadError::io(&draft))?;
    File::open(&draft).and_then(|file| file.sync_all()).map_err(LoadError::io(&draft))?;
    std::fs::rename(&draft, path).map_err(LoadError::io(path))
}

fn write_config(model: &FolderToSave, folder: &Path) -> Result<(), LoadError> {
    let mut raw = model.config.raw.clone();
    let dtype = model.kind.names().1;
    raw.insert("dtype".into(), json!(dtype));
    raw.insert("torch_dtype".into(), json!(dtype));
    let family = families::named(model.config.family).expect("a config is read by its family");
    family.write_rotation(model.config, &mut raw);
    write_json(&folder.join("config.json"), &Value::Object(raw))
}

/// The weight files of a folder in the making: parameters come in the order of the layout.
pub struct ModelWriter {
    table: Vec<Parameter>,
    kind: Kind,
    folder: PathBuf,
    /// Tensors of each file, as parameters and parts of them.
    shards: Vec<Vec<(usize, usize)>>,
    total: usize,
    /// The next parameter, and the file that is being written.
    next: usize,
    open: Option<(usize, TensorWriter)>,
}

impl ModelWriter {
    fn new(about: &FolderToSave, folder: &Path, shard_bytes: usize) -> Self {
        let table = layout(about.config);
        let kind = about.kind.names().0;
        let mut shards: Vec<Vec<(usize, usize)>> = vec![Vec::new()];
        let (mut filled, mut total) = (0, 0);
        for (index, parameter) in table.iter().enumerate() {
            for (part, source) in parameter.sources.iter().enumerate() {
                let numbers = source.shape.iter().product::<i64>() as usize;
                let size = numbers * kind.elt_size_in_bytes();
                if filled > 0 && filled + size > shard_bytes {
                    shards.push(Vec::new());
                    filled = 0;
                }
                filled += size;
                total += size;
                shards.last_mut().expect("starts with one shard").push((index, part));
            }
        }
        let folder = folder.to_path_buf();
        Self { table, kind, folder, shards, total, next: 0, open: None }
    }

    fn name(&self, shard: usize) -> String {
        match self.shards.len() {
            1 => "model.safetensors".to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", shard + 1),
        }
    }

    /// The next parameter.
    pub fn write(&mut self, parameter: &Tensor) -> Result<(), LoadError> {
        let index = self.next;
        self.next += 1;
        for part in 0..self.table[index].sources.len() {
            let tensor = cut(&self.table[index], parameter, part)?;
            self.file()?.write(&tensor)?;
        }
        Ok(())
    }

    /// The file that is open, or the next where that has all of its tensors.
    fn file(&mut self) -> Result<&mut TensorWriter, LoadError> {
        if self.open.as_ref().is_none_or(|(_, writer)| writer.is_done()) {
            let at = match self.open.take() {
                Some((at, done)) => done.finish().map(|_| at + 1)?,
                None => 0,
            };
            let entry = |&(index, part): &(usize, usize)| {
                let source = &self.table[index].sources[part];
                Entry { name: source.tensor.clone(), kind: self.kind, shape: source.shape.clone() }
            };
            let entries = self.shards[at].iter().map(entry).collect();
            let writer = TensorWriter::create(&self.folder.join(self.name(at)), entries)?;
            self.open = Some((at, writer));
        }
        Ok(&mut self.open.as_mut().expect("opened above").1)
    }

    fn finish(mut self) -> Result<(), LoadError> {
        assert_eq!(self.next, self.table.len(), "parameters do not follow the layout");
        if let Some((_, done)) = self.open.take() {
            done.finish()?;
        }
        if self.shards.len() == 1 {
            return Ok(());
        }
        let mut weight_map = Map::new();
        for (shard, parts) in self.shards.iter().enumerate() {
            for &(index, part) in parts {
                let tensor = self.table[index].sources[part].tensor.clone();
                weight_map.insert(tensor, json!(self.name(shard)));
            }
        }
        let index = json!({"metadata": {"total_size": self.total}, "weight_map": weight_map});
        write_json(&self.folder.join("model.safetensors.index.json"), &index)
    }
}

/// The part of a parameter that one tensor of the file holds.
pub(crate) fn cut(
    parameter: &Parameter,
    tensor: &Tensor,
    part: usize,
) -> Result<Tensor, LoadError> {
    let source = &parameter.sources[part];
    let tensor = tensor.f_detach()?;
    if source.is_transposed {
        return Ok(tensor.f_transpose(-1, -2)?);
    }
    if parameter.sources.len() == 1 {
        return Ok(tensor);
    }
    let flat = match parameter.shape[..] {
        [experts, rows, columns] => tensor.f_view([experts * rows, columns])?,
        _ => tensor,
    };
    let before: i64 = parameter.sources[..part].iter().map(|source| source.shape[0]).sum();
    Ok(flat.f_narrow(0, before, source.shape[0])?)
}

pub(crate) fn copy_companions(from: &Path, to: &Path) -> Result<(), LoadError> {
    for name in COMPANIONS {
        let source = from.join(name);
        if source.is_file() {
            let target = to.join(name);
            // A full disk is the target's; whatever else fails, the source names it.
            std::fs::copy(&source, &target).map_err(|error| {
                match LoadError::io(&target)(error) {
                    LoadError::Io { source: error, .. } => LoadError::io(&source)(error),
                    full => full,
                }
            })?;
        }
    }
    Ok(())
}

/// Puts a finished folder in place of one that may be there.
pub(crate) fn replace_folder(finished: &Path, target: &Path) -> Result<(), LoadError> {
    let mut old = None;
    if target.exists() {
        let mut name = target.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".replaced-{}", std::process::id()));
        let aside = target.with_file_name(name);
        std::fs::rename(target, &aside).map_err(LoadError::io(target))?;
        old = Some(aside);
    }
    std::fs::rename(finished, target).map_err(LoadError::io(target))?;
    sync_folder(target.parent());
    if let Some(old) = old {
        std::fs::remove_dir_all(&old).map_err(LoadError::io(&old))?;
    }
    Ok(())
}

/// Makes a rename durable. File systems that cannot sync a folder are left to their own order.
fn sync_folder(folder: Option<&Path>) {
    let folder: PathBuf = folder.map_or_else(|| ".".into(), Path::to_path_buf);
    if let Ok(handle) = File::open(folder) {
        handle.sync_all().ok();
    }
}
