//! What the keys of one judge must obey together, whichever data set it belongs to.

use crate::{Recipe, RecipeError, Verifier, error::Origin, node::Node};

/// Checks a judge that stands at `place` under the name `key`.
pub(super) fn check_verifier(
    verifier: &Verifier,
    (place, key): (&Origin, &str),
    recipe: &Recipe,
    layers: &Node,
) -> Result<(), RecipeError> {
    match verifier {
        Verifier::Program { command, url, min_score, max_score, pass_score } => {
            scores_tell_right_from_wrong(place, key, (*min_score, *max_score), *pass_score)?;
            check_program(command, url.as_ref(), place, key)
        }
        Verifier::Code { time_per_test_s, time_s, .. } => {
            let verdict = "task.verifier_timeout_s";
            let verdict =
                Time::new(verdict, recipe.task.verifier_timeout_s, layers.place_of(verdict));
            let test = Time::new(format!("{key}.time_per_test_s"), *time_per_test_s, place.clone());
            let whole = time_s.map(|s| Time::new(format!("{key}.time_s"), s, place.clone()));
            match whole {
                Some(whole) => whole.fits_into(&verdict).and_then(|()| test.fits_into(&whole)),
                None => test.fits_into(&verdict),
            }
        }
        _ => Ok(()),
    }
}

/// Seconds that a key gives, and where.
struct Time {
    key: String,
    seconds: f64,
    place: Origin,
}

impl Time {
    fn new(key: impl Into<String>, seconds: f64, place: Origin) -> Self {
        Self { key: key.into(), seconds, place }
    }

    /// A test has its time within its program's, and a program within the verdict's.
    fn fits_into(&self, outer: &Self) -> Result<(), RecipeError> {
        if self.seconds <= outer.seconds {
            return Ok(());
        }
        let places = [self.place.clone(), outer.place.clone()];
        let nearest = places.into_iter().min_by_key(super::distance_from_user);
        Err(RecipeError::Conflict {
            place: nearest.unwrap_or_default(),
            key: self.key.clone(),
            other: outer.key.clone(),
            reason: format!("{} s do not fit into {} s", self.seconds, outer.seconds).into(),
            remedy: format!("raise {} or lower {}", outer.key, self.key).into(),
        })
    }
}

fn check_program(
    command: &[String],
    url: Option<&String>,
    place: &Origin,
    key: &str,
) -> Result<(), RecipeError> {
    let has_command = command.first().is_some_and(|program| !program.is_empty());
    if has_command != url.is_some() {
        return Ok(());
    }
    let reason = if has_command { "both are given" } else { "neither is given" };
    Err(RecipeError::Conflict {
        place: place.clone(),
        key: format!("{key}.command"),
        other: format!("{key}.url"),
        reason: reason.into(),
        remedy: "command = [\"./score.py\"] or url = \"http://127.0.0.1:8000/score\"".into(),
    })
}

/// A pass mark that every score or none reaches would make pass rates say nothing.
fn scores_tell_right_from_wrong(
    place: &Origin,
    key: &str,
    (low, high): (f64, f64),
    pass: f64,
) -> Result<(), RecipeError> {
    if low < pass && pass <= high && low.is_finite() && high.is_finite() {
        return Ok(());
    }
    Err(RecipeError::Conflict {
        place: place.clone(),
        key: format!("{key}.pass_score"),
        other: format!("{key}.max_score"),
        reason: format!("scores go from {low} to {high}, and {pass} is to tell right from wrong")
            .into(),
        remedy: "make it min_score < pass_score <= max_score".into(),
    })
}
