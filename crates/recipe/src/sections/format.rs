//! `[format]`: how thinking and answer are told apart. Read by `crates/task` and by generators.

use crate::{
    declare::{choice, declare, section},
    setting::Rule,
};

section! {
    /// How thinking and answer are told apart in a completion.
    pub struct Format {
        /// Whether completions think before they answer.
        thinking: Thinking = Thinking::default();
        /// Text that ends thinking when an interruption forces it, put before the closing tag.
        /// Source: ScaleRL (arXiv 2510.13786), section 3.
        interruption: String =
            "Okay, time is up. Let me stop thinking and formulate a final answer now. ".into();
        /// How the answer is marked: what a verifier is shown, and what ends a completion.
        answer: AnswerForm = AnswerForm::default();
    }
}

choice! {
    /// Whether completions think before they answer.
    pub enum Thinking {
        /// Thinking stands between two tags; the answer is what follows the first closing one.
        "tags" Tags {
            /// Opening tag.
            open: String = "<think>".into();
            /// Closing tag; ends the thinking budget, and an interruption appends it.
            close: String = "</think>".into(), Rule::NotEmpty;
            /// Where the opening tag stands: `true` puts it at the end of the prompt.
            opened_by_prompt: bool = true;
        },
        /// What stands before the answer's mark is thinking, and an interruption writes the mark: for
        /// models that write their steps and then the box. Needs an `answer` with an opening text.
        "before-answer" BeforeAnswer,
        /// The whole completion is the answer.
        "none" None,
    }
}

choice! {
    /// How the answer is marked, in what follows the thinking. A marked answer that is closed ends the
    /// completion; a completion without the mark has no answer and is wrong.
    pub enum AnswerForm {
        /// All of what follows the thinking; the model's end token or `sampling.stop` ends it.
        "plain" Plain,
        /// What the first `\\boxed{}` holds; its matching brace ends the completion.
        "boxed" Boxed,
        /// What follows the first `####`; the end of its line ends the completion.
        "gsm8k" Gsm8k,
        /// What stands between two texts of your own.
        "marked" Marked {
            /// Text before the answer; empty where the answer begins at once.
            open: String = String::new();
            /// Text after the answer, which ends the completion. Unset: the answer goes on to the end
            /// of the completion, and the last opening text counts.
            close: Option<String> = None, Rule::NotEmpty;
        },
    }
}

impl AnswerForm {
    /// Text before the answer; empty where there is none.
    pub fn opening(&self) -> &str {
        match self {
            Self::Plain => "",
            Self::Boxed => "\\boxed{",
            Self::Gsm8k => "####",
            Self::Marked { open, .. } => open,
        }
    }

    /// Text after the answer, where one ends the completion.
    pub fn closing(&self) -> Option<&str> {
        match self {
            Self::Plain => None,
            Self::Boxed => Some("}"),
            Self::Gsm8k => Some("\n"),
            Self::Marked { close, .. } => close.as_deref(),
        }
    }
}

impl Format {
    /// Text that ends thinking; `None` where the format has none.
    pub fn thinking_close(&self) -> Option<&str> {
        match &self.thinking {
            Thinking::Tags { close, .. } => Some(close),
            Thinking::BeforeAnswer => Some(self.answer.opening()),
            Thinking::None => None,
        }
    }
}
