//! Subsets of the real line: intervals, unions, points, inequalities in one variable.
//!
//! A set is a membership test together with the points where membership may change. Two sets are
//! equal when they agree at every such point, between any two neighbours and beyond the ends. So
//! `-2 ≤ x ≤ 7`, `[-2, 7]` and `(-∞, 7] ∩ [-2, ∞)` need no rules of their own.
//!
//! Inequalities are read only where their boundaries are found reliably: both sides together a
//! polynomial of degree at most two in one variable, with `|…|` opened both ways.

use super::budget::{Budget, Spent};
use super::float::Sample;
use crate::expr::{Comparator, Connective, Constant, Expr, Function, SetOperator};
use crate::read::is_only_symbols;

type Test = Box<dyn Fn(f64) -> bool>;

pub(crate) struct RealSet {
    test: Test,
    changes: Vec<f64>,
    /// Steps of the budget that one test takes.
    cost: u64,
    /// The variable of an inequality; two inequalities in different variables differ.
    pub(crate) variable: Option<String>,
}

/// Points closer than this (relative to their size) are one point.
const TOLERANCE: f64 = 1e-9;

fn is_near(a: f64, b: f64) -> bool {
    a.is_finite() && b.is_finite() && (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1.0)
}

impl RealSet {
    /// `None` when the expression is not a set of real numbers that can be read.
    pub(crate) fn read(expr: &Expr, budget: &Budget) -> Result<Option<Self>, Spent> {
        budget.spend(1)?;
        match expr {
            Expr::NamedSet('R') => Ok(Some(Self::new(Vec::new(), |_| true))),
            Expr::Interval { low, high, low_open, high_open } => {
                interval(low, high, *low_open, *high_open, budget)
            }
            Expr::Tuple(items) if items.len() == 2 => {
                interval(&items[0], &items[1], true, true, budget)
            }
            Expr::Set(items) => points(items, budget),
            Expr::SetOperation(operator, a, b) => {
                let (Some(a), Some(b)) = (Self::read(a, budget)?, Self::read(b, budget)?) else {
                    return Ok(None);
                };
                Ok(combine_all(*operator, vec![a, b]))
            }
            Expr::Relation(terms, comparators) => relation(terms, comparators, budget),
            Expr::Logic(connective, items) => statements(*connective, items, budget),
            _ => Ok(None),
        }
    }

    fn new(changes: Vec<f64>, test: impl Fn(f64) -> bool + 'static) -> Self {
        Self { test: Box::new(test), changes, cost: 1, variable: None }
    }

    fn contains(&self, x: f64) -> bool {
        (self.test)(x)
    }

    pub(crate) fn equals(&self, other: &Self, budget: &Budget) -> Result<bool, Spent> {
        let mut changes: Vec<f64> = self.changes.iter().chain(&other.changes).copied().collect();
        changes.sort_by(f64::total_cmp);
        changes.dedup_by(|a, b| is_near(*a, *b));
        let mut probes = changes.clone();
        probes.extend(changes.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])));
        match (changes.first(), changes.last()) {
            (Some(first), Some(last)) => {
                probes.extend([first - 1.0 - first.abs(), last + 1.0 + last.abs()]);
            }
            _ => probes.push(0.0),
        }
        budget.spend((probes.len() as u64).saturating_mul(self.cost + other.cost))?;
        Ok(probes.iter().all(|x| self.contains(*x) == other.contains(*x)))
    }
}

fn constant(expr: &Expr, budget: &Budget) -> Result<Option<f64>, Spent> {
    if let Some(sign) = infinity(expr) {
        return Ok(Some(sign * f64::INFINITY));
    }
    if !expr.symbols().is_empty()
        || expr.any(&|node| matches!(node, Expr::Text(_) | Expr::Call(..)))
    {
        return Ok(None);
    }
    let sample = Sample { seed: 1, signed: false, bound: None };
    Ok(sample.evaluate(expr, budget)?.filter(|v| v.im.abs() <= v.error * 4.0).map(|v| v.re))
}

