//! Checkpoints of ranks: for any number of them, in either scheme, or not at all.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use scalerl_rollout::{PolicyVersion, StepReport, Trainer as _, TrainerError};

use crate::crew::{
    Crew, FLOAT_SUMS, PATIENT, assert_same_report, batches, distance, full, local, row,
};

#[test]
fn a_checkpoint_of_three_ranks_goes_on_with_two_with_one_and_without_ranks() {
    let name = "all-terms";
    let batches = batches(name, 5);
    let mut alone = local(name);
    let expected: Vec<StepReport> = batches.iter().map(|b| alone.step(b).unwrap()).collect();

    let root = tempfile::tempdir().unwrap();
    let folder = |step: usize| root.path().join(step.to_string());
    let mut crew = Crew::start(name, 3, PATIENT);
    assert_same_report(&crew.trainer().step(&batches[0]).unwrap(), &expected[0]);
    assert_same_report(&crew.trainer().step(&batches[1]).unwrap(), &expected[1]);
    crew.trainer().save(&folder(2)).unwrap();
    let mut before = crew.masters();
    crew.end();
    for (size, step) in [(2, 2), (1, 3)] {
        let mut crew = Crew::start(name, size, PATIENT);
        let version = crew.trainer().restore(&folder(step)).unwrap();
        assert_eq!(version, PolicyVersion(step as u64));
        let restored = crew.masters();
        assert!(row(&restored).equal(&row(&before)), "every weight to the last bit");
        assert_same_report(&crew.trainer().step(&batches[step]).unwrap(), &expected[step]);
        crew.trainer().save(&folder(step + 1)).unwrap();
        before = crew.masters();
        crew.end();
    }
    let mut resumed = local(name);
    assert_eq!(resumed.restore(&folder(4)).unwrap(), PolicyVersion(4));
    assert!(row(resumed.masters()).equal(&row(&before)));
    assert_same_report(&resumed.step(&batches[4]).unwrap(), &expected[4]);
    assert!(distance(resumed.masters(), alone.masters()) <= FLOAT_SUMS);
}

