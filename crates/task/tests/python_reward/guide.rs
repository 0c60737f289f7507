//! The functions that docs/rewards.md shows are taken and score.

use std::path::Path;
use std::sync::Arc;

use scalerl_task::Answer;
use serde_json::json;

use crate::bench::{Bench, ask, error, row, scored};

fn shown() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rewards.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page.split("```python\n").skip(1).collect();
    assert!(!blocks.is_empty());
    blocks.into_iter().map(|block| block.split("```").next().unwrap()).collect()
}

#[test]
fn functions_of_the_guide_score() {
    let text = shown();
    let judge = |function: &str| Bench::new(&text, &format!(", function = \"{function}\"")).judge();
    let plain = judge("score");
    assert_eq!((ask(&plain, " 2\n"), ask(&plain, "3")), (scored(1.0), scored(0.0)));
    assert_eq!(ask(&judge("lengths"), &"x".repeat(200)), scored(0.5));
    // A judge over the network, which is not there.
    let problem = Arc::new(row(&json!({"answer": "2"})));
    let reason = error(judge("judged").verify(problem, Answer::whole("2")));
    assert!(reason.contains("NameError") && reason.contains("ask_a_model"), "{reason}");
}
