//! Stop strings: whether the text of the last sampled tokens holds one.

use scalerl_model::error::LoadError;
use scalerl_model::tokenizer::Tokenizer;

/// Tokens that can be part of a character of their neighbours, beside those of the string itself.
const MARGIN: usize = 8;

/// Whether one of `stops` ends in the last token of `tail`.
///
/// Only as many tokens as the longest string has bytes are decoded: a string that ended earlier
/// would have stopped the completion earlier.
pub(crate) fn is_stopped(
    tokenizer: &Tokenizer,
    tail: &[i64],
    stops: &[String],
) -> Result<bool, LoadError> {
    let longest = stops.iter().map(String::len).max().unwrap_or(0) + MARGIN;
    let text = tokenizer.decode_all(&tail[tail.len().saturating_sub(longest)..])?;
    Ok(stops.iter().any(|stop| text.contains(stop.as_str())))
}
