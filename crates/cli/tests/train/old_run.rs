//! A run that an older program has begun goes on with this one. What it begins with is in
//! `crates/cli/testdata`; `scripts/test/old_run.sh` does more where both programs are at hand.

use std::{fs, path::Path};

use scalerl_journal::{Reading, Status, StopReason, What};

use crate::bench::{audit, events, files, folder, reading, resume, succeed};

const STEPS: [u64; 2] = [4, 8];

/// A copy that can be resumed.
fn copy(kept: &Path) -> Reading {
    let place = folder().join("older");
    for (name, bytes) in files(kept) {
        let path = place.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let policy = place.join("run/policy.json");
    let model = place.join("model");
    let text = fs::read_to_string(&policy).unwrap().replace("MODEL", model.to_str().unwrap());
    fs::write(policy, text).unwrap();
    reading("older/run")
}

#[test]
fn a_run_of_an_older_program_goes_on() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/run-487dffe");
    let old = copy(&kept);
    assert_eq!(old.environment.commit.as_deref(), Some("487dffec13f8"));
    assert_eq!((old.summary().version.0, old.points().len()), (STEPS[0], 3));

    let said = succeed(resume("older/run", &[&format!("budget.steps={}", STEPS[1])]));
    let words = format!("going on after step {} ", STEPS[0]);
    assert!(said.err.contains(&words), "{}", said.err);
    let new = reading("older/run");
    assert_eq!(new.status(), Status::Stopped { reason: StopReason::Steps });
    assert_eq!(new.summary().version.0, STEPS[1]);
    audit(&new, 0);
    // Nothing that was there is lost or told differently.
    assert_eq!(new.points()[..3], old.points());
    let steps: Vec<u64> = events(&new)
        .filter_map(|what| match what {
            What::Step { report, .. } => Some(report.version.0),
            _ => None,
        })
        .collect();
    assert_eq!(steps, (1..=STEPS[1]).collect::<Vec<u64>>());
}
