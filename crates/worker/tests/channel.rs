//! Weights over a channel to members that are real processes, over Gloo: in order, and whatever
//! happens to the other members.
//!
//! The test is the trainer; members are this very binary, asked for its one ignored test. They write
//! down what they get, line by line.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use scalerl_rollout::PolicyVersion;
use scalerl_torch::collective::{CollectiveError, Store, Token, Transport};
use scalerl_torch::device;
use scalerl_worker::channel::{
    ChannelEvent, ChannelOptions, Received, WeightChannel, WeightMember,
};
use scalerl_worker::{Form, WeightStore};
use tch::{Device, Kind, Tensor};
use tempfile::TempDir;

const OPTIONS: ChannelOptions = ChannelOptions {
    meeting: Duration::from_secs(20),
    answer: Duration::from_secs(1),
    transfer: Duration::from_secs(3),
    // On one GPU as well: NCCL wants one for each process.
    transport: Some(Transport::Gloo),
};
/// More than the options of two failed rounds; a machine under load needs some of it.
const SOON: Duration = Duration::from_secs(20);

/// Large enough that a transfer takes more than one packet.
/// The same in all processes of a test.
fn token() -> Token {
    Token::chosen("a token of this test").unwrap()
}

fn form(width: i64, device: Device) -> Form {
    Form { shapes: vec![vec![256, width], vec![7], vec![]], kind: Kind::Float, device }
}

/// The trainer's side, with the processes it has started.
struct Trainer {
    channel: WeightChannel,
    weight_store: Arc<WeightStore>,
    folder: TempDir,
    members: Vec<Member>,
    events: Vec<ChannelEvent>,
    device: Device,
}

struct Member {
    process: Child,
    log: PathBuf,
}

impl Member {
    fn start(role: &str, port: u16, log: PathBuf) -> Self {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "a_process_that_another_test_has_started"])
            .env("SCALERL_TEST_ROLE", role)
            .env("SCALERL_TEST_PORT", port.to_string())
            .env("SCALERL_TEST_LOG", &log)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, log }
    }

    /// What it has said so far; a line that is still being written is not said yet.
    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n').map(str::to_owned))
            .collect()
    }

    /// Versions it got, each with the numbers of that version in it.
    fn versions(&self) -> Vec<u64> {
        self.lines().iter().filter_map(|line| line.strip_prefix("got ")?.parse().ok()).collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < SOON, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    started.elapsed()
}

impl Trainer {
    fn with_members(count: usize) -> Self {
        Self::with("member", count, Device::Cpu)
    }

    fn with(role: &str, count: usize, device: Device) -> Self {
        let channel = WeightChannel::open("127.0.0.1", 0, &token(), OPTIONS).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (weight_store, members, events) = (WeightStore::new(), Vec::new(), Vec::new());
        let mut trainer = Self { channel, weight_store, folder, members, events, device };
        (0..count).for_each(|_| trainer.start(role));
        wait_until("members join", || trainer.channel.members().len() == count);
        trainer
    }

    fn start(&mut self, role: &str) {
        let log = self.folder.path().join(self.members.len().to_string());
        self.members.push(Member::start(role, self.channel.port(), log));
    }

    /// Publishes as a trainer does; returns how long that took it.
    fn publish(&self, version: u64) -> Duration {
        let started = Instant::now();
        let Form { shapes, kind, device } = form(300, self.device);
        let full = |shape: &Vec<i64>| Tensor::full(shape, version as f64, (kind, device));
        let parameters: Vec<Tensor> = shapes.iter().map(full).collect();
        let handle = self.weight_store.publish(PolicyVersion(version), &parameters).unwrap();
        self.channel.publish(self.weight_store.take(&handle).unwrap());
        started.elapsed()
    }

    fn has(&self, member: usize, version: u64) -> bool {
        self.members[member].versions().contains(&version)
    }

