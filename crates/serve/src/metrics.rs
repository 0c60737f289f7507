//! What the server counts, as Prometheus reads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::server::Load;

/// Upper edges of the histograms, in seconds.
const EDGES: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(crate) struct Histogram {
    /// Seconds up to each edge, not summed up.
    counts: [AtomicU64; EDGES.len() + 1],
    microseconds: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let place = EDGES.iter().position(|edge| seconds <= *edge).unwrap_or(EDGES.len());
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    fn write(&self, name: &str, help: &str, out: &mut String) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut sum = 0;
        for (count, edge) in self.counts.iter().zip(&EDGES) {
            sum += count.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{le=\"{edge}\"}} {sum}");
        }
        sum += self.counts[EDGES.len()].load(Ordering::Relaxed);
        let seconds = self.microseconds.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {sum}");
        let _ = writeln!(out, "{name}_sum {seconds}\n{name}_count {sum}");
    }
}

#[derive(Default)]
pub(crate) struct Metrics {
    /// By route and status. A lock, held only to count and to copy.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    pub(crate) prompt_tokens: Counter,
    pub(crate) generated_tokens: Counter,
    pub(crate) first_token: Histogram,
    pub(crate) latency: Histogram,
}

impl Metrics {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<(&'static str, u16), u64>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn answered(&self, route: &'static str, status: u16) {
        *self.locked().entry((route, status)).or_default() += 1;
    }

    /// Prometheus's text format. `under_way` is the number of requests that hold a place.
    pub(crate) fn text(&self, under_way: usize, load: Option<&Load>) -> String {
        let mut out = String::new();
        let mut one = |name: &str, kind: &str, help: &str, value: f64| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        };
        one("scalerl_requests_under_way", "gauge", "Requests not answered yet", under_way as f64);
        let tokens = self.prompt_tokens.get() as f64;
        one("scalerl_prompt_tokens_total", "counter", "Tokens of prompts", tokens);
        let tokens = self.generated_tokens.get() as f64;
        one("scalerl_generated_tokens_total", "counter", "Tokens generated", tokens);
        if let Some(load) = load {
            let (running, waiting) = (load.running as f64, load.waiting as f64);
            one("scalerl_sequences_running", "gauge", "Sequences being written", running);
            one("scalerl_sequences_waiting", "gauge", "Sequences that wait for room", waiting);
            one(
                "scalerl_cache_usage_ratio",
                "gauge",
                "Share of the KV cache that requests need now",
                load.cache_usage,
            );
        }
        let name = "scalerl_requests_total";
        let _ = writeln!(out, "# HELP {name} Requests answered\n# TYPE {name} counter");
        for ((route, status), count) in self.locked().iter() {
            let _ = writeln!(out, "{name}{{route=\"{route}\",status=\"{status}\"}} {count}");
        }
        let name = "scalerl_time_to_first_token_seconds";
        self.first_token.write(name, "From a request to its first token", &mut out);
        self.latency.write("scalerl_request_seconds", "From a request to its last token", &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_sum_up_to_the_count() {
        let metrics = Metrics::default();
        for ms in [1, 20, 20, 900, 1_000_000] {
            metrics.latency.observe(Duration::from_millis(ms));
        }
        metrics.answered("/v1/models", 200);
        let text = metrics.text(3, None);
        for line in [
            "scalerl_requests_under_way 3",
            "scalerl_requests_total{route=\"/v1/models\",status=\"200\"} 1",
            "scalerl_request_seconds_bucket{le=\"0.005\"} 1",
            "scalerl_request_seconds_bucket{le=\"0.025\"} 3",
            "scalerl_request_seconds_bucket{le=\"300\"} 4",
            "scalerl_request_seconds_bucket{le=\"+Inf\"} 5",
            "scalerl_request_seconds_sum 1000.941",
            "scalerl_request_seconds_count 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
