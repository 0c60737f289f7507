use tch::Device;

use proptest::prelude::*;

use super::reference::{Number, chances, divisor, neighbours, rounded_by_chance, stepped};
use super::*;
use scalerl_torch::shim;

#[test]
fn the_rate_rises_linearly_and_stays() {
    let config = AdamWConfig { lr: 1.0, warmup_steps: 4, ..AdamWConfig::default() };
    let rates: Vec<f64> = (0..6).map(|step| config.rate(step)).collect();
    assert_eq!(rates, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
    let falling = AdamWConfig { warmup_steps: 0, decay_steps: 2, ..config };
    let rates: Vec<f64> = (0..4).map(|step| falling.rate(step)).collect();
    assert!((rates[1] - 0.55).abs() < 1e-12 && (rates[3] - 0.1).abs() < 1e-12, "{rates:?}");
    let none = AdamWConfig { warmup_steps: 0, ..config };
    assert!((none.rate(0) - 1.0).abs() < f64::EPSILON);
}

/// The formula in float64, with clipping, against both ways of the CPU.
#[test]
fn a_step_is_the_formula_whatever_gradients_and_moments_are_kept_in() {
    for (moments, gradients) in
        [KeptIn::Float32, KeptIn::BFloat16].into_iter().flat_map(|moments| {
            [KeptIn::Float32, KeptIn::BFloat16].map(|gradients| (moments, gradients))
        })
    {
        let config = AdamWConfig {
            lr: 0.1,
            epsilon: 1e-8,
            weight_decay: 0.3,
            max_gradient_norm: 2.0,
            moments,
            seed: 5,
            ..AdamWConfig::default()
        };
        let mut numbers = [0.5, -1.5, 2.0].map(|master| Number { master, first: 0.0, second: 0.0 });
        let parameter = Tensor::from_slice(&[0.5_f32, -1.5, 2.0]);
        let rounded = [parameter.to_kind(Kind::BFloat16)];
        let list = [parameter.shallow_clone()];
        let mut optimizer = AdamW::new(&list, config).unwrap();
        for step in 1..=5_u64 {
            let g: Vec<f64> = (0..3).map(|i| (i * step) as f64 - 2.0).collect();
            let grad = Tensor::from_slice(&g).to_kind(gradients.kind());
            let norm = optimizer.step(&list, &[grad], Some(&rounded), 0.1).unwrap();
            let expected = g.iter().map(|g| g * g).sum::<f64>().sqrt();
            assert!((norm / expected - 1.0).abs() < 1e-6);
            for (i, number) in numbers.iter_mut().enumerate() {
                *number = stepped(&config, *number, g[i], divisor(&config, expected), step);
                if moments == KeptIn::BFloat16 {
                    let [first, second] = chances(&config, step, i as u64);
                    number.first = rounded_by_chance(number.first as f32, first).into();
                    number.second = rounded_by_chance(number.second as f32, second).into();
                }
            }
        }
        let got = Vec::<f64>::try_from(parameter.to_kind(Kind::Double)).unwrap();
        for (got, expected) in got.iter().zip(numbers) {
            assert!((got - expected.master).abs() < 1e-5, "{got} {expected:?} {config:?}");
        }
        assert_eq!(rounded[0], parameter.to_kind(Kind::BFloat16));
        assert_eq!(optimizer.first[0].kind(), moments.kind());
    }
}

proptest! {
    /// The mean over all chances is the number itself, and what bf16 can say is left alone.
    #[test]
    fn rounding_by_chance_is_right_in_the_mean(x in -1e30_f32..1e30) {
        let ([below, above], share) = neighbours(x);
        let ups = (0..65536).filter(|chance| rounded_by_chance(x, *chance).to_bits() == above.to_bits());
        prop_assert!((ups.count() as f64 / 65536.0 - share).abs() < 1e-9);
        let mean = f64::from(below) + (f64::from(above) - f64::from(below)) * share;
        prop_assert!((mean - f64::from(x)).abs() <= 1e-6 * f64::from(x).abs());
        prop_assert_eq!(rounded_by_chance(below, 65535).to_bits(), below.to_bits());
    }

    /// The loop's chances are those of the reference, for any place and seed.
    #[test]
    fn the_loop_rounds_as_the_reference(g in prop::collection::vec(-3.0_f32..3.0, 1..40), seed: u64, place in 0_i64..1 << 40) {
        let config = AdamWConfig { moments: KeptIn::BFloat16, seed, max_gradient_norm: 0.0, ..AdamWConfig::default() };
        let list = [Tensor::zeros([g.len() as i64], (Kind::Float, Device::Cpu))];
        let mut optimizer = AdamW::new(&list, config).unwrap();
        optimizer.places = vec![place];
        let _ = optimizer.step(&list, &[Tensor::from_slice(&g)], None, 0.1).unwrap();
        let got = Vec::<f32>::try_from(optimizer.first[0].to_kind(Kind::Float)).unwrap();
        for (i, (got, g)) in got.iter().zip(&g).enumerate() {
            let exact = (1.0 - 0.9_f32) * g;
            let [chance, _] = chances(&config, 1, (place + i as i64) as u64);
            let one_off = [-1_i32, 0, 1].map(|off| {
                rounded_by_chance(f32::from_bits(exact.to_bits().wrapping_add_signed(off)), chance)
            });
            prop_assert!(one_off.contains(got), "{} {} {:?}", g, got, one_off);
        }
    }
}

/// The mean of gradients that change little from step to step: rounded to the nearest it would stand
/// still, rounded by chance it follows.
#[test]
fn moments_in_bf16_follow_those_in_float32() {
    const COUNT: i64 = 4096;
    let config = AdamWConfig {
        lr: 1e-3,
        beta2: 0.999,
        epsilon: 1e-8,
        max_gradient_norm: 0.0,
        ..AdamWConfig::default()
    };
    let train = |moments: KeptIn| {
        let list = [Tensor::ones([COUNT], (Kind::Float, Device::Cpu))];
        let mut optimizer = AdamW::new(&list, AdamWConfig { moments, ..config }).unwrap();
        let target = Tensor::arange(COUNT, (Kind::Float, Device::Cpu)).sin();
        for _ in 0..400 {
            let grad = &list[0] - &target;
            let _ = optimizer.step(&list, &[grad], None, 1e-3).unwrap();
        }
        let second = optimizer.second[0].to_kind(Kind::Double).mean(Kind::Double);
        let [master] = list;
        (master.to_kind(Kind::Double), second.double_value(&[]))
    };
    let ((wide, wide_second), (narrow, narrow_second)) =
        (train(KeptIn::Float32), train(KeptIn::BFloat16));
    let apart = (&wide - &narrow).abs().mean(Kind::Double).double_value(&[]);
    let moved = (&wide - 1.0).abs().mean(Kind::Double).double_value(&[]);
    assert!(apart < 0.01 * moved, "{apart} of {moved}");
    assert!((narrow_second / wide_second - 1.0).abs() < 0.01, "{narrow_second} {wide_second}");
}

#[test]
fn the_norm_of_many_numbers_is_as_exact_as_that_of_few() {
    let many = Tensor::full([1 << 22], 0.1, (Kind::Float, Device::Cpu));
    let norm = shim::global_norm(&[many.shallow_clone(), many]).unwrap().double_value(&[]);
    let expected = f64::from(0.1_f32) * f64::from(1 << 23).sqrt();
    assert!((norm / expected - 1.0).abs() < 1e-6, "{norm} {expected}");
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    let parameter = Tensor::from_slice(&[1.0_f32, 2.0]);
    let list = [parameter.shallow_clone()];
    let mut optimizer = AdamW::new(&list, AdamWConfig::default()).unwrap();
    let grad = Tensor::from_slice(&[f32::NAN, 1.0]);
    let norm = optimizer.step(&list, &[grad], None, 0.1).unwrap();
    assert!(!norm.is_finite());
    assert_eq!(Vec::<f32>::try_from(&parameter).unwrap(), [1.0, 2.0]);
    assert_eq!(optimizer.first[0].abs().max(), Tensor::from(0.0_f32));
    assert!(optimizer.steps[0].double_value(&[]).abs() < f64::EPSILON);
    assert_eq!(optimizer.first[0].device(), Device::Cpu);
}
