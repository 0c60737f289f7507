//! A real vLLM on this machine's CPU.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// vLLM takes minutes to start where others use the machine too.
const START: Duration = Duration::from_mins(15);

pub(crate) struct Server {
    child: Child,
    python: PathBuf,
    model: PathBuf,
    log: PathBuf,
    pub(crate) port: u16,
}

impl Server {
    /// Starts it and waits until it answers.
    pub(crate) fn start(python: &Path, model: &Path, log: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = spawn(python, model, log, port);
        let mut server = Self {
            child,
            python: python.to_owned(),
            model: model.to_owned(),
            log: log.to_owned(),
            port,
        };
        server.wait();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Kills it with all its processes, without a word.
    pub(crate) fn kill(&mut self) {
        let group = Pid::from_child(&self.child);
        // Ended already, when it failed.
        kill_process_group(group, Signal::KILL).ok();
        self.child.wait().unwrap();
    }

    /// Starts it again at the same address, with the model it had first.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.python, &self.model, &self.log, self.port);
    }

    fn wait(&mut self) {
        let begun = Instant::now();
        let log = self.log.display().to_string();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(self.child.try_wait().unwrap().is_none(), "vLLM has ended; see {log}");
            assert!(begun.elapsed() < START, "vLLM does not answer; see {log}");
            std::thread::sleep(Duration::from_millis(500));
        }
        println!("vLLM answers after {:.0} s", begun.elapsed().as_secs_f64());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The command of docs/vllm.md.
fn spawn(python: &Path, model: &Path, log: &Path, port: u16) -> Child {
    let log = File::options().create(true).append(true).open(log).unwrap();
    Command::new(python)
        .args(["-m", "vllm.entrypoints.openai.api_server", "--served-model-name", "policy"])
        .arg("--model")
        .arg(model)
        .args(["--dtype", "float32", "--max-model-len", "256", "--enforce-eager"])
        .args(["--host", "127.0.0.1", "--port", &port.to_string()])
        .args(["--logprobs-mode", "processed_logprobs", "--enable-scale-out"])
        .args(["--hf-overrides", r#"{"head_dtype":"float32"}"#])
        .env("VLLM_SERVER_DEV_MODE", "1")
        .env("VLLM_CPU_KVCACHE_SPACE", "1")
        .env("HF_HUB_OFFLINE", "1")
        .env("DO_NOT_TRACK", "1")
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .process_group(0)
        .spawn()
        .unwrap()
}
