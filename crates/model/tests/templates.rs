//! Chat templates of real models, rendered as transformers renders them.
//!
//! Fixture: scripts/golden/templates.py (transformers 5.3.0).

use std::path::Path;

use scalerl_model::template::{ChatTemplate, Extras, Prompt};
use serde_json::Value;

#[test]
fn templates_of_real_models_render_as_in_transformers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/templates.json");
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (mut with_tools, mut refused) = (0, 0);
    for case in golden["cases"].as_array().unwrap() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("chat_template.jinja", case["template"].as_str().unwrap());
        write("tokenizer_config.json", &golden["tokens"].to_string());
        let template = ChatTemplate::load(folder.path()).unwrap().unwrap();
        for rendering in case["renderings"].as_array().unwrap() {
            let prompt = if rendering["is_open"] == true { Prompt::Open } else { Prompt::Closed };
            let tools = rendering["tools"].as_array().cloned().unwrap_or_default();
            with_tools += usize::from(!tools.is_empty());
            let extras = Extras { tools, ..Extras::default() };
            let messages = rendering["messages"].as_array().unwrap();
            let text = template.render_with(messages, prompt, &extras).ok();
            assert_eq!(text.as_deref(), rendering["text"].as_str(), "{}", case["model"]);
            refused += usize::from(text.is_none());
        }
    }
    // Llama 3's refuses two calls in one message.
    assert_eq!((with_tools, refused), (12, 2));
}
