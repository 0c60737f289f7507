//! Where everything of a figure goes on a canvas of a given size, before anything is drawn.
//!
//! ```text
//!   title, subtitle          (wrapped)
//!   legend                   (flows in rows, so that it never covers data)
//! y │ plot                   │ labels of levels, spread apart
//!   └──────────────────────
//!     ticks, x label
//! ```
//!
//! On narrow canvases the labels of levels move into the legend. Everything is measured with the
//! embedded font, so nothing overlaps in any renderer.

use crate::chart::{Figure, Layer};
use crate::font::Weight;
use crate::legend::{self, Entry};
use crate::number::{self, Notation};
use crate::place::{self, Rect};
use crate::span::Span;
use crate::text::{self};
use crate::ticks::{self, Tick};

/// Width and height of a drawing in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Size {
    /// For a file or a wide screen.
    pub const WIDE: Self = Self { width: 800.0, height: 500.0 };
    /// For one of many charts side by side; fits a phone too.
    pub const SMALL: Self = Self { width: 420.0, height: 300.0 };
    /// For a phone.
    pub const NARROW: Self = Self { width: 400.0, height: 400.0 };
    /// Below this nothing can be read; smaller sizes are drawn at this one.
    pub const SMALLEST: Self = Self { width: 240.0, height: 200.0 };

    pub(crate) fn at_least_smallest(self) -> Self {
        let larger =
            |value: f64, least: f64| if value.is_finite() { value.max(least) } else { least };
        Self {
            width: larger(self.width, Self::SMALLEST.width),
            height: larger(self.height, Self::SMALLEST.height),
        }
    }
}

impl Default for Size {
    fn default() -> Self {
        Self::WIDE
    }
}

pub(crate) const TITLE_SIZE: f64 = 17.0;
pub(crate) const TEXT_SIZE: f64 = 12.5;
pub(crate) const LINE: f64 = 16.0;
const SWATCH: f64 = 26.0;
const MARKER_SWATCH: f64 = 12.0;
const TITLE_LINE: f64 = 22.0;
const LEGEND_ROW: f64 = 20.0;
const MARGIN: f64 = 16.0;
/// Wider labels of levels do not stand beside the plot but in the legend.
const MARGIN_LABELS_SHARE: f64 = 0.24;

/// A line of text and its baseline.
pub(crate) struct Heading {
    pub(crate) text: String,
    pub(crate) y: f64,
}

/// A legend entry and the left end of its swatch, vertically in its middle.
pub(crate) struct LegendItem {
    pub(crate) entry: Entry,
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Width of the swatch.
    pub(crate) swatch: f64,
}

/// The label of a level beside the plot.
pub(crate) struct SideLabel {
    pub(crate) layer: usize,
    pub(crate) lines: Vec<String>,
    /// Height of the rule and of the middle of the label, which differ where labels crowd.
    pub(crate) rule_y: f64,
    pub(crate) y: f64,
}

impl SideLabel {
    fn height(&self) -> f64 {
        self.lines.len() as f64 * LINE + 3.0
    }
}

/// The whole arrangement.
pub(crate) struct Layout {
    pub(crate) size: Size,
    pub(crate) title: Vec<Heading>,
    pub(crate) subtitle: Vec<Heading>,
    pub(crate) legend: Vec<LegendItem>,
    pub(crate) side: Vec<SideLabel>,
    pub(crate) plot: Rect,
    pub(crate) x: Span,
    pub(crate) y: Span,
    pub(crate) x_ticks: Vec<Tick>,
    pub(crate) y_ticks: Vec<Tick>,
}

impl Layout {
    pub(crate) fn new(figure: &Figure, size: Size) -> Self {
        let size = size.at_least_smallest();
        let layout = Self::arranged(figure, size, side_width(figure, size));
        let needed: f64 = layout.side.iter().map(SideLabel::height).sum();
        // More labels than the plot is high: they go into the legend.
        if needed > layout.plot.height() + LINE {
            return Self::arranged(figure, size, None);
        }
        layout
    }

    fn arranged(figure: &Figure, size: Size, side_width: Option<f64>) -> Self {
        let room = size.width - 2.0 * MARGIN;
        let mut cursor = MARGIN * 0.6;
        let title = headings(&figure.title, room, Weight::Bold, &mut cursor);
        let subtitle = headings(&figure.subtitle, room, Weight::Normal, &mut cursor);

        cursor += if cursor > MARGIN { 6.0 } else { 0.0 };
        let legend = flow(legend::entries(figure, side_width.is_none()), room, &mut cursor);

        let x_label = if figure.x.label.is_empty() { 0.0 } else { LINE + 4.0 };
        let (x, y) = (Span::of_x(figure), Span::of_y(figure));
        let mut plot = Rect {
            left: MARGIN,
            top: cursor + 12.0,
            right: size.width - side_width.map_or(MARGIN, |width| width.max(MARGIN)),
            bottom: size.height - MARGIN * 0.6 - x_label - LINE - 6.0,
        };
        // A legend of many runs on a small canvas must not eat the plot.
        plot.bottom = plot.bottom.max(plot.top + 60.0);
        let y_ticks = y_ticks(&y, plot.height());
        let widest = y_ticks.iter().map(|tick| text::width(&tick.label, TEXT_SIZE, Weight::Normal));
        let y_label = if figure.y.label.is_empty() { 0.0 } else { LINE + 2.0 };
        plot.left += widest.fold(0.0, f64::max) + 7.0 + y_label;
        let x_ticks = x_ticks(&x, &plot, size.width);

        let mut layout =
            Self { size, title, subtitle, legend, side: Vec::new(), plot, x, y, x_ticks, y_ticks };
        if side_width.is_some() {
            layout.side = side_labels(figure, &layout);
        }
        layout
    }

