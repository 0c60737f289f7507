//! How conversations become tokens, as drivers see it.

use serde_json::Value;

/// A model's chat format, or plain text where it has none. Made by the CLI from the model's tokenizer
/// and template.
pub trait Chat: Send + Sync + 'static {
    /// Tokens of a whole conversation, up to where the policy writes. `tools` are JSON schemas as
    /// OpenAI's API has them.
    fn open(&self, messages: &[Value], tools: &[Value]) -> Result<Vec<u32>, String>;

    /// Tokens that stand between `written`, a turn of the policy, and its next turn, where `said` was
    /// said in between. Nothing before is made into tokens again.
    fn gap(&self, written: &[u32], said: &[Value]) -> Result<Vec<u32>, String>;
}