/// The sign of an infinite expression.
pub(crate) fn infinity(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Constant(Constant::Infinity) => Some(1.0),
        Expr::Product(items) => match items.as_slice() {
            [sign, Expr::Constant(Constant::Infinity)] if *sign == Expr::integer(-1) => Some(-1.0),
            _ => None,
        },
        _ => None,
    }
}

fn interval(
    low: &Expr,
    high: &Expr,
    low_open: bool,
    high_open: bool,
    budget: &Budget,
) -> Result<Option<RealSet>, Spent> {
    let (Some(low), Some(high)) = (constant(low, budget)?, constant(high, budget)?) else {
        return Ok(None);
    };
    if low > high {
        return Ok(None);
    }
    let changes = [low, high].into_iter().filter(|x| x.is_finite()).collect();
    Ok(Some(RealSet::new(changes, move |x| {
        let above = if is_near(x, low) { !low_open } else { x > low };
        let below = if is_near(x, high) { !high_open } else { x < high };
        above && below
    })))
}

fn points(items: &[Expr], budget: &Budget) -> Result<Option<RealSet>, Spent> {
    let mut values = Vec::new();
    for item in items.iter().flat_map(Expr::signs) {
        match constant(&item, budget)?.filter(|x| x.is_finite()) {
            Some(value) => values.push(value),
            None => return Ok(None),
        }
    }
    let members = values.clone();
    let cost = members.len() as u64 + 1;
    let set = RealSet::new(values, move |x| members.iter().any(|member| is_near(*member, x)));
    Ok(Some(RealSet { cost, ..set }))
}

/// Several sets as one. All in one test, because a test inside a test for each of thousands would
/// be as deep a recursion.
pub(crate) fn combine_all(operator: SetOperator, mut sets: Vec<RealSet>) -> Option<RealSet> {
    if sets.len() < 2 {
        return sets.pop();
    }
    let changes = sets.iter().flat_map(|set| set.changes.iter().copied()).collect();
    let variable = sets.iter().find_map(|set| set.variable.clone());
    let cost = sets.iter().map(|set| set.cost).sum();
    let set = RealSet::new(changes, move |x| match operator {
        SetOperator::Union => sets.iter().any(|set| set.contains(x)),
        SetOperator::Intersection => sets.iter().all(|set| set.contains(x)),
        SetOperator::Difference => {
            sets[0].contains(x) && !sets[1..].iter().any(|set| set.contains(x))
        }
    });
    Some(RealSet { cost, variable, ..set })
}

/// The sets of several expressions as one; `None` when one of them cannot be read.
pub(crate) fn read_all(
    operator: SetOperator,
    items: &[Expr],
    budget: &Budget,
) -> Result<Option<RealSet>, Spent> {
    let mut sets = Vec::with_capacity(items.len());
    for item in items {
        match RealSet::read(item, budget)? {
            Some(set) => sets.push(set),
            None => return Ok(None),
        }
    }
    Ok(combine_all(operator, sets))
}

/// Conditions together. An `and` that nothing can satisfy was meant as an `or`: `x < 1 and x > 2`.
fn statements(
    connective: Connective,
    items: &[Expr],
    budget: &Budget,
) -> Result<Option<RealSet>, Spent> {
    if connective == Connective::And {
        let both = read_all(SetOperator::Intersection, items, budget)?;
        let nothing = RealSet::new(Vec::new(), |_| false);
        match both {
            Some(both) if both.equals(&nothing, budget)? => {}
            both => return Ok(both),
        }
    }
    read_all(SetOperator::Union, items, budget)
}

fn relation(
    terms: &[Expr],
    comparators: &[Comparator],
    budget: &Budget,
) -> Result<Option<RealSet>, Spent> {
    if let ([name, set], [Comparator::In]) = (terms, comparators)
        && is_only_symbols(name)
    {
        return RealSet::read(set, budget);
    }
    let terms: Vec<Expr> = terms.iter().map(as_variable).collect();
    let mut names: Vec<String> = terms.iter().flat_map(Expr::symbols).collect();
    names.sort();
    names.dedup();
    let [name] = names.as_slice() else { return Ok(None) };
    let mut sets = Vec::new();
    for (pair, comparator) in terms.windows(2).zip(comparators) {
        match inequality(&pair[0], *comparator, &pair[1], name, budget)? {
            Some(set) => sets.push(set),
            None => return Ok(None),
        }
    }
    Ok(combine_all(SetOperator::Intersection, sets)
        .map(|set| RealSet { variable: Some(name.clone()), ..set }))
}

