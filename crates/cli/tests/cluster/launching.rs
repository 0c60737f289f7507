//! The same processes started by hand, each with its rank, and wrong starts refused.

use std::net::TcpListener;
use std::process::Command;

use crate::bench::{Said, audit, reading, said, train};
use crate::server::Redis;

fn with_rank(mut command: Command, rank: usize, world: usize, port: u16) -> Command {
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string());
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.env("OMP_NUM_THREADS", "1");
    command
}

#[test]
fn ranks_of_a_launcher_find_their_parts() {
    let Some(redis) = Redis::start() else { return };
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let address = format!("cluster.redis=\"{}\"", redis.url());
    let set = [
        "cluster.trainers=2",
        "cluster.generators=1",
        address.as_str(),
        "budget.steps=4",
        "evaluation.generations=1",
    ];
    let start = |rank| with_rank(train("scalerl", "launched", &set), rank, 3, port);
    let others: Vec<_> = (1..3).map(|rank| start(rank).spawn().unwrap()).collect();
    let lead = said(start(0));
    assert_eq!(lead.code, Some(0), "{}", lead.err);
    for (child, expected) in others.into_iter().zip(["rank 1: done", "the run is over"]) {
        let said: Said = child.wait_with_output().unwrap().into();
        assert!(said.code == Some(0) && said.err.contains(expected), "{said:?}");
    }
    audit(&reading("launched"), 8);
}

#[test]
fn starts_that_cannot_work_are_refused_at_once() {
    let without = said(train("scalerl", "refused", &["cluster.generators=2"]));
    assert!(without.code == Some(2) && without.err.contains("SCALERL_REDIS"), "{without:?}");
    let set = ["cluster.trainers=2", "cluster.generators=1"];
    let many = said(with_rank(train("scalerl", "refused", &set), 0, 7, 29500));
    assert!(many.code == Some(2) && many.err.contains("7 processes"), "{many:?}");
    let nobody = "redis://127.0.0.1:1";
    let mut alone = crate::bench::scalerl(&["generator", "--name", "x", "--patience", "0"]);
    alone.env("SCALERL_REDIS", nobody);
    let alone = said(alone);
    assert!(alone.code == Some(1) && alone.err.contains("Redis"), "{alone:?}");
}
