//! One step, as every rank takes it: the same operations in the same order on all of them.

use scalerl_model::train::{RankError, Ranks, StepReport};
use scalerl_rollout::{PolicyVersion, TrainBatch, TrainerError};

use crate::loss::{StepSums, Totals};
use crate::policy::{Policy, device_error, failed_device, step_error};

/// Adds up the own share, then goes on with the sums of all. An error of one is an error of all, and
/// leaves every rank as it was before the step.
pub(super) fn step_together(
    policy: &mut Policy,
    ranks: &Ranks,
    version: PolicyVersion,
    share: &TrainBatch,
) -> Result<(Totals, StepReport), TrainerError> {
    let taken = try_step(policy, ranks, version, share);
    taken.map_err(|error| policy.give_up(error))
}

fn try_step(
    policy: &mut Policy,
    ranks: &Ranks,
    version: PolicyVersion,
    share: &TrainBatch,
) -> Result<(Totals, StepReport), TrainerError> {
    let rounds = policy.rounds(ranks, share)?;
    // Named here: others hear of it before this rank gives up.
    let own = add_share(policy, version, share).map_err(|error| policy.with_holders(error));
    let is_lost = matches!(own, Err(TrainerError::RankLost { .. }));
    // Others may have more pieces, and must not wait for a rank that has failed in one of its own. A pass
    // that another rank has ended is nobody's to go on with.
    let kept = if is_lost { Ok(()) } else { policy.keep_pace(rounds) };
    let kept = kept.map_err(|error| policy.with_holders(error));
    let own = match (own, kept) {
        (_, Err(error)) if !policy.learner.can_hear_why() => return Err(error),
        (Err(error), _) if is_lost && !policy.learner.can_hear_why() => return Err(error),
        (own, kept) => own.and_then(|sums| kept.map(|()| sums)),
    };
    let totals = totals_of_all(ranks, version, own)?;
    policy.check_totals(&totals)?;
    let step = policy.learner.step_together(ranks);
    Ok((totals, step.map_err(|error| step_error(version, &error))?))
}

fn add_share(
    policy: &mut Policy,
    version: PolicyVersion,
    share: &TrainBatch,
) -> Result<StepSums, TrainerError> {
    if policy.version() != version {
        let reason = format!("it holds {}, the step starts from {version}", policy.version());
        return Err(TrainerError::Device { reason });
    }
    let Some(tally) = policy.accumulate(share)? else { return Ok(StepSums::nothing()) };
    tally.read().map_err(|error| device_error(version, &error))
}

/// The sums of all ranks, added in the order of ranks: the same number everywhere.
fn totals_of_all(
    ranks: &Ranks,
    version: PolicyVersion,
    own: Result<StepSums, TrainerError>,
) -> Result<Totals, TrainerError> {
    const FAILED: usize = StepSums::COUNT;
    let mut numbers = [0.0; FAILED + 1];
    match &own {
        Ok(sums) => numbers[..FAILED].copy_from_slice(sums.numbers()),
        Err(_) => numbers[FAILED] = 1.0,
    }
    let everybody = ranks.numbers(&numbers).map_err(|error| rank_error(&error))?;
    if everybody.iter().any(|numbers| numbers[FAILED] > 0.0) {
        return Err(what_went_wrong(ranks, version, own.err()));
    }
    let mut all = StepSums::nothing();
    for numbers in everybody {
        all.merge(&StepSums::from_numbers(
            numbers[..FAILED].try_into().expect("as many as were sent"),
        ));
    }
    Ok(all.totals())
}

/// Ranks that failed say why; the lowest is told. One that has only lost another knows nothing to say.
fn what_went_wrong(
    ranks: &Ranks,
    version: PolicyVersion,
    own: Option<TrainerError>,
) -> TrainerError {
    let sentence = match &own {
        // Rank 0 says the rest itself.
        Some(TrainerError::OutOfMemory { reason, .. }) => reason.clone(),
        Some(TrainerError::RankLost { .. }) => String::new(),
        other => other.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    let told = ranks.sentences(&sentence);
    let lost = match own {
        Some(lost @ TrainerError::RankLost { .. }) => Some(lost),
        Some(own) => return own,
        None => None,
    };
    let told = match told {
        Ok(told) => told,
        Err(error) => return lost.unwrap_or_else(|| rank_error(&error)),
    };
    match (told.iter().enumerate().find(|(_, said)| !said.is_empty()), lost) {
        // A rank without room is not rank 0's, and has named its own holders.
        (Some((rank, said)), _) => failed_device(version, format!("trainer rank {rank}: {said}")),
        (None, Some(lost)) => lost,
        (None, None) => failed_device(version, "a rank failed and did not say why".to_owned()),
    }
}

pub(crate) fn rank_error(error: &RankError) -> TrainerError {
    let reason = error.to_string();
    match error {
        RankError::Collective(_) => TrainerError::RankLost { reason },
        _ => TrainerError::Device { reason },
    }
}
