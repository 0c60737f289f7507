//! Generators behind a real Redis server: the duties of every generator, and what happens when a
//! process dies, Redis forgets, or somebody writes nonsense.
//!
//! Generators here are tasks of the test with a model of their own; as processes they are in the
//! CLI's tests. Without `redis-server` the tests say that they skipped; with SCALERL_REQUIRE_REDIS
//! they fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "says that it skipped")]

mod hostile;
#[path = "../tiny/mod.rs"]
mod tiny;

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use scalerl_rollout::conformance::{Subject, check_all};
use scalerl_rollout::{
    Completion, Generator, GeneratorError, PolicyVersion, SampleRequest, TrainBatch, TrainSequence,
    Trainer, WeightHandle,
};
use scalerl_torch::collective::Token;
use scalerl_worker::channel::{ChannelOptions, WeightChannel, WeightMember};
use scalerl_worker::remote::{
    Announcement, Broker, Ended, RedisGenerator, RemoteError, ServeSetup, Served, serve,
};
use scalerl_worker::{Form, LocalGenerator, LocalTrainer, WeightStore};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet, block_in_place};

const SOON: Duration = Duration::from_secs(30);
const CHANNEL: ChannelOptions = ChannelOptions {
    meeting: Duration::from_secs(20),
    answer: Duration::from_secs(2),
    transfer: Duration::from_secs(5),
    transport: None,
};

struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start() -> Option<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let child = match run_server(port) {
            Ok(child) => child,
            Err(error) => {
                let is_needed = std::env::var_os("SCALERL_REQUIRE_REDIS").is_some();
                assert!(!is_needed, "redis-server cannot be started: {error}");
                println!("skipped: redis-server cannot be started: {error}");
                return None;
            }
        };
        let redis = Self { child, port };
        redis.wait();
        Some(redis)
    }

    fn wait(&self) {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(begun.elapsed() < SOON, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn broker(&self) -> Broker {
        let url = format!("redis://:secret@127.0.0.1:{}", self.port);
        Broker::new(&url, Duration::from_secs(5)).unwrap()
    }

    /// Another connection, for mischief.
    fn client(&self) -> redis::Connection {
        let url = format!("redis://:secret@127.0.0.1:{}", self.port);
        redis::Client::open(url).unwrap().get_connection().unwrap()
    }

    fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = run_server(self.port).unwrap();
        self.wait();
    }
}

