//! Broken answers, groups that cannot be trained on, damaged folders: none of them ends a run that
//! could go on, and none is lost in silence.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rig;
mod spoil;

mod hostile {
    use std::path::Path;

    use proptest::prelude::*;
    use scalerl_engine::{EngineError, fake, never};
    use scalerl_journal::{Event, Reading, Status, StopReason, What};
    use scalerl_rollout::{GeneratorError, GroupId};
    use serde_json::{Value, json};

    use super::rig::{Rig, audit, digest};
    use super::spoil::rewrite;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn whats(reading: &Reading) -> impl Iterator<Item = &What> {
        reading.history.events.iter().map(|event: &Event| &event.what)
    }

    /// Groups set aside, each with its reason and its file.
    fn set_aside(reading: &Reading) -> Vec<(GroupId, String, Option<String>)> {
        let one = |what: &What| match what {
            What::SetAside { group, reason, file, .. } => {
                Some((*group, reason.clone(), file.clone()))
            }
            _ => None,
        };
        whats(reading).filter_map(one).collect()
    }

    fn trained_on(reading: &Reading) -> Vec<GroupId> {
        let groups = |what: &What| match what {
            What::Step { batch, .. } => batch.groups.clone(),
            _ => Vec::new(),
        };
        whats(reading).flat_map(groups).collect()
    }

    #[test]
    fn one_broken_answer_is_asked_for_again_and_changes_nothing() {
        let straight = folder();
        Rig::pipeline(0).run(straight.path());
        let straight = audit(straight.path(), 0);
        for (fault, expected) in [
            (fake::Fault::AbsurdLogprob(20), "token 0 has a log-prob of -1e30"),
            (fake::Fault::ForeignToken(20), "id 4000000, outside the vocabulary of 99"),
            (fake::Fault::OtherText(20), "its text is not what the run's tokenizer makes"),
            (fake::Fault::TooFew(20), "completions, "),
        ] {
            let folder = folder();
            let rig = Rig { generator_fault: Some(fault), ..Rig::pipeline(0) };
            assert_eq!(rig.run(folder.path()).reason, StopReason::Steps);
            let reading = audit(folder.path(), 0);
            let retried: Vec<&String> = whats(&reading)
                .filter_map(|what| match what {
                    What::GeneratorRetried { reason, .. } => Some(reason),
                    _ => None,
                })
                .collect();
            assert!(retried.len() == 1 && retried[0].contains(expected), "{retried:?}");
            assert_eq!(digest(&reading), digest(&straight), "the same was trained on");
        }
    }

    #[test]
    fn a_generator_that_writes_nothing_else_ends_the_run_and_a_mended_one_goes_on() {
        let folder = folder();
        let broken = Rig { generator_fault: Some(fake::Fault::Broken(25)), ..Rig::pipeline(2) };
        let error = broken.session(folder.path(), None, never()).unwrap().unwrap_err();
        let (EngineError::Sampling { source, .. } | EngineError::Evaluating { source, .. }) =
            &error
        else {
            panic!("{error}")
        };
        assert!(matches!(source, GeneratorError::Broken(_)), "{error}");
        assert!(error.hint().contains("the generator") && !error.hint().contains("learning rate"));
        assert_eq!(Rig::pipeline(2).run(folder.path()).reason, StopReason::Steps);
        audit(folder.path(), 2);
    }

    #[test]
    fn a_group_that_no_step_can_use_is_set_aside_and_the_rest_is_trained_on() {
        for (refuses, rig, lag) in [
            (fake::Refuses::Sequences(40), Rig::pipeline(2), 2),
            (fake::Refuses::Sequences(40), Rig::phases(3), 2),
            (fake::Refuses::Batches(60), Rig::pipeline(2), 2),
        ] {
            let folder = folder();
            let rig = Rig { trainer_refuses: refuses, ..rig.with(&["budget.steps=30"]) };
            let end = rig.run(folder.path());
            assert_eq!((end.reason, end.version.0), (StopReason::Steps, 30));
            let reading = audit(folder.path(), lag);
            let (aside, trained) = (set_aside(&reading), trained_on(&reading));
            assert!(!aside.is_empty(), "nothing was refused");
            assert_eq!(reading.summary().set_aside, aside.len());
            for (group, reason, file) in aside {
                assert!(reason.contains("as told"), "{reason}");
                assert!(!trained.contains(&group), "{group:?} was trained on");
                let kept = std::fs::read(folder.path().join(file.unwrap())).unwrap();
                let kept: Value = serde_json::from_slice(&kept).unwrap();
                assert_eq!(kept["reason"], reason);
                assert_eq!(kept["group"]["id"], group.0);
                let rollouts = kept["group"]["judged"]["rollouts"].as_array().unwrap();
                assert!(rollouts[0]["completion"]["token_ids"].is_array(), "to be looked at");
            }
        }
    }