/// A name of several letters, or a function's value, is the variable: `0 < f(x) < 1`.
fn as_variable(term: &Expr) -> Expr {
    let is_compound = matches!(term, Expr::Product(_) | Expr::Call(..) | Expr::Text(_));
    if is_compound && is_only_symbols(term) {
        Expr::Symbol(format!("{term:?}"))
    } else {
        term.clone()
    }
}

fn inequality(
    left: &Expr,
    comparator: Comparator,
    right: &Expr,
    name: &str,
    budget: &Budget,
) -> Result<Option<RealSet>, Spent> {
    let is_supported = matches!(
        comparator,
        Comparator::Less
            | Comparator::LessOrEqual
            | Comparator::Greater
            | Comparator::GreaterOrEqual
            | Comparator::NotEqual
    );
    if !is_supported {
        return Ok(None);
    }
    // An infinite side says nothing: x < ∞.
    if infinity(left).is_some() || infinity(right).is_some() {
        return Ok(Some(RealSet::new(Vec::new(), |_| true)));
    }
    let difference = left.clone().difference(right.clone());
    let mut changes = Vec::new();
    for opened in [1, -1] {
        let plain = difference.map(&|node| match node {
            Expr::Function(Function::Abs, mut items) => {
                Expr::product(vec![Expr::integer(opened), items.swap_remove(0)])
            }
            other => other,
        });
        match boundaries(&plain, name, budget)? {
            Some(roots) => changes.extend(roots),
            None => return Ok(None),
        }
    }
    let name = name.to_owned();
    let cost = difference.size();
    let set = RealSet::new(changes, move |x| {
        let sample = Sample { seed: 1, signed: false, bound: Some((name.clone(), x)) };
        let free = Budget::new(100_000, std::time::Duration::from_secs(1));
        let Ok(Some(value)) = sample.evaluate(&difference, &free) else { return false };
        let is_zero = value.re.abs() <= TOLERANCE * 10.0 * x.abs().max(1.0);
        match comparator {
            Comparator::Less => value.re < 0.0 && !is_zero,
            Comparator::LessOrEqual => value.re < 0.0 || is_zero,
            Comparator::Greater => value.re > 0.0 && !is_zero,
            Comparator::GreaterOrEqual => value.re > 0.0 || is_zero,
            _ => !is_zero,
        }
    });
    Ok(Some(RealSet { cost, ..set }))
}

/// Real roots of a polynomial of degree at most two, recognised by its differences.
fn boundaries(expr: &Expr, name: &str, budget: &Budget) -> Result<Option<Vec<f64>>, Spent> {
    let mut at = Vec::new();
    for x in [0.0, 1.0, 2.0, 3.0, 7.0] {
        let sample = Sample { seed: 1, signed: false, bound: Some((name.to_owned(), x)) };
        match sample.evaluate(expr, budget)?.filter(|v| v.im.abs() <= v.error * 4.0) {
            Some(value) => at.push(value.re),
            None => return Ok(None),
        }
    }
    let c = at[0];
    let a = 0.5 * (at[2] - 2.0 * at[1] + at[0]);
    let b = at[1] - at[0] - a;
    let size = a.abs().max(b.abs()).max(c.abs()).max(1.0);
    let fits = |x: f64, value: f64| (a * x * x + b * x + c - value).abs() <= 1e-8 * size;
    if !fits(3.0, at[3]) || !fits(7.0, at[4]) {
        return Ok(None);
    }
    if a.abs() <= 1e-12 * size {
        return Ok(Some(if b.abs() <= 1e-12 * size { Vec::new() } else { vec![-c / b] }));
    }
    let discriminant = b * b - 4.0 * a * c;
    if discriminant < -1e-12 * size * size {
        return Ok(Some(Vec::new()));
    }
    let root = discriminant.max(0.0).sqrt();
    Ok(Some(vec![(-b - root) / (2.0 * a), (-b + root) / (2.0 * a)]))
}
