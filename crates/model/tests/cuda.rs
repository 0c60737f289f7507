//! The optimizer on CUDA: one launch over many tensors against the formula in plain numbers.
//!
//! Without a CUDA device every test says that it skipped. On a GPU machine: scripts/h200/check.sh.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use scalerl_model::bench::Shape;
use scalerl_model::folder::Model;
use scalerl_model::network::Activations;
use scalerl_model::train::adamw::reference::{
    Number, chances, divisor, rounded_by_chance, stepped,
};
use scalerl_model::train::{AdamW, AdamWConfig, KeptIn, Learner, LearnerOptions, TrainingBatch};
use scalerl_torch::tch::{Device, Kind, Tensor};
use scalerl_torch::{cuda, device};

#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn device_or_skip(test: &str) -> Option<Device> {
    if device::open().cuda_devices == 0 {
        let is_required = std::env::var_os("SCALERL_REQUIRE_CUDA").is_some();
        assert!(!is_required, "{test}: SCALERL_REQUIRE_CUDA is set and there is no CUDA device");
        println!("{test} skipped: no CUDA device");
        return None;
    }
    let on = Device::Cuda(0);
    assert!(cuda::is_ready(on), "{:?}", cuda::why_not_ready(on));
    Some(on)
}

/// One number, several blocks, rests after eights.
const SIZES: [i64; 5] = [1, 40_003, 16_384, 7, 5_000];

/// Tensors of SIZES: every other one stands in a row, off any boundary, as those of ranks do.
fn row(kind: Kind, on: Device, fill: impl Fn(&Tensor) -> Tensor) -> Vec<Tensor> {
    let total: i64 = SIZES.iter().sum();
    let ramp = Tensor::arange(total + 1, (Kind::Double, Device::Cpu));
    let whole = fill(&ramp).to_kind(kind).to_device(on);
    let mut from = 1;
    let cut = |&size: &i64| {
        from += size;
        whole.narrow(0, from - size, size)
    };
    let cut: Vec<Tensor> = SIZES.iter().map(cut).collect();
    let own = |(index, x): (usize, Tensor)| if index % 2 == 1 { x.copy() } else { x };
    cut.into_iter().enumerate().map(own).collect()
}

fn numbers(tensors: &[Tensor]) -> Vec<f64> {
    let flat: Vec<Tensor> =
        tensors.iter().map(|x| x.to_device(Device::Cpu).to_kind(Kind::Double)).collect();
    Vec::try_from(Tensor::cat(&flat, 0)).unwrap()
}

const KINDS: [KeptIn; 2] = [KeptIn::Float32, KeptIn::BFloat16];

