//! vLLM servers as members of the fleet: what their client notices, and how each stands.

use std::sync::Arc;
use std::time::Instant;

use scalerl_journal::{FleetChange, FleetMember, FleetState};
use scalerl_rollout::PolicyVersion;
use scalerl_worker::VllmGenerator;
use scalerl_worker::vllm::{Notice, ServerLoad, ServerState};
use tokio::sync::mpsc;

pub(crate) struct ServerWatch {
    generator: Arc<VllmGenerator>,
    notices: mpsc::UnboundedReceiver<Notice>,
    /// When tokens were counted last, and how many each had written.
    before: (Instant, Vec<u64>),
}

impl ServerWatch {
    pub(crate) fn new(
        generator: Arc<VllmGenerator>,
        notices: mpsc::UnboundedReceiver<Notice>,
    ) -> Self {
        Self { generator, notices, before: (Instant::now(), Vec::new()) }
    }

    /// What has happened since this was asked last.
    pub(super) fn changes(&mut self) -> Vec<FleetChange> {
        let mut changes = Vec::new();
        while let Ok(notice) = self.notices.try_recv() {
            changes.extend(change(&notice));
        }
        changes
    }

    /// The newest weights that any of them has.
    pub(super) fn newest(&self) -> Option<PolicyVersion> {
        self.generator.load().iter().filter_map(version).max()
    }

    pub(super) fn members(&mut self, at: f64) -> Vec<FleetMember> {
        let (load, newest) = (self.generator.load(), self.newest());
        let tokens = load.iter().map(|server| server.tokens).collect();
        let (since, before) = std::mem::replace(&mut self.before, (Instant::now(), tokens));
        let seconds = since.elapsed().as_secs_f64().max(1e-3);
        let member = |(index, server): (usize, &ServerLoad)| {
            let written = server.tokens - before.get(index).unwrap_or(&0);
            let version = version(server);
            FleetMember {
                name: server.url.clone(),
                role: "vllm".to_owned(),
                host: host(&server.url).to_owned(),
                pid: 0,
                state: state(&server.state),
                version,
                lag: newest.zip(version).map(|(newest, version)| newest.0 - version.0),
                tokens_per_second: written as f64 / seconds,
                heard_at: at - server.silent_for.as_secs_f64(),
            }
        };
        load.iter().enumerate().map(member).collect()
    }
}

fn version(server: &ServerLoad) -> Option<PolicyVersion> {
    match server.state {
        ServerState::Serving(version) => Some(version),
        ServerState::Idle | ServerState::Away { .. } => None,
    }
}

fn state(state: &ServerState) -> FleetState {
    match state {
        ServerState::Serving(_) => FleetState::Healthy,
        ServerState::Idle => FleetState::Stale,
        ServerState::Away { .. } => FleetState::Dead,
    }
}

fn change(notice: &Notice) -> Option<FleetChange> {
    let (url, from, to) = match notice {
        Notice::Lost { url, .. } => (url, FleetState::Healthy, FleetState::Dead),
        Notice::Back { url, .. } => (url, FleetState::Dead, FleetState::Healthy),
        _ => return None,
    };
    let (name, host, reason) = (url.clone(), host(url).to_owned(), notice.to_string());
    Some(FleetChange { name, host, from: Some(from), to, reason })
}

/// The host in an address.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_goes_and_comes_back_is_two_changes_with_reasons() {
        let url = "http://node-3:8000".to_owned();
        let reason = "silent for 60 s".to_owned();
        let lost = change(&Notice::Lost { url: url.clone(), reason }).unwrap();
        assert_eq!((lost.host.as_str(), lost.to), ("node-3", FleetState::Dead));
        assert_eq!(lost.reason, "silent for 60 s");
        let back = Notice::Back { url, version: PolicyVersion(4), seconds: 9 };
        let back = change(&back).unwrap();
        assert_eq!((back.from, back.to), (Some(FleetState::Dead), FleetState::Healthy));
        assert_eq!(back.reason, "it is back after 9 s, with v4");
    }

    #[test]
    fn hosts_are_found_in_addresses() {
        for (url, expected) in [
            ("http://localhost:8000", "localhost"),
            ("https://models.example/v1", "models.example"),
            ("http://[::1]:8000/", "[::1]"),
        ] {
            assert_eq!(host(url), expected);
        }
    }
}