    fn reasons_of_drops(&mut self) -> Vec<String> {
        self.events.extend(self.channel.take_events());
        let reason = |event: &ChannelEvent| match event {
            ChannelEvent::Dropped { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        self.events.iter().filter_map(reason).collect()
    }
}

#[test]
#[ignore = "the other tests of this file start it as a process of its own"]
fn a_process_that_another_test_has_started() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let mut log = std::fs::File::create(variable("SCALERL_TEST_LOG")).unwrap();
    let port = variable("SCALERL_TEST_PORT").parse().unwrap();
    match variable("SCALERL_TEST_ROLE").as_str() {
        "member" => receive(port, form(300, Device::Cpu), &mut log),
        "other model" => receive(port, form(301, Device::Cpu), &mut log),
        "member on a GPU" => {
            assert!(device::open().cuda_devices > 0, "started where there is one");
            receive(port, form(300, Device::Cuda(0)), &mut log);
        }
        "store" => {
            let store = Store::listen("127.0.0.1", 0, None, SOON).unwrap();
            writeln!(log, "{}", store.server().port()).unwrap();
            std::thread::sleep(SOON);
        }
        other => panic!("no role is called {other}"),
    }
}

fn receive(port: u16, form: Form, log: &mut std::fs::File) {
    let weight_store = WeightStore::new();
    let token = token();
    let address = ("127.0.0.1", port, &token);
    let mut member =
        WeightMember::join(address, "a test", form, Arc::clone(&weight_store), OPTIONS).unwrap();
    loop {
        match member.receive(Duration::from_millis(500)) {
            Ok(Received::Weights(handle)) => {
                let weights = weight_store.take(&handle).unwrap();
                let version = weights.version.0 as f64;
                let is_right = |tensor: &Tensor| {
                    (tensor - version).abs().max().double_value(&[]) < f64::EPSILON
                };
                let word = if weights.parameters.iter().all(is_right) { "got" } else { "mixed" };
                writeln!(log, "{word} {}", weights.version.0).unwrap();
            }
            Ok(Received::Nothing) => {}
            Ok(Received::Dropped { reason }) => writeln!(log, "dropped: {reason}").unwrap(),
            Err(error) => {
                writeln!(log, "error: {error}").unwrap();
                return;
            }
        }
    }
}

#[test]
fn versions_arrive_whole_and_in_order_in_the_background() {
    let trainer = Trainer::with_members(2);
    for version in 1..=6 {
        let took = trainer.publish(version);
        assert!(took < Duration::from_millis(500), "publishing took {took:?}");
        if version % 2 == 0 {
            wait_until("both have it", || (0..2).all(|member| trainer.has(member, version)));
        }
    }
    for member in &trainer.members {
        let versions = member.versions();
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
        assert_eq!(versions.last(), Some(&6));
        assert!(member.lines().iter().all(|line| line.starts_with("got")), "{:?}", member.lines());
    }
    let status = trainer.channel.members();
    wait_until("the trainer knows", || {
        trainer.channel.members().iter().all(|m| m.version == Some(PolicyVersion(6)))
    });
    assert_eq!(status[0].name.as_deref(), Some("a test"));
    // The same two all the time: one group.
    let failed =
        trainer.channel.take_events().into_iter().find(|event| {
            matches!(event, ChannelEvent::Failed { .. } | ChannelEvent::Dropped { .. })
        });
    assert_eq!(failed, None);
}

#[test]
fn a_newcomer_is_sent_the_current_weights_first() {
    let mut trainer = Trainer::with_members(1);
    trainer.publish(1);
    trainer.publish(2);
    wait_until("the first has them", || trainer.has(0, 2));
    trainer.start("member");
    wait_until("the newcomer has them", || trainer.has(1, 2));
    trainer.publish(3);
    wait_until("both have the next", || trainer.has(0, 3) && trainer.has(1, 3));
    assert_eq!(trainer.members[1].versions(), [2, 3]);
    assert_eq!(trainer.members[0].versions().last_chunk(), Some(&[2, 3]), "and nothing twice");
}

#[test]
fn a_killed_member_stops_nobody() {
    let mut trainer = Trainer::with_members(3);
    trainer.publish(1);
    wait_until("all have it", || (0..3).all(|member| trainer.has(member, 1)));
    trainer.members[1].signal(Signal::KILL);
    let took = trainer.publish(2);
    assert!(took < Duration::from_millis(500), "publishing took {took:?}");
    let waited = wait_until("the others have it", || trainer.has(0, 2) && trainer.has(2, 2));
    println!("the others had the weights after {waited:?}");
    wait_until("the trainer has dropped it", || trainer.channel.members().len() == 2);
    let reasons = trainer.reasons_of_drops();
    assert_eq!(reasons, ["it did not answer within 1.0 s"]);
}

#[test]
fn a_frozen_member_stops_nobody_and_comes_back_with_the_current_weights() {
    let mut trainer = Trainer::with_members(2);
    trainer.publish(1);
    wait_until("both have it", || trainer.has(0, 1) && trainer.has(1, 1));
    trainer.members[0].signal(Signal::STOP);
    trainer.publish(2);
    let waited = wait_until("the other has it", || trainer.has(1, 2));
    println!("the other had the weights after {waited:?}");
    wait_until("the frozen one is dropped", || !trainer.reasons_of_drops().is_empty());
    trainer.publish(3);
    let waited = wait_until("the other has the next", || trainer.has(1, 3));
    assert!(waited < OPTIONS.answer, "nobody waits for a dead member twice: {waited:?}");
    trainer.members[0].signal(Signal::CONT);
    wait_until("it is back", || trainer.has(0, 3));
    let lines = trainer.members[0].lines();
    let place = |start: &str| lines.iter().position(|line| line.starts_with(start)).unwrap();
    assert!(place("dropped: it did not answer") < place("got 3"), "{lines:?}");
    assert!(!trainer.has(0, 2), "old weights are not sent: {lines:?}");
    assert_eq!(trainer.channel.members().len(), 2);
}

#[test]
fn a_member_that_answers_and_then_falls_silent_costs_one_transfer_deadline() {
    let mut trainer = Trainer::with_members(1);
    // By hand: it takes a number and says that it is ready, and that is all it ever does.
    let store = Store::connect("127.0.0.1", trainer.channel.port(), Some(&token()), SOON).unwrap();
    let id = store.add("weights/tickets", 1).unwrap();
    let ready = br#"{"Ready": {"name": "all talk"}}"#;
    store.set(&format!("weights/{id}/0/answer"), ready).unwrap();
    wait_until("both are there", || trainer.channel.members().len() == 2);
    trainer.publish(1);
    let waited = wait_until("the honest one has it", || trainer.has(0, 1));
    println!("the honest member had the weights after {waited:?}");
    assert!(waited < 2 * OPTIONS.transfer + 2 * OPTIONS.answer, "{waited:?}");
    wait_until("the other is dropped", || trainer.channel.members().len() == 1);
    assert_eq!(trainer.reasons_of_drops(), ["it did not answer within 1.0 s"]);
    assert!(!trainer.members[0].lines().iter().any(|line| line.starts_with("dropped")));
}

#[test]
fn a_member_that_sends_nonsense_is_dropped_and_disturbs_nobody() {
    let mut trainer = Trainer::with_members(1);
    let store = Store::connect("127.0.0.1", trainer.channel.port(), Some(&token()), SOON).unwrap();
    let nonsense: [&[u8]; 3] = [b"", b"\xff\x00 {\"Ready\"", &vec![b'['; 5 << 20]];
    for (version, said) in (1..).zip(nonsense) {
        let id = store.add("weights/tickets", 1).unwrap();
        store.set(&format!("weights/{id}/0/answer"), said).unwrap();
        trainer.publish(version);
        wait_until("it is dropped", || trainer.reasons_of_drops().len() == version as usize);
        wait_until("the honest one has it", || trainer.has(0, version));
    }
    let reasons = trainer.reasons_of_drops();
    assert!(reasons[2].contains("5242880 bytes"), "{reasons:?}");
    // Numbers for everybody and his dog.
    store.add("weights/tickets", 1 << 40).unwrap();
    wait_until("they are refused", || trainer.reasons_of_drops().len() == 4);
    trainer.publish(4);
    wait_until("the honest one has it", || trainer.has(0, 4));
}

#[test]
fn who_does_not_know_the_token_does_not_get_in() {
    let trainer = Trainer::with_members(1);
    let wrong = Token::chosen("another token than that").unwrap();
    let begun = Instant::now();
    let error =
        Store::connect("127.0.0.1", trainer.channel.port(), Some(&wrong), SOON).unwrap_err();
    assert!(error.to_string().contains("the token is not the run's"), "{error}");
    assert!(begun.elapsed() < SOON, "it is told at once");
    let short = Duration::from_millis(500);
    Store::connect("127.0.0.1", trainer.channel.port(), None, short).unwrap_err();
    trainer.publish(1);
    wait_until("the honest one has it", || trainer.has(0, 1));
    assert_eq!(trainer.channel.members().len(), 1);
}

#[test]
fn members_that_come_and_go_while_weights_are_sent_disturb_no_other() {
    let mut trainer = Trainer::with_members(2);
    for version in 1..=12 {
        trainer.publish(version);
        if version % 4 == 2 {
            trainer.start("member");
        }
        if version % 4 == 0 {
            let last = trainer.members.len() - 1;
            trainer.members[last].signal(Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    wait_until("those from the start have the last", || trainer.has(0, 12) && trainer.has(1, 12));
    for member in &trainer.members {
        let versions = member.versions();
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
        assert!(!member.lines().iter().any(|line| line.starts_with("mixed")));
    }
    for member in &trainer.members[..2] {
        let lines = member.lines();
        assert!(!lines.iter().any(|line| line.starts_with("dropped")), "{lines:?}");
    }
}

#[test]
fn a_member_of_another_model_is_refused_with_the_reason() {
    let mut trainer = Trainer::with_members(1);
    trainer.start("other model");
    trainer.publish(1);
    wait_until("the right one has them", || trainer.has(0, 1));
    wait_until("the wrong one has ended", || !trainer.members[1].lines().is_empty());
    let said = &trainer.members[1].lines()[0];
    let expected = "tensor 0 has shape [256, 300], [256, 301] expected";
    assert!(said.starts_with("error:") && said.contains(expected), "{said}");
    wait_until("it is dropped", || trainer.reasons_of_drops() == [expected]);
}

#[test]
fn members_notice_that_the_trainer_is_gone() {
    let Trainer { channel, members, folder, .. } = Trainer::with_members(1);
    drop(channel);
    wait_until("it ends", || members[0].lines().iter().any(|line| line.starts_with("error:")));
    drop(folder);
}

#[test]
fn a_frozen_store_is_an_error_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let server = Member::start("store", 0, Path::join(folder.path(), "log"));
    wait_until("it serves", || !server.lines().is_empty());
    let port = server.lines()[0].parse().unwrap();
    let store = Store::connect("127.0.0.1", port, None, Duration::from_secs(2)).unwrap();
    store.set("a", b"b").unwrap();
    server.signal(Signal::STOP);
    let started = Instant::now();
    let error = store.get("never", Duration::from_millis(500)).unwrap_err();
    assert!(matches!(error, CollectiveError::Late { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    let error = store.set("a", b"c").unwrap_err();
    assert!(error.to_string().contains("has not come back"), "{error}");
    let error = Store::connect("127.0.0.1", port, None, Duration::from_millis(500)).unwrap_err();
    assert!(matches!(error, CollectiveError::Late { .. }), "{error}");
}

#[test]
fn processes_that_share_a_gpu_exchange_weights_on_it() {
    if device::open().cuda_devices == 0 {
        let is_required = std::env::var_os("SCALERL_REQUIRE_CUDA").is_some();
        assert!(!is_required, "SCALERL_REQUIRE_CUDA is set and there is no CUDA device");
        println!("skipped: no CUDA device");
        return;
    }
    let trainer = Trainer::with("member on a GPU", 1, Device::Cuda(0));
    for version in 1..=3 {
        trainer.publish(version);
        wait_until("it has it", || trainer.has(0, version));
    }
    assert_eq!(trainer.members[0].versions(), [1, 2, 3]);
}
