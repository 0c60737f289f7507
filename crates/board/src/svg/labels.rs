//! The words inside and beside the plot, each where it covers least.

use super::Canvas;
use super::words::Words;
use crate::chart::{Figure, Layer, Role, Stroke};
use crate::font::Weight;
use crate::layout::{self, TEXT_SIZE};
use crate::marker::round;
use crate::place::{Crowd, Rect};
use crate::text;

/// Narrower canvases have no room for the numbers of forecasts; hovering still shows them.
const MARK_LABELS_FROM: f64 = 520.0;

/// Longest label inside the plot, as a share of its width.
const LONGEST_LABEL: f64 = 0.7;

impl Canvas<'_> {
    pub(super) fn side_labels(&mut self, figure: &Figure) {
        let ink = self.theme.part("ink");
        let right = self.layout.plot.right;
        for label in &self.layout.side {
            let Layer::Level(level) = &figure.layers[label.layer] else { continue };
            let path = format!(
                "M{},{}L{},{}h4",
                round(right),
                round(label.rule_y),
                round(right + 12.0),
                round(label.y)
            );
            self.stroke(&path, level.tone, 1.4, Stroke::Solid);
            let first = label.y - (label.lines.len() as f64 - 1.0) / 2.0 * layout::LINE;
            for (index, line) in label.lines.iter().enumerate() {
                let y = first + index as f64 * layout::LINE + TEXT_SIZE * 0.36;
                let words = Words { class: "side", ..Words::new(right + 20.0, y, &ink) };
                self.write(&words, line);
            }
        }
    }

    /// Labels of forecasts and vertical rules, where they cover least.
    pub(super) fn inner_labels(&mut self, figure: &Figure) {
        let mut crowd = self.crowd(figure);
        let ink = self.theme.part("ink");
        let muted = self.theme.part("muted");
        for layer in &figure.layers {
            let Layer::Marks(marks) = layer else { continue };
            if self.layout.size.width < MARK_LABELS_FROM {
                continue;
            }
            for mark in &marks.marks {
                let Some((x, y)) = self.layout.point(mark.x, mark.y) else { continue };
                self.inner_label(&mut crowd, &mark.label, &around(x, y), &ink);
            }
        }
        for layer in &figure.layers {
            let Layer::Rule(rule) = layer else { continue };
            let Some(x) = self.rule_x(rule) else { continue };
            self.inner_label(&mut crowd, &rule.label, &beside(x, self.layout.plot), &muted);
        }
    }

    fn inner_label(&mut self, crowd: &mut Crowd, label: &str, places: &[Anchor], color: &str) {
        if label.is_empty() {
            return;
        }
        let size = TEXT_SIZE - 1.0;
        let plot = self.layout.plot;
        let label = text::cut(label, plot.width() * LONGEST_LABEL, size, Weight::Normal);
        let width = text::width(&label, size, Weight::Normal);
        let boxes = places.iter().map(|place| place.around(width, size).pushed_into(&plot));
        let boxes: Vec<Rect> = boxes.collect();
        let Some(chosen) = crowd.place(&boxes) else { return };
        let words = Words::new(chosen.left + 2.0, chosen.bottom - size * 0.3, color);
        self.write(&Words { class: "inner", size, has_rim: true, ..words }, &label);
    }

    /// Everything that labels should not cover.
    fn crowd(&self, figure: &Figure) -> Crowd {
        let plot = self.layout.plot;
        let mut crowd = Crowd::new(plot);
        for layer in &figure.layers {
            match layer {
                Layer::Points(points) if points.role != Role::Probe => {
                    for dot in &points.dots {
                        if let Some((x, y)) = self.layout.point(dot.x, dot.y) {
                            for (dx, dy) in
                                [(0.0, 0.0), (-4.0, 0.0), (4.0, 0.0), (0.0, -4.0), (0.0, 4.0)]
                            {
                                crowd.add_spot(x + dx, y + dy, 2.0);
                            }
                        }
                    }
                }
                Layer::Line(line) => {
                    for pair in self.line_places(line).windows(2) {
                        crowd.add_segment(pair[0], pair[1], 2.0);
                    }
                }
                Layer::Level(level) => {
                    if let Some(y) = level.value.and_then(|value| self.layout.py(value)) {
                        crowd.add_segment((plot.left, y), (plot.right, y), 1.5);
                    }
                }
                Layer::Rule(rule) => {
                    if let Some(x) = self.rule_x(rule) {
                        crowd.add_segment((x, plot.top), (x, plot.bottom), 3.0);
                    }
                }
                Layer::Marks(marks) => {
                    for mark in &marks.marks {
                        let Some((x, y)) = self.layout.point(mark.x, mark.y) else { continue };
                        crowd.add_segment((x - 7.0, y), (x + 7.0, y), 4.0);
                        let ends = mark
                            .bar()
                            .and_then(|(low, high)| self.layout.py(low).zip(self.layout.py(high)));
                        if let Some((low, high)) = ends {
                            crowd.add_segment((x, low), (x, high), 4.0);
                        }
                    }
                }
                Layer::Points(_) | Layer::Band(_) => {}
            }
        }
        crowd
    }
}

/// Where a label would hang: the middle of its left, right, top or bottom edge.
enum Anchor {
    Left(f64, f64),
    Right(f64, f64),
    Top(f64, f64),
    Bottom(f64, f64),
}

impl Anchor {
    fn around(&self, width: f64, size: f64) -> Rect {
        let (width, height) = (width + 4.0, size * 1.3);
        let (left, top) = match self {
            Self::Left(x, y) => (*x, y - height / 2.0),
            Self::Right(x, y) => (x - width, y - height / 2.0),
            Self::Top(x, y) => (x - width / 2.0, *y),
            Self::Bottom(x, y) => (x - width / 2.0, y - height),
        };
        Rect { left, top, right: left + width, bottom: top + height }
    }
}

/// Places for the label of a forecast, the best first.
fn around(x: f64, y: f64) -> Vec<Anchor> {
    let mut places = Vec::new();
    for distance in [0.0, 18.0, -18.0, 36.0, -36.0, 54.0, -54.0] {
        places.push(Anchor::Left(x + 9.0, y + distance));
        places.push(Anchor::Right(x - 9.0, y + distance));
    }
    for distance in [12.0, 28.0, 44.0, 60.0] {
        places.push(Anchor::Top(x, y + distance));
        places.push(Anchor::Bottom(x, y - distance));
    }
    places
}

/// Places for the label of a vertical rule: on either side, near the bottom or the top.
fn beside(x: f64, plot: Rect) -> Vec<Anchor> {
    let mut places = Vec::new();
    for row in [0.0, 16.0, 32.0, 48.0] {
        for y in [plot.bottom - 11.0 - row, plot.top + 11.0 + row] {
            places.push(Anchor::Left(x + 3.0, y));
            places.push(Anchor::Right(x - 3.0, y));
        }
    }
    places
}
