//! The live page: runs as they go on, in a browser or a terminal, from their folders alone.
//!
//! ```text
//! folders --catalog--> runs --glance (ends of files)--> the list, comparisons
//!                        '----follow (tail, digest)---> a run --view--> pieces of the page
//! room: one thread that reads while somebody looks    server: routes, guard, events, stop
//! ```
//! In reading order: `catalog.rs`, `glance.rs`, `digest.rs` and `series.rs`, `follow.rs`,
//! `room.rs`, `view`, `samples.rs`, `stop.rs`, `server`, `terminal.rs`.
//!
//! The page itself is `page/`: a style and a script of one screen each, nothing built, nothing fetched
//! from elsewhere. What a run has written is text from strangers: all of it is escaped where it is
//! drawn.
//!
//! Not here: any change of a run. The one thing that can be asked of it is to stop.

mod catalog;
mod digest;
mod follow;
mod glance;
mod room;
mod samples;
mod series;
mod server;
mod stop;
mod terminal;
mod view;

pub use catalog::MOST_RUNS;
pub use digest::{Digest, Latest, Session, Warning};
pub use follow::Follower;
pub use glance::{Glance, State};
pub use room::{Reader, Room, glances};
pub use scalerl_http::StartError;
pub use series::{Bin, Metric, Stat, StepSeries};
pub use server::{Server, ServerOptions};
pub use stop::StopError;
pub use terminal::{Key, Screen, TerminalError, show};
