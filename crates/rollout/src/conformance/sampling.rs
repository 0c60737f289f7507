//! Duties of a generator that keeps its weights.

use super::{Subject, UnderWay, another, ask, check_answer, is_all_of};
use crate::{
    Completion, FinishReason, Generator, GeneratorError, Interruption, PolicyVersion, SampleRequest,
};

pub(super) async fn completions_come_in_the_order_of_their_seeds<S: Subject>(subject: &S) {
    let (generator, _) = subject.pair();
    let request = subject.request();
    let together = ask(&generator, &request).await;
    assert!(is_all_of(&together, PolicyVersion(0)), "a fresh generator is at version 0");
    for (i, expected) in together.iter().enumerate() {
        let seed = request.seed.wrapping_add(i as u64);
        let alone = ask(&generator, &SampleRequest { count: 1, seed, ..request.clone() }).await;
        assert_eq!(alone[0], *expected, "completion {i} is that of seed + {i}");
    }
    let others = ask(&generator, &another(&request, 1)).await;
    assert_ne!(others, together, "another seed gives other completions");
}

pub(super) async fn company_does_not_matter<S: Subject>(subject: &S) {
    let (generator, _) = subject.pair();
    let request = subject.request();
    let alone = ask(&generator, &request).await;
    let crowd = (0..6).map(|number| another(&request, number));
    let answers = UnderWay::begin(&generator, crowd).await.finish().await;
    for (number, answer) in answers.into_iter().enumerate() {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => panic!("request {number} of six failed: {error}"),
        };
        check_answer(&answer, &request);
        if number == 0 {
            assert_eq!(answer, alone, "the same request alone and in company");
        }
    }
}

/// Sampled tokens while thinking, and afterwards.
fn spent(completion: &Completion) -> (usize, usize) {
    let (thinking, answer) = completion.is_injected.split_at(completion.thinking_tokens as usize);
    let sampled = |flags: &[bool]| flags.iter().filter(|is_injected| !**is_injected).count();
    (sampled(thinking), sampled(answer))
}

pub(super) async fn budgets_are_kept<S: Subject>(subject: &S) {
    let (generator, _) = subject.pair();
    let mut cut = 0;
    for (max_thinking_tokens, max_answer_tokens) in [(4, 3), (1, 1), (0, 5)] {
        let request = SampleRequest { max_thinking_tokens, max_answer_tokens, ..subject.request() };
        for one in ask(&generator, &request).await {
            let (thinking, answer) = spent(&one);
            let most = (max_thinking_tokens as usize, max_answer_tokens as usize);
            assert!(
                thinking <= most.0 && answer <= most.1,
                "{thinking} tokens to think and {answer} to answer, of {most:?}"
            );
            if one.finish == FinishReason::Length {
                // Thinking that never ended has no answer; else the answer was too long.
                let is_spent = answer == most.1 || (answer == 0 && thinking == most.0);
                assert!(is_spent, "cut after {thinking} and {answer} tokens of {most:?}");
                cut += 1;
            }
        }
    }
    assert!(cut > 0, "budgets this small cut something");
}

pub(super) async fn injected_tokens_are_marked<S: Subject>(subject: &S) {
    let (generator, _) = subject.pair();
    let mut request = subject.request();
    let mut phrase = request.prompt_token_ids[..1].to_vec();
    phrase.extend(&request.end_of_thinking);
    let interruption = |index| Interruption { at_token: 1 + index % 4, token_ids: phrase.clone() };
    request.interruptions = (0..request.count).map(interruption).collect();
    let mut interrupted = 0;
    for (one, asked) in ask(&generator, &request).await.iter().zip(&request.interruptions) {
        let Some(first) = one.is_injected.iter().position(|is_injected| *is_injected) else {
            continue;
        };
        interrupted += 1;
        assert_eq!(first, asked.at_token as usize, "the interruption comes where it was asked for");
        let length = phrase.len();
        assert_eq!(one.token_ids[first..first + length], phrase, "and is the phrase");
        let flags = one.is_injected[first..].iter().filter(|is_injected| **is_injected).count();
        assert_eq!(flags, length, "nothing else is marked");
        assert!(one.is_injected[first..first + length].iter().all(|flag| *flag));
        assert!(one.len() > first + length, "an answer follows");
    }
    assert!(interrupted > 0, "some of {} completions are interrupted", request.count);
}

pub(super) async fn a_request_given_up_leaves_nothing<S: Subject>(subject: &S) {
    let (generator, _) = subject.pair();
    let request = subject.request();
    let expected = ask(&generator, &request).await;
    for rounds in 0..5 {
        let requests = (0..8).map(|number| another(&request, number));
        let mut under_way = UnderWay::begin(&generator, requests).await;
        if rounds % 2 == 0 {
            under_way.until(subject.a_few_steps(rounds)).await;
        }
        under_way.keep_first();
        for answer in under_way.finish().await {
            match answer {
                Ok(answer) => assert_eq!(answer, expected, "a request beside others given up"),
                Err(error) => panic!("a request beside others given up failed: {error}"),
            }
        }
        assert_eq!(ask(&generator, &request).await, expected, "a request after others given up");
        assert!(subject.is_empty(&generator), "something is held for nobody");
    }
}

pub(super) async fn a_request_that_never_fits_is_refused<S: Subject>(subject: &S) {
    let Some(limit) = subject.limit() else { return };
    let (generator, _) = subject.pair();
    let mut request = subject.request();
    let expected = ask(&generator, &request).await;
    let budget = u64::from(request.max_thinking_tokens) + u64::from(request.max_answer_tokens);
    let prompt = std::mem::take(&mut request.prompt_token_ids);
    let repeated = prompt.iter().copied().cycle().take((limit + 1 - budget) as usize);
    request.prompt_token_ids = repeated.collect();
    match generator.generate(request.clone()).await {
        Err(GeneratorError::TooLong { asked, limit: said }) => {
            assert_eq!((asked, said), (limit + 1, limit), "what was asked, and the limit");
        }
        other => panic!("one token too many, and the answer was {other:?}"),
    }
    request.prompt_token_ids = prompt;
    assert_eq!(ask(&generator, &request).await, expected, "a request after a refused one");
}

pub(super) async fn a_dead_generator_says_so<S: Subject>(subject: &S) {
    let generator = subject.dead().await;
    for _ in 0..2 {
        let requests = (0..4).map(|number| another(&subject.request(), number));
        for answer in UnderWay::begin(&generator, requests).await.finish().await {
            match answer {
                Err(error @ GeneratorError::Gone { .. }) => assert!(error.is_retryable()),
                other => panic!("the generator is dead, and its answer was {other:?}"),
            }
        }
    }
}
