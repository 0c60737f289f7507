//! Recipes that runs of earlier releases keep in their folders: their keys in today's words.
//!
//! A recipe that a user writes gets no such help: an unknown key there is an error. But a run must go
//! on under a newer release, and what it was started with is in its folder.

use crate::node::{Node, Value};

/// Rewrites what has another name by now.
pub(crate) fn translate(recipe: &mut Node) {
    if let Some(format) = recipe.get_mut("format") {
        answer_marks(format);
    }
}

/// `answer_open` and `answer_close` have become `answer`.
fn answer_marks(format: &mut Node) {
    let text = |node: Option<Node>| {
        node.and_then(|node| node.text().map(str::to_owned)).filter(|text| text != "unset")
    };
    let (open, close) = (text(format.remove("answer_open")), text(format.remove("answer_close")));
    let place = format.place.clone();
    let word = |text: &str| Node::new(place.clone(), Value::Text(text.to_owned()));
    // Thinking that ended in the box was the way to say what "before-answer" says.
    let is_box = format
        .get("thinking")
        .and_then(|thinking| thinking.get("close"))
        .is_some_and(|close| close.text() == Some("\\boxed{"));
    if is_box {
        format.set("thinking", word("before-answer"));
        format.set("answer", word("boxed"));
        return;
    }
    if open.is_none() && close.is_none() {
        return;
    }
    let mut marked = vec![("type".to_owned(), word("marked"))];
    marked.extend(open.map(|open| ("open".to_owned(), word(&open))));
    marked.extend(close.map(|close| ("close".to_owned(), word(&close))));
    format.set("answer", Node::new(place.clone(), Value::Table(marked)));
}

#[cfg(test)]
mod tests {
    use crate::{AnswerForm, Format, Recipe, Source, Thinking};

    fn format(text: &str) -> Format {
        let kept = Source::Kept { name: "run/recipe.toml".into(), text: text.into() };
        Recipe::load(&[kept], &[]).unwrap().format.clone()
    }

    #[test]
    fn marks_of_an_earlier_release_are_todays_answer() {
        let unset = "[format]\nanswer_open = \"unset\"\nanswer_close = \"unset\"\n";
        assert_eq!(format(unset), Format::default());
        let marked = "[format]\nanswer_open = \"Answer:\"\nanswer_close = \"}\"\n";
        let expected = AnswerForm::Marked { open: "Answer:".into(), close: Some("}".into()) };
        assert_eq!(format(marked).answer, expected);
        let boxed = "[format]\nthinking = { type = \"tags\", open = \"\", close = \"\\\\boxed{\" }\n\
                     answer_open = \"\"\n";
        let found = format(boxed);
        assert_eq!((found.thinking, found.answer), (Thinking::BeforeAnswer, AnswerForm::Boxed));
    }

    #[test]
    fn a_recipe_of_a_user_gets_no_such_help() {
        let text = "[format]\nanswer_close = \"}\"\n".into();
        let source = Source::Text { name: "mine.toml".into(), text };
        assert!(Recipe::load(&[source], &[]).is_err());
    }
}