    /// Height needed so that the plot keeps a useful shape; more than `size` where a long legend
    /// or title takes the room.
    pub(crate) fn needed_height(&self) -> f64 {
        let below = self.size.height - MARGIN * 0.6;
        let least = (self.size.width * 0.45).min(self.size.height * 0.55);
        let missing = least - self.plot.height();
        let overflow = (self.plot.bottom + LINE + 6.0 - below).max(0.0);
        self.size.height + missing.max(0.0) + overflow
    }

    /// Horizontal place of a value that may lie outside the plot.
    pub(crate) fn px(&self, value: f64) -> Option<f64> {
        self.x.fraction(value).map(|share| self.plot.left + share * self.plot.width())
    }

    /// Vertical place of a value that may lie outside the plot.
    pub(crate) fn py(&self, value: f64) -> Option<f64> {
        self.y.fraction(value).map(|share| self.plot.bottom - share * self.plot.height())
    }

    /// Place of a point, if it is to be drawn.
    pub(crate) fn point(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let across = self.x.point_fraction(x)?;
        let up = self.y.point_fraction(y)?;
        Some((
            self.plot.left + across * self.plot.width(),
            self.plot.bottom - up * self.plot.height(),
        ))
    }

    /// As [`Layout::py`], with infinite ends at the edges of the plot.
    pub(crate) fn py_clamped(&self, value: f64) -> Option<f64> {
        if value == f64::INFINITY {
            return Some(self.plot.top);
        }
        if value == f64::NEG_INFINITY {
            return Some(self.plot.bottom);
        }
        self.py(value).map(|y| y.clamp(self.plot.top - 1e4, self.plot.bottom + 1e4))
    }
}

fn headings(text: &str, room: f64, weight: Weight, cursor: &mut f64) -> Vec<Heading> {
    let (size, line) =
        if weight == Weight::Bold { (TITLE_SIZE, TITLE_LINE) } else { (TEXT_SIZE, LINE + 1.0) };
    let place = |text| {
        *cursor += line;
        Heading { text, y: *cursor - line * 0.25 }
    };
    text::wrap(text, room, size, weight).into_iter().map(place).collect()
}

/// Room for labels of levels beside the plot, or `None` where they go into the legend.
fn side_width(figure: &Figure, size: Size) -> Option<f64> {
    let widest = figure.layers.iter().filter_map(|layer| match layer {
        Layer::Level(level) => Some(&level.label),
        _ => None,
    });
    let widest = widest
        .flat_map(|label| label.lines())
        .map(|line| text::width(line, TEXT_SIZE, Weight::Normal))
        .fold(0.0, f64::max);
    let width = if widest > 0.0 { widest + 22.0 + MARGIN * 0.5 } else { 0.0 };
    (width <= size.width * MARGIN_LABELS_SHARE).then_some(width)
}

fn flow(entries: Vec<Entry>, room: f64, cursor: &mut f64) -> Vec<LegendItem> {
    if entries.is_empty() {
        return Vec::new();
    }
    let mut x = 0.0;
    let place = |mut entry: Entry| {
        let swatch = if entry.is_marker() { MARKER_SWATCH } else { SWATCH };
        let most = room - swatch - 6.0;
        entry.text = text::cut(&entry.text, most, TEXT_SIZE, Weight::Normal);
        let width = swatch + 6.0 + text::width(&entry.text, TEXT_SIZE, Weight::Normal);
        if x > 0.0 && x + width > room {
            x = 0.0;
            *cursor += LEGEND_ROW;
        }
        let placed = LegendItem { entry, x: MARGIN + x, y: *cursor + LEGEND_ROW / 2.0, swatch };
        x += width + 18.0;
        placed
    };
    let placed = entries.into_iter().map(place).collect();
    *cursor += LEGEND_ROW;
    placed
}

fn y_ticks(span: &Span, height: f64) -> Vec<Tick> {
    let most = ((height / 45.0) as usize).clamp(2, 8);
    ticks::ticks(span, Notation::Unicode, most, |ticks| {
        let places = ticks.iter().filter_map(|tick| span.fraction(tick.value));
        let places: Vec<f64> = places.collect();
        places.windows(2).all(|pair| (pair[1] - pair[0]) * height > LINE * 1.5)
    })
}

