//! One worker process that is asked many things at once: every question has a number, which its
//! answer repeats.
//!
//! ```text
//! ask --Link.questions--> [write]--stdin--> worker --stdout-->[read] --Link.waiting--> ask
//! ```
//! Both loops live in one task, [`tend`], which ends when the owner is gone, or the worker is. A worker
//! is asked for a sign of life now and then; one that gives none hangs, and is killed. Whoever waits for
//! a worker that ends is told why, and the next question starts another.
//!
//! Not here: workers that answer one thing at a time (`workers.rs`).

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use scalerl_rollout::EnvironmentError;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::workers::{Process, Program, next_line, understood};

/// For a worker whose owner is gone to put its things away.
const GRACE: Duration = Duration::from_secs(5);

/// How long a worker may be silent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Before its first sign of life: it may have much to load.
    pub(crate) at_start: Duration,
    /// From then on.
    pub(crate) later: Duration,
}

/// A worker process; started when it is first asked.
pub(crate) struct SharedWorker {
    program: Arc<Program>,
    patience: Patience,
    /// The latest life of the worker. A lock, held to look and to start.
    link: Mutex<Option<Link>>,
    next: AtomicU64,
}

/// Where the answer to a question goes.
type Asker = oneshot::Sender<Result<Value, String>>;

/// Those who wait, by the number of their question; why nobody can any more, once the worker has ended.
type Waiting = Mutex<Result<BTreeMap<u64, Asker>, String>>;

/// A life of the worker, as those who ask it see it.
#[derive(Clone)]
struct Link {
    questions: mpsc::UnboundedSender<Value>,
    waiting: Arc<Waiting>,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedWorker {
    pub(crate) fn new(program: Arc<Program>, patience: Patience) -> Self {
        Self { program, patience, link: Mutex::new(None), next: AtomicU64::new(1) }
    }

    /// Asks the worker. Dropping the future takes the question back.
    pub(crate) async fn ask(&self, mut question: Value) -> Result<Value, EnvironmentError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        question["id"] = number.into();
        let (asker, answer) = oneshot::channel();
        let link = self.link()?;
        match &mut *locked(&link.waiting) {
            Ok(waiting) => waiting.insert(number, asker),
            Err(reason) => return Err(EnvironmentError::new(reason)),
        };
        let _taken_back = TakenBack { link: &link, number };
        // A worker that has ended meanwhile has told so to all who wait.
        link.questions.send(question).ok();
        let answer = answer.await.unwrap_or_else(|_| Err("its worker ended".to_owned()));
        answer.map_err(EnvironmentError::new)
    }

    /// The worker as it runs; started where it does not.
    fn link(&self) -> Result<Link, EnvironmentError> {
        let mut slot = locked(&self.link);
        if let Some(link) = &*slot
            && locked(&link.waiting).is_ok()
        {
            return Ok(link.clone());
        }
        let process = self.program.start()?;
        let (questions, asked) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(Ok(BTreeMap::new())));
        tokio::spawn(tend(process, self.program.clone(), asked, waiting.clone(), self.patience));
        Ok(slot.insert(Link { questions, waiting }).clone())
    }
}

/// A question that nobody waits for any more is not worked on any more.
struct TakenBack<'a> {
    link: &'a Link,
    number: u64,
}

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        let asker =
            locked(&self.link.waiting).as_mut().ok().and_then(|all| all.remove(&self.number));
        if asker.is_some() {
            self.link.questions.send(json!({"op": "cancel", "of": self.number})).ok();
        }
    }
}

/// How a worker came to its end.
enum End {
    /// Nobody can ask it any more.
    NotNeeded,
    ByItself,
    /// Its pipes cannot be used any more, or it hangs.
    Broken(String),
}

/// Carries questions and answers for as long as the worker lives.
async fn tend(
    process: Process,
    program: Arc<Program>,
    asked: mpsc::UnboundedReceiver<Value>,
    waiting: Arc<Waiting>,
    patience: Patience,
) {
    let Process { mut running, input, output, .. } = process;
    let end = {
        let mut reading = pin!(read(output, &waiting, patience));
        tokio::select! {
            end = &mut reading => end,
            written = write(input, asked, patience.later / 3) => match written {
                Ok(()) => End::NotNeeded,
                // What it was asked cannot be written because it ended: the other side knows.
                Err(_) => reading.await,
            },
        }
    };
    if let End::Broken(_) = end {
        running.end();
    }
    let status = timeout(GRACE, running.0.wait()).await;
    let reason = match end {
        End::NotNeeded => return,
        End::ByItself => match status {
            Ok(Ok(status)) => format!("its worker ended with {status}"),
            _ => "its worker answers no more".to_owned(),
        },
        End::Broken(reason) => format!("{reason}; its worker was ended"),
    };
    let reason = format!("{reason}{}", program.last_words());
    program.restarts.add(&reason);
    let all = std::mem::replace(&mut *locked(&waiting), Err(reason.clone()));
    for (_, asker) in all.unwrap_or_default() {
        // One who has given up has nobody to tell.
        asker.send(Err(reason.clone())).ok();
    }
}

