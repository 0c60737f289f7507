//! What a figure's legend says: one entry per text, with every kind of drawing that carries it.

use crate::chart::{Figure, Layer, Role, Stroke, Tone};

/// A small picture of how a layer is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swatch {
    Band(Tone),
    Level(Tone),
    /// A level that is an interval alone.
    OpenLevel(Tone),
    Line(Tone, Stroke),
    Point(Tone, Role),
    Mark(Tone),
}

/// A longer legend is longer than its figure, and nobody reads it.
const MOST_ENTRIES: usize = 24;

/// One line of the legend.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) text: String,
    pub(crate) swatches: Vec<Swatch>,
}

impl Entry {
    /// Whether its picture is only a marker, which needs less width than a line.
    pub(crate) fn is_marker(&self) -> bool {
        let marker = |swatch: &Swatch| matches!(swatch, Swatch::Point(..) | Swatch::Mark(_));
        self.swatches.iter().all(marker)
    }
}

/// Entries in the order of their first layer. Labels of levels are entries only where
/// `with_levels` says that they have no place beside their rule; they come last, because the runs
/// they belong to must be known first.
pub(crate) fn entries(figure: &Figure, with_levels: bool) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let is_level = |layer: &&Layer| matches!(layer, Layer::Level(_));
    let levels = figure.layers.iter().filter(is_level);
    for layer in figure.layers.iter().filter(|layer| !is_level(layer)).chain(levels) {
        let (text, swatch) = match layer {
            Layer::Points(points) if points.role == Role::Probe || points.dots.is_empty() => {
                continue;
            }
            Layer::Points(points) => {
                (points.legend.clone(), Swatch::Point(points.tone, points.role))
            }
            Layer::Line(line) => (line.legend.clone(), Swatch::Line(line.tone, line.stroke)),
            Layer::Band(band) => (band.legend.clone(), Swatch::Band(band.tone)),
            Layer::Marks(marks) => (marks.legend.clone(), Swatch::Mark(marks.tone)),
            Layer::Level(level) if with_levels => {
                let owner = entries.iter_mut().find(|entry| entry.text == level.legend);
                if let Some(entry) = owner.filter(|_| !level.label.is_empty()) {
                    entry.text = format!("{}: {}", entry.text, level.label.replace('\n', " "));
                    continue;
                }
                let tone = level.tone;
                let swatch = level.value.map_or(Swatch::OpenLevel(tone), |_| Swatch::Level(tone));
                (level.label.replace('\n', " "), swatch)
            }
            Layer::Level(_) | Layer::Rule(_) => continue,
        };
        if text.is_empty() {
            continue;
        }
        match entries.iter_mut().find(|entry| entry.text == text) {
            Some(entry) if entry.swatches.contains(&swatch) => {}
            Some(entry) => entry.swatches.push(swatch),
            None => entries.push(Entry { text, swatches: vec![swatch] }),
        }
    }
    if entries.len() > MOST_ENTRIES {
        let more = entries.len() - (MOST_ENTRIES - 1);
        entries.truncate(MOST_ENTRIES - 1);
        entries.push(Entry { text: format!("… and {more} more"), swatches: Vec::new() });
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Band, Dot, Level, Line, Points};

    #[test]
    fn layers_of_one_run_share_an_entry_and_probes_have_none() {
        let legend = || "run a".to_owned();
        let dots = vec![Dot::default()];
        let points =
            |role| Points { legend: legend(), role, dots: dots.clone(), ..Points::default() };
        let figure = Figure {
            layers: vec![
                Layer::Band(Band { legend: legend(), ..Band::default() }),
                Layer::Line(Line { legend: legend(), ..Line::default() }),
                Layer::Points(points(Role::Used)),
                Layer::Points(points(Role::Probe)),
                Layer::Level(Level { label: "ceiling\n0.6".into(), ..Level::default() }),
            ],
            ..Figure::default()
        };
        let found = entries(&figure, false);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].swatches.len(), 3);
        assert_eq!(entries(&figure, true)[1].text, "ceiling 0.6");
    }

    #[test]
    fn a_legend_of_a_thousand_runs_says_how_many_it_leaves_out() {
        let line = |index| Line { legend: format!("run {index}"), ..Line::default() };
        let layers = (0..1000).map(|index| Layer::Line(line(index))).collect();
        let found = entries(&Figure { layers, ..Figure::default() }, false);
        assert_eq!(found.len(), MOST_ENTRIES);
        assert_eq!(found.last().unwrap().text, "… and 977 more");
    }
}
