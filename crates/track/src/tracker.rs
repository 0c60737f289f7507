//! What a tracker is: something that takes rows in order and can say what it has for sure.
//!
//! The state that [`Tracker::send`] returns goes into the cursor. A tracker that is opened again, after
//! trouble or a kill, gets the state of the last cursor, and must then be as if nothing after it had
//! happened: files are cut, servers recognise what they have.

use std::path::{Path, PathBuf};

use scalerl_journal::{Reading, RunFolder, StopReason};
use scalerl_recipe::TrackerChoice;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::config;
use crate::error::TrackError;
use crate::jsonl::{self, Jsonl};
use crate::mlflow::Mlflow;
use crate::rows::Row;
use crate::tensorboard::{self, TensorBoard};
use crate::trackio::Trackio;
use crate::wandb::{self, Wandb};

/// Takes rows, in order.
pub(crate) trait Tracker: Send {
    /// Takes these rows; when it returns they are there for sure. What comes back is the state to open it
    /// with the next time.
    fn send(&mut self, rows: &[Row]) -> Result<Value, TrackError>;

    /// Says how the run stands since `at` (Unix seconds). Called again where it stands otherwise; a resumed run undoes it by opening.
    fn finish(&mut self, ending: &Ending, at: f64) -> Result<(), TrackError>;
}

/// How a run has ended, or that it has not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ending {
    /// Alive, or killed: no end is recorded.
    Open,
    Stopped(StopReason),
    Failed,
}

/// What every tracker wants to know of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
    /// Unix seconds.
    pub(crate) started_at: f64,
    /// The recipe as it stands in the folder.
    pub(crate) recipe: String,
    /// The same as nested JSON.
    pub(crate) config: Value,
    /// Ten letters and digits that no other run has.
    pub(crate) id: String,
}

impl Run {
    pub(crate) fn load(path: &Path) -> Result<Self, TrackError> {
        let folder = RunFolder::open(path)?;
        let recipe_path = folder.recipe();
        let recipe = scalerl_files::read_to_string(&recipe_path, scalerl_files::DOCUMENT)
            .map_err(TrackError::io("read", &recipe_path))?;
        // A folder of a simulation, or a copied one, may lack it.
        let started_at = Reading::environment_of(path).map_or(0.0, |found| found.started_at);
        let config = config::nested(&recipe_path, &recipe)?;
        let name = folder.name();
        // The beginning of the journal is the run's own; a copy of the folder is the same run.
        let id = id(&[name.as_bytes(), &started_at.to_le_bytes(), &first_line(&folder.events())]);
        Ok(Self { folder: path.to_owned(), name, started_at, recipe, config, id })
    }
}

fn first_line(path: &Path) -> Vec<u8> {
    let bytes = scalerl_files::open(path).and_then(|file| {
        use std::io::{BufRead as _, BufReader, Read as _};
        let mut line = Vec::new();
        BufReader::new(file).take(64 << 10).read_until(b'\n', &mut line)?;
        Ok(line)
    });
    bytes.unwrap_or_default()
}

/// Letters and digits of a digest, as W&B's own ids are spelled.
fn id(parts: &[&[u8]]) -> String {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
    hasher.finalize().iter().take(10).map(letter).collect()
}

/// What a tracker is opened with.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) run: &'a Run,
    /// Times that everything was sent anew.
    pub(crate) generation: u32,
    /// As the last `send` returned it; null at the beginning of a generation.
    pub(crate) state: &'a Value,
    /// State of the generation before, whose rows do not all count any more.
    pub(crate) superseded: &'a Value,
}

/// A tracker with where it is and what it is to hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub(crate) choice: TrackerChoice,
    pub(crate) project: String,
    /// Of servers, without a slash at the end.
    pub(crate) url: String,
}

impl Target {
    /// Finds the address of a server, in the recipe or the environment.
    pub fn new(choice: &TrackerChoice, project: &str) -> Result<Self, TrackError> {
        let named = |url: &Option<String>, tracker, key, variable| {
            let found = url.clone().or_else(|| std::env::var(variable).ok()).unwrap_or_default();
            let found = found.trim().trim_end_matches('/').to_owned();
            let is_http = found.starts_with("http://") || found.starts_with("https://");
            if is_http { Ok(found) } else { Err(TrackError::NoAddress { tracker, key, variable }) }
        };
        let url = match choice {
            TrackerChoice::Mlflow { url } => {
                named(url, "mlflow", "url of the tracker in track.to", "MLFLOW_TRACKING_URI")?
            }
            TrackerChoice::Trackio { url } => {
                named(url, "trackio", "url of the tracker in track.to", "TRACKIO_SERVER_URL")?
            }
            TrackerChoice::TensorBoard | TrackerChoice::Wandb | TrackerChoice::Jsonl => {
                String::new()
            }
        };
        Ok(Self { choice: choice.clone(), project: project.to_owned(), url })
    }

    /// The tracker's name, as in a recipe.
    pub fn name(&self) -> &'static str {
        self.choice.name()
    }

    /// Whether it is a server, where rows cannot be taken back.
    pub(crate) fn is_server(&self) -> bool {
        !self.url.is_empty()
    }

    /// What tells it from another of its kind, and names its cursor.
    pub(crate) fn key(&self) -> String {
        if !self.is_server() {
            return self.name().to_owned();
        }
        let place = format!("{}\n{}", self.url, self.project);
        format!("{}-{:08x}", self.name(), crc32fast::hash(place.as_bytes()))
    }

    /// What to do with what it leaves, in a line; empty where nothing is left to do.
    pub fn advice(&self, run: &Path) -> String {
        match self.choice {
            TrackerChoice::TensorBoard => {
                format!("tensorboard --logdir {}", tensorboard::folder(run).display())
            }
            TrackerChoice::Wandb => {
                format!("wandb sync {}", wandb::folder_or_glob(run).display())
            }
            TrackerChoice::Jsonl => jsonl::path(run).display().to_string(),
            TrackerChoice::Mlflow { .. } | TrackerChoice::Trackio { .. } => {
                format!("{} (project {})", self.url, self.project)
            }
        }
    }

    pub(crate) fn open(&self, opening: &Opening) -> Result<Box<dyn Tracker>, TrackError> {
        Ok(match self.choice {
            TrackerChoice::TensorBoard => Box::new(TensorBoard::open(opening)?),
            TrackerChoice::Wandb => Box::new(Wandb::open(opening, &self.project)?),
            TrackerChoice::Jsonl => Box::new(Jsonl::open(opening)?),
            TrackerChoice::Mlflow { .. } => Box::new(Mlflow::open(opening, self)?),
            TrackerChoice::Trackio { .. } => Box::new(Trackio::open(opening, self)?),
        })
    }
}