/// With a password, and nothing on disk.
fn run_server(port: u16) -> std::io::Result<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--requirepass", "secret"]);
    command.args(["--save", "", "--appendonly", "no"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A trainer with its end of everything, and generators that have joined.
struct Rig {
    generator: Arc<RedisGenerator>,
    trainer: LocalTrainer,
    announcement: Announcement,
    token: Token,
    nodes: Vec<Node>,
}

/// One generator.
struct Node {
    local: Arc<LocalGenerator>,
    serving: JoinHandle<Result<Served, RemoteError>>,
}

impl Node {
    fn start(redis: &Redis, (announcement, token): (&Announcement, &Token), name: &str) -> Self {
        let weight_store = WeightStore::new();
        let mut setup = tiny::setup(&weight_store);
        // A few at a time, so that weights on their way find somebody in mid-completion.
        setup.options.running = 2;
        let local = Arc::new(LocalGenerator::start(setup).unwrap());
        let form = Form::of(&tiny::model(1).parameters);
        let (address, port) = &announcement.weights;
        let member =
            WeightMember::join((address, *port, token), name, form, weight_store, CHANNEL).unwrap();
        let serving = tokio::spawn(serve(ServeSetup {
            broker: redis.broker(),
            name: "test".to_owned(),
            token: token.clone(),
            announcement: announcement.clone(),
            own_name: name.to_owned(),
            host: "here".to_owned(),
            local: local.clone(),
            member,
            most_at_once: 100,
        }));
        Self { local, serving }
    }

    fn is_idle(&self) -> bool {
        let stats = self.local.stats();
        (stats.running, stats.waiting, stats.pool.pages_in_use) == (0, 0, 0)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Rig {
    async fn new(redis: &Redis, nodes: usize, at_once: u32) -> Self {
        let weight_store = WeightStore::new();
        let trainer =
            LocalTrainer::try_new(&tiny::recipe(), tiny::model(1), weight_store.clone()).unwrap();
        let token = Token::random().unwrap();
        let channel = WeightChannel::open("127.0.0.1", 0, &token, CHANNEL).unwrap();
        let weights = ("127.0.0.1".to_owned(), channel.port());
        let mut announcement = Announcement::new(weights, at_once, serde_json::Value::Null);
        announcement.heartbeat = Duration::from_millis(100);
        announcement.claim = Duration::from_millis(800);
        let own = announcement.clone();
        let session = ("test", token.clone());
        let generator = RedisGenerator::open(redis.broker(), session, own, channel, weight_store);
        let generator = Arc::new(generator.await.unwrap());
        let mut rig = Self { generator, trainer, announcement, token, nodes: Vec::new() };
        rig.nodes = (0..nodes).map(|index| rig.node(redis, &format!("node-{index}"))).collect();
        let weights = rig.trainer.publish().unwrap();
        rig.generator.adopt(&weights).await.unwrap();
        rig
    }

    /// One more generator.
    fn node(&self, redis: &Redis, name: &str) -> Node {
        Node::start(redis, (&self.announcement, &self.token), name)
    }

    /// A key of this session.
    fn key(&self, name: &str) -> String {
        format!("scalerl:test:{}:{name}", self.announcement.nonce)
    }

    /// So many requests at once; all answers, each with all its completions.
    async fn ask(&self, count: u64) {
        let mut asking = JoinSet::new();
        for number in 0..count {
            let generator = self.generator.clone();
            asking.spawn(async move {
                let request = SampleRequest { seed: 5 + 1000 * number, ..tiny::long_request() };
                let answer = tokio::time::timeout(SOON, generator.generate(request)).await;
                assert_eq!(answer.expect("an answer in time").unwrap().len(), 6);
            });
        }
        while let Some(asked) = asking.join_next().await {
            asked.unwrap();
        }
    }

    /// A step on what the generators write, and its weights everywhere.
    async fn step(&mut self) {
        let request = tiny::long_request();
        let completions = self.generator.generate(request.clone()).await.unwrap();
        let sequence = |(index, one): (usize, &Completion)| TrainSequence {
            prompt_token_ids: request.prompt_token_ids.clone(),
            completion_token_ids: one.token_ids.clone(),
            generator_logprobs: one.logprobs.clone(),
            weights: vec![1.0 / 500.0; one.len()],
            advantage: if index % 2 == 0 { 1.0 } else { -1.0 },
        };
        let sequences = completions.iter().enumerate().map(sequence).collect();
        self.trainer.step(&TrainBatch { temperature: 1.0, sequences }).unwrap();
        let handle = self.trainer.publish().unwrap();
        self.generator.adopt(&handle).await.unwrap();
    }
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

struct RemotePair {
    redis: Redis,
    /// Writes for the pair that was made last.
    newest: Mutex<Option<Arc<LocalGenerator>>>,
}

/// A generator together with the nodes it needs.
struct WithNodes {
    generator: Arc<RedisGenerator>,
    _nodes: Vec<Node>,
}

impl Generator for WithNodes {
    async fn generate(&self, request: SampleRequest) -> Result<Vec<Completion>, GeneratorError> {
        self.generator.generate(request).await
    }

    async fn adopt(&self, weights: &WeightHandle) -> Result<(), GeneratorError> {
        self.generator.adopt(weights).await
    }
}

impl Subject for RemotePair {
    type Generator = WithNodes;
    type Trainer = LocalTrainer;

    fn pair(&self) -> (WithNodes, LocalTrainer) {
        let rig = block_in_place(|| Handle::current().block_on(Rig::new(&self.redis, 1, 100)));
        let Rig { generator, trainer, nodes, .. } = rig;
        *self.newest.lock().unwrap() = Some(nodes[0].local.clone());
        (WithNodes { generator, _nodes: nodes }, trainer)
    }

    fn request(&self) -> SampleRequest {
        tiny::long_request()
    }

    fn limit(&self) -> Option<u64> {
        Some(128)
    }

    async fn a_few_steps(&self, attempt: u32) {
        tiny::until_the_middle(attempt).await;
    }

    fn is_empty(&self, generator: &WithNodes) -> bool {
        generator.generator.pending() == 0
    }

    async fn dead(&self) -> WithNodes {
        let (pair, _) = self.pair();
        pair.generator.close().await;
        pair
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_generator_behind_redis_conforms() {
    let Some(redis) = Redis::start() else { return };
    let pair = RemotePair { redis, newest: Mutex::new(None) };
    let checks = tokio::time::timeout(Duration::from_mins(5), check_all(&pair)).await;
    assert!(checks.is_ok(), "a check waits for ever");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_of_a_dead_generator_are_answered_by_another() {
    let Some(redis) = Redis::start() else { return };
    // One at a time leaves no room beside the request that is waited for.
    for at_once in [100, 1] {
        let mut rig = Rig::new(&redis, 1, at_once).await;
        let first = rig.nodes.pop().unwrap();
        let asking = rig.ask(12);
        let killing = async {
            wait_until("the first to be at work", || first.local.stats().running > 0).await;
            drop(first);
            rig.node(&redis, "second")
        };
        let ((), second) = tokio::join!(asking, killing);
        assert!(second.local.stats().tokens > 0, "the second has worked");
        assert_eq!(rig.generator.pending(), 0);
        rig.generator.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_redis_forgets_is_sent_again() {
    let Some(mut redis) = Redis::start() else { return };
    let rig = Rig::new(&redis, 2, 4).await;
    let asking = rig.ask(24);
    let restarting = async {
        wait_until("work to be under way", || {
            rig.nodes.iter().any(|node| node.local.stats().running > 0)
        })
        .await;
        block_in_place(|| redis.restart());
    };
    tokio::join!(asking, restarting);
    rig.ask(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_that_is_given_up_is_stopped_where_it_is_written() {
    let Some(redis) = Redis::start() else { return };
    let rig = Rig::new(&redis, 1, 100).await;
    for _ in 0..3 {
        let under_way = rig.generator.generate(tiny::long_request());
        let watched = wait_until("work", || rig.nodes[0].local.stats().running > 0);
        tokio::select! {
            _ = under_way => {}
            () = watched => {}
        }
        wait_until("the work to stop", || rig.nodes[0].is_idle()).await;
        assert_eq!(rig.generator.pending(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nonsense_and_old_tokens_are_refused_and_the_request_is_answered() {
    let Some(redis) = Redis::start() else { return };
    let mut rig = Rig::new(&redis, 1, 100).await;
    rig.step().await;
    rig.step().await;
    assert_eq!(rig.generator.adopted(), PolicyVersion(2));
    let answers = rig.key("answers");
    let mut client = redis.client();
    for reply in
        ["", "{", "[1,2,3]", r#"{"id":"x","from":"y","outcome":{"Refused":{"reason":"z"}}}"#]
    {
        let _: String = redis::cmd("XADD")
            .arg(&answers)
            .arg("*")
            .arg("reply")
            .arg(reply)
            .query(&mut client)
            .unwrap();
    }
    let _: String =
        redis::cmd("XADD").arg(&answers).arg("*").arg("other").arg(1).query(&mut client).unwrap();
    rig.ask(4).await;
    let answer = rig.generator.generate(tiny::long_request()).await.unwrap();
    assert!(answer.iter().flat_map(|one| &one.versions).all(|version| version.0 == 2));
    let refused = rig.generator.signs().refused;
    assert!(refused.len() >= 3, "{refused:?}");
    let client = Mutex::new(client);
    let left = || {
        let mut client = client.lock().unwrap();
        redis::cmd("XLEN").arg(&answers).query::<u64>(&mut *client).unwrap()
    };
    wait_until("everything to be taken out of Redis", || left() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn generators_go_home_when_the_run_is_over() {
    let Some(redis) = Redis::start() else { return };
    let mut rig = Rig::new(&redis, 2, 8).await;
    rig.ask(6).await;
    rig.generator.close().await;
    for node in &mut rig.nodes {
        let served = tokio::time::timeout(SOON, &mut node.serving).await.unwrap().unwrap().unwrap();
        assert_eq!(served.ended, Ended::Over);
    }
    let mut client = redis.client();
    let keys: Vec<String> = redis::cmd("KEYS").arg("scalerl:test:*").query(&mut client).unwrap();
    assert!(
        !keys.iter().any(|key| key.ends_with("bodies") || key.ends_with("answers")),
        "{keys:?}"
    );
    for key in keys {
        let seconds: i64 = redis::cmd("TTL").arg(&key).query(&mut client).unwrap();
        assert!((0..=3600).contains(&seconds), "{key} stays for {seconds} s");
    }
}
