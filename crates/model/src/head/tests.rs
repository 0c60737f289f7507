//! The head against float64 whole logits (torch autograd) and against the scalar reference.

use super::*;

const V: i64 = 301;
const D: i64 = 32;

struct Case {
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    d_logprob: Tensor,
    d_entropy: Tensor,
}

fn case(tokens: i64, kind: Kind) -> Case {
    tch::manual_seed(7);
    let cpu = Device::Cpu;
    Case {
        hidden: Tensor::randn([tokens, D], (Kind::Float, cpu)).to_kind(kind),
        weight: (Tensor::randn([V, D], (Kind::Float, cpu)) * 0.5).to_kind(kind),
        targets: Tensor::randint(V, [tokens], (Kind::Int64, cpu)),
        d_logprob: Tensor::randn([tokens], (Kind::Float, cpu)),
        d_entropy: Tensor::randn([tokens], (Kind::Float, cpu)),
    }
}

fn options(mode: HeadMode, chunk_tokens: i64) -> HeadOptions {
    HeadOptions { mode, temperature: 0.8, chunk_bytes: Some(chunk_tokens * V * 4) }
}

/// Log-probs, entropies and gradients by autograd over whole float64 logits.
fn whole(case: &Case) -> [Tensor; 4] {
    let double = |x: &Tensor| x.to_kind(Kind::Double).detach().copy();
    let hidden = double(&case.hidden).set_requires_grad(true);
    let weight = double(&case.weight).set_requires_grad(true);
    let logprobs = (hidden.mm(&weight.tr()) / 0.8).log_softmax(-1, Kind::Double);
    let logprob = logprobs.gather(1, &case.targets.unsqueeze(1), false).squeeze_dim(1);
    let entropy = -(logprobs.exp() * &logprobs).sum_dim_intlist(-1, false, None);
    let loss = (&logprob * double(&case.d_logprob) + &entropy * double(&case.d_entropy)).sum(None);
    loss.backward();
    [logprob.detach(), entropy.detach(), hidden.grad(), weight.grad()]
}

fn chunked(case: &Case, mode: HeadMode, chunk: i64) -> [Tensor; 4] {
    let head = Head::new(&case.weight, options(mode, chunk)).unwrap();
    let mut grad = Tensor::zeros([V, D], (Kind::Float, Device::Cpu));
    let scores = head.score(&case.hidden, &case.targets).unwrap();
    let gradients = TokenGradients {
        logprob: case.d_logprob.shallow_clone(),
        entropy: Some(case.d_entropy.shallow_clone()),
    };
    let d_hidden =
        head.backward(&case.hidden, &case.targets, &scores, &gradients, Some(&mut grad)).unwrap();
    [scores.logprob, scores.entropy, d_hidden, grad]
}

fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
    (a.to_kind(Kind::Double) - b.to_kind(Kind::Double)).abs().max().double_value(&[])
}

#[test]
fn chunks_of_any_size_give_the_float64_log_probs_and_gradients() {
    let case = case(23, Kind::Float);
    let expected = whole(&case);
    for chunk in [1, 5, 23, 1000] {
        for (got, expected) in chunked(&case, HeadMode::Exact, chunk).iter().zip(&expected) {
            assert!(largest_difference(got, expected) < 5e-5, "chunk {chunk}");
        }
    }
}

#[test]
fn split_is_as_accurate_as_exact_where_bf16_is_not() {
    for kind in [Kind::BFloat16, Kind::Float] {
        let case = case(64, kind);
        let expected = whole(&case);
        let error = |mode| largest_difference(&chunked(&case, mode, 16)[0], &expected[0]);
        let [exact, split, bf16] = [HeadMode::Exact, HeadMode::Split, HeadMode::Bf16].map(error);
        assert!(split < 2.0 * exact + 2e-6, "split {split:e}, exact {exact:e}, {kind:?}");
        assert!(bf16 > 100.0 * exact, "bf16 {bf16:e}, exact {exact:e}, {kind:?}");
    }
}

#[test]
fn the_gradients_of_split_differ_from_float64_by_bf16_rounding_only() {
    let case = case(64, Kind::BFloat16);
    let (expected, got) = (whole(&case), chunked(&case, HeadMode::Split, 16));
    for index in [2, 3] {
        let scale = expected[index].abs().max().double_value(&[]);
        let difference = largest_difference(&got[index], &expected[index]);
        assert!(difference < 0.01 * scale, "{difference} of {scale}");
    }
}

#[test]
fn one_pass_and_two_passes_give_the_same_bits() {
    let case = case(23, Kind::Float);
    let two = chunked(&case, HeadMode::Exact, 6);
    let head = Head::new(&case.weight, options(HeadMode::Exact, 6)).unwrap();
    let mut grad = Tensor::zeros([V, D], (Kind::Float, Device::Cpu));
    let gradient_of = |range: Range<i64>, scores: &TokenScores| {
        assert_eq!(scores.logprob.size()[0], range.end - range.start);
        Ok(TokenGradients {
            logprob: cut(&case.d_logprob, &range)?,
            entropy: Some(cut(&case.d_entropy, &range)?),
        })
    };
    let (scores, d_hidden) =
        head.score_and_backward(&case.hidden, &case.targets, Some(&mut grad), gradient_of).unwrap();
    for (one, two) in [scores.logprob, scores.entropy, d_hidden, grad].iter().zip(&two) {
        assert!(one.equal(two));
    }
}

/// The torch-operation path (used on CUDA) is run here in float64 on the CPU.
#[test]
fn both_paths_and_the_scalar_reference_agree() {
    let case = case(9, Kind::Float);
    let fused = chunked(&case, HeadMode::Exact, 4);
    let weight = case.weight.to_kind(Kind::Double);
    let hidden = case.hidden.to_kind(Kind::Double);
    let head = Head::new(&weight, options(HeadMode::Exact, 4)).unwrap();
    let scores = head.score(&hidden, &case.targets).unwrap();
    let mut grad = Tensor::zeros([V, D], (Kind::Double, Device::Cpu));
    let gradients = TokenGradients {
        logprob: case.d_logprob.shallow_clone(),
        entropy: Some(case.d_entropy.shallow_clone()),
    };
    let d_hidden =
        head.backward(&hidden, &case.targets, &scores, &gradients, Some(&mut grad)).unwrap();
    for (fused, plain) in fused.iter().zip([&scores.logprob, &scores.entropy, &d_hidden, &grad]) {
        assert!(largest_difference(fused, plain) < 5e-5);
    }
    let logits = hidden.mm(&weight.tr());
    let targets = Vec::<i64>::try_from(&case.targets).unwrap();
    for (token, target) in targets.iter().enumerate() {
        let row = Vec::<f64>::try_from(logits.get(token as i64)).unwrap();
        let (logprob, entropy) = reference::score(&row, *target as usize, 0.8);
        let at = [token as i64];
        assert!((scores.logprob.double_value(&at) - logprob).abs() < 1e-9);
        assert!((scores.entropy.double_value(&at) - entropy).abs() < 1e-9);
    }
}

#[test]
fn no_tokens_are_no_error() {
    let case = case(0, Kind::Float);
    let [logprob, _, d_hidden, grad] = chunked(&case, HeadMode::Exact, 4);
    assert_eq!((logprob.numel(), d_hidden.numel()), (0, 0));
    assert!(grad.abs().max().double_value(&[]).abs() < f64::EPSILON);
}
