//! Somebody else writes to the run's Redis, and somebody who does not know its token wants to join.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::{Commands as _, Connection};
use serde_json::json;

use crate::bench::{folder, said, scalerl};
use crate::run::{Alive, audit_run, until_all_have_ended};
use crate::server::Redis;

/// Whatever a neighbour with Redis' password can think of; how many messages there were.
fn attack(connection: &mut Connection, round: u64) -> redis::RedisResult<u64> {
    let mut count = 0;
    let bodies: Vec<String> = connection.keys("scalerl:*:bodies")?;
    for key in bodies {
        let answers = key.replace(":bodies", ":answers");
        let fleet = key.replace(":bodies", ":fleet");
        let ids: Vec<String> = connection.hkeys(&key)?;
        for (index, id) in ids.iter().enumerate() {
            let completion = json!({
                "token_ids": [4_000_000], "logprobs": [-1e30], "versions": [0],
                "is_injected": [false], "text": "right", "thinking_tokens": 0, "finish": "stop",
            });
            let outcome = match (round + index as u64) % 4 {
                0 => json!({"Refused": {"reason": "go home"}}),
                1 => json!({"TooLong": {"asked": 9, "limit": 1}}),
                2 => json!({"Completions": vec![completion; 4]}),
                _ => {
                    // A request that says something else.
                    let () = connection.hset(&key, id, "{}")?;
                    count += 1;
                    continue;
                }
            };
            let reply = json!({"id": id, "from": "generator-0", "outcome": outcome}).to_string();
            let signed = format!("{}{reply}", "s".repeat(32));
            let _: String = connection.xadd(&answers, "*", &[("reply", &reply)])?;
            let _: String = connection.xadd(&answers, "*", &[("reply", &signed)])?;
            count += 2;
        }
        let () = connection.hset(&fleet, "generator-0", "{\"name\":\"generator-0\"}")?;
    }
    let sessions: Vec<String> = connection.keys("scalerl:*:session")?;
    for session in sessions {
        let () = connection.set(&session, "{\"is_over\":true}")?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn forged_messages_neither_end_a_run_nor_reach_its_training() {
    let Some(redis) = Redis::start() else { return };
    let run = "attacked";
    let mut alive = Alive::endless(run, &redis, &["cluster.generators=2"]);
    alive.until_healthy(&["generator-0", "generator-1"]);
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = redis::Client::open(redis.url()).unwrap();
            let mut connection = client.get_connection().unwrap();
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                count.fetch_add(attack(&mut connection, round).unwrap(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        // Ends the attack however the test goes.
        let _end = EndWith(&is_over);
        alive.until("mischief", || count.load(Ordering::Relaxed) > 1000);
        alive.go_on(10);
    });
    println!("{run}: {} forged messages", count.load(Ordering::Relaxed));
    alive.go_on(3);
    alive.stop_and_audit();
    until_all_have_ended(run);
    let told = fs::read_to_string(folder().join(format!("{run}.err"))).unwrap();
    assert!(told.contains("not used: from somebody: an answer is not signed"), "{told}");
    assert!(!folder().join(run).join("set-aside").exists(), "something got in");
}

struct EndWith<'a>(&'a AtomicBool);

impl Drop for EndWith<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn who_knows_the_token_joins_by_hand_and_nobody_else() {
    let Some(redis) = Redis::start() else { return };
    let run = "joined";
    let set = ["cluster.generators=1", "cluster.name=\"joined-here\""];
    let mut alive = Alive::endless(run, &redis, &set);
    alive.until_healthy(&["generator-0"]);
    let file = folder().join(run).join("session.token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let generator = |name: &str| {
        let mut generator = scalerl(&["generator", "--name", "joined-here", "--device", "cpu"]);
        generator.env("SCALERL_REDIS", redis.url()).args(["--as", name]);
        generator
    };
    let mut stranger = generator("stranger");
    stranger.env("SCALERL_TOKEN", "0123456789abcdef").args(["--patience", "1"]);
    let stranger = said(stranger);
    assert_eq!(stranger.code, Some(1), "{stranger:?}");
    assert!(stranger.err.contains("not signed with this session's token"), "{}", stranger.err);
    assert!(stranger.err.contains("hint: ") && stranger.err.contains("SCALERL_TOKEN"));
    let mut helper = generator("helper");
    helper.arg("--token-file").arg(&file);
    let helper = Alive::start("joined-helper", helper);
    alive.until_healthy(&["helper"]);
    alive.go_on(3);
    alive.signal(rustix::process::Signal::TERM);
    let said = alive.end();
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("--token-file"), "{}", said.err);
    let helped = helper.end();
    assert!(helped.code == Some(0) && helped.err.contains("the run is over"), "{helped:?}");
    audit_run(run);
    until_all_have_ended(run);
    assert!(!file.exists(), "the token outlives its session");
}
