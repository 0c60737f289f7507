//! `scalerl train` on a real server, which is frozen, thawed, killed and started again meanwhile.
//!
//! Then a short run of two trainer ranks on the same server.
//!
//! Judged by the folder that the run leaves. Its words on standard error are read only to know when
//! a server that was frozen has been found out; they go to a log beside the run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use scalerl_journal::{FleetState, Reading, What};

use crate::audit::{assert_none_skipped, audit};
use crate::server::{Server, last_lines};
use crate::{LIMIT, scalerl};

/// A server that is frozen is found out after so long.
const SILENCE_S: u32 = 20;
/// A restart takes minutes where others use the machine too.
const PATIENCE_S: u32 = 1800;
/// Prompts of `SMALL` that are not held out.
const PROMPTS: u64 = 1024;
/// As the recipe has it.
const STEPS_BEHIND: u64 = 8;
/// No wait here is longer, however slow the machine.
const LONGEST: Duration = Duration::from_mins(40);

/// A run that is alive; killed where a test fails.
struct LiveRun {
    child: Child,
    folder: PathBuf,
    log: PathBuf,
}

impl LiveRun {
    fn start(place: &Path, url: &str, name: &str, more: &[&str]) -> Self {
        let generator = format!(
            "[pipeline.generator]\ntype = \"vllm\"\nurls = [\"{url}\"]\n\
             logprob_tolerance = {LIMIT}\nsilence_s = {SILENCE_S}\npatience_s = {PATIENCE_S}\n"
        );
        fs::write(place.join("vllm.toml"), generator).unwrap();
        let log = place.join(format!("{name}.log"));
        let out = File::create(&log).unwrap();
        // Without the curriculum prompts come in order, and one that is left out is seen.
        let arguments = ["vllm.toml", "--run", name, "--set", "objective.curriculum=\"none\""];
        let mut command = scalerl(place, &arguments);
        command.args(more);
        let child = command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        Self { child, folder: place.join(name), log }
    }

    fn steps(&self) -> usize {
        let text = fs::read_to_string(self.folder.join("events.jsonl")).unwrap_or_default();
        text.lines().filter(|line| line.contains("\"mean_abs_log\"")).count()
    }

    /// How often the run has said something.
    fn said(&self, words: &str) -> usize {
        fs::read_to_string(&self.log).unwrap().matches(words).count()
    }

    fn wait_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(self.child.try_wait().unwrap().is_none(), "the run ended before {what}");
            assert!(begun.elapsed() < LONGEST, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for_steps(&mut self, count: usize) {
        self.wait_until(&format!("step {count}"), |run| run.steps() >= count);
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        // Ended already, where all went well.
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            println!("--- {}\n{}", self.log.display(), last_lines(&self.log, 40));
        }
    }
}

pub(crate) fn check(server: &mut Server, place: &Path) {
    let begun = Instant::now();
    let mut run = LiveRun::start(place, &server.url(), "served", &[]);
    run.wait_for_steps(8);
    server.freeze();
    run.wait_until("the frozen server is found out", |run| run.said("-> dead: silent for") > 0);
    let (frozen, back) = (run.steps(), run.said("is back after"));
    server.thaw();
    run.wait_until("the thawed server is back", |run| run.said("is back after") > back);
    run.wait_for_steps(frozen + 8);
    println!("frozen after step {frozen}, went on");

    server.kill();
    let killed = run.steps();
    server.restart();
    run.wait_for_steps(killed + 8);
    println!("killed after step {killed}, went on");
    assert!(run.child.wait().unwrap().success(), "the run fails");
    println!("trained for {:.0} s", begun.elapsed().as_secs_f64());
    let said = fs::read_to_string(&run.log).unwrap();
    for line in said.lines().filter(|line| line.contains(" -> ")) {
        println!("{line}");
    }
    judge(&Reading::load(&run.folder).unwrap());
}

/// Two trainer ranks, one of which hands the weights to the server.
pub(crate) fn check_ranks(server: &Server, place: &Path) {
    let more = ["--set", "cluster.trainers=2", "--set", "budget.steps=16"];
    let mut run = LiveRun::start(place, &server.url(), "ranked", &more);
    assert!(run.child.wait().unwrap().success(), "the run of two ranks fails");
    let reading = Reading::load(&run.folder).unwrap();
    audit(&reading, STEPS_BEHIND);
    let mut apart = Vec::new();
    for event in &reading.history.events {
        if let What::Step { report, .. } = &event.what {
            apart.push(report.ratio.mean_abs_log);
        }
    }
    println!("two ranks, mean |log ratio| of steps {apart:.4?}");
    assert_eq!(apart.len(), 16);
    // It grows while the first rollouts are used up, and falls back once there are new weights.
    let freshest = apart[STEPS_BEHIND as usize + 1..].iter().copied().fold(f64::INFINITY, f64::min);
    assert!(freshest < 0.01, "no new weights have arrived: {apart:?}");
}

fn judge(reading: &Reading) {
    let places = audit(reading, STEPS_BEHIND);
    assert_none_skipped(&places, PROMPTS);
    let (mut rates, mut apart) = (Vec::new(), Vec::new());
    let (mut interrupted, mut groups) = (0, 0);
    let mut servers = Vec::new();
    for event in &reading.history.events {
        match &event.what {
            What::Evaluation { sets, .. } => rates.push((sets[0].pass_rate, sets[0].samples)),
            What::Fleet(change) => servers.push(change.to),
            What::Step { report, .. } => apart.push(report.ratio.mean_abs_log),
            What::Group(report) => {
                interrupted += report.interrupted;
                groups += 1;
            }
            _ => {}
        }
    }
    let count = |state| servers.iter().filter(|found| **found == state).count();
    let (lost, back) = (count(FleetState::Dead), count(FleetState::Healthy));
    println!("the journal has {lost} losses and {back} returns of the server");
    assert!(lost >= 2 && back == lost, "frozen and killed, and back each time: {servers:?}");
    println!("{groups} groups judged once, {} handed out, none skipped", places.len());
    println!("{interrupted} completions interrupted; pass rates {rates:?}");
    println!("mean |log ratio| of steps {apart:.4?}");
    assert!(interrupted > 0, "thinking is interrupted");
    let ((first, samples), (last, _)) = (rates[0], *rates.last().unwrap());
    let error = (2.0 * 0.25 / samples as f64).sqrt();
    println!("learned: {first:.3} to {last:.3}, {:.1} standard errors", (last - first) / error);
    assert!(last > first + 3.0 * error, "it learns: {first} to {last} ± {error}");
}
