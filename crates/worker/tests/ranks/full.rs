//! Ranks with weights and gradients in parts: the numbers of one process, and the memory of a part.

use scalerl_model::folder::Model;
use scalerl_rollout::{StepReport, TrainBatch, Trainer as _, TrainerError};
use tch::{Device, Kind, Tensor};

use crate::crew::{
    Crew, FLOAT_SUMS, PATIENT, assert_same_report, batches, distance, full, local, owned, untrained,
};

/// Losses, relative: the same sums in another order.
const SAME_LOSS: f64 = 1e-6;

/// What generators are handed.
fn published(crew: &mut Crew) -> Vec<Tensor> {
    let handle = crew.trainer().publish().unwrap();
    crew.weight_store.take(&handle).unwrap().parameters
}

/// Batches whose terms do not cancel: a loss near zero would have no relative error to speak of.
fn one_sided(name: &str, count: i64) -> Vec<TrainBatch> {
    let mut batches = batches(name, count);
    for sequence in batches.iter_mut().flat_map(|batch| &mut batch.sequences) {
        sequence.advantage = sequence.advantage.abs();
    }
    batches
}

pub(crate) fn compare(name: &str, scheme: &str, sizes: &[usize]) {
    let batches = one_sided(name, 4);
    let mut alone = local(name);
    let start = alone.masters().iter().map(Tensor::copy).collect::<Vec<_>>();
    let expected: Vec<StepReport> =
        batches.iter().map(|batch| alone.step(batch).unwrap()).collect();
    let moved = distance(alone.masters(), &start);
    for &size in sizes {
        let mut crew = Crew::start(scheme, size, PATIENT);
        let mut worst = 0.0_f64;
        for (batch, expected) in batches.iter().zip(&expected) {
            let found = crew.trainer().step(batch).unwrap();
            assert_same_report(&found, expected);
            worst = worst.max((found.loss / expected.loss - 1.0).abs());
        }
        let masters = crew.masters();
        let apart = distance(&masters, alone.masters());
        println!(
            "{scheme}, {size} ranks: losses {worst:.1e}, weights moved {moved:.1e}, apart {apart:.1e}"
        );
        assert!(worst <= SAME_LOSS, "{name} {size}: {worst}");
        assert!(apart <= FLOAT_SUMS && apart <= 1e-3 * moved, "{name} {size}: {apart} {moved}");
        let published = published(&mut crew);
        assert_eq!(published.len(), masters.len());
        let is_same = published.iter().zip(&masters).all(|(found, master)| found.equal(master));
        assert!(is_same, "generators get the weights that are trained");
        crew.end();
    }
}

#[test]
fn one_to_four_ranks_have_the_losses_of_one_process_dense() {
    compare("cispo", &full("cispo"), &[1, 2, 3, 4]);
}

#[test]
fn one_to_four_ranks_have_the_losses_of_one_process_with_experts() {
    compare("experts", &full("experts"), &[1, 2, 3, 4]);
}

#[test]
fn one_to_four_ranks_have_the_losses_of_one_process_with_an_adapter() {
    compare("lora", &full("lora"), &[1, 2, 3, 4]);
}

#[test]
fn ratios_of_whole_completions_references_tied_heads_and_adapted_experts_too() {
    for name in ["gspo", "all-terms", "tied", "lora of experts"] {
        compare(name, &full(name), &[2, 3]);
    }
}

#[test]
fn ranks_in_parts_that_compute_in_bf16_follow_one_process_that_does() {
    let batches = batches("bf16", 3);
    let mut alone = local("bf16");
    let expected: Vec<StepReport> = batches.iter().map(|b| alone.step(b).unwrap()).collect();
    for (size, most) in [(1, FLOAT_SUMS), (2, 2e-2)] {
        let mut crew = Crew::start(&full("bf16"), size, PATIENT);
        for (batch, expected) in batches.iter().zip(&expected) {
            let found = crew.trainer().step(batch).unwrap();
            let apart = (found.gradient_norm / expected.gradient_norm - 1.0).abs();
            assert!(apart <= most, "{size}: {} {}", found.gradient_norm, expected.gradient_norm);
        }
        let masters = crew.masters();
        let apart = distance(&masters, alone.masters());
        println!("bf16, {size} ranks: apart by {apart:.1e}");
        assert!(apart <= most, "{size}: {apart}");
        for (found, master) in published(&mut crew).iter().zip(&masters) {
            assert!(found.equal(&master.to_kind(Kind::BFloat16)), "rounded masters");
        }
        crew.end();
    }
}

