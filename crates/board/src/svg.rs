//! A figure as SVG: for papers, for pages, and as the source of PNGs.
//!
//! Draws what [`Layout`] arranged, back to front: grid, bands, rules, lines, points, forecasts,
//! labels. Curves are clipped by a nested `<svg>`, which needs no ids, so that many figures can
//! share one page. Points carry their hover text as `<title>`: any browser shows it, and the
//! script of a report makes more of it.

/// Adds a formatted piece; writing to a `String` cannot fail.
macro_rules! add {
    ($canvas:expr, $($argument:tt)*) => {
        let _ = write!($canvas.out, $($argument)*);
    };
}

mod data;
mod labels;
mod words;

use std::fmt::Write as _;

use words::{Anchor, Words};

use crate::chart::{Figure, Layer, Stroke, Tone};
use crate::font::Weight;
use crate::layout::{self, Layout, LegendItem, Size, TEXT_SIZE, TITLE_SIZE};
use crate::legend::Swatch;
use crate::marker::{self, round};
use crate::text::{self, escape};
use crate::theme::Theme;
use crate::ticks;

/// Narrow fonts first; the last is the one that PNGs are drawn with.
pub(crate) const FONTS: &str =
    "Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif";

/// Where headings begin.
const MARGIN: f64 = 16.0;

/// Draws a figure as an SVG file with a white ground.
///
/// The height grows where a long title or legend would otherwise squeeze the plot.
pub fn svg(figure: &Figure, size: Size) -> String {
    draw(figure, size, Theme::Print)
}

/// Draws a figure with the colours of a theme.
pub(crate) fn draw(figure: &Figure, size: Size, theme: Theme) -> String {
    let first = Layout::new(figure, size);
    let height = first.needed_height();
    let layout = if height > first.size.height {
        Layout::new(figure, Size { height, ..first.size })
    } else {
        first
    };
    let mut canvas = Canvas { out: String::new(), theme, layout: &layout };
    canvas.open(figure);
    canvas.headings();
    canvas.legend();
    canvas.grid(figure);
    canvas.curves(figure);
    canvas.axes();
    if is_empty(figure, &layout) {
        canvas.empty();
    }
    for layer in &figure.layers {
        if let Layer::Points(points) = layer {
            canvas.points(points, figure);
        }
    }
    for layer in &figure.layers {
        if let Layer::Marks(marks) = layer {
            canvas.marks(marks);
        }
    }
    canvas.side_labels(figure);
    canvas.inner_labels(figure);
    canvas.out.push_str("</svg>\n");
    canvas.out
}

/// Whether an axis is all there is to see.
fn is_empty(figure: &Figure, layout: &Layout) -> bool {
    !figure.layers.iter().any(|layer| match layer {
        Layer::Points(points) => points.dots.iter().any(|dot| layout.point(dot.x, dot.y).is_some()),
        Layer::Marks(marks) => {
            marks.marks.iter().any(|mark| layout.point(mark.x, mark.y).is_some())
        }
        Layer::Line(line) => line.points.len() > 1,
        Layer::Band(band) => band.points.len() > 1,
        Layer::Level(_) | Layer::Rule(_) => false,
    })
}

struct Canvas<'a> {
    out: String,
    theme: Theme,
    layout: &'a Layout,
}

