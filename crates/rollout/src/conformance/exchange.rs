//! Duties at the hand-over of weights.

use super::training::batch_of;
use super::{Subject, UnderWay, another, ask, check_answer, is_all_of};
use crate::{
    Completion, Generator, GeneratorError, PolicyVersion, SampleRequest, Trainer, TrainerError,
    WeightHandle,
};

/// Takes a step on what the generator wrote and publishes the result.
async fn step_and_publish<S: Subject>(
    generator: &S::Generator,
    trainer: &mut S::Trainer,
    request: &SampleRequest,
) -> WeightHandle {
    let batch = batch_of(request, &ask(generator, request).await);
    let published: Result<WeightHandle, TrainerError> =
        trainer.step(&batch).and_then(|_| trainer.publish());
    published.unwrap_or_else(|error| panic!("a step or its publication failed: {error}"))
}

async fn adopt<G: Generator>(generator: &G, weights: &WeightHandle) {
    if let Err(error) = generator.adopt(weights).await {
        panic!("weights that were published cannot be taken: {error}");
    }
}

pub(super) async fn versions_change_with_adopt_and_only_then<S: Subject>(subject: &S) {
    let (generator, mut trainer) = subject.pair();
    let request = subject.request();
    for version in 0..3 {
        let completions = ask(&generator, &request).await;
        assert!(is_all_of(&completions, PolicyVersion(version)), "all tokens are of v{version}");
        let weights = step_and_publish::<S>(&generator, &mut trainer, &request).await;
        assert_eq!(weights.version, PolicyVersion(version + 1), "a step makes the next version");
        let still = ask(&generator, &request).await;
        assert_eq!(still, completions, "published weights change nothing until they are taken");
        adopt(&generator, &weights).await;
    }
    let nowhere = WeightHandle { version: PolicyVersion(99), location: "nowhere at all".into() };
    let before = ask(&generator, &request).await;
    match generator.adopt(&nowhere).await {
        Err(GeneratorError::Weights { version: PolicyVersion(99), .. }) => {}
        other => panic!("weights that are nowhere, and the answer was {other:?}"),
    }
    assert_eq!(ask(&generator, &request).await, before, "a failed hand-over changes nothing");
}

/// How much of a completion a policy wrote.
fn written_by(completion: &Completion, version: PolicyVersion) -> usize {
    completion.versions.iter().filter(|found| **found == version).count()
}

/// Hand-overs tried before none is believed to meet a completion half written.
const ATTEMPTS: u32 = 40;

pub(super) async fn weights_may_change_in_mid_completion<S: Subject>(subject: &S) {
    let mut mixed = 0;
    for attempt in 0..ATTEMPTS {
        let (generator, mut trainer) = subject.pair();
        let request = subject.request();
        let requests: Vec<SampleRequest> = (0..4).map(|number| another(&request, number)).collect();
        let mut expected = Vec::new();
        for request in &requests {
            expected.push(ask(&generator, request).await);
        }
        let weights = step_and_publish::<S>(&generator, &mut trainer, &request).await;
        let mut under_way = UnderWay::begin(&generator, requests.clone()).await;
        under_way.until(subject.a_few_steps(attempt)).await;
        under_way.until(adopt(&generator, &weights)).await;
        let answers = under_way.finish().await;
        for ((answer, request), expected) in answers.into_iter().zip(&requests).zip(expected) {
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => panic!("a request under way at the hand-over failed: {error}"),
            };
            check_answer(&answer, request);
            for (one, expected) in answer.iter().zip(&expected) {
                let (old, new) =
                    (written_by(one, PolicyVersion(0)), written_by(one, PolicyVersion(1)));
                assert_eq!(old + new, one.len(), "every token is of one of the two versions");
                assert_eq!(
                    one.token_ids[..old],
                    expected.token_ids[..old],
                    "what was written before the hand-over stays"
                );
                mixed += usize::from(old > 0 && new > 0);
            }
        }
        let after = ask(&generator, &request).await;
        assert!(is_all_of(&after, PolicyVersion(1)), "new tokens come from the new weights");
        if mixed > 0 {
            return;
        }
    }
    panic!("in {ATTEMPTS} attempts no completion saw both weights: do they go on at a hand-over?");
}

pub(super) async fn the_handle_before_the_last_is_valid<S: Subject>(subject: &S) {
    let (generator, mut trainer) = subject.pair();
    let request = subject.request();
    let first = step_and_publish::<S>(&generator, &mut trainer, &request).await;
    let second = step_and_publish::<S>(&generator, &mut trainer, &request).await;
    adopt(&generator, &first).await;
    assert!(is_all_of(&ask(&generator, &request).await, PolicyVersion(1)));
    adopt(&generator, &second).await;
    assert!(is_all_of(&ask(&generator, &request).await, PolicyVersion(2)));
}
