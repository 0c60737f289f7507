//! Somebody who can read and write Redis, and does not know the token.

use scalerl_worker::remote::{Found, find};

use super::*;

/// Ids of requests that wait in Redis, once there are some.
async fn waiting(rig: &Rig, client: &mut redis::Connection) -> Vec<String> {
    let bodies = rig.key("bodies");
    let begun = Instant::now();
    loop {
        let ids: Vec<String> = redis::cmd("HKEYS").arg(&bodies).query(client).unwrap();
        if !ids.is_empty() {
            return ids;
        }
        assert!(begun.elapsed() < SOON, "nothing was sent");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn add_answer(rig: &Rig, client: &mut redis::Connection, reply: &[u8]) {
    let mut add = redis::cmd("XADD");
    let _: String =
        add.arg(rig.key("answers")).arg("*").arg("reply").arg(reply).query(client).unwrap();
}

/// What a forger would like to have believed.
fn forged(id: &str) -> Vec<Vec<u8>> {
    let completion = serde_json::json!({
        "token_ids": [5], "logprobs": [-0.1], "versions": [0], "is_injected": [false],
        "text": "the right answer", "thinking_tokens": 0, "finish": "stop",
    });
    let outcomes = [
        serde_json::json!({"Refused": {"reason": "go home"}}),
        serde_json::json!({"TooLong": {"asked": 9, "limit": 1}}),
        serde_json::json!({"Completions": vec![completion; 6]}),
    ];
    let reply = |outcome| serde_json::json!({"id": id, "from": "me", "outcome": outcome});
    let plain = outcomes.into_iter().map(|one| reply(one).to_string().into_bytes());
    plain.flat_map(|plain| [[vec![7; 32], plain.clone()].concat(), plain]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn forged_answers_are_not_believed_and_end_nothing() {
    let Some(redis) = Redis::start() else { return };
    let mut rig = Rig::new(&redis, 1, 100).await;
    rig.nodes.clear();
    let mut client = redis.client();
    let request = tiny::long_request();
    let asking = tokio::spawn({
        let (generator, request) = (rig.generator.clone(), request.clone());
        async move { generator.generate(request).await }
    });
    for _ in 0..4 {
        for id in waiting(&rig, &mut client).await {
            for reply in forged(&id) {
                add_answer(&rig, &mut client, &reply);
            }
        }
    }
    let answers = rig.key("answers");
    let client = Mutex::new(client);
    let left = || {
        let mut client = client.lock().unwrap();
        redis::cmd("XLEN").arg(&answers).query::<u64>(&mut *client).unwrap()
    };
    wait_until("all forged answers to be read", || left() == 0).await;
    assert_eq!(rig.generator.pending(), 1, "the request still waits");
    let refused = rig.generator.signs().refused;
    assert_eq!(refused.len(), 24);
    assert!(refused.iter().all(|reason| reason.contains("not signed")), "{refused:?}");
    rig.nodes.push(rig.node(&redis, "honest"));
    let answer = tokio::time::timeout(SOON, asking).await.unwrap().unwrap().unwrap();
    assert!(answer.len() == 6 && answer.iter().all(|one| one.text != "the right answer"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_overwritten_request_is_sent_again() {
    let Some(redis) = Redis::start() else { return };
    let mut rig = Rig::new(&redis, 1, 100).await;
    rig.nodes.clear();
    let mut client = redis.client();
    let asking = tokio::spawn({
        let generator = rig.generator.clone();
        async move { generator.generate(tiny::long_request()).await }
    });
    let [id] = &waiting(&rig, &mut client).await[..] else { panic!("one request") };
    let bodies = rig.key("bodies");
    let body: Vec<u8> = redis::cmd("HGET").arg(&bodies).arg(id).query(&mut client).unwrap();
    // Another seed, or prompt, or nothing: whatever is not as it was signed.
    let mut other = body.clone();
    *other.last_mut().unwrap() = b' ';
    let () = redis::cmd("HSET").arg(&bodies).arg(id).arg(&other).query(&mut client).unwrap();
    rig.nodes.push(rig.node(&redis, "honest"));
    let answer = tokio::time::timeout(SOON, asking).await.unwrap().unwrap().unwrap();
    let expected = rig.generator.generate(tiny::long_request()).await.unwrap();
    assert_eq!(answer, expected, "what was asked was answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_answer_that_was_heard_cannot_be_said_again_for_another_request() {
    let Some(redis) = Redis::start() else { return };
    let mut rig = Rig::new(&redis, 1, 100).await;
    // Listens before the answer is taken out of Redis.
    let (mut ear, answers) = (redis.client(), rig.key("answers"));
    let listening = std::thread::spawn(move || {
        let mut read = redis::cmd("XREAD");
        read.arg("BLOCK").arg(20_000).arg("STREAMS").arg(answers).arg("$");
        read.query::<redis::streams::StreamReadReply>(&mut ear).unwrap()
    });
    std::thread::sleep(Duration::from_millis(200));
    rig.generator.generate(tiny::long_request()).await.unwrap();
    let heard = listening.join().unwrap();
    let heard: Vec<u8> = heard.keys[0].ids[0].get("reply").unwrap();

    rig.nodes.clear();
    let mut client = redis.client();
    let other = SampleRequest { seed: 77, ..tiny::long_request() };
    let asking = tokio::spawn({
        let (generator, other) = (rig.generator.clone(), other.clone());
        async move { generator.generate(other).await }
    });
    let [id] = &waiting(&rig, &mut client).await[..] else { panic!("one request") };
    add_answer(&rig, &mut client, &heard);
    let text = String::from_utf8(heard[32..].to_vec()).unwrap();
    let before = text.split('"').nth(3).unwrap().to_owned();
    let renamed = [&heard[..32], text.replace(&before, id).as_bytes()].concat();
    add_answer(&rig, &mut client, &renamed);
    rig.nodes.push(rig.node(&redis, "honest"));
    let answer = tokio::time::timeout(SOON, asking).await.unwrap().unwrap().unwrap();
    assert_eq!(answer, rig.generator.generate(other).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_does_not_know_the_token_finds_nothing_and_is_not_let_in() {
    let Some(redis) = Redis::start() else { return };
    let rig = Rig::new(&redis, 1, 100).await;
    let wrong = Token::random().unwrap();
    let found = find(&mut redis.broker(), "test", &wrong).await.unwrap();
    let Found::Unusable { reason } = found else { panic!("{found:?}") };
    assert!(reason.contains("not signed"), "{reason}");
    let form = Form::of(&tiny::model(1).parameters);
    let (address, port) = rig.announcement.weights.clone();
    let joined = tokio::task::spawn_blocking(move || {
        let way = (address.as_str(), port, &wrong);
        WeightMember::join(way, "stranger", form, WeightStore::new(), CHANNEL).map(drop)
    });
    let error = joined.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("token"), "{error}");
    let secret = rig.token.secret().to_owned();
    let mut client = redis.client();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut client).unwrap();
    for key in keys {
        let dumped: Vec<u8> = redis::cmd("DUMP").arg(&key).query(&mut client).unwrap();
        let is_there = dumped.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!is_there, "{key} holds the token");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_forged_announcement_sends_nobody_home() {
    let Some(redis) = Redis::start() else { return };
    let rig = Rig::new(&redis, 1, 8).await;
    let mut client = redis.client();
    let mut over = serde_json::to_value(&rig.announcement).unwrap();
    over["is_over"] = serde_json::json!(true);
    let forged: [Vec<u8>; 3] = [
        b"{".to_vec(),
        over.to_string().into_bytes(),
        [&[1; 32][..], over.to_string().as_bytes()].concat(),
    ];
    for _ in 0..10 {
        for bytes in &forged {
            let mut set = redis::cmd("SET");
            let () = set.arg("scalerl:test:session").arg(bytes).query(&mut client).unwrap();
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    }
    assert!(!rig.nodes[0].serving.is_finished(), "it went home");
    rig.ask(3).await;
}
