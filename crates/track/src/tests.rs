//! Every tracker over journals that grow, are killed and are resumed, compared value by value.

mod files;
mod journal;
mod names;
mod server;
mod servers;

use std::collections::BTreeMap;
use std::path::Path;

use scalerl_recipe::TrackerChoice;

use crate::{Delivery, Outcome, Row, Target, counted_rows};

/// Every value by name, step and time: what a tracker shows.
type Shown = Vec<(String, u64, f64)>;

fn target(choice: &TrackerChoice) -> Target {
    Target::new(choice, "tests").unwrap()
}

/// Sends until nothing is new; trouble is tried again a bounded number of times.
fn deliver(delivery: &mut Delivery) {
    for _ in 0..200 {
        if matches!(delivery.pass(), Ok(Outcome::UpToDate)) && delivery.finish().is_ok() {
            return;
        }
    }
    panic!("the tracker never got everything");
}

/// A whole session of one process.
fn export(run: &Path, target: &Target) {
    deliver(&mut Delivery::new(run, target.clone()).unwrap());
}

fn export_all(run: &Path, targets: &[Target]) {
    for target in targets {
        export(run, target);
    }
}

fn expected(run: &Path) -> Shown {
    shown(&counted_rows(run).unwrap())
}

fn shown(rows: &[Row]) -> Shown {
    let values = |row: &Row| {
        let step = row.step;
        row.metrics
            .iter()
            .map(move |(name, value)| (name.to_string(), step, *value))
            .collect::<Vec<_>>()
    };
    sorted(rows.iter().flat_map(values).collect())
}

fn sorted(mut values: Shown) -> Shown {
    values.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.total_cmp(&b.2)));
    values
}

/// How often each name and step stands there: once, if nothing is twice.
fn counts(values: &Shown) -> BTreeMap<(String, u64), usize> {
    let mut counts = BTreeMap::new();
    for (name, step, _) in values {
        *counts.entry((name.clone(), *step)).or_default() += 1;
    }
    counts
}
