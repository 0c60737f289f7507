//! What the desk makes of messages, without a Redis.

use scalerl_model::collective::Token;
use scalerl_rollout::{FinishReason, GroupId, Sampling};

use super::*;

fn session(token: &str) -> Session {
    Session::new("run", "1", Token::chosen(token).unwrap())
}

fn desk() -> Arc<Desk> {
    let desk = Arc::new(Desk::new(session("the token of this run")));
    desk.publish(PolicyVersion(5));
    desk.adopt(PolicyVersion(4));
    desk
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

/// The id under which the desk waits for the only request.
fn id(desk: &Desk) -> String {
    desk.book().pending.values().next().unwrap().ask.id.clone()
}

fn reply(id: &str, outcome: Outcome) -> Reply {
    Reply { id: id.to_owned(), from: "gen-0".to_owned(), outcome }
}

/// An answer as a generator of this session sends it.
fn sealed(desk: &Desk, id: &str, outcome: Outcome) -> Vec<u8> {
    desk.session.seal(Kind::Answer, &reply(id, outcome))
}

fn taken(place: &mut Place) -> Option<Answer> {
    place.answer.try_recv().ok()
}

#[test]
fn a_signed_answer_settles_its_request() {
    let desk = desk();
    let mut place = desk.enter(request()).unwrap();
    desk.settle(&sealed(&desk, &id(&desk), completions(4)));
    assert_eq!(taken(&mut place).unwrap().unwrap().len(), 1);
    assert_eq!(desk.pending(), 0);
}

#[test]
fn what_is_not_signed_changes_nothing_however_often_it_comes() {
    let desk = desk();
    let mut place = desk.enter(request()).unwrap();
    let own = id(&desk);
    let refused = || Outcome::Refused { reason: "as I say".into() };
    let too_long = || Outcome::TooLong { asked: 9, limit: 1 };
    for _ in 0..5 {
        for outcome in [refused(), too_long(), completions(4)] {
            let plain = serde_json::to_vec(&reply(&own, outcome.clone())).unwrap();
            desk.settle(&plain);
            desk.settle(&[vec![0; 32], plain].concat());
            let other = session("the token of another run");
            desk.settle(&other.seal(Kind::Answer, &reply(&own, outcome.clone())));
            // Signed by this session, as something else.
            desk.settle(&desk.session.seal(Kind::Request, &reply(&own, outcome)));
        }
        desk.settle(b"");
    }
    assert!(taken(&mut place).is_none());
    assert_eq!(id(&desk), own, "it is still waited for as it was");
    let complaints = desk.take_signs().refused;
    assert_eq!(complaints.len(), 5 * 13);
    assert!(complaints[0].contains("not signed with this session's token"), "{complaints:?}");
    desk.settle(&sealed(&desk, &own, completions(4)));
    assert!(taken(&mut place).unwrap().is_ok());
}

#[test]
fn an_answer_is_good_for_its_own_request_only() {
    let desk = desk();
    let mut first = desk.enter(request()).unwrap();
    let answer = sealed(&desk, &id(&desk), completions(4));
    desk.settle(&answer);
    assert!(taken(&mut first).unwrap().is_ok());
    let mut second = desk.enter(request()).unwrap();
    desk.settle(&answer);
    assert!(taken(&mut second).is_none(), "an old answer was taken for another request");
    // The same with the id of the second in it: not what was signed.
    let text = String::from_utf8(answer[32..].to_vec()).unwrap();
    let before = text.split('"').nth(3).unwrap().to_owned();
    let forged = [&answer[..32], text.replace(&before, &id(&desk)).as_bytes()].concat();
    desk.settle(&forged);
    assert!(taken(&mut second).is_none());
    assert_eq!(desk.pending(), 1);
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
        let desk = desk();
        let mut place = desk.enter(request()).unwrap();
        let mut answers = Vec::new();
        for attempt in 1..=ATTEMPTS {
            let own = id(&desk);
            // Sent, as the clerk would note.
            desk.book().pending.values_mut().for_each(|it| it.entry = Some(format!("{attempt}-0")));
            let answer = sealed(&desk, &own, outcome());
            desk.settle(&answer);
            answers.push(answer);
            if attempt < ATTEMPTS {
                assert_ne!(id(&desk), own, "another id");
                // Said again and again, it counts once.
                for answer in &answers {
                    desk.settle(answer);
                }
                assert!(taken(&mut place).is_none(), "attempt {attempt}");
            }
        }
        let error = taken(&mut place).unwrap().unwrap_err();
        assert!(is_right(&error), "{error:?}");
        assert_eq!(desk.book().settled.len(), ATTEMPTS as usize, "all leave Redis");
    }
}
