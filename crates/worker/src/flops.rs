//! Floating-point operations a step needs: the model's, not the machine's.
//!
//! A product of a matrix with n numbers costs 2 n a token; a pair of tokens that see each other
//! costs 4 · width of all heads a layer. The backward pass costs twice the forward pass. The head
//! is counted only where a token is scored, looking up embeddings not at all, and activations that
//! are computed again do not count: the number says what the step was worth, not how it was done.

use scalerl_model::config::{ModelConfig, Span};

/// One sequence: its tokens, and how many of them are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceSize {
    pub tokens: u64,
    pub scored: u64,
}

/// Operations of a forward pass over one sequence.
pub fn forward_flops(config: &ModelConfig, size: SequenceSize) -> f64 {
    let table = (config.vocabulary * config.width) as f64;
    let tables = if config.is_head_tied { 1.0 } else { 2.0 };
    let body = config.active_parameter_count() as f64 - tables * table;
    let pairs: f64 = config.layers.iter().map(|layer| pairs(layer.span, size.tokens)).sum();
    2.0 * body * size.tokens as f64
        + 2.0 * table * size.scored as f64
        + 4.0 * (config.heads * config.head_width) as f64 * pairs
}

/// Pairs of tokens of which one sees the other or itself.
fn pairs(span: Span, tokens: u64) -> f64 {
    let triangle = |n: u64| n as f64 * (n + 1) as f64 / 2.0;
    match span {
        Span::Full => triangle(tokens),
        Span::Chunk(width) => {
            let width = width.max(1) as u64;
            (tokens / width) as f64 * triangle(width) + triangle(tokens % width)
        }
        Span::Window(width) => {
            let width = tokens.min(width.max(1) as u64);
            triangle(width) + (tokens - width) as f64 * width as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use scalerl_model::bench::Shape;

    use super::*;

    #[test]
    fn a_forward_pass_is_counted_part_by_part() {
        let shape =
            Shape { layers: 2, width: 8, heads: 2, kv_heads: 1, feed_forward: 16, vocabulary: 32 };
        let config = shape.config().unwrap();
        // Queries 8×8, keys and values 8×4 each, output 8×8, gate, up and down 8×16 each; norms 8.
        let layer = 64 + 32 + 32 + 64 + 3 * 128 + 2 * 8;
        let found = forward_flops(&config, SequenceSize { tokens: 5, scored: 3 });
        let expected = 2 * (2 * layer + 8) * 5 + 2 * 32 * 8 * 3 + 4 * 8 * 2 * 15;
        assert!((found - f64::from(expected)).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn chunks_are_triangles_of_their_own() {
        assert!((pairs(Span::Chunk(4), 10) - (10.0 + 10.0 + 3.0)).abs() < 1e-12);
        assert!((pairs(Span::Chunk(16), 10) - pairs(Span::Full, 10)).abs() < 1e-12);
    }

    #[test]
    fn pairs_are_those_that_every_position_sees() {
        for span in [Span::Full, Span::Chunk(4), Span::Window(4), Span::Window(16), Span::Window(1)]
        {
            let counted: i64 = (0..10).map(|at| at + 1 - span.first_seen(at)).sum();
            assert!((pairs(span, 10) - counted as f64).abs() < 1e-12, "{span:?}");
        }
    }
}
