//! Trackers beside a run: started before the engine, given some seconds at the end.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use scalerl_recipe::{Recipe, TrackerChoice};
use scalerl_track::{Following, Target};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Of the last effort: below what Slurm and Kubernetes leave a process that must end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The trackers of this run.
pub(super) struct Trackers {
    following: Option<Following>,
    /// What to do with what they leave.
    advice: Vec<String>,
}

impl Trackers {
    /// Starts those of the recipe; lines about them come out of the receiver.
    pub(super) fn start(recipe: &Recipe, run: &Path) -> (Self, UnboundedReceiver<String>) {
        let (tell, lines) = unbounded_channel();
        let (mut targets, mut advice) = (Vec::new(), Vec::new());
        for choice in &recipe.track.to {
            match Target::new(choice, &recipe.track.project) {
                Ok(target) => {
                    advice.push(format!("{:<12}{}", target.name(), target.advice(run)));
                    targets.push(target);
                }
                // A run is worth more than its tracker.
                Err(error) => drop(tell.send(format!("{}: {error}", choice.name()))),
            }
        }
        let has_wandb = recipe.track.to.contains(&TrackerChoice::Wandb);
        if has_wandb && std::env::var_os("WANDB_API_KEY").is_some() {
            let line = "wandb: WANDB_API_KEY is set, but scalerl does not log online: it writes \
                        offline files, which `wandb sync` uploads";
            drop(tell.send(line.to_owned()));
        }
        let following = (!targets.is_empty()).then(|| {
            // Nobody may be listening any more; the line is of no use then.
            let say = Arc::new(move |line: &str| drop(tell.send(line.to_owned())));
            Following::start(run, &targets, &(say as scalerl_track::Say))
        });
        (Self { following, advice }, lines)
    }

    /// Lets them catch up, for a bounded time, and says what became of it.
    pub(super) async fn end(self, said: Option<UnboundedReceiver<String>>) {
        let Some(following) = self.following else { return };
        let behind = tokio::task::spawn_blocking(move || following.end(PATIENCE)).await;
        let mut screen = std::io::stderr();
        let late =
            said.into_iter().flat_map(|mut said| std::iter::from_fn(move || said.try_recv().ok()));
        for line in late.chain(self.advice).chain(behind.unwrap_or_default()) {
            // A closed standard error must not change how the run ended.
            let _ = writeln!(screen, "{line}");
        }
    }
}