impl Canvas<'_> {
    fn open(&mut self, figure: &Figure) {
        let Size { width, height } = self.layout.size;
        let (width, height) = (round(width), round(height));
        let title = escape(&figure.title);
        let about = if title.is_empty() { "chart".to_owned() } else { title };
        add!(
            self,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"{FONTS}\" font-size=\"{TEXT_SIZE}\" \
             role=\"img\" aria-label=\"{about}\">\n"
        );
        if self.theme != Theme::Page {
            let paper = self.theme.part("paper");
            add!(self, "<rect width=\"{width}\" height=\"{height}\" fill=\"{paper}\"/>\n");
        }
    }

    fn headings(&mut self) {
        let (ink, muted) = (self.theme.part("ink"), self.theme.part("muted"));
        for line in &self.layout.title {
            let words = Words::new(MARGIN, line.y, &ink);
            let words = Words { size: TITLE_SIZE, weight: Weight::Bold, ..words };
            self.write(&words, &line.text);
        }
        for line in &self.layout.subtitle {
            self.write(&Words::new(MARGIN, line.y, &muted), &line.text);
        }
    }

    fn legend(&mut self) {
        let ink = self.theme.part("ink");
        for placed in &self.layout.legend {
            for swatch in &placed.entry.swatches {
                self.swatch(*swatch, placed);
            }
            let (x, y) = (placed.x + placed.swatch + 6.0, placed.y + TEXT_SIZE * 0.36);
            self.write(&Words::new(x, y, &ink), &placed.entry.text);
        }
    }

    fn swatch(&mut self, swatch: Swatch, placed: &LegendItem) {
        let (x, y, width) = (placed.x, placed.y, placed.swatch);
        let (left, right, middle) = (round(x), round(x + width), round(x + width / 2.0));
        let (top, bottom, y) = (round(y - 6.0), round(y + 6.0), round(y));
        match swatch {
            Swatch::Band(tone) | Swatch::Level(tone) | Swatch::OpenLevel(tone) => {
                let color = self.theme.tone(tone);
                add!(
                    self,
                    "<path d=\"M{left},{top}H{right}V{bottom}H{left}Z\" fill=\"{color}\" \
                     fill-opacity=\"0.15\"/>\n"
                );
                if matches!(swatch, Swatch::Level(_)) {
                    self.stroke(&format!("M{left},{y}H{right}"), tone, 1.4, Stroke::Dashed);
                }
            }
            Swatch::Line(tone, stroke) => {
                self.stroke(&format!("M{left},{y}H{right}"), tone, 2.0, stroke);
            }
            Swatch::Point(tone, role) => {
                let attributes = self.point_style(tone, role);
                let path = marker::path(tone, data::point_radius(role, 1));
                add!(
                    self,
                    "<path transform=\"translate({middle},{y})\" {attributes} d=\"{path}\"/>\n"
                );
            }
            Swatch::Mark(tone) => {
                self.star(middle, y, tone, "");
            }
        }
    }

    fn grid(&mut self, figure: &Figure) {
        let (grid, muted) = (self.theme.part("grid"), self.theme.part("muted"));
        let plot = self.layout.plot;
        let (left, right) = (round(plot.left), round(plot.right));
        let (top, bottom) = (round(plot.top), round(plot.bottom));
        for tick in &self.layout.y_ticks {
            let Some(y) = self.layout.py(tick.value).map(round) else { continue };
            add!(self, "<path d=\"M{left},{y}H{right}\" stroke=\"{grid}\" fill=\"none\"/>\n");
            let words = Words::new(plot.left - 7.0, y + TEXT_SIZE * 0.36, &muted);
            let words = Words { anchor: Anchor::End, class: "y-tick", ..words };
            self.write(&words, &tick.label);
        }
        for tick in &self.layout.x_ticks {
            let Some(share) = self.layout.x.point_fraction(tick.value) else { continue };
            let x = round(plot.left + share * plot.width());
            add!(self, "<path d=\"M{x},{top}V{bottom}\" stroke=\"{grid}\" fill=\"none\"/>\n");
            let words = Words::new(x, plot.bottom + 6.0 + TEXT_SIZE, &muted);
            let words = Words { anchor: Anchor::Middle, class: "x-tick", ..words };
            self.write(&words, &tick.label);
        }
        let ink = self.theme.part("ink");
        if !figure.x.label.is_empty() {
            let middle = f64::midpoint(plot.left, plot.right);
            let y = plot.bottom + 6.0 + layout::LINE * 2.0 + 3.0;
            let label = text::cut(&figure.x.label, plot.width(), TEXT_SIZE, Weight::Normal);
            let words = Words::new(middle, y, &ink);
            self.write(&Words { anchor: Anchor::Middle, class: "label", ..words }, &label);
        }
        if !figure.y.label.is_empty() {
            let words = Words::new(24.0, f64::midpoint(plot.top, plot.bottom), &ink);
            let label = text::cut(&figure.y.label, plot.height(), TEXT_SIZE, Weight::Normal);
            let words = Words { anchor: Anchor::Middle, is_upright: true, ..words };
            self.write(&words, &label);
        }
    }

    fn empty(&mut self) {
        let plot = self.layout.plot;
        let (x, y) = (f64::midpoint(plot.left, plot.right), f64::midpoint(plot.top, plot.bottom));
        let muted = self.theme.part("muted");
        let words = Words { anchor: Anchor::Middle, class: "empty", ..Words::new(x, y, &muted) };
        self.write(&words, "no points in range");
    }

    fn axes(&mut self) {
        let axis = self.theme.part("axis");
        let plot = self.layout.plot;
        let (left, right, bottom) = (round(plot.left), round(plot.right), round(plot.bottom));
        let mut path = format!("M{left},{bottom}H{right}");
        if let Some(share) = self.layout.x.zero_break() {
            // Two slanted strokes across a gap: the axis is broken here.
            let x = round(plot.left + share * plot.width());
            path = format!("M{left},{bottom}H{}M{},{bottom}H{right}", x - 3.0, x + 3.0);
            for x in [x - 3.0, x + 3.0] {
                let _ = write!(path, "M{},{}l5,-10", round(x - 2.5), round(bottom + 5.0));
            }
        }
        let places = |values: &mut dyn Iterator<Item = f64>, length: f64| {
            values.filter_map(|value| self.layout.px(value)).fold(String::new(), |mut path, x| {
                let _ = write!(path, "M{},{bottom}v{length}", round(x));
                path
            })
        };
        path += &places(&mut self.layout.x_ticks.iter().map(|tick| tick.value), 5.0);
        path += &places(&mut ticks::minor(&self.layout.x).into_iter(), 3.0);
        add!(self, "<path d=\"{path}\" stroke=\"{axis}\" fill=\"none\"/>\n");
    }

    fn stroke(&mut self, path: &str, tone: Tone, width: f64, stroke: Stroke) {
        if path.is_empty() {
            return;
        }
        let color = self.theme.tone(tone);
        let dashes = match stroke {
            Stroke::Solid => "",
            Stroke::Dashed => " stroke-dasharray=\"6 4\"",
            Stroke::Dotted => " stroke-dasharray=\"2 3\"",
        };
        add!(
            self,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\" \
             stroke-linejoin=\"round\"{dashes}/>\n"
        );
    }
}
