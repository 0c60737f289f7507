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
//! ```
//! use scalerl_board::chart::Role;
//! use scalerl_board::plots::{self, Captions, Ceiling, CurvePoint, Measured, RunCurve};
//! use scalerl_board::{Block, Page, Section, Size, TerminalOptions, svg, terminal};
//!
//! let run = RunCurve {
//!     name: "8B".into(),
//!     points: vec![Measured { compute: 1e3, value: 0.42, role: Role::Used }],
//!     curve: vec![
//!         CurvePoint { compute: 1e3, value: 0.42, low: 0.41, high: 0.43 },
//!         CurvePoint { compute: 1e5, value: 0.64, low: 0.62, high: 0.66 },
//!     ],
//!     ceiling: Some(Ceiling { value: 0.65, low: 0.63, high: 0.67, bounded: true }),
//!     midpoint: Some(1e4),
//!     fitted_until: Some(5e4),
//!     forecasts: vec![CurvePoint { compute: 1e5, value: 0.64, low: 0.62, high: 0.66 }],
//! };
//! let captions = Captions {
//!     title: "8B".into(),
//!     subtitle: "2× more compute buys +0.012 [0.006, 0.021]".into(),
//!     compute: "GPU-hours".into(),
//!     value: "pass rate".into(),
//!     interval: "90 %".into(),
//! };
//! let figure = plots::fit(&run, &captions);
//! assert!(svg(&figure, Size::WIDE).contains("ceiling 0.650"));
//! assert!(terminal(&figure, TerminalOptions::default()).contains("ceiling 0.650"));
//!
//! let section = Section { heading: "Figures".into(), blocks: vec![Block::figure(figure)] };
//! let page = Page { title: "Report".into(), sections: vec![section], ..Page::default() };
//! assert!(page.html().starts_with("<!doctype html>"));
//! ```
//!
//! Not here: fitting (`scalerl-curve`), and any number that was not handed in.

#![deny(missing_docs)]

pub mod chart;
mod font;
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
pub use page::{Block, Page, Piece, Section, Table, fragment, script, stylesheet};
pub use png::png;
pub use save::{DrawError, Format, save};
pub use svg::svg;
pub use terminal::{Glyphs, TerminalOptions, terminal};
pub use text::escape;
