//! The little linear algebra that a fit needs: Cholesky factors of dense symmetric matrices.

/// Columns solved together, so that the inner loop runs over a contiguous lane.
pub(crate) const LANES: usize = 16;

/// L with V = L L', row by row, lower triangle only meaningful.
#[derive(Debug, Clone)]
pub(crate) struct Cholesky {
    size: usize,
    lower: Vec<f64>,
    inverse_diagonal: Vec<f64>,
}

impl Cholesky {
    /// Factors a positive definite matrix given by its lower triangle (row-major, full storage).
    /// `None` when it is not positive definite.
    pub(crate) fn factor(mut matrix: Vec<f64>, size: usize) -> Option<Self> {
        let mut inverse_diagonal = vec![0.0; size];
        for i in 0..size {
            for j in 0..=i {
                let (before, row_i) = matrix.split_at_mut(i * size);
                let row_j = if i == j { None } else { Some(&before[j * size..j * size + j]) };
                let dot = match row_j {
                    Some(row_j) => dot(&row_i[..j], row_j),
                    None => dot(&row_i[..j], &row_i[..j]),
                };
                let rest = row_i[j] - dot;
                if i == j {
                    if rest.is_nan() || rest <= 0.0 {
                        return None;
                    }
                    row_i[j] = rest.sqrt();
                    inverse_diagonal[i] = 1.0 / row_i[j];
                } else {
                    row_i[j] = rest * inverse_diagonal[j];
                }
            }
        }
        Some(Self { size, lower: matrix, inverse_diagonal })
    }

    /// ln |L|, half of ln |V|.
    pub(crate) fn half_log_determinant(&self) -> f64 {
        -self.inverse_diagonal.iter().map(|d| d.ln()).sum::<f64>()
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.lower[i * self.size..i * self.size + i]
    }

    /// L^-1 b.
    pub(crate) fn whiten(&self, vector: &[f64]) -> Vec<f64> {
        let mut solved: Vec<f64> = Vec::with_capacity(self.size);
        for (i, (value, inverse)) in vector.iter().zip(&self.inverse_diagonal).enumerate() {
            let rest = value - dot(self.row(i), &solved);
            solved.push(rest * inverse);
        }
        solved
    }

    /// L^-1 X for [`LANES`] columns at once, in place.
    pub(crate) fn whiten_lanes(&self, columns: &mut [[f64; LANES]]) {
        for i in 0..self.size {
            let (done, rest) = columns.split_at_mut(i);
            let mut sum = rest[0];
            for (factor, column) in self.row(i).iter().zip(done) {
                for lane in 0..LANES {
                    sum[lane] -= factor * column[lane];
                }
            }
            for value in &mut sum {
                *value *= self.inverse_diagonal[i];
            }
            rest[0] = sum;
        }
    }

    /// V^-1 b.
    pub(crate) fn solve(&self, vector: &[f64]) -> Vec<f64> {
        let mut solved = self.whiten(vector);
        for i in (0..self.size).rev() {
            solved[i] *= self.inverse_diagonal[i];
            let value = solved[i];
            for (target, factor) in solved[..i].iter_mut().zip(self.row(i)) {
                *target -= factor * value;
            }
        }
        solved
    }
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn positive_definite(entries: &[f64], size: usize) -> Vec<f64> {
        let mut matrix = vec![0.0; size * size];
        for i in 0..size {
            for j in 0..size {
                let (a, b) = (&entries[i * size..][..size], &entries[j * size..][..size]);
                matrix[i * size + j] = dot(a, b) + if i == j { 0.5 } else { 0.0 };
            }
        }
        matrix
    }

    proptest! {
        #[test]
        fn solving_undoes_multiplying(
            entries in prop::collection::vec(-1.0..1.0_f64, 36),
            wanted in prop::collection::vec(-1.0..1.0_f64, 6),
        ) {
            let matrix = positive_definite(&entries, 6);
            let product: Vec<f64> = (0..6).map(|i| dot(&matrix[i * 6..][..6], &wanted)).collect();
            let factor = Cholesky::factor(matrix, 6).unwrap();
            for (found, wanted) in factor.solve(&product).iter().zip(&wanted) {
                prop_assert!((found - wanted).abs() < 1e-9);
            }
        }

        #[test]
        fn lanes_agree_with_single_columns(
            entries in prop::collection::vec(-1.0..1.0_f64, 25),
            column in prop::collection::vec(-1.0..1.0_f64, 5),
        ) {
            let factor = Cholesky::factor(positive_definite(&entries, 5), 5).unwrap();
            let mut lanes: Vec<[f64; LANES]> = column
                .iter()
                .map(|v| std::array::from_fn(|lane| v * (lane as f64 + 1.0)))
                .collect();
            factor.whiten_lanes(&mut lanes);
            for (single, lane) in factor.whiten(&column).iter().zip(&lanes) {
                prop_assert!((single * 3.0 - lane[2]).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn an_indefinite_matrix_is_refused() {
        assert!(Cholesky::factor(vec![1.0, 2.0, 2.0, 1.0], 2).is_none());
    }
}
