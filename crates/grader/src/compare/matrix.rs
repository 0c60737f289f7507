//! The value of a matrix expression: products, sums and multiples worked out cell by cell.

use super::budget::{Budget, Spent};
use crate::expr::{Expr, Written};

type Rows = Vec<Vec<Expr>>;

/// Most factors of a product that is worked out.
const MOST_FACTORS: usize = 3;
/// Most rows or columns of its factors.
const LARGEST: usize = 10;

/// `None` when the expression is not a matrix.
pub(crate) fn matrix_value(expr: &Expr, budget: &Budget) -> Result<Option<Rows>, Spent> {
    budget.spend(1)?;
    match expr {
        Expr::Matrix(rows) => Ok(Some(rows.clone())),
        Expr::Product(items) => product(items, budget),
        Expr::Sum(items) => {
            let mut total: Option<Rows> = None;
            for item in items {
                let Some(rows) = matrix_value(item, budget)? else { return Ok(None) };
                total = match total {
                    None => Some(rows),
                    Some(total) => match sum(&total, &rows) {
                        Some(total) => Some(total),
                        None => return Ok(None),
                    },
                };
            }
            Ok(total)
        }
        _ => Ok(None),
    }
}

fn product(items: &[Expr], budget: &Budget) -> Result<Option<Rows>, Spent> {
    let mut scalars = Vec::new();
    let mut factors = 1;
    let mut total: Option<Rows> = None;
    for item in items {
        let Some(rows) = matrix_value(item, budget)? else {
            scalars.push(item.clone());
            continue;
        };
        total = match total {
            None => Some(rows),
            Some(left) => {
                // Cells are not simplified, so they grow with every factor.
                factors += 1;
                if factors > MOST_FACTORS || left.len().max(rows.len()) > LARGEST {
                    return Err(Spent);
                }
                match multiply(&left, &rows) {
                    Some(rows) => Some(rows),
                    None => return Ok(None),
                }
            }
        };
    }
    Ok(total.map(|rows| {
        if scalars.is_empty() {
            return rows;
        }
        let factor = Expr::product(scalars);
        let scaled = |cell: Expr| match (&factor, &cell) {
            // A factor before a matrix is the usual way to write its cells.
            (Expr::Number(a, _), Expr::Number(b, _)) => {
                let value = a * b;
                let is_integer = value.is_integer();
                Expr::Number(value, if is_integer { Written::Integer } else { Written::Fraction })
            }
            _ => Expr::product(vec![factor.clone(), cell]),
        };
        rows.into_iter().map(|row| row.into_iter().map(scaled).collect()).collect()
    }))
}

fn sum(a: &Rows, b: &Rows) -> Option<Rows> {
    if a.len() != b.len() || a.iter().zip(b).any(|(x, y)| x.len() != y.len()) {
        return None;
    }
    let cell = |(x, y): (&Expr, &Expr)| Expr::Sum(vec![x.clone(), y.clone()]);
    Some(a.iter().zip(b).map(|(x, y)| x.iter().zip(y).map(cell).collect()).collect())
}

fn multiply(a: &Rows, b: &Rows) -> Option<Rows> {
    let width = b.first()?.len();
    if a.iter().any(|row| row.len() != b.len()) || b.iter().any(|row| row.len() != width) {
        return None;
    }
    let cell = |row: &Vec<Expr>, j: usize| {
        Expr::Sum(
            row.iter()
                .zip(b)
                .map(|(x, other)| Expr::product(vec![x.clone(), other[j].clone()]))
                .collect(),
        )
    };
    Some(a.iter().map(|row| (0..width).map(|j| cell(row, j)).collect()).collect())
}