#[test]
fn ranks_take_up_what_one_process_saved_and_refuse_what_is_damaged() {
    let batches = batches("cispo", 2);
    let mut alone = local("cispo");
    alone.step(&batches[0]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    alone.save(folder.path()).unwrap();

    let mut crew = Crew::start("cispo", 2, PATIENT);
    assert_eq!(crew.trainer().restore(folder.path()).unwrap(), PolicyVersion(1));
    let masters = crew.masters();
    assert!(row(&masters).equal(&row(alone.masters())));
    let expected = alone.step(&batches[1]).unwrap();
    assert_same_report(&crew.trainer().step(&batches[1]).unwrap(), &expected);

    let file = folder.path().join("step-00000001/learner.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let said = crew.trainer().restore(folder.path()).unwrap_err().to_string();
    assert!(said.contains("SHA-256"), "{said}");
    // A folder that cannot be written is an error; the ranks stay together.
    let said = crew.trainer().save(std::path::Path::new("/proc/nowhere")).unwrap_err();
    assert!(matches!(said, TrainerError::Storage { .. }), "{said}");
    assert_eq!(crew.trainer().version(), PolicyVersion(2));
    crew.trainer().step(&batches[0]).unwrap();
    crew.end();
}

/// Three ranks with everything in parts, two with the optimizer alone, four in parts, one process, two
/// in parts: each goes on where the one before was, to the last bit.
#[test]
fn a_checkpoint_of_either_scheme_is_taken_up_by_any_number_of_ranks_of_the_other() {
    for name in ["all-terms", "experts", "lora"] {
        let batches = batches(name, 4);
        let mut alone = local(name);
        let expected: Vec<StepReport> = batches.iter().map(|b| alone.step(b).unwrap()).collect();
        let root = tempfile::tempdir().unwrap();
        let folder = |step: usize| root.path().join(step.to_string());
        let mut before = Vec::new();
        let schemes = [(full(name), 3), (name.to_owned(), 2), (full(name), 4)];
        for (step, (scheme, size)) in schemes.into_iter().enumerate() {
            let mut crew = Crew::start(&scheme, size, PATIENT);
            if step > 0 {
                let version = crew.trainer().restore(&folder(step)).unwrap();
                assert_eq!(version, PolicyVersion(step as u64));
                let restored = crew.masters();
                assert!(row(&restored).equal(&row(&before)), "every weight to the last bit");
            }
            let report = crew.trainer().step(&batches[step]).unwrap();
            assert_same_report(&report, &expected[step]);
            crew.trainer().save(&folder(step + 1)).unwrap();
            before = crew.masters();
            crew.end();
        }
        let mut resumed = local(name);
        assert_eq!(resumed.restore(&folder(3)).unwrap(), PolicyVersion(3));
        assert!(row(resumed.masters()).equal(&row(&before)));
        resumed.save(&folder(33)).unwrap();
        let mut crew = Crew::start(&full(name), 2, PATIENT);
        assert_eq!(crew.trainer().restore(&folder(33)).unwrap(), PolicyVersion(3));
        assert_same_report(&crew.trainer().step(&batches[3]).unwrap(), &expected[3]);
        assert_same_report(&resumed.step(&batches[3]).unwrap(), &expected[3]);
        crew.end();
        assert!(distance(resumed.masters(), alone.masters()) <= FLOAT_SUMS);
    }
}

#[test]
fn each_rank_writes_a_file_and_damage_to_any_of_them_is_found_and_changes_nothing() {
    let (name, folder) = (full("cispo"), tempfile::tempdir().unwrap());
    let batches = batches("cispo", 2);
    let mut crew = Crew::start(&name, 3, PATIENT);
    crew.trainer().step(&batches[0]).unwrap();
    crew.trainer().save(folder.path()).unwrap();
    let path = folder.path().join("step-00000001");
    let bytes: Vec<u64> = (1..=3)
        .map(|rank| path.join(format!("learner-{rank:05}-of-00003.safetensors")))
        .map(|file| std::fs::metadata(file).unwrap().len())
        .collect();
    println!("files of {bytes:?} bytes");
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!(*most as f64 <= 1.2 * *least as f64, "parts are alike: {bytes:?}");
    let before = crew.masters();
    crew.trainer().step(&batches[1]).unwrap();
    let after = crew.masters();
    for rank in 1..=3 {
        let file = path.join(format!("learner-{rank:05}-of-00003.safetensors"));
        let good = std::fs::read(&file).unwrap();
        let mut bad = good.clone();
        let place = bad.len() - 64;
        bad[place] ^= 1;
        std::fs::write(&file, bad).unwrap();
        let said = crew.trainer().restore(folder.path()).unwrap_err();
        assert!(matches!(said, TrainerError::Storage { .. }), "{said}");
        let said = said.to_string();
        assert!(said.contains("SHA-256") && said.contains(&format!("learner-{rank:05}")), "{said}");
        std::fs::write(&file, good).unwrap();
        let masters = crew.masters();
        assert!(row(&masters).equal(&row(&after)), "nothing has changed");
    }
    std::fs::remove_file(path.join("learner-00002-of-00003.safetensors")).unwrap();
    let said = crew.trainer().restore(folder.path()).unwrap_err().to_string();
    assert!(said.contains("learner-00002-of-00003"), "{said}");
    assert!(!row(&before).equal(&row(&after)), "the step has moved them");
    crew.trainer().step(&batches[0]).unwrap();
    crew.end();
}

/// Killed while all of them save over and over: what the folder has then is whole.
#[test]
fn a_rank_killed_while_it_saves_leaves_the_checkpoint_before() {
    let batches = batches("cispo", 1);
    for (scheme, wait) in [(full("cispo"), 30), ("cispo".to_owned(), 40), (full("cispo"), 100)] {
        let folder = tempfile::tempdir().unwrap();
        let mut crew = Crew::start(&scheme, 3, Duration::from_secs(10));
        crew.trainer().step(&batches[0]).unwrap();
        crew.trainer().save(folder.path()).unwrap();
        let victim = Pid::from_child(&crew.others[1]);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(wait));
            kill_process(victim, Signal::KILL).unwrap();
        });
        let mut saved = 0;
        let error = loop {
            match crew.trainer().save(folder.path()) {
                Ok(()) => saved += 1,
                Err(error) => break error,
            }
        };
        killer.join().unwrap();
        println!("{scheme}: {saved} saved before: {error}");
        assert!(matches!(error, TrainerError::RankLost { .. }), "{error}");
        let names = std::fs::read_dir(folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> = names.filter(|name| name.starts_with(".saving-")).collect();
        assert!(left.is_empty(), "drafts are removed: {left:?}");
        let mut resumed = local("cispo");
        assert_eq!(resumed.restore(folder.path()).unwrap(), PolicyVersion(1));
        resumed.step(&batches[0]).unwrap();
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_and_the_ranks_stay_together() {
    let batches = batches("cispo", 1);
    for scheme in ["cispo".to_owned(), full("cispo")] {
        let mut crew = Crew::start(&scheme, 2, PATIENT);
        let error = crew.trainer().save(std::path::Path::new("/proc/nowhere")).unwrap_err();
        assert!(matches!(error, TrainerError::Storage { .. }), "{error}");
        let error = crew.trainer().write_model(std::path::Path::new("/proc/nowhere/m"));
        assert!(matches!(error, Err(TrainerError::Storage { .. })), "{error:?}");
        crew.trainer().step(&batches[0]).unwrap();
        crew.end();
    }
}
