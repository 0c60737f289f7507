//! `scalerl status`: where a run stands, what it has cost and will, and the processes it is made of;
//! or a table of all runs in a folder.
//!
//! Whether a run is alive is asked of its lock, which a killed process cannot hold.

mod left;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use scalerl_journal::{
    AdapterSize, FleetMember, FleetTable, ForecastReport, JournalError, Reading, RunFolder, Status,
    Summary,
};
use scalerl_recipe::Resolved;
use serde_json::json;

use crate::failure::BadInput;
use crate::recipe::resolve_kept;
use left::{Left, duration};
use scalerl_report::table::{self, row};

/// Options of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A run's folder, or a folder of runs.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// What an hour of one device costs, in any currency.
    #[arg(long, value_name = "PRICE", value_parser = price)]
    price_per_hour: Option<f64>,
    /// For programs.
    #[arg(long)]
    json: bool,
}

/// Reads a price.
pub(crate) fn price(text: &str) -> Result<f64, String> {
    let price: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if price.is_finite() && price >= 0.0 { Ok(price) } else { Err("a price is 0 or more".into()) }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let standing = match Standing::load(&args.run) {
        Err(JournalError::NotARun { .. }) if !runs_in(&args.run).is_empty() => {
            return all(&args.run, args.json, out);
        }
        standing => standing.map_err(|error| BadInput::new(&error).hint(error.hint()))?,
    };
    let fleet = FleetTable::read(&args.run);
    if args.json {
        let mut all = standing.json();
        all["fleet"] = json!(fleet);
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
    }
    standing.print(args, out)?;
    let Some(fleet) = fleet else { return Ok(writeln!(out, "one process")?) };
    if let Some(trouble) = &fleet.trouble {
        writeln!(out, "redis: {trouble}")?;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let heading =
        ["process", "role", "host", "pid", "state", "version", "lag", "tokens/s", "heard"];
    let mut rows = vec![row(heading)];
    rows.extend(fleet.members.iter().map(|member| line(member, now)));
    Ok(table::write(out, &rows)?)
}

/// Folders of runs in a folder, or in the `runs` of a study.
fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let list = |folder: &Path| {
        let entries =
            std::fs::read_dir(folder).map(|entries| entries.flatten().collect::<Vec<_>>());
        let paths = entries.unwrap_or_default().into_iter().map(|entry| entry.path());
        let mut runs: Vec<PathBuf> = paths.filter(|path| RunFolder::open(path).is_ok()).collect();
        runs.sort();
        runs
    };
    let own = list(folder);
    if own.is_empty() { list(&folder.join("runs")) } else { own }
}

/// A line for each run; one that cannot be read is named with the reason.
fn all(folder: &Path, is_json: bool, out: &mut dyn Write) -> Result<()> {
    let found: Vec<(PathBuf, Result<Standing, JournalError>)> =
        runs_in(folder).into_iter().map(|path| (path.clone(), Standing::load(&path))).collect();
    if is_json {
        let all: Vec<_> = found
            .iter()
            .map(|(path, standing)| match standing {
                Ok(standing) => standing.json(),
                Err(error) => {
                    json!({"run": path.display().to_string(), "error": error.to_string()})
                }
            })
            .collect();
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
    }
    let heading =
        ["run", "state", "step", "pass rate", "device-hours", "left", "at twice the compute"];
    let mut rows = vec![row(heading)];
    for (path, standing) in &found {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        rows.push(match standing {
            Ok(standing) => standing.row(),
            Err(error) => vec![name, format!("unreadable: {error}")],
        });
    }
    Ok(table::write(out, &rows)?)
}

/// Where one run stands.
struct Standing {
    summary: Summary,
    is_alive: bool,
    left: Option<Left>,
    forecast: Option<ForecastReport>,
    recipe: Option<Resolved>,
    adapter: Option<AdapterSize>,
}

impl Standing {
    fn load(path: &Path) -> Result<Self, JournalError> {
        let reading = Reading::load(path)?;
        let folder = RunFolder::open(path)?;
        let summary = reading.summary();
        // A recipe that cannot be read any more is no reason to say nothing.
        let recipe = resolve_kept(&folder.recipe(), &[]).ok();
        let is_open = summary.status == Status::Open;
        let left = recipe.as_ref().filter(|_| is_open);
        Ok(Self {
            is_alive: is_open && folder.is_held()?,
            left: left.and_then(|recipe| Left::of(&recipe.budget, &summary)),
            forecast: reading.forecasts().last().cloned(),
            recipe,
            adapter: reading.environment.adapter,
            summary,
        })
    }

