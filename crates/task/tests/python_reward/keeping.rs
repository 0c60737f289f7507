//! The text that a run began with is the text that judges: while it is alive, and on resume.

use std::sync::Arc;

use scalerl_recipe::{Recipe, Source};
use scalerl_task::{Answer, Problems, ProblemsError};

use crate::bench::{Bench, ask, error, scored};

#[test]
fn a_file_that_changes_under_a_live_run_changes_nothing() {
    let text = "import os\ndef score(completion):\n    \
                if completion == 'exit': os._exit(3)\n    return 0.75\n";
    let bench = Bench::new(text, ", workers = 1");
    let judge = bench.judge();
    assert_eq!(ask(&judge, "x"), scored(0.75));
    std::fs::write(bench.file(), text.replace("0.75", "0.25")).unwrap();
    error(ask(&judge, "exit"));
    assert_eq!(ask(&judge, "x"), scored(0.75), "a process that was started anew");
    std::fs::remove_file(bench.file()).unwrap();
    error(ask(&judge, "exit"));
    assert_eq!(ask(&judge, "x"), scored(0.75), "and without the file");
}

fn load(bench: &Bench) -> Result<Problems, ProblemsError> {
    let text = format!(
        "[task]\nheld_out = 2\nverifier = {{ type = \"python\", file = \"{}\", workers = 1 }}\n\
         [[task.datasets]]\nname = \"a\"\nsource = {{ type = \"files\", path = \"{}\" }}\n\
         [[task.datasets]]\nname = \"b\"\nsource = {{ type = \"files\", path = \"{}\" }}\n",
        bench.file().display(),
        data(bench, "a").display(),
        data(bench, "b").display(),
    );
    let recipe = Recipe::load(&[Source::Text { name: "test".into(), text }], &[]).unwrap();
    Problems::load(&recipe, &bench.folder.path().join("held_out.json"), 1)
}

fn data(bench: &Bench, name: &str) -> std::path::PathBuf {
    let path = bench.folder.path().join(format!("{name}.jsonl"));
    let row = |n: usize| format!("{{\"prompt\": \"{name} {n}?\", \"answer\": \"{n}\"}}\n");
    std::fs::write(&path, (0..4).map(row).collect::<String>()).unwrap();
    path
}

#[test]
fn a_resume_with_another_text_is_refused_by_its_line_and_can_be_allowed() {
    let text = "print('loaded')\ndef score(completion):\n    return 0.75\n";
    let bench = Bench::new(text, "");
    let (record, kept) = (
        bench.folder.path().join("held_out.json"),
        bench.folder.path().join("verifier_files.json"),
    );
    let problems = load(&bench).unwrap();
    assert!(!kept.exists(), "reading writes nothing");
    problems.record.save(&record).unwrap();
    bench.await_in_log("loaded");
    let pools = [&problems.verifiers["a"], &problems.verifiers["b"]];
    assert!(Arc::ptr_eq(pools[0], pools[1]), "the same choice shares its processes");
    load(&bench).unwrap();

    std::fs::write(bench.file(), text.replace("0.75", "0.25")).unwrap();
    let refused = load(&bench).err().unwrap();
    assert!(refused.to_string().contains("reward.py is not what the run was started with: line 3"));
    assert!(refused.hint().contains("remove that verifier_files.json"), "{}", refused.hint());
    assert!(std::fs::read_to_string(&kept).unwrap().contains("0.75"), "the text to put back");

    std::fs::remove_file(&kept).unwrap();
    let problems = load(&bench).unwrap();
    problems.record.save(&record).unwrap();
    assert!(std::fs::read_to_string(&kept).unwrap().contains("0.25"));
    let problem = Arc::new(problems.pool.problems().next().unwrap().clone());
    let verdict = problems.verifiers[&problem.dataset].verify(problem, Answer::whole("1"));
    assert_eq!(verdict, scored(0.25));
}