    #[test]
    fn a_trainer_that_refuses_step_after_step_ends_the_run_and_a_mended_one_goes_on() {
        let folder = folder();
        let rig = Rig { trainer_refuses: fake::Refuses::Sequences(1), ..Rig::pipeline(2) };
        for _ in 0..2 {
            let error = rig.session(folder.path(), None, never()).unwrap().unwrap_err();
            assert!(matches!(error, EngineError::Untrainable { steps: 5, .. }), "{error}");
            assert!(error.to_string().contains("as told"), "{error}");
            assert!(error.hint().contains("set-aside/") && error.hint().contains("--resume"));
            let status = Reading::load(folder.path()).unwrap().status();
            assert!(matches!(status, Status::Failed { .. }), "{status:?}");
        }
        assert_eq!(Rig::pipeline(2).run(folder.path()).reason, StopReason::Steps);
        audit(folder.path(), 2);
    }

    #[test]
    fn a_broken_group_that_an_earlier_release_has_saved_does_not_end_every_resume() {
        let folder = folder();
        let rig = Rig::pipeline(4);
        let newest = killed(&rig, folder.path()).checkpoints.pop().unwrap();
        let (mut pooled, mut spoilt) = (0, Vec::new());
        rewrite(&newest, "groups.jsonl", |text| {
            let spoil = |line: &str| {
                let mut group: Value = serde_json::from_str(line).unwrap();
                if group["stage"] == "pooled" {
                    pooled += 1;
                    let completion = &mut group["judged"]["rollouts"][0]["completion"];
                    match pooled % 3 {
                        0 => completion["logprobs"][0] = json!(-1e30),
                        1 => completion["token_ids"][0] = json!(4_000_000),
                        _ => return group.to_string() + "\n",
                    }
                    spoilt.push(GroupId(group["id"].as_u64().unwrap()));
                }
                group.to_string() + "\n"
            };
            text.lines().map(spoil).collect()
        });
        assert!(!spoilt.is_empty(), "no group was pooled");
        assert_eq!(rig.run(folder.path()).reason, StopReason::Steps);
        let reading = audit(folder.path(), 4);
        let aside: Vec<GroupId> = set_aside(&reading).into_iter().map(|one| one.0).collect();
        assert_eq!(aside, spoilt);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

        #[test]
        fn killed_anywhere_a_run_that_sets_groups_aside_loses_none_and_trains_on_none_twice(
            k in 0_u64..4,
            timing in 0_u64..1_000_000,
            trainer_pace in prop::sample::select(vec![1_u32, 8, 40]),
            refuses in prop::sample::select(vec![
                fake::Refuses::Sequences(12),
                fake::Refuses::Sequences(60),
                fake::Refuses::Batches(60),
            ]),
            kills in prop::collection::vec(1_u64..80, 1..5),
        ) {
            let folder = folder();
            let rig = Rig { trainer_pace, trainer_refuses: refuses, ..Rig::pipeline(k).timed(timing) };
            // Many refusals in a row end a session; the next goes on.
            for kill in kills.iter().map(|kill| Some(*kill)).chain([None; 400]) {
                match rig.session(folder.path(), kill, never()) {
                    Some(Ok(_)) => break,
                    None | Some(Err(EngineError::Untrainable { .. })) => {}
                    Some(Err(error)) => panic!("{error}"),
                }
            }
            audit(folder.path(), k);
        }
    }

    #[test]
    fn a_run_that_sets_groups_aside_is_the_same_with_and_without_a_kill() {
        let rig = || Rig { trainer_refuses: fake::Refuses::Sequences(40), ..Rig::pipeline(0) };
        let (straight, killed) = (folder(), folder());
        rig().run(straight.path());
        rig().run_with_kills(killed.path(), &[60, 40, 70]);
        let (straight, killed) = (audit(straight.path(), 0), audit(killed.path(), 0));
        let text = straight.history.timeless_text().unwrap();
        assert!(text.contains("\"set-aside\""), "nothing was refused");
        assert_eq!(killed.history.timeless_text().unwrap(), text);
    }

