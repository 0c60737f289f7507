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
        Verifier::Program {
            command,
            keep_alive,
            workers,
            url,
            min_score,
            max_score,
            pass_score,
        } => {
            scores_tell_right_from_wrong(place, key, (*min_score, *max_score), *pass_score)?;
            check_program(command, url.as_ref(), place, key)?;
            check_keep_alive(*keep_alive, url.is_some(), workers.is_some(), place, key)
        }
        Verifier::Python { time_s, min_score, max_score, pass_score, .. } => {
            scores_tell_right_from_wrong(place, key, (*min_score, *max_score), *pass_score)?;
            let verdict = Time::of_a_verdict(recipe, layers);
            let call = time_s.map(|s| Time::new(format!("{key}.time_s"), s, place.clone()));
            call.map_or(Ok(()), |call| call.fits_into(&verdict))
        }
        Verifier::Code { time_per_test_s, time_s, .. } => {
            let verdict = Time::of_a_verdict(recipe, layers);
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

    fn of_a_verdict(recipe: &Recipe, layers: &Node) -> Self {
        let key = "task.verifier_timeout_s";
        Self::new(key, recipe.task.verifier_timeout_s, layers.place_of(key))
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

/// Only a command can be kept alive, and only one that is has workers.
fn check_keep_alive(
    is_kept: bool,
    has_url: bool,
    has_workers: bool,
    place: &Origin,
    key: &str,
) -> Result<(), RecipeError> {
    let conflict = |first: &str, second: &str, reason: &'static str, remedy: &'static str| {
        Err(RecipeError::Conflict {
            place: place.clone(),
            key: format!("{key}.{first}"),
            other: format!("{key}.{second}"),
            reason: reason.into(),
            remedy: remedy.into(),
        })
    };
    match (is_kept, has_url, has_workers) {
        (true, true, _) => {
            conflict("keep_alive", "url", "a service is not started here", "leave one of them out")
        }
        (false, _, true) => conflict(
            "workers",
            "keep_alive",
            "a command that is started for every completion has no workers",
            "keep_alive = true, or leave workers out",
        ),
        _ => Ok(()),
    }
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
