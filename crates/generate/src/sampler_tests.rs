//! Drawn frequencies against the distribution, loops against plain Rust.

use tch::{Device, Kind};

use super::*;

const DRAWS: usize = 40_000;

fn logits(v: i64, seed: i64) -> Tensor {
    tch::manual_seed(seed);
    Tensor::randn([1, v], (Kind::Float, Device::Cpu)) * 2.0
}

/// The distribution of a row after temperature, top-k and top-p, by sorting all of it.
fn distribution(logits: &[f32], sampling: Sampling) -> Vec<f64> {
    let scaled: Vec<f64> = logits.iter().map(|x| f64::from(*x) / sampling.temperature).collect();
    let mut order: Vec<usize> = (0..scaled.len()).collect();
    order.sort_by(|&a, &b| scaled[b].total_cmp(&scaled[a]));
    if sampling.top_k > 0 {
        order.truncate(sampling.top_k);
    }
    let mass = |kept: &[usize]| kept.iter().map(|&i| scaled[i].exp()).sum::<f64>();
    let all = mass(&order);
    let enough =
        (1..=order.len()).find(|&n| mass(&order[..n]) >= sampling.top_p * all * (1.0 - 1e-9));
    order.truncate(enough.unwrap_or(order.len()));
    let total = mass(&order);
    let mut out = vec![0.0; scaled.len()];
    for i in order {
        out[i] = scaled[i].exp() / total;
    }
    out
}

fn draws_of(logits: &Tensor, sampling: Sampling, count: usize) -> Vec<(i64, f32)> {
    let rows: Vec<RowSampling> = (0..count)
        .map(|i| RowSampling { sampling, seed: 11 + i as u64 % 16, place: i / 16 })
        .collect();
    draw(&logits.expand([count as i64, -1], false).contiguous(), &rows).unwrap()
}

#[test]
fn drawn_frequencies_match_the_distribution_with_every_filter() {
    let settings = [
        (1.0, 1.0, 0),
        (0.6, 1.0, 0),
        (1.7, 1.0, 0),
        (1.0, 0.7, 0),
        (1.0, 1.0, 5),
        (0.8, 0.8, 9),
        (1.0, 0.01, 0),
    ];
    for (case, (temperature, top_p, top_k)) in settings.into_iter().enumerate() {
        let sampling = Sampling { temperature, top_p, top_k };
        let logits = logits(23, case as i64);
        let expected = distribution(loops::rows(&logits).next().unwrap(), sampling);
        let mut counts = vec![0.0; expected.len()];
        for (id, logprob) in draws_of(&logits, sampling, DRAWS) {
            let p = expected[id as usize];
            assert!(p > 0.0, "{sampling:?} drew a token that is left out");
            assert!((f64::from(logprob) - p.ln()).abs() < 1e-5, "{sampling:?}: {logprob}");
            counts[id as usize] += 1.0;
        }
        let cells = expected.iter().filter(|p| **p > 0.0).count();
        let chi_square: f64 = expected
            .iter()
            .zip(&counts)
            .filter(|(p, _)| **p > 0.0)
            .map(|(p, count)| (count - p * DRAWS as f64).powi(2) / (p * DRAWS as f64))
            .sum();
        // Mean and variance of chi-square are its degrees of freedom and twice that; 4 sigma.
        let freedom = (cells - 1) as f64;
        assert!(
            chi_square <= freedom + 4.0 * (2.0 * freedom).sqrt() + 1e-9,
            "{sampling:?}: {chi_square}"
        );
    }
}

#[test]
fn the_loop_draws_what_plain_rust_draws() {
    for v in [1, 7, 1024, 1025, 5000] {
        let row = logits(v, v);
        let row = loops::rows(&row).next().unwrap().to_vec();
        let tensor = Tensor::from_slice(&row).view([1, v]);
        let sampling = Sampling { temperature: 0.9, ..Sampling::default() };
        for (i, (id, _)) in draws_of(&tensor, sampling, 200).into_iter().enumerate() {
            let keys = noise::keys(11 + i as u64 % 16, i / 16);
            let logit = |at: usize| f64::from(row[at]) / 0.9;
            let mut masses = std::collections::BTreeMap::<u32, f64>::new();
            for at in 0..row.len() {
                *masses.entry(noise::group(at as u32)).or_default() += logit(at).exp();
            }
            let group_score = |group: u32| masses[&group].ln() + noise::gumbel(group, keys);
            let best = masses.keys().map(|group| group_score(*group)).fold(f64::MIN, f64::max);
            let group = noise::group(id as u32);
            // float32 noise may turn a tie of the sixth digit.
            assert!(best - group_score(group) < 1e-5, "v {v}, draw {i}");
            let score = |at: usize| logit(at) + noise::gumbel(at as u32, keys);
            let members = (0..row.len()).filter(|at| noise::group(*at as u32) == group);
            let best = members.map(score).fold(f64::MIN, f64::max);
            assert!(best - score(id as usize) < 1e-5, "v {v}, draw {i}");
        }
    }
}

#[test]
fn candidates_of_one_group_and_of_others_are_drawn_by_their_own_share() {
    // Two neighbours and one a stride on are of one group; the others are of groups of their own.
    let places: [(i64, f32); 7] =
        [(0, 1.0), (1, 0.3), (3075, 0.8), (4, 1.2), (1023, -0.5), (4096, 0.1), (4199, 0.9)];
    let logits = Tensor::full([1, 4200], -40.0, (Kind::Float, Device::Cpu));
    for (at, logit) in places {
        let _ = logits.narrow(1, at, 1).fill_(f64::from(logit));
    }
    assert_eq!(noise::group(0), noise::group(3075));
    let total: f64 = places.iter().map(|(_, logit)| f64::from(*logit).exp()).sum();
    let drawn = draws_of(&logits, Sampling::default(), DRAWS / 4);
    let mut chi_square = 0.0;
    for (at, logit) in places {
        let expected = f64::from(logit).exp() / total * drawn.len() as f64;
        let count = drawn.iter().filter(|(id, _)| *id == at).count() as f64;
        chi_square += (count - expected).powi(2) / expected;
    }
    // Six degrees of freedom: beyond 27.9 once in ten thousand times.
    assert!(chi_square < 27.9, "{chi_square}");
}

#[test]
fn greedy_takes_the_top_and_reports_its_log_prob_at_temperature_one() {
    let logits = logits(300, 5);
    let (id, logprob) = draws_of(&logits, super::super::request::GREEDY, 1)[0];
    assert_eq!(id, logits.argmax(-1, false).int64_value(&[0]));
    let expected = logits.log_softmax(-1, Kind::Float).max().double_value(&[]);
    assert!((f64::from(logprob) - expected).abs() < 1e-5);
}
