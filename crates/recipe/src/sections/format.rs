//! `[format]`: how thinking and answer are told apart. Read by `crates/task` and by generators.

use crate::declare::{choice, declare, section};

section! {
    /// How thinking and answer are told apart in a completion.
    pub struct Format {
        /// Whether completions think before they answer.
        thinking: Thinking = Thinking::default();
        /// Text that ends thinking when an interruption forces it, put before the closing tag.
        /// Source: ScaleRL (arXiv 2510.13786), section 3.
        interruption: String =
            "Okay, time is up. Let me stop thinking and formulate a final answer now. ".into();
        /// Text before the answer, when the format marks it; the verifier then reads what follows.
        answer_open: Option<String> = None;
        /// Text after the answer, when the format marks it: the first one written after thinking has ended
        /// (or anywhere, where the format has no thinking) ends the completion, and stays in it.
        answer_close: Option<String> = None, crate::setting::Rule::NotEmpty;
    }
}

choice! {
    /// Whether completions think before they answer.
    pub enum Thinking {
        /// Thinking stands between two tags; the answer is what follows the closing one.
        "tags" Tags {
            /// Opening tag.
            open: String = "<think>".into();
            /// Closing tag; ends the thinking budget, and an interruption appends it.
            close: String = "</think>".into(), crate::setting::Rule::NotEmpty;
            /// Where the opening tag stands: `true` puts it at the end of the prompt.
            opened_by_prompt: bool = true;
        },
        /// The whole completion is the answer.
        "none" None,
    }
}
