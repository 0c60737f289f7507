//! A run as pieces of a page: one function a piece, from its digest.
//!
//! Charts are `board`'s, words `report`'s; here is what stands where. All text is escaped by `board`.

pub(crate) mod curve;
pub(crate) mod list;
pub(crate) mod samples;
mod steps;
mod trouble;

use std::fmt::Write as _;

use scalerl_board::number::short;
use scalerl_board::{Block, Table, escape, fragment};
use scalerl_journal::FleetTable;
use scalerl_report::figures::spread;
use scalerl_report::run::{compute, forecasts};
use serde::Serialize;

use crate::digest::Digest;
use crate::glance::{Plan, State};
use curve::Curve;

/// Windows of what changes over time.
const MOST_WINDOWS: usize = 30;

/// What is drawn.
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    pub(crate) digest: &'a Digest,
    pub(crate) plan: Plan,
    pub(crate) is_alive: bool,
    pub(crate) fleet: Option<&'a FleetTable>,
    pub(crate) damaged: Option<usize>,
}

/// One piece of a run's page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Part {
    pub(crate) id: &'static str,
    pub(crate) heading: &'static str,
    pub(crate) html: String,
}

/// Every piece of a run's page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Parts {
    pub(crate) state: &'static str,
    #[serde(rename = "parts")]
    pub(crate) all: Vec<Part>,
    /// The journal has not been read yet.
    #[serde(skip)]
    pub(crate) is_unfinished: bool,
}

impl Parts {
    fn only(html: String, is_unfinished: bool) -> Self {
        let parts = vec![Part { id: "head", heading: "", html }];
        Self { state: "reading", all: parts, is_unfinished }
    }

    pub(crate) fn unreadable(error: &str) -> Self {
        let text = format!("The journal cannot be read: {error}.");
        Self::only(fragment(&[Block::Prose(text)]), true)
    }

    /// While a long journal is read for the first time.
    pub(crate) fn reading(progress: f64) -> Self {
        let percent = (progress * 100.0).clamp(0.0, 100.0);
        Self::only(
            format!(
                "<p class=\"reading\">Reading the journal: {percent:.0} %</p>\
                 <progress max=\"100\" value=\"{percent:.0}\"></progress>"
            ),
            true,
        )
    }

    /// The same figures under numbers of now.
    pub(crate) fn with_numbers(&self, subject: &Subject<'_>) -> Self {
        let state = State::of(&subject.digest.status, subject.is_alive);
        let mut parts = self.clone();
        parts.state = state.word();
        if let Some(first) = parts.all.first_mut() {
            first.html = head(subject, &state);
        }
        parts
    }

    pub(crate) fn draw(subject: &Subject<'_>, curve: &mut Curve) -> Self {
        let state = State::of(&subject.digest.status, subject.is_alive);
        let part = |id, heading, blocks: &[Block]| Part { id, heading, html: fragment(blocks) };
        let parts = vec![
            Part { id: "head", heading: "", html: head(subject, &state) },
            part("curve", "Pass rate against compute", &curve.blocks(subject)),
            part("forecasts", "Forecasts beside what came", &forecast_blocks(subject)),
            part("compute", "Where the device-hours go", &compute_blocks(subject)),
            part("steps", "Training, step by step", &steps::blocks(subject)),
            part("trouble", "Stability, errors, sessions", &trouble::blocks(subject)),
            part("fleet", "Processes", &trouble::fleet(subject)),
        ];
        Self { state: state.word(), all: parts, is_unfinished: false }
    }
}

