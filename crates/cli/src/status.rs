//! `scalerl status`: where a run stands, and the processes it is made of.

use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use scalerl_journal::{FleetMember, FleetTable, Reading, Status};

use crate::failure::BadInput;
use crate::forecast::table::{self, row};

/// Options of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run's folder.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// For programs.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let reading = Reading::load(&args.run);
    let reading = reading.map_err(|error| BadInput::new(&error).hint(error.hint()))?;
    let (summary, fleet) = (reading.summary(), FleetTable::read(&args.run));
    if args.json {
        let both = serde_json::json!({"run": summary, "fleet": fleet});
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&both)?)?);
    }
    let status = match &summary.status {
        Status::Open => "open: alive, or killed".to_owned(),
        Status::Stopped { reason } => format!("ended: {reason:?}").to_lowercase(),
        Status::Failed { error } => format!("failed: {error}"),
    };
    let rate = summary.pass_rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.3}"));
    writeln!(out, "{}  step {}  pass rate {rate}  {status}", summary.run, summary.version.0)?;
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
