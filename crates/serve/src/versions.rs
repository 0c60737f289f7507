//! `weight_versions`: which weights chose which tokens of an answer, in vLLM's form.
//!
//! Weights of a run change while an answer is written, so one answer may have several.

use serde::Serialize;

use crate::choice::Drawn;

/// Tokens `[start, end)` of an answer, counted from its first, were chosen by these weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Span {
    /// A label; here the number of optimizer steps behind the weights.
    version: String,
    start: usize,
    end: usize,
}

/// The spans of tokens that begin at some place of their answer.
pub(crate) fn spans(tokens: &[Drawn], begin: usize) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut start = begin;
    for run in tokens.chunk_by(|one, next| one.version == next.version) {
        let end = start + run.len();
        spans.push(Span { version: run[0].version.0.to_string(), start, end });
        start = end;
    }
    spans
}