fn head(subject: &Subject<'_>, state: &State) -> String {
    let digest = subject.digest;
    let ledger = &digest.ledger;
    let step = match subject.plan.steps.filter(|steps| *steps >= digest.version) {
        Some(steps) => format!("{} <small>of {steps}</small>", digest.version),
        None => digest.version.to_string(),
    };
    let rate =
        digest.points.last().map_or("–".to_owned(), |point| format!("{:.3}", point.pass_rate));
    let twice = digest.forecasts.last().map_or("–".to_owned(), |report| {
        let (value, low, high) = report.at_twice;
        format!("{value:.3} <small>[{low:.3}, {high:.3}]</small>")
    });
    let speed = if ledger.wall_s > 0.0 {
        short(ledger.tokens_generated as f64 / ledger.wall_s)
    } else {
        "–".to_owned()
    };
    let tiles = [
        ("step", step),
        ("pass rate", rate),
        ("at 2× compute", twice),
        ("device-hours", short(ledger.device_hours())),
        ("tokens/s", speed),
        ("largest lag", digest.largest_lag.to_string()),
        ("warnings", digest.warnings.count().to_string()),
    ];
    let mut html = String::new();
    let why = match state {
        State::Ended(reason) => (*reason).to_owned(),
        State::Failed(error) => error.clone(),
        State::Killed => "no end was recorded, and no process holds the run".to_owned(),
        State::Alive | State::Unreadable(_) => String::new(),
    };
    let word = state.word();
    let _ = write!(
        html,
        "<p class=\"standing\"><span class=\"state {word}\">{word}</span> {}</p>",
        escape(&why)
    );
    if let Some(line) = subject.damaged {
        let _ = write!(html, "<p class=\"alert\">Line {line} of the journal is damaged.</p>");
    }
    html.push_str("<div class=\"tiles\">");
    for (name, value) in tiles {
        let _ = write!(html, "<div><b>{value}</b><span>{name}</span></div>");
    }
    html.push_str("</div>");
    html
}

fn forecast_blocks(subject: &Subject<'_>) -> Vec<Block> {
    let digest = subject.digest;
    if digest.forecasts.is_empty() {
        let text = "No forecast yet: a fit needs at least three evaluations.";
        return vec![Block::Prose(text.to_owned())];
    }
    let axis = digest.forecasts[0].axis;
    let checked = forecasts::check(&digest.forecasts, &digest.points);
    let mut table = forecasts::table(axis, &checked);
    table.rows.reverse();
    vec![
        Block::Headlines(forecasts::sentences(&checked)),
        Block::Figure(
            Box::new(forecasts::figure(axis, &digest.points, &checked)),
            "Each star is a forecast, made at half of the compute it stands at.".to_owned(),
        ),
        Block::Fold("Every forecast".to_owned(), vec![Block::Table(table)]),
    ]
}

fn compute_blocks(subject: &Subject<'_>) -> Vec<Block> {
    let digest = subject.digest;
    let seconds = &digest.ledger.device_seconds;
    let total = seconds.total();
    if total <= 0.0 {
        return vec![Block::Prose("Nothing was booked yet.".to_owned())];
    }
    let row = |(name, part): (&str, f64)| {
        let share = compute::percent(compute::share(part, total));
        vec![name.to_owned(), compute::device_time(part), share]
    };
    let mut rows: Vec<Vec<String>> = compute::roles(seconds).into_iter().map(row).collect();
    if digest.lost.device_seconds.total() > 0.0 {
        let lost = compute::device_time(digest.lost.device_seconds.total());
        rows.push(vec!["undone by kills, beside this".to_owned(), lost, String::new()]);
    }
    let columns = ["role", "device time", "share"].map(str::to_owned).to_vec();
    let mut blocks = vec![Block::Table(Table { caption: String::new(), columns, rows })];
    // Some windows: from one step to the next there is little to see but noise.
    let bins = &spread(digest.steps.bins(), MOST_WINDOWS + 1)[..];
    if bins.len() > 1 {
        let shares: Vec<(f64, [f64; 4])> = bins
            .windows(2)
            .map(|pair| {
                let spent = pair[1].ledger.since(&pair[0].ledger).device_seconds;
                let share = |(_, part): (_, f64)| compute::share(part, spent.total());
                (pair[1].middle(), compute::roles(&spent).map(share))
            })
            .collect();
        let title = "Share of device time by role";
        let mut figure = compute::stacked(title, "share", &shares, &compute::percent);
        figure.y = figure.y.with_range(0.0, 1.0);
        blocks.push(Block::Gallery(vec![figure, steps::speed(bins)]));
    }
    blocks
}
