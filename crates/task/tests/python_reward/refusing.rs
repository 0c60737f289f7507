//! What cannot work is refused before the first answer, by its key.

use scalerl_recipe::{Recipe, Source};
use scalerl_task::Problems;

use crate::bench::Bench;

fn refused(text: &str, keys: &str) -> String {
    let bench = Bench::new(text, keys);
    match bench.try_judge() {
        Ok(_) => panic!("{text}: {keys} was taken"),
        Err(error) => format!("{error}\nhint: {}", error.hint()),
    }
}

#[test]
fn a_file_a_function_or_an_interpreter_that_cannot_be_used_is_named() {
    let fine = "def score(completion):\n    return 1.0\n";
    for (text, keys, words) in [
        (
            fine,
            ", function = \"scores\"",
            vec!["verifier.function", "`scores` does not exist", "score"],
        ),
        ("score = 3\n", "", vec!["verifier.function", "`score` is no function"]),
        (
            fine,
            ", python = \"no-such-python\"",
            vec!["verifier.python: no-such-python is not on PATH"],
        ),
        (fine, ", python = \"echo\"", vec!["verifier.file", "is echo an interpreter?"]),
        (
            "def score(:\n",
            "",
            vec!["verifier.file", "cannot be imported", "SyntaxError", "def score(:"],
        ),
        ("import no_such_package\n", "", vec!["verifier.file", "No module named", "interpreter"]),
        ("import os\nos._exit(7)\n", "", vec!["verifier.file", "has ended (exit status: 7)"]),
        ("import sys\nsys.exit(1)\n", "", vec!["verifier.file", "SystemExit"]),
        ("import time\ntime.sleep(60)\n", ", start_s = 0.5", vec!["verifier.file", "within 0.5 s"]),
    ] {
        let said = refused(text, keys);
        for word in words {
            assert!(said.contains(word), "`{word}` is missing in: {said}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_named_with_where_paths_count_from() {
    let bench = Bench::new("", "");
    std::fs::remove_file(bench.file()).unwrap();
    let error = bench.try_judge().err().unwrap();
    assert!(error.to_string().starts_with(&format!("verifier.file: {}", bench.file().display())));
    assert!(error.hint().contains("where scalerl is started"), "{}", error.hint());
}

#[test]
fn a_signature_that_is_none_of_the_three_is_shown_with_what_it_could_be() {
    for (parameters, words) in [
        ("text", vec!["score(text)", "`completions`", "`solution_str`", "`completion`"]),
        ("", vec!["score()", "is no reward function"]),
        ("*args", vec!["score(*args)"]),
        ("completion, /", vec!["parameters are given by name"]),
        ("completion, reference", vec!["nothing can be given for reference", "answer, row"]),
        ("completions, prompt", vec!["nothing can be given for prompt", "prompts"]),
        ("solution_str, tokenizer", vec!["nothing can be given for tokenizer"]),
    ] {
        let said = refused(&format!("def score({parameters}):\n    return 1.0\n"), "");
        for word in ["verifier.function"].into_iter().chain(words) {
            assert!(said.contains(word), "`{word}` is missing in: {said}");
        }
    }
}

#[test]
fn a_column_that_the_function_needs_and_the_rows_lack_is_named() {
    let bench = Bench::new("def score(completions, solution, answer):\n    return [1.0]\n", "");
    let data = bench.folder.path().join("data.jsonl");
    let load = |row: &str| {
        let other = row.replace("1?", "2?");
        std::fs::write(&data, format!("{row}\n{other}\n")).unwrap();
        let text = format!(
            "[task]\nheld_out = 1\nverifier = {{ type = \"python\", file = \"{}\" }}\n\
             [[task.datasets]]\nname = \"a\"\nsource = {{ type = \"files\", path = \"{}\", \
             answer_column = \"\" }}\n",
            bench.file().display(),
            data.display(),
        );
        let source = Source::Text { name: "test".into(), text };
        let recipe = Recipe::load(&[source], &[]).unwrap();
        Problems::load(&recipe, &bench.folder.path().join("held_out.json"), 1)
    };
    let error = load(r#"{"prompt": "1 + 1?", "reply": "2"}"#).err().unwrap().to_string();
    for word in ["data set `a`", "verifier.function", "`solution`", "a/", "prompt, reply"] {
        assert!(error.contains(word), "`{word}` is missing in: {error}");
    }
    load(r#"{"prompt": "1 + 1?", "solution": "2"}"#).unwrap();
}
