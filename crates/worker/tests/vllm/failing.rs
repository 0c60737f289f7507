//! Servers that fail, lie, hang, die and come back.

use std::time::{Duration, Instant};

use scalerl_rollout::{
    AnswerEnd, Generator, GeneratorError, Interruption, PolicyVersion, SampleRequest,
};
use scalerl_worker::VllmGenerator;
use scalerl_worker::vllm::{Notice, ServerState};
use serde_json::{Value, json};

use crate::fake::{Fake, Misdeed, Options};
use crate::{rig, setup, tiny};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_failure_is_asked_again_and_gives_the_same_answer() {
    let rig = rig(1, |_| ()).await;
    let expected = rig.generator.generate(tiny::request(2)).await.unwrap();
    let misdeeds = [
        Misdeed::Status(500),
        Misdeed::Status(503),
        Misdeed::Status(429),
        Misdeed::Say("{\"choices\": [{}"),
        Misdeed::Say("{\"choices\": []}"),
        Misdeed::Say("{\"choices\": [{\"token_ids\": [1, 2], \"logprobs\": {\"content\": []}}]}"),
        Misdeed::Say("{\"choices\": [{\"finish_reason\": \"abort\", \"token_ids\": []}]}"),
        Misdeed::Flood,
        Misdeed::Drop,
        Misdeed::Sleep(Duration::from_millis(200)),
    ];
    for misdeed in misdeeds {
        rig.fakes[0].misbehave(&[misdeed]);
        let answer = rig.generator.generate(tiny::request(2)).await;
        assert_eq!(answer.unwrap(), expected, "after {misdeed:?}");
    }
    assert!(rig.generator.load().iter().all(|server| server.running == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_keeps_failing_or_refuses_is_an_error_with_its_words() {
    let rig = rig(1, |_| ()).await;
    let one = tiny::request(1);
    rig.fakes[0].misbehave(&[Misdeed::Status(500); 3]);
    let error = rig.generator.generate(one.clone()).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("as ordered"), "{error}");
    rig.fakes[0].misbehave(&[Misdeed::Status(400)]);
    let error = rig.generator.generate(one.clone()).await.unwrap_err();
    assert!(matches!(error, GeneratorError::Refused { .. }), "{error}");
    rig.fakes[0].misbehave(&[Misdeed::Status(404)]);
    let error = rig.generator.generate(one.clone()).await.unwrap_err().to_string();
    assert!(error.contains("--enable-scale-out"), "{error}");
    assert!(rig.generator.generate(one).await.is_ok(), "and goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_given_up_is_given_up_by_the_server() {
    let rig = rig(1, |_| ()).await;
    let long = SampleRequest { max_answer_tokens: 120, ..tiny::request(16) };
    for _ in 0..3 {
        let waited =
            tokio::time::timeout(Duration::from_millis(15), rig.generator.generate(long.clone()));
        let _ = waited.await;
        let start = Instant::now();
        while rig.fakes[0].running() > 0 || rig.generator.load()[0].running > 0 {
            assert!(start.elapsed() < Duration::from_secs(10), "it writes for nobody");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_spread_over_servers_and_held_back_when_they_are_full() {
    let rig = rig(2, |setup| setup.requests_at_once = 3).await;
    let answer = rig.generator.generate(tiny::request(20)).await.unwrap();
    assert_eq!(answer.len(), 20);
    let counts: Vec<usize> = rig.fakes.iter().map(|fake| fake.bodies().len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 20);
    assert!(counts.iter().all(|count| *count >= 5), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_completion_goes_on_under_another_seed_and_the_same_salt() {
    // Some seeds draw an end before the interruption.
    let (mut seed, mut found) = (0, None);
    while found.is_none() {
        assert!(seed < 20, "no completion was interrupted");
        let rig = rig(1, |_| ()).await;
        let request = SampleRequest {
            max_thinking_tokens: 6,
            max_answer_tokens: 4,
            end_of_thinking: vec![5],
            interruptions: vec![Interruption { at_token: 6, token_ids: vec![11, 5] }],
            // No token has a z.
            end_of_answer: Some(AnswerEnd::at("z")),
            seed,
            ..tiny::request(1)
        };
        let answer = rig.generator.generate(request).await.unwrap().remove(0);
        found = answer.is_interrupted().then_some((rig, answer));
        seed += 1;
    }
    let (rig, answer) = found.unwrap();
    assert_eq!(answer.token_ids[6..8], [11, 5]);
    assert_eq!((answer.thinking_tokens, answer.logprobs[6]), (8, 0.0));
    let bodies = rig.fakes[0].bodies();
    assert_eq!(bodies.len(), 2);
    let params = |index: usize, key: &str| bodies[index]["sampling_params"][key].clone();
    assert_eq!((params(0, "max_tokens"), params(1, "max_tokens")), (6.into(), 4.into()));
    assert_ne!(params(0, "seed"), params(1, "seed"));
    assert_eq!(params(0, "stop"), Value::Null, "while it thinks, nothing closes the answer");
    assert_eq!((params(1, "stop"), params(1, "detokenize")), (json!(["z"]), true.into()));
    assert_eq!(bodies[1]["token_ids"].as_array().unwrap().len(), 3 + 8);
    assert_eq!(bodies[0]["cache_salt"], bodies[1]["cache_salt"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_are_exchanged_in_the_order_that_keeps_labels_exact() {
    let mut rig = rig(2, |_| ()).await;
    rig.adopt(1, 2).await;
    for fake in &rig.fakes {
        let asked = fake.asked();
        let exchange: Vec<&str> = asked
            .iter()
            .map(String::as_str)
            .filter(|path| !["/health", "/v1/models", "/get_world_size"].contains(path))
            .collect();
        let one = [
            "/pause?mode=keep&clear_cache=false",
            "/update_weight_version",
            "/collective_rpc",
            "/update_weight_version",
            "/resume",
        ];
        assert_eq!(exchange, [one, one].concat());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_a_dead_server_are_finished_by_another() {
    let mut rig = rig(2, |_| ()).await;
    let expected = rig.generator.generate(tiny::request(8)).await.unwrap();
    for fake in &rig.fakes {
        fake.misbehave(&[Misdeed::Sleep(Duration::from_millis(300)); 4]);
    }
    let (answer, ()) = tokio::join!(rig.generator.generate(tiny::request(8)), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        rig.fakes.remove(0);
    });
    assert_eq!(answer.unwrap(), expected);
    let notice = rig.notices.recv().await.unwrap();
    assert!(matches!(notice, Notice::Lost { .. }), "{notice}");
    rig.adopt(1, 2).await;
    let newer = rig.generator.generate(tiny::request(1)).await.unwrap();
    assert_eq!(newer[0].oldest_version(), Some(PolicyVersion(1)), "one server is enough");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_takes_the_current_weights_before_it_serves() {
    let mut rig = rig(1, |_| ()).await;
    rig.adopt(1, 2).await;
    let expected = rig.generator.generate(tiny::request(4)).await.unwrap();
    let address = rig.fakes.remove(0).address;
    // Let go of, so that the place is free.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (answer, fake) = tokio::join!(rig.generator.generate(tiny::request(4)), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Fake::start_at(&address.to_string(), Options::default()).await
    });
    assert_eq!(answer.unwrap(), expected, "not the weights it was started with");
    assert!(fake.asked().contains(&"/collective_rpc".to_owned()));
    let notices = [rig.notices.recv().await.unwrap(), rig.notices.recv().await.unwrap()];
    assert!(
        matches!(&notices, [Notice::Lost { .. }, Notice::Back { version: PolicyVersion(1), .. }]),
        "{notices:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_restarted_unseen_is_found_out_by_its_label() {
    let mut rig = rig(1, |_| ()).await;
    rig.adopt(1, 2).await;
    let expected = rig.generator.generate(tiny::request(4)).await.unwrap();
    let address = rig.fakes.remove(0).address;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let _fake = Fake::start_at(&address.to_string(), Options::default()).await;
    let answer = rig.generator.generate(tiny::request(4)).await.unwrap();
    assert_eq!(answer, expected);
    let notice = rig.notices.recv().await.unwrap();
    let Notice::Lost { reason, .. } = &notice else { panic!("{notice}") };
    assert!(reason.contains("weights \"default\", which are not of this run"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_left_and_taken_back_when_it_answers_again() {
    let mut rig = rig(2, |setup| setup.silence = Duration::from_millis(800)).await;
    let expected = rig.generator.generate(tiny::request(8)).await.unwrap();
    rig.fakes[0].freeze(true);
    let answer = rig.generator.generate(tiny::request(8)).await.unwrap();
    assert_eq!(answer, expected);
    let notice = rig.notices.recv().await.unwrap();
    assert!(
        matches!(&notice, Notice::Lost { reason, .. } if reason.contains("silent")),
        "{notice}"
    );
    rig.adopt(1, 2).await;
    rig.fakes[0].freeze(false);
    let back = tokio::time::timeout(Duration::from_secs(20), rig.notices.recv()).await;
    let back = back.unwrap().unwrap();
    assert!(matches!(back, Notice::Back { version: PolicyVersion(1), .. }), "{back}");
    let states: Vec<ServerState> = rig.generator.load().into_iter().map(|one| one.state).collect();
    assert_eq!(states, vec![ServerState::Serving(PolicyVersion(1)); 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_frozen_while_weights_change_holds_nobody_up() {
    let mut rig = rig(2, |setup| setup.silence = Duration::from_millis(800)).await;
    rig.fakes[0].freeze(true);
    let adopted = tokio::time::timeout(Duration::from_secs(20), rig.adopt(1, 2)).await;
    assert!(adopted.is_ok(), "the other server has them");
    let answer = rig.generator.generate(tiny::request(4)).await.unwrap();
    assert!(answer.iter().all(|one| one.versions.iter().all(|v| *v == PolicyVersion(1))));
    rig.fakes[0].freeze(false);
    let mut told = Vec::new();
    while told.len() < 2 {
        let notice = tokio::time::timeout(Duration::from_secs(20), rig.notices.recv()).await;
        told.push(notice.unwrap().unwrap());
    }
    assert!(matches!(&told[0], Notice::Lost { .. }), "{}", told[0]);
    assert!(matches!(told[1], Notice::Back { version: PolicyVersion(1), .. }), "{}", told[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_wants_its_token() {
    let fake = Fake::start_with(Options { token: Some("secret"), ..Options::default() }).await;
    let (wrong, _) = setup(vec![fake.url()]);
    let error = VllmGenerator::start(wrong).await.unwrap_err();
    assert!(error.to_string().contains("token_file"), "{error}");
    let (mut right, _) = setup(vec![fake.url()]);
    right.token = Some("secret".to_owned());
    assert!(VllmGenerator::start(right).await.is_ok());
    let (mut broken, _) = setup(vec![fake.url()]);
    broken.token = Some("two\nlines".to_owned());
    let error = VllmGenerator::start(broken).await.unwrap_err();
    assert!(!error.to_string().contains("two"), "a token is never shown: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_labels_is_believed_to_have_what_it_was_given() {
    let fake = Fake::start_with(Options { has_labels: false, ..Options::default() }).await;
    let (setup, _) = setup(vec![fake.url()]);
    let generator = VllmGenerator::start(setup).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let mut weights = scalerl_worker::WeightFolder::open(place.path()).unwrap();
    let handle = weights.publish(PolicyVersion(7), &tiny::model(1)).unwrap();
    generator.adopt(&handle).await.unwrap();
    let answer = generator.generate(tiny::request(1)).await.unwrap().remove(0);
    assert!(answer.versions.iter().all(|version| *version == PolicyVersion(7)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_of_servers_that_hold_several_are_added_up() {
    let parallel = Options { devices: 4, ..Options::default() };
    let fakes = [Fake::start_with(parallel).await, Fake::start().await];
    let (setup, _) = setup(fakes.iter().map(Fake::url).collect());
    assert_eq!(VllmGenerator::start(setup).await.unwrap().devices(), 4 + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_named() {
    let (mut setup, _) = setup(vec!["http://127.0.0.1:9".to_owned()]);
    setup.patience = Duration::from_millis(100);
    let error = VllmGenerator::start(setup).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("127.0.0.1:9"), "{error}");
}
