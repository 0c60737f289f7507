//! Charts and reports: what a fit, a run or a study looks like.
//!
//! ```text
//! numbers ──plots──> Figure ──svg────────> .svg ──png──> .png
//!                      │────terminal─────> text
//!                      └──┐
//! words, tables ────────> Page ──html────> one .html file that works offline
//! ```
//!
//! A [`Figure`] is plain data ([`chart`]); [`plots`] makes those of the forecasting commands. A
//! [`Page`] is plain data too, so run reports and studies use the same builder.
//!
//! Not here: fitting (`scalerl-curve`), and any number that was not handed in.

#![deny(missing_docs)]

pub mod chart;
mod layout;
mod legend;
mod marker;
pub mod number;
mod page;
mod place;
pub mod plots;
mod png;
mod save;
mod span;
mod svg;
mod terminal;
mod text;
mod theme;
mod ticks;

pub use chart::Figure;
pub use layout::Size;
pub use page::{Block, Page, Section, Table};
pub use png::png;
pub use save::{DrawError, Format, save};
pub use svg::svg;
pub use terminal::{Glyphs, TerminalOptions, terminal};
