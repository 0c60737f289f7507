//! Parameters side by side in one row of numbers, cut into equal parts for the ranks.

use std::ops::Range;

use tch::{TchError, Tensor};

use crate::layout::Parameter;
use crate::train::learner::ExpertWeights;

/// One stretch of a parameter inside a stretch of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Its place in the layout.
    pub(crate) parameter: usize,
    /// Within the parameter.
    pub(crate) from: i64,
    /// Within the stretch of the row that was asked for.
    pub(crate) at: i64,
    pub(crate) length: i64,
}

/// Where consecutive parameters of a layout stand in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Place of its first parameter in the layout.
    first: usize,
    /// Place of its first number among all of the layout.
    place: i64,
    /// Start of each parameter, and the end of the last.
    starts: Vec<i64>,
    shapes: Vec<Vec<i64>>,
    /// Numbers in each rank's part.
    pub(crate) part: i64,
    size: i64,
    /// Whether its parts are whole experts that are computed with where they are.
    pub(crate) is_owned: bool,
}

/// The rows of a unit: one, or where experts stay with their owners one for each of their tensors and one
/// for each stretch of others.
pub(crate) fn rows_of(
    layout: &[Parameter],
    unit: Range<usize>,
    size: usize,
    experts: ExpertWeights,
) -> Vec<Row> {
    let (mut rows, mut start) = (Vec::new(), unit.start);
    let are_owned = experts == ExpertWeights::Owned;
    for index in unit.clone().filter(|index| are_owned && layout[*index].is_of_experts()) {
        if start < index {
            rows.push(Row::new(layout, start..index, size));
        }
        rows.push(Row { is_owned: true, ..Row::new(layout, index..index + 1, size) });
        start = index + 1;
    }
    if start < unit.end {
        rows.push(Row::new(layout, start..unit.end, size));
    }
    rows
}

impl Row {
    /// The parameters of `range`, padded so that `size` ranks have equal parts.
    pub(crate) fn new(layout: &[Parameter], range: Range<usize>, size: usize) -> Self {
        let mut starts = vec![0];
        let first = range.start;
        let numbers = |known: &Parameter| known.shape.iter().product::<i64>();
        let place = layout[..first].iter().map(numbers).sum();
        let shapes: Vec<Vec<i64>> = layout[range].iter().map(|known| known.shape.clone()).collect();
        for shape in &shapes {
            starts.push(starts[starts.len() - 1] + shape.iter().product::<i64>());
        }
        let (total, size) = (starts[starts.len() - 1], size as i64);
        let part = (total + size - 1) / size;
        Self { first, place, starts, shapes, part, size, is_owned: false }
    }

    /// Places of its parameters in the layout.
    pub(crate) fn parameters(&self) -> Range<usize> {
        self.first..self.first + self.shapes.len()
    }

    /// Shapes of its parameters.
    pub(crate) fn shapes(&self) -> &[Vec<i64>] {
        &self.shapes
    }

    /// The shape of the experts that are a rank's own.
    pub(crate) fn own_experts(&self) -> Vec<i64> {
        assert!(self.is_owned && self.shapes[0][0] % self.size == 0, "whole experts");
        let mut shape = self.shapes[0].clone();
        shape[0] /= self.size;
        shape
    }

    /// Numbers with the padding.
    pub(crate) fn whole(&self) -> i64 {
        self.part * self.size
    }

    /// Where a rank's part stands.
    pub(crate) fn part_of(&self, rank: usize) -> Range<i64> {
        rank as i64 * self.part..(rank as i64 + 1) * self.part
    }

    /// Place of a rank's first number among all of the layout.
    pub(crate) fn place_of(&self, rank: usize) -> i64 {
        self.place + self.part_of(rank).start
    }

    fn range(&self, index: usize) -> Range<i64> {
        self.starts[index]..self.starts[index + 1]
    }

    /// The parameters' parts in a stretch of the row; padding has none.
    pub(crate) fn stretches(&self, row: &Range<i64>) -> Vec<Stretch> {
        let first = self.starts.partition_point(|start| *start <= row.start).saturating_sub(1);
        (first..self.shapes.len())
            .map(|index| (index, self.range(index)))
            .take_while(|(_, own)| own.start < row.end)
            .filter_map(|(index, own)| {
                let (from, to) = (own.start.max(row.start), own.end.min(row.end));
                let stretch = Stretch {
                    parameter: self.first + index,
                    from: from - own.start,
                    at: from - row.start,
                    length: to - from,
                };
                (from < to).then_some(stretch)
            })
            .collect()
    }

    /// Its parameters as views of a whole row.
    pub(crate) fn views(&self, whole: &Tensor) -> Result<Vec<Tensor>, TchError> {
        let view = |(index, shape): (usize, &Vec<i64>)| {
            let range = self.range(index);
            whole.f_narrow(0, range.start, range.end - range.start)?.f_view(&shape[..])?.f_detach()
        };
        self.shapes.iter().enumerate().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Start;

    fn layout(lengths: &[i64]) -> Vec<Parameter> {
        let parameter = |length: &i64| Parameter {
            name: length.to_string(),
            shape: vec![*length],
            sources: Vec::new(),
            start: Start::Zeros,
        };
        lengths.iter().map(parameter).collect()
    }

    #[test]
    fn parts_cover_the_row_and_stretches_cover_the_parts() {
        let lengths = [2, 5, 1, 7, 3];
        for (size, first) in (1..=20).flat_map(|size| [(size, 0), (size, 1)]) {
            let row = Row::new(&layout(&lengths), first..lengths.len(), size);
            assert_eq!(row.parameters(), first..lengths.len());
            let mut seen: Vec<Vec<bool>> =
                lengths.iter().map(|n| vec![false; *n as usize]).collect();
            for rank in 0..size {
                let mut place = 0;
                for stretch in row.stretches(&row.part_of(rank)) {
                    assert_eq!(stretch.at, place, "stretches follow each other");
                    place += stretch.length;
                    for i in stretch.from..stretch.from + stretch.length {
                        let seen = &mut seen[stretch.parameter][i as usize];
                        assert!(!*seen, "owned twice");
                        *seen = true;
                    }
                }
            }
            let is_whole = seen[first..].iter().flatten().all(|seen| *seen);
            assert!(is_whole, "{size} ranks own everything");
        }
    }

    #[test]
    fn tensors_of_experts_that_are_owned_have_rows_of_their_own() {
        let mut table = layout(&[2, 8, 4, 3]);
        for (index, which) in [(1, "gate_up"), (2, "down")] {
            table[index].name = format!("layers.0.experts_{which}");
            table[index].shape = vec![4, table[index].shape[0] / 4];
        }
        let ranges = |experts| {
            let rows = rows_of(&table, 0..4, 2, experts);
            rows.iter().map(|row| (row.parameters(), row.is_owned)).collect::<Vec<_>>()
        };
        assert_eq!(ranges(ExpertWeights::Gathered), [(0..4, false)]);
        let owned = [(0..1, false), (1..2, true), (2..3, true), (3..4, false)];
        assert_eq!(ranges(ExpertWeights::Owned), owned);
        let rows = rows_of(&table, 0..4, 2, ExpertWeights::Owned);
        assert_eq!(rows[1].own_experts(), [2, 2], "two experts of two numbers");
        assert_eq!(rows[3].place_of(0), 14, "places are those of the layout");
    }
}