/// Ranks without a sequence, and ranks with fewer pieces than others, take part in every pass.
#[test]
fn ranks_with_less_to_do_keep_pace_with_those_that_have_more() {
    for (name, sequences) in [("cispo", 2), ("all-terms", 1), ("lora", 3)] {
        let mut batch = batches(name, 1).remove(0);
        batch.sequences.truncate(sequences);
        let expected = local(name).step(&batch).unwrap();
        let mut crew = Crew::start(&full(name), 4, PATIENT);
        assert_same_report(&crew.trainer().step(&batch).unwrap(), &expected);
        crew.end();
    }
}

#[test]
fn a_step_that_is_not_finite_is_refused_by_all_ranks_in_parts_and_leaves_no_trace() {
    let batches = batches("cispo", 1);
    let mut crew = Crew::start(&full("cispo"), 2, PATIENT);
    let mut steep = batches[0].clone();
    steep.sequences[3].advantage = 1e300;
    let error = crew.trainer().step(&steep).unwrap_err();
    assert!(matches!(error, TrainerError::NotFinite { .. }), "{error}");
    let expected = local("cispo").step(&batches[0]).unwrap();
    assert_same_report(&crew.trainer().step(&batches[0]).unwrap(), &expected);
    crew.end();
}

/// The folder for servers, and the one beside a checkpoint, written unit by unit.
#[test]
fn a_model_in_parts_is_written_as_the_folder_that_one_process_writes() {
    for (name, scheme, size) in [
        ("experts", full("experts"), 3),
        ("tied", full("tied"), 3),
        ("lora", full("lora"), 3),
        ("experts", owned("experts"), 2),
        ("lora of experts", owned("lora of experts"), 4),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (batches, mut alone) = (batches(name, 1), local(name));
        alone.step(&batches[0]).unwrap();
        let mut crew = Crew::start(&scheme, size, PATIENT);
        crew.trainer().step(&batches[0]).unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name));
        crew.trainer().write_model(&ours).unwrap();
        alone.write_model(&theirs).unwrap();
        let load = |folder| Model::load(folder, Kind::Float, Device::Cpu).unwrap().parameters;
        let (ours, theirs) = (load(&ours), load(&theirs));
        assert!(distance(&ours, &theirs) <= FLOAT_SUMS, "{scheme}");
        let saved = folder.path().join("saved");
        crew.trainer().save(&saved).unwrap();
        // An adapter's folder is its own, and its base has none here.
        if !name.starts_with("lora") {
            let model = load(&saved.join("model"));
            assert!(model.iter().zip(&ours).all(|(a, b)| a.equal(b)), "{name}: the same weights");
        }
        crew.end();
    }
}

#[test]
fn a_rank_of_n_holds_an_nth_of_everything_and_a_few_units() {
    let model = untrained("experts", 1);
    let numbers: usize = model.parameters.iter().map(Tensor::numel).sum();
    let layer = |index: usize| {
        let prefix = format!("layers.{index}.");
        let own = model.layout.iter().zip(&model.parameters);
        let own = own.filter(|(known, _)| known.name.starts_with(&prefix));
        own.map(|(_, tensor)| tensor.numel()).sum::<usize>()
    };
    let largest = (0..model.config.layers.len()).map(layer).max().unwrap();
    let batch = batches("experts", 1).remove(0);
    for size in 1..=4 {
        let mut crew = Crew::start(&full("experts"), size, PATIENT);
        crew.trainer().step(&batch).unwrap();
        let (held, beside) = crew.trainer().bytes_in_parts().unwrap();
        // Master, which is the weight, two moments, a gradient.
        let share = 16 * numbers / size;
        println!(
            "{size} ranks: {held} bytes held, a share is {share}; {beside} beside, a unit is {}",
            4 * largest
        );
        assert!(held >= share && held <= share + 16 * 8, "{held} {share}: padding of each unit");
        // Its weights and the next one's, its gradients and those that are leaving, of which this
        // rank gets its part.
        let most = 4 * 4 * largest + 4 * largest.div_ceil(size) + 16 * 8;
        assert!(beside <= most, "{beside} {most}");
        crew.end();
    }
}
