//! The shared cases of `testdata/answers/*.toml`, run against the mathematical verifier.

use std::fs;
use std::path::PathBuf;

use scalerl_grader::Grader;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    gold: String,
    #[serde(default)]
    equal: Vec<String>,
    #[serde(default)]
    different: Vec<String>,
    #[serde(default)]
    undecided: Vec<String>,
}

#[test]
fn the_shared_cases_hold() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/answers");
    let grader = Grader::default();
    let mut failures = Vec::new();
    let mut count = 0;
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    for file in files {
        let cases: Cases = toml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        for case in cases.case {
            let wanted = [
                ("equal", &case.equal),
                ("different", &case.different),
                ("undecided", &case.undecided),
            ];
            for (word, preds) in wanted {
                for pred in preds {
                    count += 1;
                    let found = grader.grade(&case.gold, pred).to_string();
                    if found != word {
                        failures.push(format!(
                            "{}: {} | {pred} is {found}, not {word}",
                            file.display(),
                            case.gold
                        ));
                    }
                }
            }
        }
    }
    assert!(count > 200, "only {count} cases were found");
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
}
