//! The data of a figure: bands, rules, lines, points, forecasts.

use std::fmt::Write as _;

use super::Canvas;
use crate::chart::{Band, Figure, Layer, Level, Line, Marks, Points, Role, Rule, Stroke, Tone};
use crate::marker::{self, round};
use crate::text::escape;

/// Narrower canvases have smaller markers, or points that are apart would touch.
const SMALL_MARKERS_BELOW: f64 = 520.0;

impl Canvas<'_> {
    /// Bands, levels, rules and lines, clipped to the plot.
    pub(super) fn curves(&mut self, figure: &Figure) {
        let plot = self.layout.plot;
        let (x, y) = (round(plot.left), round(plot.top));
        let (width, height) = (round(plot.width()), round(plot.height()));
        add!(
            self,
            "<svg x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"{x} {y} {width} {height}\" overflow=\"hidden\">\n"
        );
        for layer in &figure.layers {
            match layer {
                Layer::Band(band) => self.band(band),
                Layer::Level(level) => self.level_interval(level),
                _ => {}
            }
        }
        for layer in &figure.layers {
            match layer {
                Layer::Level(level) => self.level_rule(level),
                Layer::Rule(rule) => self.rule(rule),
                _ => {}
            }
        }
        for layer in &figure.layers {
            if let Layer::Line(line) = layer {
                self.line(line);
            }
        }
        self.out.push_str("</svg>\n");
    }

    pub(super) fn band(&mut self, band: &Band) {
        let edges: Vec<_> = band
            .points
            .iter()
            .filter_map(|(x, low, high)| {
                let x = self.layout.px(*x)?;
                Some((x, self.layout.py_clamped(*low)?, self.layout.py_clamped(*high)?))
            })
            .collect();
        if edges.len() < 2 {
            return;
        }
        let mut path = String::new();
        let upper = edges.iter().map(|(x, _, high)| (*x, *high));
        let lower = edges.iter().rev().map(|(x, low, _)| (*x, *low));
        for (x, y) in upper.chain(lower) {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{},{}", round(x), round(y));
        }
        let color = self.theme.tone(band.tone);
        add!(self, "<path d=\"{path}Z\" fill=\"{color}\" fill-opacity=\"0.16\"/>\n");
    }

    pub(super) fn level_interval(&mut self, level: &Level) {
        let ends = level.interval.and_then(|(low, high)| {
            Some((self.layout.py_clamped(high)?, self.layout.py_clamped(low)?))
        });
        let Some((top, bottom)) = ends else { return };
        let plot = self.layout.plot;
        let (top, bottom) = (top.max(plot.top), bottom.min(plot.bottom));
        if bottom <= top {
            return;
        }
        let (x, width) = (round(plot.left), round(plot.width()));
        let (y, height) = (round(top), round(bottom - top));
        let color = self.theme.tone(level.tone);
        add!(
            self,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{color}\" \
             fill-opacity=\"0.08\"/>\n"
        );
    }

    pub(super) fn level_rule(&mut self, level: &Level) {
        let Some(y) = level.value.and_then(|value| self.layout.py(value)) else { return };
        let plot = self.layout.plot;
        let path = format!("M{},{}H{}", round(plot.left), round(y), round(plot.right));
        self.stroke(&path, level.tone, 1.4, Stroke::Dashed);
    }

    pub(super) fn rule(&mut self, rule: &Rule) {
        let Some(x) = self.rule_x(rule) else { return };
        let plot = self.layout.plot;
        let path = format!("M{},{}V{}", round(x), round(plot.top), round(plot.bottom));
        self.stroke(&path, rule.tone, 1.2, Stroke::Dotted);
    }

    pub(super) fn rule_x(&self, rule: &Rule) -> Option<f64> {
        let share = self.layout.x.point_fraction(rule.x)?;
        Some(self.layout.plot.left + share * self.layout.plot.width())
    }

    pub(super) fn line(&mut self, line: &Line) {
        let mut path = String::new();
        let mut letter = 'M';
        for (x, y) in self.line_places(line) {
            if x.is_nan() || y.is_nan() {
                letter = 'M';
                continue;
            }
            let _ = write!(path, "{letter}{},{}", round(x), round(y));
            letter = 'L';
        }
        self.stroke(&path, line.tone, 2.0, line.stroke);
    }

    /// Places of a line's points; NaN where it has a gap.
    pub(super) fn line_places(&self, line: &Line) -> Vec<(f64, f64)> {
        let place = |(x, y): &(f64, f64)| {
            let y = self.layout.py(*y).and_then(|_| self.layout.py_clamped(*y));
            self.layout.px(*x).zip(y).unwrap_or((f64::NAN, f64::NAN))
        };
        line.points.iter().map(place).collect()
    }

    pub(super) fn points(&mut self, points: &Points, figure: &Figure) {
        let count = figure.layers.iter().map(|layer| match layer {
            Layer::Points(points) if points.role != Role::Probe => points.dots.len(),
            _ => 0,
        });
        let shrink = if self.layout.size.width < SMALL_MARKERS_BELOW { 0.8 } else { 1.0 };
        let radius = point_radius(points.role, count.sum()) * shrink;
        let path = marker::path(points.tone, radius);
        let attributes = self.point_style(points.tone, points.role);
        let class = if points.role == Role::Probe { "tip probe" } else { "tip dot" };
        add!(self, "<g {attributes}>\n");
        for dot in &points.dots {
            let Some((x, y)) = self.layout.point(dot.x, dot.y) else { continue };
            let (x, y, hover) = (round(x), round(y), escape(&dot.hover));
            add!(
                self,
                "<path class=\"{class}\" transform=\"translate({x},{y})\" d=\"{path}\">\
                 <title>{hover}</title></path>\n"
            );
        }
        self.out.push_str("</g>\n");
    }

    pub(super) fn point_style(&self, tone: Tone, role: Role) -> String {
        let (color, paper) = (self.theme.tone(tone), self.theme.part("paper"));
        match role {
            Role::Used => format!("fill=\"{color}\" stroke=\"{paper}\" stroke-width=\"0.8\""),
            Role::HeldOut => format!("fill=\"{paper}\" stroke=\"{color}\" stroke-width=\"1.7\""),
            Role::LeftOut => {
                format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"1.2\" opacity=\"0.55\"")
            }
            Role::Probe => "fill=\"#000\" fill-opacity=\"0\"".to_owned(),
        }
    }

    pub(super) fn marks(&mut self, marks: &Marks) {
        for mark in &marks.marks {
            let Some((x, y)) = self.layout.point(mark.x, mark.y) else { continue };
            let plot = self.layout.plot;
            let bar = mark.bar().and_then(|(low, high)| {
                let ends = self.layout.py(low).zip(self.layout.py(high))?;
                Some((ends.0.clamp(plot.top, plot.bottom), ends.1.clamp(plot.top, plot.bottom)))
            });
            if let Some((low, high)) = bar {
                let (left, x) = (round(x - 5.0), round(x));
                let (low, high) = (round(low), round(high));
                let path = format!("M{x},{low}V{high}M{left},{low}h10M{left},{high}h10");
                self.stroke(&path, marks.tone, 1.6, Stroke::Solid);
            }
            self.star(round(x), round(y), marks.tone, &mark.hover);
        }
    }

    pub(super) fn star(&mut self, x: f64, y: f64, tone: Tone, hover: &str) {
        let (color, paper) = (self.theme.tone(tone), self.theme.part("paper"));
        let path = marker::star(7.5);
        let (class, hover) = if hover.is_empty() {
            (String::new(), String::new())
        } else {
            (" class=\"tip mark\"".to_owned(), format!("<title>{}</title>", escape(hover)))
        };
        add!(
            self,
            "<path{class} transform=\"translate({x},{y})\" d=\"{path}\" fill=\"{color}\" \
             stroke=\"{paper}\" stroke-width=\"1\" stroke-linejoin=\"round\">{hover}</path>\n"
        );
    }
}

/// Many points get smaller markers.
pub(super) fn point_radius(role: Role, count: usize) -> f64 {
    let radius = match count {
        0..=60 => 4.0,
        61..=200 => 3.2,
        _ => 2.3,
    };
    if role == Role::LeftOut { radius * 0.85 } else { radius }
}
