//! Experiment trackers as readers of the journal: TensorBoard, W&B (offline), MLflow, Trackio, JSON
//! lines.
//!
//! ```text
//! events.jsonl, samples/ --RowReader--> rows --Delivery--> Tracker --> files or a server
//!                                               └── track/NAME.json: the cursor, what the tracker has for sure
//! ```
//!
//! A tracker only reads files of the run folder, on a thread of its own, so one that is slow, down or
//! out of disk cannot reach a step. After a kill the cursor says where to go on; what arrived beyond
//! it is cut off (files) or sent again and recognised (servers). A resumed run takes steps back: where
//! a tracker had them already, its files are written anew, and a server gets a fresh run with the
//! whole history that counts. `scalerl export` is the same delivery, later.
//!
//! `rows.rs` is the one list of metrics. Not here: what is worth recording (`engine`), W&B online.

mod config;
mod cursor;
mod delivery;
mod error;
mod follow;
mod http;
mod jsonl;
mod mlflow;
mod own_file;
mod protobuf;
mod reader;
mod rows;
mod samples;
mod tensorboard;
#[cfg(test)]
mod tests;
mod tracker;
mod trackio;
mod wandb;

pub use delivery::{Delivery, Outcome};
pub use error::TrackError;
pub use follow::{Following, Say};

pub use reader::counted_rows;
pub use rows::{METRICS, Metric, Row};
pub use tracker::Target;