fn x_ticks(span: &Span, plot: &Rect, canvas: f64) -> Vec<Tick> {
    let extent = |tick: &Tick| {
        let middle = plot.left + span.fraction(tick.value).unwrap_or(0.0) * plot.width();
        let half = text::width(&tick.label, TEXT_SIZE, Weight::Normal) / 2.0;
        (middle - half, middle + half)
    };
    let most = ((plot.width() / 60.0) as usize).clamp(2, 12);
    let mut found = ticks::ticks(span, Notation::Unicode, most, |ticks| {
        ticks.windows(2).all(|pair| extent(&pair[1]).0 - extent(&pair[0]).1 > TEXT_SIZE * 1.3)
            && ticks.iter().all(|tick| extent(tick).1 < canvas - 2.0)
    });
    if span.zero {
        // The first number may stand too near to the zero in its slot.
        let zero = plot.left + span.point_fraction(0.0).unwrap_or(0.0) * plot.width();
        found.retain(|tick| extent(tick).0 - zero > TEXT_SIZE);
        found.insert(0, Tick { value: 0.0, label: number::short(0.0) });
    }
    found
}

fn side_labels(figure: &Figure, layout: &Layout) -> Vec<SideLabel> {
    let mut found = Vec::new();
    for (index, layer) in figure.layers.iter().enumerate() {
        let Layer::Level(level) = layer else { continue };
        if level.label.is_empty() {
            continue;
        }
        let (top, bottom) = (layout.plot.top, layout.plot.bottom);
        let rule_y = match (level.value, level.interval) {
            (Some(value), _) => layout.py(value),
            (None, Some((low, high))) => layout
                .py_clamped(low)
                .zip(layout.py_clamped(high))
                .map(|(low, high)| f64::midpoint(low.clamp(top, bottom), high.clamp(top, bottom))),
            (None, None) => None,
        };
        let Some(rule_y) = rule_y.filter(|y| (top..=bottom).contains(y)) else { continue };
        let lines = level.label.lines().map(str::to_owned).collect();
        found.push(SideLabel { layer: index, lines, rule_y, y: rule_y });
    }
    let wishes = found.iter().map(|label| (label.rule_y, label.height()));
    let wishes: Vec<_> = wishes.collect();
    let middles =
        place::spread(&wishes, layout.plot.top - LINE / 2.0, layout.plot.bottom + LINE / 2.0);
    for (label, middle) in found.iter_mut().zip(middles) {
        label.y = middle;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Dot, Level, Points, Tone};
    use proptest::prelude::*;

    fn figure(runs: usize, low: f64, high: f64) -> Figure {
        let run = |index: usize| {
            let tone = Tone::Run(index);
            let y = 0.5 + 0.002 * index as f64;
            let dots = [low, high].map(|x| Dot { x, y, hover: String::new() });
            let legend = format!("a run with the name {index}");
            let label = format!("{y:.3}");
            let points = Points { tone, legend, dots: dots.into(), ..Points::default() };
            let level = Level { tone, value: Some(y), label, ..Level::default() };
            [Layer::Points(points), Layer::Level(level)]
        };
        Figure {
            x: Axis::log("x"),
            y: Axis::linear("y"),
            layers: (0..runs).flat_map(run).collect(),
            ..Figure::default()
        }
    }

    fn overlap(extents: &[(f64, f64)]) -> bool {
        extents.windows(2).any(|pair| pair[1].0 < pair[0].1)
    }

    proptest! {
        #[test]
        fn no_label_stands_on_another(
            runs in 1usize..8, low in -6.0..20.0f64, decades in 0.01..8.0f64,
            width in 240.0..1200.0f64,
        ) {
            let low = 10f64.powf(low);
            let figure = figure(runs, low, low * 10f64.powf(decades));
            let layout = Layout::new(&figure, Size { width, height: 500.0 });
            let wide = |label: &str| text::width(label, TEXT_SIZE, Weight::Normal);

            let ticks = layout.x_ticks.iter().map(|tick| {
                let middle = layout.px(tick.value).unwrap();
                (middle - wide(&tick.label) / 2.0, middle + wide(&tick.label) / 2.0)
            });
            prop_assert!(!overlap(&ticks.collect::<Vec<_>>()));

            let rows = layout.legend.chunk_by(|a, b| (a.y - b.y).abs() < 1.0);
            for row in rows {
                let extents: Vec<_> = row
                    .iter()
                    .map(|placed| (placed.x, placed.x + placed.swatch + 6.0 + wide(&placed.entry.text)))
                    .collect();
                prop_assert!(!overlap(&extents));
                prop_assert!(extents.iter().all(|extent| extent.1 <= width));
            }

            let mut side: Vec<_> = layout
                .side
                .iter()
                .map(|label| (label.y - LINE / 2.0, label.y + LINE / 2.0))
                .collect();
            side.sort_by(|a, b| a.0.total_cmp(&b.0));
            prop_assert!(!overlap(&side));
        }
    }
}
