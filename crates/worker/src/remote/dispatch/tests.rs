//! What becomes of messages, without a Redis.

use scalerl_rollout::{FinishReason, GroupId, Sampling};
use scalerl_torch::collective::Token;

use super::*;

fn session(token: &str) -> Session {
    Session::new("run", "1", Token::chosen(token).unwrap())
}

fn dispatch() -> Arc<Dispatch> {
    let dispatch = Arc::new(Dispatch::new(session("the token of this run")));
    dispatch.publish(PolicyVersion(5));
    dispatch.adopt(PolicyVersion(4));
    dispatch
}

fn request() -> SampleRequest {
    SampleRequest {
        group: GroupId(3),
        prompt_token_ids: vec![1, 2],
        count: 1,
        sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
        max_thinking_tokens: 0,
        max_answer_tokens: 2,
        end_of_thinking: vec![],
        interruptions: vec![],
        stop: vec![],
        stop_token_ids: vec![],
        end_of_answer: None,
        seed: 1,
    }
}

fn completions(version: u64) -> Outcome {
    Outcome::Completions(vec![Completion {
        token_ids: vec![5, 6],
        logprobs: vec![-0.5, -1.0],
        versions: vec![PolicyVersion(version); 2],
        is_injected: vec![false; 2],
        text: "ab".into(),
        thinking_tokens: 0,
        finish: FinishReason::Stop,
    }])
}

/// The id under which the only request waits.
fn id(dispatch: &Dispatch) -> String {
    dispatch.state().pending.values().next().unwrap().ask.id.clone()
}

fn reply(id: &str, outcome: Outcome) -> Reply {
    Reply { id: id.to_owned(), from: "gen-0".to_owned(), outcome }
}

/// An answer as a generator of this session sends it.
fn sealed(dispatch: &Dispatch, id: &str, outcome: Outcome) -> Vec<u8> {
    dispatch.session.seal(Kind::Answer, &reply(id, outcome))
}

fn taken(waiting: &mut Waiting) -> Option<Answer> {
    waiting.answer.try_recv().ok()
}

#[test]
fn a_signed_answer_settles_its_request() {
    let dispatch = dispatch();
    let mut waiting = dispatch.enter(request()).unwrap();
    dispatch.settle(&sealed(&dispatch, &id(&dispatch), completions(4)));
    assert_eq!(taken(&mut waiting).unwrap().unwrap().len(), 1);
    assert_eq!(dispatch.pending(), 0);
}

#[test]
fn what_is_not_signed_changes_nothing_however_often_it_comes() {
    let dispatch = dispatch();
    let mut waiting = dispatch.enter(request()).unwrap();
    let own = id(&dispatch);
    let refused = || Outcome::Refused { reason: "as I say".into() };
    let too_long = || Outcome::TooLong { asked: 9, limit: 1 };
    for _ in 0..5 {
        for outcome in [refused(), too_long(), completions(4)] {
            let plain = serde_json::to_vec(&reply(&own, outcome.clone())).unwrap();
            dispatch.settle(&plain);
            dispatch.settle(&[vec![0; 32], plain].concat());
            let other = session("the token of another run");
            dispatch.settle(&other.seal(Kind::Answer, &reply(&own, outcome.clone())));
            // Signed by this session, as something else.
            dispatch.settle(&dispatch.session.seal(Kind::Request, &reply(&own, outcome)));
        }
        dispatch.settle(b"");
    }
    assert!(taken(&mut waiting).is_none());
    assert_eq!(id(&dispatch), own, "it is still waited for as it was");
    let complaints = dispatch.take_signs().refused;
    assert_eq!(complaints.len(), 5 * 13);
    assert!(complaints[0].contains("not signed with this session's token"), "{complaints:?}");
    dispatch.settle(&sealed(&dispatch, &own, completions(4)));
    assert!(taken(&mut waiting).unwrap().is_ok());
}

#[test]
fn an_answer_is_good_for_its_own_request_only() {
    let dispatch = dispatch();
    let mut first = dispatch.enter(request()).unwrap();
    let answer = sealed(&dispatch, &id(&dispatch), completions(4));
    dispatch.settle(&answer);
    assert!(taken(&mut first).unwrap().is_ok());
    let mut second = dispatch.enter(request()).unwrap();
    dispatch.settle(&answer);
    assert!(taken(&mut second).is_none(), "an old answer was taken for another request");
    // The same with the id of the second in it: not what was signed.
    let text = String::from_utf8(answer[32..].to_vec()).unwrap();
    let before = text.split('"').nth(3).unwrap().to_owned();
    let forged = [&answer[..32], text.replace(&before, &id(&dispatch)).as_bytes()].concat();
    dispatch.settle(&forged);
    assert!(taken(&mut second).is_none());
    assert_eq!(dispatch.pending(), 1);
}

type IsRight = fn(&GeneratorError) -> bool;

#[test]
fn an_answer_of_no_use_is_asked_for_again_under_another_id_and_then_fails() {
    let refused = || Outcome::Refused { reason: "too warm".into() };
    let too_long = || Outcome::TooLong { asked: 9, limit: 1 };
    let cases: [(fn() -> Outcome, IsRight); 4] = [
        (refused, |error| matches!(error, GeneratorError::Refused { .. })),
        (too_long, |error| matches!(error, GeneratorError::TooLong { asked: 9, limit: 1 })),
        // The generator's fault: the engine may ask again.
        (|| completions(3), GeneratorError::is_retryable),
        (|| completions(6), GeneratorError::is_retryable),
    ];
    for (outcome, is_right) in cases {
        let dispatch = dispatch();
        let mut waiting = dispatch.enter(request()).unwrap();
        let mut answers = Vec::new();
        for attempt in 1..=ATTEMPTS {
            let own = id(&dispatch);
            // Sent, as the dispatcher would note.
            dispatch
                .state()
                .pending
                .values_mut()
                .for_each(|it| it.entry = Some(format!("{attempt}-0")));
            let answer = sealed(&dispatch, &own, outcome());
            dispatch.settle(&answer);
            answers.push(answer);
            if attempt < ATTEMPTS {
                assert_ne!(id(&dispatch), own, "another id");
                // Said again and again, it counts once.
                for answer in &answers {
                    dispatch.settle(answer);
                }
                assert!(taken(&mut waiting).is_none(), "attempt {attempt}");
            }
        }
        let error = taken(&mut waiting).unwrap().unwrap_err();
        assert!(is_right(&error), "{error:?}");
        assert_eq!(dispatch.state().settled.len(), ATTEMPTS as usize, "all leave Redis");
    }
}