    fn state(&self) -> String {
        match &self.summary.status {
            Status::Open if self.is_alive => "alive".to_owned(),
            Status::Open => "killed".to_owned(),
            Status::Stopped { reason } => format!("ended: {reason:?}").to_lowercase(),
            Status::Failed { error } => format!("failed: {error}"),
        }
    }

    fn json(&self) -> serde_json::Value {
        let state = match &self.summary.status {
            Status::Open if self.is_alive => "alive",
            Status::Open => "killed",
            Status::Stopped { .. } => "ended",
            Status::Failed { .. } => "failed",
        };
        json!({
            "run": self.summary,
            "state": state,
            "left": self.left,
            "forecast": self.forecast,
            "adapter": self.adapter,
        })
    }

    fn pass_rate(&self) -> String {
        self.summary.pass_rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.3}"))
    }

    /// The step, and of how many where there are more to come.
    fn step(&self) -> String {
        let done = self.summary.version.0;
        let steps = self.recipe.as_ref().and_then(|recipe| recipe.budget.steps);
        match steps.filter(|steps| *steps >= done) {
            Some(steps) => format!("{done} of {steps}"),
            None => done.to_string(),
        }
    }

    fn row(&self) -> Vec<String> {
        let left = self.left.as_ref().map_or_else(|| "-".to_owned(), |left| duration(left.seconds));
        let at = self.forecast.as_ref().map_or_else(|| "-".to_owned(), at_twice);
        let hours = format!("{:.3}", self.summary.ledger.device_hours());
        vec![self.summary.run.clone(), self.state(), self.step(), self.pass_rate(), hours, left, at]
    }

    fn print(&self, args: &Args, out: &mut dyn Write) -> Result<()> {
        let (summary, run) = (&self.summary, args.run.display());
        let (step, rate, state) = (self.step(), self.pass_rate(), self.state());
        writeln!(out, "{}  step {step}  pass rate {rate}  {state}", summary.run)?;
        if let Some(size) = &self.adapter {
            writeln!(out, "trains     {size}")?;
        }
        if state == "killed" {
            writeln!(out, "go on      scalerl train --resume {run}")?;
        }
        let spent = duration(summary.ledger.wall_s);
        match &self.left {
            Some(left) => {
                let (seconds, key) = (duration(left.seconds), left.key);
                writeln!(out, "time       {spent} so far, about {seconds} left until {key}")?;
            }
            None => writeln!(out, "time       {spent}")?,
        }
        let hours = summary.ledger.device_hours();
        let lost = summary.lost.device_hours();
        let more = self.left.as_ref().map(|left| left.device_hours);
        let priced = |hours: f64| match args.price_per_hour {
            Some(price) => format!("{hours:.3} device-hours = {:.2}", (hours) * price),
            None => format!("{hours:.3} device-hours"),
        };
        write!(out, "cost       {}", priced(hours))?;
        if lost > 0.0 {
            write!(out, ", and {} lost to kills", priced(lost))?;
        }
        if let Some(more) = more {
            write!(out, "; about {} more to come", priced(more))?;
        }
        writeln!(out)?;
        for one in summary.failures.by_count() {
            writeln!(out, "failed     {} completions: {}", one.count, one.kind)?;
        }
        if summary.environment_restarts > 0 {
            let count = summary.environment_restarts;
            writeln!(out, "restarted  {count} processes of environments")?;
        }
        if let Some(forecast) = &self.forecast {
            let (ceiling, low, high) = forecast.ceiling;
            let high = high.map_or_else(|| "unbounded".to_owned(), |high| format!("{high:.3}"));
            let (at, verdict) = (at_twice(forecast), &forecast.verdict);
            writeln!(
                out,
                "forecast   at twice the compute {at}; ceiling {ceiling:.3} [{low:.3}, {high}] ({verdict})"
            )?;
        }
        Ok(())
    }
}

fn at_twice(forecast: &ForecastReport) -> String {
    let (at, low, high) = forecast.at_twice;
    format!("{at:.3} [{low:.3}, {high:.3}]")
}

fn line(member: &FleetMember, now: f64) -> Vec<String> {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let tokens = (member.role != "trainer").then(|| format!("{:.0}", member.tokens_per_second));
    vec![
        member.name.clone(),
        member.role.clone(),
        member.host.clone(),
        // A server is known by its address alone.
        or_dash((member.pid > 0).then(|| member.pid.to_string())),
        member.state.to_string(),
        or_dash(member.version.map(|version| version.to_string())),
        or_dash(member.lag.map(|lag| lag.to_string())),
        or_dash(tokens),
        format!("{:.0} s ago", (now - member.heard_at).max(0.0)),
    ]
}
