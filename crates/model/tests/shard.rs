//! Ranks among threads of one process whose weights are in parts: what they do when one of them has
//! less to do than the others, or fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use scalerl_model::bench::Shape;
use scalerl_model::folder::Model;
use scalerl_model::network::Activations;
use scalerl_model::train::checkpoint::{SaverState, begin_together, each_master};
use scalerl_model::train::{
    AdamWConfig, ExpertWeights, Learner, LearnerOptions, PassKind, RankError, Ranks, StartError,
    TrainingBatch,
};
use scalerl_model::unloaded::UnloadedModel;
use scalerl_torch::collective::{ProcessGroup, Store, Transport};
use tch::{Device, Kind, TchError, Tensor};

const PATIENT: Duration = Duration::from_mins(1);
/// float32 sums in another order.
const FLOAT_SUMS: f64 = 1e-5;

/// Runs `act` as every rank, each on a thread.
fn ranks<T: Send + 'static>(
    size: usize,
    act: impl Fn(Ranks, ProcessGroup) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let server = Store::listen("127.0.0.1", 0, None, PATIENT).unwrap();
    let (port, act) = (server.server().port(), Arc::new(act));
    let threads: Vec<_> = (0..size)
        .map(|rank| {
            let act = act.clone();
            std::thread::spawn(move || {
                let store = Store::connect("127.0.0.1", port, None, PATIENT).unwrap();
                let form = |name: &str| {
                    let place = (rank, size);
                    ProcessGroup::form(&store, name, place, Transport::Gloo, PATIENT).unwrap()
                };
                act(Ranks { control: form("control") }, form("data"))
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn model() -> Model {
    let shape =
        Shape { layers: 3, width: 16, heads: 4, kv_heads: 2, feed_forward: 32, vocabulary: 40 };
    let mut config = shape.config().unwrap();
    config.initial_spread = 0.3;
    Model::random(config, 1, Kind::Float, Device::Cpu).unwrap()
}

fn options() -> LearnerOptions {
    LearnerOptions {
        activations: Activations::Recompute,
        optimizer: AdamWConfig { lr: 1e-2, warmup_steps: 0, ..AdamWConfig::default() },
        ..LearnerOptions::of(Device::Cpu)
    }
}

/// A sequence of its own for each number.
fn batch(number: usize) -> TrainingBatch {
    let ids: Vec<i64> = (0..9).map(|place| (7 * place + 11 * number as i64 + 3) % 40).collect();
    TrainingBatch::all_scored(&[ids], 40, Device::Cpu).unwrap()
}

fn weights(batch: &TrainingBatch) -> Tensor {
    Tensor::ones([batch.scored() as i64], (Kind::Float, Device::Cpu))
}

fn add(learner: &mut Learner, number: usize) {
    let batch = batch(number);
    learner.cross_entropy(&batch, &weights(&batch)).unwrap();
}

/// The gradient norm of one process with these batches, and the one after that with one more.
fn alone(numbers: &[usize]) -> f64 {
    let mut learner = Learner::new(model(), options()).unwrap();
    for number in numbers {
        add(&mut learner, *number);
    }
    learner.step().unwrap().gradient_norm
}

#[test]
fn ranks_with_more_and_fewer_batches_take_the_step_of_all() {
    let norms = ranks(3, |ranks, data| {
        let mut learner = Learner::fully_sharded(model().into(), options(), data).unwrap();
        // Two, one and none.
        let own: &[usize] = [&[0, 1][..], &[2], &[]][ranks.rank()];
        for number in own {
            add(&mut learner, *number);
        }
        learner.keep_pace(None, &[PassKind::Training; 2]).unwrap();
        learner.step_together(&ranks).unwrap().gradient_norm
    });
    let expected = alone(&[0, 1, 2]);
    for norm in norms {
        assert!((norm / expected - 1.0).abs() < FLOAT_SUMS, "{norm} {expected}");
    }
}

#[test]
fn a_rank_that_fails_in_a_pass_sees_it_through_and_nobody_waits() {
    let norms = ranks(3, |ranks, data| {
        let mut learner = Learner::fully_sharded(model().into(), options(), data).unwrap();
        let batch = batch(ranks.rank());
        if ranks.rank() == 1 {
            let failed =
                learner.accumulate(&batch, |_, _| Err(TchError::Torch("on purpose".into())));
            let said = failed.err().unwrap().to_string();
            assert!(said.contains("on purpose"), "{said}");
            // A second one that it does not begin.
            learner.keep_pace(None, &[PassKind::Training; 2]).unwrap();
        } else {
            learner.cross_entropy(&batch, &weights(&batch)).unwrap();
            // Given up between its two halves.
            drop(learner.forward(&batch).unwrap());
            learner.keep_pace(None, &[PassKind::Training; 2]).unwrap();
        }
        // They tell each other, give up, and go on with another step.
        learner.discard_gradients().unwrap();
        add(&mut learner, ranks.rank());
        learner.step_together(&ranks).unwrap().gradient_norm
    });
    let expected = alone(&[0, 1, 2]);
    for norm in norms {
        assert!((norm / expected - 1.0).abs() < FLOAT_SUMS, "{norm} {expected}");
    }
}

/// A parameter is away between passes, and whoever computes with it then gets no number.
#[test]
fn weights_are_away_between_passes_and_come_unit_by_unit() {
    let shown = ranks(2, |_, data| {
        let mut learner = Learner::fully_sharded(model().into(), options(), data).unwrap();
        let is_away = |learner: &Learner| {
            let parameters = &learner.model.parameters;
            parameters.iter().all(|parameter| parameter.isnan().all().int64_value(&[]) == 1)
        };
        let was_away = is_away(&learner);
        let mut all = Vec::new();
        let show = |range: std::ops::Range<usize>, weights: &[Tensor]| {
            all.push((range, weights.iter().map(Tensor::copy).collect::<Vec<_>>()));
            Ok::<(), RankError>(())
        };
        learner.each_unit(show).unwrap();
        (was_away && is_away(&learner), all)
    });
    let model = model();
    for (is_away, units) in shown {
        assert!(is_away);
        assert_eq!(units.len(), 1 + 3 + 2, "embedding, layers, norm, head");
        let shown: Vec<&Tensor> = units.iter().flat_map(|(_, weights)| weights).collect();
        assert_eq!(shown.len(), model.parameters.len());
        assert!(shown.iter().zip(&model.parameters).all(|(found, own)| found.equal(own)));
    }
}

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

#[test]
fn rank_0_reads_the_files_and_the_others_need_the_config_alone() {
    let shown = ranks(3, |ranks, data| {
        let unloaded = if ranks.rank() == 0 {
            UnloadedModel::open(&testdata("qwen3_moe"), Device::Cpu).unwrap()
        } else {
            let config = UnloadedModel::open(&testdata("qwen3_moe"), Device::Cpu).unwrap().config;
            UnloadedModel::random(config, 99, Device::Cpu)
        };
        let mut learner = Learner::fully_sharded(unloaded, options(), data).unwrap();
        let mut all = Vec::new();
        let show = |_: std::ops::Range<usize>, weights: &[Tensor]| {
            all.extend(weights.iter().map(Tensor::copy));
            Ok::<(), RankError>(())
        };
        learner.each_unit(show).unwrap();
        all
    });
    let expected = Model::load(&testdata("qwen3_moe"), Kind::Float, Device::Cpu).unwrap();
    for weights in shown {
        assert_eq!(weights.len(), expected.parameters.len());
        assert!(weights.iter().zip(&expected.parameters).all(|(a, b)| a.equal(b)));
    }
}

#[test]
fn a_start_that_one_rank_cannot_make_is_an_error_for_all_of_them() {
    let said = ranks(2, |ranks, mut data| {
        data.set_timeout(Duration::from_secs(20));
        if ranks.rank() == 0 {
            // It is gone before it has sent its first unit.
            drop((ranks, data));
            return true;
        }
        let failed = Learner::fully_sharded(model().into(), options(), data);
        matches!(failed.err(), Some(StartError::Ranks(RankError::Collective(_))))
    });
    assert!(said.into_iter().all(|is_so| is_so));
}

/// Where a copy has no room a rank writes its file before it goes on, and the checkpoint is the same.
#[test]
fn a_job_of_a_ranks_own_may_take_longer_than_an_operation() {
    let (operation, job) = (Duration::from_secs(2), Duration::from_secs(4));
    let took = ranks(2, move |mut ranks, _| {
        ranks.control.set_timeout(operation);
        let (rank, begun) = (ranks.rank(), Instant::now());
        let work = move || {
            std::thread::sleep(if rank == 1 { job } else { Duration::ZERO });
            rank
        };
        assert_eq!(ranks.each_in_its_time(work).unwrap(), rank);
        begun.elapsed()
    });
    assert!(took.iter().all(|took| *took >= job), "{took:?}");
}

#[test]
fn where_a_rank_has_no_room_for_a_copy_all_files_are_written_at_once() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().to_path_buf();
    let states = ranks(2, move |ranks, data| {
        let mut learner = Learner::fully_sharded(model().into(), options(), data).unwrap();
        add(&mut learner, ranks.rank());
        learner.step_together(&ranks).unwrap();
        let saver = SaverState { is_busy: false, free: Some([1 << 30, 16][ranks.rank()]) };
        let target = (ranks.rank() == 0).then_some(folder.as_path());
        let own = begin_together(&learner, &ranks, target, saver).unwrap().unwrap();
        let draft = folder.join(own.name());
        let is_written =
            draft.join(format!("learner-{:05}-of-00002.safetensors", ranks.rank() + 1));
        let is_written = is_written.is_file();
        // What is written later is of now all the same.
        ranks.sentences("").unwrap();
        add(&mut learner, 2);
        learner.step_together(&ranks).unwrap();
        let said = ranks.sentences(&own.write(&|| ())).unwrap();
        if ranks.rank() == 0 {
            own.finish(&said, &serde_json::Value::Null).unwrap();
        }
        is_written
    });
    assert_eq!(states, [true, true], "nobody waits for a step with a copy while another writes");
    let mut expected = Learner::new(model(), options()).unwrap();
    add(&mut expected, 0);
    add(&mut expected, 1);
    expected.step().unwrap();
    let (mut masters, layout) = (Vec::new(), expected.model.trained_layout().to_vec());
    each_master(&place.path().join("step-00000001"), &layout, |master| {
        masters.push(master.copy());
        Ok(())
    })
    .unwrap();
    for (found, expected) in masters.iter().zip(expected.masters()) {
        assert!(found.allclose(expected, 1e-4, 1e-6, false));
    }
}

/// A small mixture, whose four experts two or four ranks can own.
fn mixture() -> Model {
    mixture_of("qwen3_moe")
}

fn mixture_of(family: &str) -> Model {
    let mut config = UnloadedModel::open(&testdata(family), Device::Cpu).unwrap().config;
    config.initial_spread = 0.3;
    Model::random(config, 1, Kind::Float, Device::Cpu).unwrap()
}

fn owning() -> LearnerOptions {
    LearnerOptions { experts: ExpertWeights::Owned, ..options() }
}

fn mixture_alone(family: &str, numbers: &[usize]) -> f64 {
    let mut learner = Learner::new(mixture_of(family), options()).unwrap();
    for number in numbers {
        add(&mut learner, *number);
    }
    learner.step().unwrap().gradient_norm
}

/// Layers of experts alone; and layers of experts beside one that all tokens share, between dense ones.
#[test]
fn owners_with_more_and_fewer_batches_take_the_step_of_all() {
    for family in ["qwen3_moe", "llama4_text"] {
        take_a_step_with_different_batches(family);
    }
}

fn take_a_step_with_different_batches(family: &'static str) {
    let norms = ranks(4, move |ranks, data| {
        let model = mixture_of(family);
        let mut learner = Learner::fully_sharded(model.into(), owning(), data).unwrap();
        // Two, one, none and none.
        let own: &[usize] = [&[0, 1][..], &[2], &[], &[]][ranks.rank()];
        for number in own {
            add(&mut learner, *number);
        }
        learner.keep_pace(None, &[PassKind::Training; 2]).unwrap();
        learner.step_together(&ranks).unwrap().gradient_norm
    });
    let expected = mixture_alone(family, &[0, 1, 2]);
    for norm in norms {
        assert!((norm / expected - 1.0).abs() < FLOAT_SUMS, "{family}: {norm} {expected}");
    }
}

/// Its loss fails: no exchange is under way, and it serves the others to the end.
#[test]
fn an_owner_that_fails_beside_its_exchanges_sees_the_pass_through() {
    let norms = ranks(2, |ranks, data| {
        let mut learner = Learner::fully_sharded(mixture().into(), owning(), data).unwrap();
        let batch = batch(ranks.rank());
        if ranks.rank() == 1 {
            let failed =
                learner.accumulate(&batch, |_, _| Err(TchError::Torch("on purpose".into())));
            let said = failed.err().unwrap().to_string();
            assert!(said.contains("on purpose"), "{said}");
        } else {
            learner.cross_entropy(&batch, &weights(&batch)).unwrap();
            // Given up between its two halves.
            drop(learner.forward(&batch).unwrap());
        }
        learner.keep_pace(None, &[PassKind::Training; 2]).unwrap();
        assert!(learner.can_hear_why());
        // They tell each other, give up, and go on with another step.
        learner.discard_gradients().unwrap();
        add(&mut learner, ranks.rank());
        learner.step_together(&ranks).unwrap().gradient_norm
    });
    let expected = mixture_alone("qwen3_moe", &[0, 1]);
    for norm in norms {
        assert!((norm / expected - 1.0).abs() < FLOAT_SUMS, "{norm} {expected}");
    }
}

/// One lets go of its data group, as one does that cannot go on.
#[test]
fn owners_hear_at_once_of_one_that_leaves_a_pass() {
    let took = ranks(2, |ranks, data| {
        let mut learner = Learner::fully_sharded(mixture().into(), owning(), data).unwrap();
        if ranks.rank() == 1 {
            drop(learner);
            // Its process lives, and so does its other group.
            ranks.sentences("it could not go on").unwrap();
            return Duration::ZERO;
        }
        let started = Instant::now();
        let batch = batch(0);
        let failed = learner.accumulate(&batch, |_, _| unreachable!("no layer is whole"));
        assert!(matches!(failed, Err(RankError::Collective(_))), "{:?}", failed.err());
        learner.keep_pace(None, &[PassKind::Training; 2]).unwrap();
        assert!(learner.can_hear_why(), "nobody was silent");
        let told = ranks.sentences("").unwrap();
        assert_eq!(told[1], "it could not go on");
        started.elapsed()
    });
    assert!(took[0] < PATIENT / 4, "{took:?}");
}

#[test]
fn experts_are_shown_whole_and_are_away_between_passes() {
    let shown = ranks(2, |ranks, data| {
        let mut learner = Learner::fully_sharded(mixture().into(), owning(), data).unwrap();
        add(&mut learner, ranks.rank());
        let is_away = |learner: &Learner| {
            let known = learner.model.layout.iter().zip(&learner.model.parameters);
            known.into_iter().all(|(known, parameter)| {
                parameter.size() == known.shape && parameter.isnan().all().int64_value(&[]) == 1
            })
        };
        assert!(is_away(&learner));
        let mut all = Vec::new();
        let show = |_: std::ops::Range<usize>, weights: &[Tensor]| {
            all.extend(weights.iter().map(Tensor::copy));
            Ok::<(), RankError>(())
        };
        learner.each_unit(show).unwrap();
        assert!(is_away(&learner));
        all
    });
    for weights in shown {
        assert!(weights.iter().zip(&mixture().parameters).all(|(found, own)| found.equal(own)));
    }
}

#[test]
fn experts_that_ranks_cannot_own_in_equal_numbers_are_refused_by_all_of_them() {
    let said = ranks(3, |_, data| {
        let failed = Learner::fully_sharded(mixture().into(), owning(), data);
        matches!(failed.err(), Some(StartError::IndivisibleExperts { experts: 4, ranks: 3 }))
    });
    assert_eq!(said, [true; 3]);
}
