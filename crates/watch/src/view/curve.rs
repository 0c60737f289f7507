//! Pass rate against compute with the forecast and its band, fitted anew as points come.
//!
//! A fit costs milliseconds to a second. It is made when there are new points, and not before it has
//! rested a hundred times as long as the last one took; points that come in between are drawn as
//! measured beyond the fit, which they are.

use std::time::{Duration, Instant};

use scalerl_board::Block;
use scalerl_board::chart::Role;
use scalerl_board::plots::{self, Captions, Measured, RunCurve};
use scalerl_curve::{Fit, FitOptions};
use scalerl_journal::EvaluationPoint;
use scalerl_recipe::Axis;
use scalerl_report::{figures, words};

use super::Subject;

/// Rest for work.
const REST: u32 = 100;
/// Points that are fitted and drawn.
const MOST_POINTS: usize = 300;

/// The last fit of a run.
#[derive(Default)]
pub(crate) struct Curve {
    fit: Option<Result<Fit, String>>,
    /// Points that it was made of: how many, and the last.
    of: Option<(usize, u64)>,
    next: Option<Instant>,
}

impl Curve {
    fn refresh(&mut self, points: &[EvaluationPoint], axis: Axis) {
        let of = points.last().map(|last| (points.len(), last.step));
        // Fewer points than were fitted: a resume has taken some back.
        let is_undone = match (of, self.of) {
            (Some(now), Some(before)) => now.0 < before.0 || now.1 < before.1,
            (now, before) => now.is_none() != before.is_none(),
        };
        let may = is_undone || self.next.is_none_or(|next| Instant::now() >= next);
        if of == self.of || !may {
            return;
        }
        let start = Instant::now();
        let points = figures::spread(points, MOST_POINTS);
        let series = EvaluationPoint::series(&points, axis).map_err(|error| error.to_string());
        let fitted = series.and_then(|series| {
            scalerl_curve::fit(&series, &FitOptions::default()).map_err(|error| error.to_string())
        });
        (self.fit, self.of) = (Some(fitted), of);
        self.next = Some(Instant::now() + (start.elapsed() * REST).min(Duration::from_mins(10)));
    }

    pub(crate) fn blocks(&mut self, subject: &Subject<'_>) -> Vec<Block> {
        let (digest, axis) = (subject.digest, subject.plan.axis);
        if digest.points.is_empty() {
            return vec![Block::Prose("Nothing was evaluated yet.".to_owned())];
        }
        self.refresh(&digest.points, axis);
        let captions = |subtitle: String| Captions {
            title: format!("Pass rate on {}", digest.primary),
            subtitle,
            compute: axis.label().to_owned(),
            value: "pass rate".to_owned(),
            interval: "90 %".to_owned(),
        };
        let measured = figures::spread(&digest.points, MOST_POINTS);
        let place = |point: &EvaluationPoint, role| Measured {
            compute: point.compute(axis),
            value: point.pass_rate,
            role,
        };
        match &self.fit {
            Some(Ok(fit)) => {
                let ahead = [fit.forecast(fit.last_compute() * 2.0)];
                let mut drawn = figures::run(subject.name, fit, &ahead);
                let later = measured.iter().filter(|one| one.compute(axis) > fit.last_compute().0);
                drawn.points.extend(later.map(|one| place(one, Role::HeldOut)));
                let gain = words::gain(2.0, &fit.gain(2.0));
                let verdict = format!("Verdict: {}. {}", fit.verdict, fit.verdict.advice());
                vec![
                    Block::Headlines(vec![gain.clone(), verdict]),
                    Block::figure(plots::fit(&drawn, &captions(String::new()))),
                ]
            }
            other => {
                let points = measured.iter().map(|one| place(one, Role::HeldOut)).collect();
                let name = subject.name.to_owned();
                let drawn = RunCurve { name, points, ..RunCurve::default() };
                let why = match other {
                    Some(Err(reason)) => format!("No curve can be fitted yet: {reason}."),
                    _ => String::new(),
                };
                vec![Block::Prose(why), Block::figure(plots::fit(&drawn, &captions(String::new())))]
            }
        }
    }
}