/// Ends well when nobody can ask any more, which closes the worker's input.
async fn write(
    mut input: ChildStdin,
    mut asked: mpsc::UnboundedReceiver<Value>,
    pause: Duration,
) -> std::io::Result<()> {
    let mut next = Some(json!({"op": "ping"}));
    while let Some(question) = next {
        input.write_all(format!("{question}\n").as_bytes()).await?;
        input.flush().await?;
        next = match timeout(pause, asked.recv()).await {
            Ok(question) => question,
            Err(_) => Some(json!({"op": "ping"})),
        };
    }
    Ok(())
}

/// Hands answers to those who wait; ends with why there are no more.
async fn read(mut output: BufReader<ChildStdout>, waiting: &Waiting, patience: Patience) -> End {
    let mut limit = patience.at_start;
    loop {
        let line = match timeout(limit, next_line(&mut output)).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return End::ByItself,
            Ok(Err(error)) => return End::Broken(error.to_string()),
            Err(_) => {
                let reason = format!("no sign of life within {} s", limit.as_secs_f64());
                return End::Broken(reason);
            }
        };
        limit = patience.later;
        let answer = match understood(&line) {
            Ok(answer) => answer,
            Err(reason) => return End::Broken(reason),
        };
        let number = answer["id"].as_u64();
        let asker = number.and_then(|id| locked(waiting).as_mut().ok()?.remove(&id));
        if let Some(asker) = asker {
            asker.send(Ok(answer)).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::Restarts;

    /// Answers `later` only once `now` was asked, and says which questions were taken back.
    const SCRIPT: &str = r#"
import json, os, sys, time
late, gone = [], []
for line in sys.stdin:
    asked = json.loads(line)
    op = asked["op"]
    if op == "later":
        late.append(asked["id"])
        continue
    if op == "cancel":
        gone.append(asked["of"])
        continue
    if op == "die":
        os._exit(4)
    if op == "hang":
        time.sleep(60)
    if op == "babble":
        print("not JSON", flush=True)
    for number in late if op == "now" else []:
        print(json.dumps({"id": number, "said": "at last"}))
    print(json.dumps({"id": asked.get("id"), "said": op, "pid": os.getpid(), "gone": gone}), flush=True)
"#;

    fn worker(folder: &tempfile::TempDir) -> Arc<SharedWorker> {
        let command = ["python3", "-c", SCRIPT].map(ToOwned::to_owned).to_vec();
        let program = Program {
            command,
            log: folder.path().join("worker.log"),
            restarts: Restarts::default(),
        };
        let patience =
            Patience { at_start: Duration::from_secs(30), later: Duration::from_secs(2) };
        Arc::new(SharedWorker::new(Arc::new(program), patience))
    }

    /// Asks, and goes on when the question has been sent.
    async fn sent(
        worker: &Arc<SharedWorker>,
        op: &str,
    ) -> tokio::task::JoinHandle<Result<Value, EnvironmentError>> {
        let (theirs, question) = (worker.clone(), json!({"op": op}));
        let before = worker.next.load(Ordering::Relaxed);
        let asked = tokio::spawn(async move { theirs.ask(question).await });
        while worker.next.load(Ordering::Relaxed) == before {
            tokio::task::yield_now().await;
        }
        asked
    }

    #[tokio::test]
    async fn answers_come_in_any_order_and_each_to_its_asker() {
        let folder = tempfile::tempdir().unwrap();
        let worker = worker(&folder);
        let later = sent(&worker, "later").await;
        let now = worker.ask(json!({"op": "now"})).await.unwrap();
        assert_eq!(now["said"], "now");
        assert_eq!(later.await.unwrap().unwrap()["said"], "at last");
    }

    #[tokio::test]
    async fn a_question_that_is_given_up_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let worker = worker(&folder);
        let later = sent(&worker, "later").await;
        later.abort();
        assert!(later.await.unwrap_err().is_cancelled());
        let next = worker.ask(json!({"op": "next"})).await.unwrap();
        assert_eq!(next["gone"], json!([1]));
    }

    #[tokio::test]
    async fn a_worker_that_ends_hangs_or_babbles_is_told_to_all_and_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let worker = worker(&folder);
        for (op, expected) in [
            ("die", "its worker ended with exit status: 4"),
            ("hang", "no sign of life within 2 s; its worker was ended"),
            ("babble", "its worker's answer"),
        ] {
            let first = worker.ask(json!({"op": "next"})).await.unwrap();
            let other = sent(&worker, "later").await;
            let error = worker.ask(json!({"op": op})).await.unwrap_err();
            assert!(error.to_string().contains(expected), "{op}: {error}");
            let error = other.await.unwrap().unwrap_err();
            assert!(error.to_string().contains(expected), "{op}: {error}");
            let next = worker.ask(json!({"op": "next"})).await.unwrap();
            assert_ne!(next["pid"], first["pid"], "{op}");
            let restarts = worker.program.restarts.take();
            assert_eq!(restarts.len(), 1, "{op}: {restarts:?}");
            assert!(restarts[0].reason.contains(expected), "{op}: {restarts:?}");
        }
    }
}
