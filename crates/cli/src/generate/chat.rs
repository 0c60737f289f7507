//! `scalerl generate` without a prompt: a conversation, a line a turn, answers as they come.
//!
//! The whole conversation is rendered with the model's chat template at every turn, so the model
//! reads it as in training. `/reset` begins a new one; `/exit` or the end of the input ends it.

use std::io::{BufRead, IsTerminal, Write};

use scalerl_model::template::ChatTemplate;
use serde_json::{Value, json};

use super::{Args, Speaker};
use crate::failure::BadInput;

/// What was said so far.
struct Conversation {
    system: Option<Value>,
    turns: Vec<Value>,
}

impl Conversation {
    fn new(system: Option<&str>) -> Self {
        let system = system.map(|text| json!({"role": "system", "content": text}));
        Self { system, turns: Vec::new() }
    }

    fn say(&mut self, role: &str, text: &str) {
        self.turns.push(json!({"role": role, "content": text}));
    }

    fn messages(&self) -> Vec<Value> {
        self.system.iter().chain(&self.turns).cloned().collect()
    }
}

/// Talks until the input ends.
pub(super) fn run(
    args: &Args,
    speaker: &mut Speaker,
    template: Option<&ChatTemplate>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if template.is_none() {
        return Err(BadInput::new("the model has no chat template, so it cannot chat")
            .hint("give a text to continue: scalerl generate --model MODEL \"Once upon a time\"")
            .into());
    }
    if args.n != 1 || args.json {
        return Err(BadInput::new("a conversation has one answer a turn, as text")
            .hint("leave out -n and --json, or give a prompt")
            .into());
    }
    let mut input = std::io::stdin().lock();
    let is_typed = std::io::stdin().is_terminal();
    if is_typed {
        writeln!(out, "a line is a turn; /reset begins anew, /exit or Ctrl-D ends")?;
    }
    let mut conversation = Conversation::new(args.system.as_deref());
    let mut turn = 0;
    loop {
        if is_typed {
            write!(out, "> ")?;
            out.flush()?;
        }
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        match line.trim() {
            "" => {}
            "/exit" | "/quit" => return Ok(()),
            "/reset" => conversation.turns.clear(),
            text => {
                conversation.say("user", text);
                let prompt = Value::Array(conversation.messages());
                match speaker.answer(args, &prompt, template, args.seed + turn, out) {
                    Ok(answer) => conversation.say("assistant", &answer),
                    // A turn that cannot be answered, as one that is too long, is taken back.
                    Err(error) if error.downcast_ref::<BadInput>().is_some() => {
                        conversation.turns.pop();
                        writeln!(out, "[{error}; /reset begins anew]")?;
                    }
                    Err(error) => return Err(error),
                }
                turn += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_stands_on_those_before_it() {
        let mut conversation = Conversation::new(Some("Be brief."));
        conversation.say("user", "hi");
        conversation.say("assistant", "hello");
        conversation.say("user", "bye");
        let roles: Vec<String> = conversation
            .messages()
            .iter()
            .map(|message| message["role"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
    }
}