    /// A run that was killed with checkpoints in its folder.
    fn killed(rig: &Rig, path: &Path) -> Reading {
        assert!(rig.session(path, Some(100), never()).is_none());
        let reading = Reading::load(path).unwrap();
        assert!(reading.checkpoints.len() >= 2, "killed too early to have two");
        reading
    }

    fn damaged(reading: &Reading) -> Vec<(String, String, String)> {
        let one = |what: &What| match what {
            What::Damaged { found, reason, kept_as } => {
                Some((found.clone(), reason.clone(), kept_as.clone()))
            }
            _ => None,
        };
        whats(reading).filter_map(one).collect()
    }

    #[test]
    fn a_damaged_checkpoint_is_said_kept_and_passed_over() {
        let folder = folder();
        let rig = Rig::pipeline(2);
        let before = killed(&rig, folder.path());
        let newest = before.checkpoints.last().unwrap();
        std::fs::write(newest.path.join("trainer/trainer.json"), "{}").unwrap();
        rig.run(folder.path());
        let reading = audit(folder.path(), 2);
        let said = damaged(&reading);
        let [(found, reason, kept_as)] = &said[..] else { panic!("{said:?}") };
        assert_eq!(*found, format!("checkpoints/{}", newest.name()));
        assert!(reason.contains("trainer/trainer.json is not the file"), "{reason}");
        assert_eq!(*kept_as, format!("checkpoints/damaged-{}", newest.name()));
        let kept = std::fs::read(folder.path().join(kept_as).join("trainer/trainer.json"));
        assert_eq!(kept.unwrap(), b"{}");
    }

    #[test]
    fn a_manifest_without_files_is_a_damaged_checkpoint() {
        let folder = folder();
        let rig = Rig::pipeline(2);
        let before = killed(&rig, folder.path());
        let newest = before.checkpoints.last().unwrap();
        let empty = json!({ "version": newest.version, "files": [] });
        std::fs::write(newest.path.join("manifest.json"), empty.to_string()).unwrap();
        rig.run(folder.path());
        let said = damaged(&audit(folder.path(), 2));
        assert!(said.len() == 1 && said[0].1.contains("lists no files"), "{said:?}");
    }

    fn refused(rig: &Rig, path: &Path) -> EngineError {
        let before = listing(path);
        let error = rig.session(path, None, never()).unwrap().unwrap_err();
        assert!(error.is_of_folder(), "{error:?}");
        assert!(!error.hint().contains("bug"), "{}", error.hint());
        assert!(listing(path) == before, "a refusal changes nothing");
        error
    }

    /// Every file but the lock, with its bytes.
    fn listing(path: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(listing(&path));
            } else if path.file_name().unwrap() != "run.lock" {
                found.push((path.clone(), std::fs::read(&path).unwrap()));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn no_whole_checkpoint_among_several_is_refused() {
        let folder = folder();
        let rig = Rig::pipeline(2);
        let before = killed(&rig, folder.path());
        for checkpoint in &before.checkpoints {
            std::fs::remove_file(checkpoint.path.join("groups.jsonl")).unwrap();
        }
        let error = refused(&rig, folder.path());
        let count = before.checkpoints.len();
        let said = error.to_string();
        assert!(said.contains(&format!("none of the {count} checkpoints")), "{said}");
        assert!(said.contains("groups.jsonl"), "{said}");
    }

    #[test]
    fn broken_lines_at_the_end_of_the_history_are_said_and_kept() {
        let folder = folder();
        let rig = Rig::pipeline(2);
        killed(&rig, folder.path());
        let path = folder.path().join("events.jsonl");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend(b"not an event\nnor this\n");
        std::fs::write(&path, bytes).unwrap();
        rig.run(folder.path());
        let said = damaged(&audit(folder.path(), 2));
        let [(found, reason, kept_as)] = &said[..] else { panic!("{said:?}") };
        assert_eq!(
            (found.as_str(), reason.as_str()),
            ("events.jsonl", "its last 2 lines are no events")
        );
        let kept = std::fs::read_to_string(folder.path().join(kept_as)).unwrap();
        assert_eq!(kept, "not an event\nnor this\n");
    }
}