#[test]
fn a_step_is_the_formula_for_every_number() {
    let Some(on) = device_or_skip("optimizer") else { return };
    for (moments, gradients) in KINDS.into_iter().flat_map(|m| KINDS.map(|g| (m, g))) {
        let config = AdamWConfig {
            lr: 0.01,
            epsilon: 1e-8,
            weight_decay: 0.1,
            max_gradient_norm: 3.0,
            moments,
            seed: 9,
            ..AdamWConfig::default()
        };
        let masters = row(Kind::Float, on, |x| (x * 0.7).sin());
        let rounded = row(Kind::BFloat16, on, |x| x * 0.0);
        let mut optimizer = AdamW::new(&masters, config).unwrap();
        // What is kept at each place, as the device has it: rounding is judged step by step.
        let mut kept: Vec<Number> = numbers(&masters)
            .into_iter()
            .map(|master| Number { master, first: 0.0, second: 0.0 })
            .collect();
        for step in 1..=4_u64 {
            let grads = row(gradients.kind(), on, |x| (x * 0.3 + step as f64).cos() * 0.1);
            let norm = optimizer.step(&masters, &grads, Some(&rounded), config.lr).unwrap();
            let g = numbers(&grads);
            let expected = g.iter().map(|g| g * g).sum::<f64>().sqrt();
            assert!((norm / expected - 1.0).abs() < 1e-6, "{norm} {expected}");
            let (first, second) = optimizer.moments();
            let (first, second) = (numbers(first), numbers(second));
            let master = numbers(&masters);
            for (place, number) in kept.iter_mut().enumerate() {
                let right = stepped(&config, *number, g[place], divisor(&config, norm), step);
                let is_near =
                    |got: f64, right: f64| (got - right).abs() <= 2e-6 * right.abs() + 1e-9;
                assert!(
                    is_near(master[place], right.master),
                    "{place}: {} {right:?}",
                    master[place]
                );
                let chances = chances(&config, step, place as u64);
                for (got, right, chance) in [
                    (first[place], right.first, chances[0]),
                    (second[place], right.second, chances[1]),
                ] {
                    let is_right = match moments {
                        KeptIn::Float32 => (got - right).abs() <= 1e-6 * right.abs() + 1e-12,
                        // The last bits of a float32 sum may decide the chance.
                        KeptIn::BFloat16 => [-2e-6, 0.0, 2e-6].iter().any(|off| {
                            let near = rounded_by_chance((right * (1.0 + off)) as f32, chance);
                            near.to_bits() == (got as f32).to_bits()
                        }),
                    };
                    assert!(is_right, "{place}: {got} {right} {moments:?} {gradients:?}");
                }
                *number =
                    Number { master: master[place], first: first[place], second: second[place] };
            }
            let nearest: Vec<Tensor> = masters.iter().map(|x| x.to_kind(Kind::BFloat16)).collect();
            assert_eq!(numbers(&rounded), numbers(&nearest), "the copy is the master, rounded");
        }
    }
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    let Some(on) = device_or_skip("a gradient that is not finite") else { return };
    for bad in [f64::NAN, f64::INFINITY, 1e30] {
        let config = AdamWConfig { moments: KeptIn::BFloat16, ..AdamWConfig::default() };
        let masters = row(Kind::Float, on, |x| (x * 0.7).sin());
        let rounded = row(Kind::BFloat16, on, |x| x * 0.0 + 3.0);
        let before = numbers(&masters);
        let mut optimizer = AdamW::new(&masters, config).unwrap();
        let grads = row(Kind::Float, on, |x| x * 0.0 + 0.5);
        let _ = grads[1].narrow(0, 777, 1).fill_(bad);
        let norm = optimizer.step(&masters, &grads, Some(&rounded), 0.1).unwrap();
        assert!(!norm.is_finite());
        assert_eq!(numbers(&masters), before);
        assert!(numbers(&rounded).iter().all(|x| (x - 3.0).abs() < 1e-9));
        assert!(numbers(optimizer.moments().0).iter().all(|x| x.abs() < 1e-30));
        assert_eq!(optimizer.steps_counted().unwrap(), 0);
    }
}

#[test]
fn a_learner_with_less_memory_takes_the_steps_of_one_with_more() {
    let Some(on) = device_or_skip("a learner with less memory") else { return };
    let shape =
        Shape { layers: 2, width: 128, heads: 4, kv_heads: 2, feed_forward: 256, vocabulary: 512 };
    let train = |moments: KeptIn, gradients: KeptIn| {
        let model = Model::random(shape.config().unwrap(), 3, Kind::Float, on).unwrap();
        let mut options = LearnerOptions::of(on);
        options.activations = Activations::Recompute;
        options.gradients = gradients;
        options.optimizer =
            AdamWConfig { lr: 3e-3, warmup_steps: 0, moments, ..AdamWConfig::default() };
        let mut learner = Learner::new(model, options).unwrap();
        let mut losses = Vec::new();
        for _ in 0..20 {
            let mut loss = 0.0;
            for part in 0..3 {
                let tokens: Vec<i64> = (0..96).map(|i| (i * i + part * 31) % 61).collect();
                let batch = TrainingBatch::all_scored(&[tokens], 512, on).unwrap();
                let weights = Tensor::full([batch.scored() as i64], 1.0 / 285.0, (Kind::Float, on));
                let scores = learner.cross_entropy(&batch, &weights).unwrap();
                loss -= scores.logprob.sum(Kind::Double).double_value(&[]) / 285.0;
            }
            let _ = learner.step().unwrap();
            for (master, computed) in learner.masters().iter().zip(learner.model.trained()) {
                assert_eq!(&master.to_kind(Kind::BFloat16), computed);
            }
            losses.push(loss);
        }
        losses
    };
    let wide = train(KeptIn::Float32, KeptIn::Float32);
    let lean = train(KeptIn::BFloat16, KeptIn::BFloat16);
    assert!(wide[19] < 0.6 * wide[0], "it learns: {wide:?}");
    for (wide, lean) in wide.iter().zip(&lean) {
        assert!((wide - lean).abs() < 0.05 * wide, "{wide} {lean}");
    }
}
