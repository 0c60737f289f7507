//! Ranks that own experts: the numbers of one process, whoever has the tokens.

use std::time::Instant;

use scalerl_rollout::{PolicyVersion, Trainer as _};
use tch::Tensor;

use crate::crew::{
    Crew, Disk, FLOAT_SUMS, PATIENT, assert_same_report, batches, distance, full, local, owned, row,
};
use crate::full::compare;

#[test]
fn one_two_and_four_ranks_that_own_experts_have_the_losses_of_one_process() {
    compare("experts", &owned("experts"), &[1, 2, 4]);
}

#[test]
fn references_and_adapters_of_owned_experts_have_the_losses_of_one_process() {
    for name in ["all-terms of experts", "lora of experts"] {
        compare(name, &owned(name), &[2, 4]);
    }
}

/// What no rank sends or gets is a batch of no rows: everything may go to the experts of one rank.
#[test]
fn ranks_whose_experts_get_no_token_compute_all_the_same() {
    for size in [2, 4] {
        let name = "one expert";
        let batch = batches(name, 1).remove(0);
        let mut alone = local(name);
        let start: Vec<Tensor> = alone.masters().iter().map(Tensor::copy).collect();
        let expected = alone.step(&batch).unwrap();
        let mut crew = Crew::start(&owned(name), size, PATIENT);
        assert_same_report(&crew.trainer().step(&batch).unwrap(), &expected);
        // A router that says the same of all experts has a gradient of rounding errors, which the optimizer's
        // quotient makes steps of.
        let masters = crew.masters();
        let layout = crew.trainer().model().trained_layout().to_vec();
        let but_routers = |masters: &[Tensor]| -> Vec<Tensor> {
            let known =
                layout.iter().zip(masters).filter(|(known, _)| !known.name.ends_with("router"));
            known.map(|(_, master)| master.shallow_clone()).collect()
        };
        let apart = distance(&but_routers(&masters), &but_routers(alone.masters()));
        assert!(apart <= FLOAT_SUMS, "{apart}");
        let is_moved = |master: &Tensor, start: &Tensor| !master.equal(start);
        let moved: Vec<String> = layout
            .iter()
            .zip(masters.iter().zip(&start))
            .filter(|(known, (master, start))| known.is_of_experts() && is_moved(master, start))
            .map(|(known, _)| known.name.clone())
            .collect();
        assert!(!moved.is_empty(), "experts that have tokens learn");
        crew.end();
    }
}

/// Ranks without a sequence have no rows and serve those that have some, and so do ranks with fewer
/// pieces.
#[test]
fn owners_with_less_to_do_compute_for_those_that_have_more() {
    for (name, sequences) in
        [("experts", 2), ("experts", 5), ("all-terms of experts", 1), ("lora of experts", 3)]
    {
        let mut batch = batches(name, 1).remove(0);
        batch.sequences.truncate(sequences);
        let mut alone = local(name);
        let expected = alone.step(&batch).unwrap();
        let mut crew = Crew::start(&owned(name), 4, PATIENT);
        assert_same_report(&crew.trainer().step(&batch).unwrap(), &expected);
        let apart = distance(&crew.masters(), alone.masters());
        assert!(apart <= FLOAT_SUMS, "{name} {sequences}: {apart}");
        crew.end();
    }
}

#[test]
fn owners_that_compute_in_bf16_follow_ranks_that_gather() {
    let name = "bf16 of experts";
    let batches = batches(name, 2);
    let norms = |scheme: &str| {
        let mut crew = Crew::start(scheme, 2, PATIENT);
        let norms: Vec<f64> =
            batches.iter().map(|batch| crew.trainer().step(batch).unwrap().gradient_norm).collect();
        let masters = crew.masters();
        crew.end();
        (norms, masters)
    };
    let ((gathered, expected), (owned, found)) = (norms(&full(name)), norms(&owned(name)));
    let apart = distance(&found, &expected);
    println!("bf16: norms {owned:?}, gathered {gathered:?}, weights apart {apart:.1e}");
    for (owned, gathered) in owned.iter().zip(&gathered) {
        assert!((owned / gathered - 1.0).abs() <= 2e-2, "{owned} {gathered}");
    }
    assert!(apart <= 2e-2, "{apart}");
}

/// Four owners, three ranks that gather, two with the optimizer alone, two owners, one process.
#[test]
fn a_checkpoint_of_owners_is_taken_up_by_any_number_of_ranks_of_any_scheme() {
    for name in ["experts", "lora of experts"] {
        let batches = batches(name, 5);
        let mut alone = local(name);
        let expected: Vec<_> = batches.iter().map(|batch| alone.step(batch).unwrap()).collect();
        let root = tempfile::tempdir().unwrap();
        let folder = |step: usize| root.path().join(step.to_string());
        let mut before = Vec::new();
        let schemes = [(owned(name), 4), (full(name), 3), (name.to_owned(), 2), (owned(name), 2)];
        for (step, (scheme, size)) in schemes.into_iter().enumerate() {
            let mut crew = Crew::start(&scheme, size, PATIENT);
            if step > 0 {
                let version = crew.trainer().restore(&folder(step)).unwrap();
                assert_eq!(version, PolicyVersion(step as u64));
                let restored = crew.masters();
                assert!(row(&restored).equal(&row(&before)), "every weight to the last bit");
            }
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
}

#[test]
fn owners_hold_the_same_share_as_ranks_that_gather_and_bring_less_beside_it() {
    let batch = batches("experts", 1).remove(0);
    let held = |scheme: &str| {
        let mut crew = Crew::start(scheme, 4, PATIENT);
        crew.trainer().step(&batch).unwrap();
        let held = crew.trainer().bytes_in_parts().unwrap();
        crew.end();
        held
    };
    let (gathered, owned) = (held(&full("experts")), held(&owned("experts")));
    println!("held and brought beside: gathered {gathered:?}, owned {owned:?}");
    // Rows are padded each by themselves.
    assert!(owned.0.abs_diff(gathered.0) <= 16 * 4 * 16, "{owned:?} {gathered:?}");
    assert!(owned.1 < gathered.1, "{owned:?} {gathered:?}");
}

/// Wherever in a step a rank has no room, between the exchanges of a layer or outside of them: the step
/// fails everywhere with that rank's sentence, and nobody waits for a deadline.
#[test]
fn a_rank_without_room_is_told_everywhere_wherever_in_a_pass_that_finds_it() {
    let name = "experts";
    let batch = batches(name, 1).remove(0);
    let (mut failed, mut room) = (0, 3000);
    loop {
        let folder = tempfile::tempdir().unwrap();
        let disks = [Disk::Fast, Disk::WithRoom(room), Disk::Fast, Disk::Fast];
        let mut crew = Crew::start_on(&disks, &owned(name), PATIENT);
        crew.trainer().save(folder.path()).unwrap();
        let started = Instant::now();
        let stepped = crew.trainer().step(&batch);
        let took = started.elapsed();
        let Err(error) = stepped else { break };
        println!("room for {room} bytes, after {took:?}: {error}");
        assert!(took < PATIENT / 4, "{took:?}");
        let said = error.to_string();
        assert!(said.contains("trainer rank 1") && said.contains("memory"), "{said}");
        crew.trainer.take();
        crew.wait();
        failed += 1;
        room += room / 4;
    }
    assert!(failed > 3, "only {failed} places to fail");
}
