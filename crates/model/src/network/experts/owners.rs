//! Rows of tokens at the ranks that own the experts.
//!
//! ```text
//! sorted by expert        rank 0's experts | rank 1's experts       of each rank
//! counts                  all-to-all: an owner hears how many rows each rank has for each of its experts
//! rows there              all-to-all -> by rank and expert -> sorted by expert: blocks of all ranks
//! rows back               the other way round, and in a backward pass both again
//! ```
//! The owner's blocks are those of one process with all tokens, so its gradients are whole.

use std::ops::Range;

use tch::{Kind, TchError, Tensor};

use scalerl_torch::collective::{Parcels, ProcessGroup};
use scalerl_torch::ops::reorder;

/// Everybody's rows for the own experts, and how they go back.
pub(super) struct Guests<'a> {
    owners: &'a ProcessGroup,
    /// Sorted by expert.
    pub(super) rows: Tensor,
    /// Rows of each own expert.
    pub(super) tokens: Tensor,
    /// From the order in which they came to that of experts, and back.
    order: Tensor,
    inverse: Tensor,
    parcels: Parcels,
}

impl<'a> Guests<'a> {
    /// Sends rows that are sorted by expert, `tokens` of each, to the owners.
    pub(super) fn of(
        owners: &'a ProcessGroup,
        rows: &Tensor,
        tokens: &Tensor,
    ) -> Result<Self, TchError> {
        let (ranks, experts) = (owners.size() as i64, tokens.size()[0]);
        let own = experts / ranks;
        let equal = Parcels { sent: vec![own; owners.size()], received: vec![own; owners.size()] };
        // [rank it comes from, own expert]
        let coming = owners.exchange(tokens, &equal)?.f_view([ranks, own])?;
        let by_rank = |counts: &Tensor| {
            Vec::<i64>::try_from(counts.f_view([ranks, own])?.f_sum_dim_intlist(
                1,
                false,
                Kind::Int64,
            )?)
        };
        let parcels = Parcels { sent: by_rank(tokens)?, received: by_rank(&coming)? };
        let arrived = owners.exchange(rows, &parcels)?;
        let expert = Tensor::f_arange(own, (Kind::Int64, rows.device()))?.f_repeat([ranks])?;
        let expert =
            expert.f_repeat_interleave_self_tensor(&coming.f_view(-1)?, None, arrived.size()[0])?;
        let (_, order) = expert.f_sort_stable(true, 0, false)?;
        let inverse = order.f_argsort(0, false)?;
        let rows = reorder(&arrived, &order, &inverse, (None, None))?;
        let tokens = coming.f_sum_dim_intlist(0, false, Kind::Int64)?;
        Ok(Self { owners, rows, tokens, order, inverse, parcels })
    }

    /// Which of the layer's experts are this rank's.
    pub(super) fn own_experts(&self) -> Range<i64> {
        let (own, rank) = (self.tokens.size()[0], self.owners.rank() as i64);
        own * rank..own * (rank + 1)
    }

    /// What the experts have made of the rows goes back, to where each came from.
    pub(super) fn send_back(&self, out: &Tensor) -> Result<Tensor, TchError> {
        let out = reorder(out, &self.inverse, &self.order, (None, None))?;
        self.owners.exchange(&out, &self.parcels.returned())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use scalerl_torch::collective::{Store, Transport};
    use tch::Device;

    use super::super::super::projection::Projection;
    use super::super::Experts;
    use super::*;
    use crate::config::Gate;

    const SOON: Duration = Duration::from_secs(30);
    const FLOAT: (Kind, Device) = (Kind::Float, Device::Cpu);
    /// float32 sums in another order.
    const SUMS: f64 = 1e-5;

    /// Router, gate and up, down: of four experts.
    fn weights() -> [Tensor; 3] {
        [
            Tensor::randn([4, 8], FLOAT),
            Tensor::randn([4, 12, 8], FLOAT),
            Tensor::randn([4, 8, 6], FLOAT),
        ]
    }

    /// The layer with its own leaves, of these experts.
    fn layer([router, gate_up, down]: &[Tensor; 3], own: Range<i64>, gate: Gate) -> Experts {
        let some = |all: &Tensor| all.narrow(0, own.start, own.end - own.start);
        let leaf = |weight: Tensor| weight.copy().set_requires_grad(true);
        let projection = |weight| Projection { weight: leaf(weight), bias: None, adapter: None };
        Experts {
            router_ed: leaf(router.shallow_clone()),
            gate_up: projection(some(gate_up)),
            down: projection(some(down)),
            active: 2,
            gate,
        }
    }

    /// Output, and gradients of the tokens, the router and the experts.
    fn both_ways(experts: &Experts, x: &Tensor, owners: Option<&ProcessGroup>) -> [Tensor; 5] {
        let x = x.copy().set_requires_grad(true);
        let (out, _) = experts.forward(&x, owners).unwrap();
        let ramp = Tensor::arange(out.numel() as i64, FLOAT).view_as(&out).sin();
        (&out * ramp).sum(Kind::Float).backward();
        let grad = |leaf: &Tensor| {
            let grad = leaf.grad();
            if grad.defined() { grad } else { leaf.zeros_like() }
        };
        let leaves = [&x, &experts.router_ed, &experts.gate_up.weight, &experts.down.weight];
        let [dx, router, gate_up, down] = leaves.map(grad);
        [out.detach(), dx, router, gate_up, down]
    }

    fn is_close(found: &Tensor, expected: &Tensor) -> bool {
        found.allclose(expected, SUMS, SUMS, false)
    }

    /// What owners come to, rank by rank, beside what each rank comes to that has all experts.
    fn compare(lengths: &[i64], seed: i64, gate: Gate) {
        tch::manual_seed(seed);
        let weights = weights();
        let xs: Vec<Tensor> = lengths.iter().map(|n| Tensor::randn([*n, 8], FLOAT)).collect();
        let alone = |x: &Tensor| both_ways(&layer(&weights, 0..4, gate), x, None);
        let expected: Vec<Option<[Tensor; 5]>> =
            xs.iter().map(|x| (x.size()[0] > 0).then(|| alone(x))).collect();
        let size = xs.len();
        let server = Store::listen("127.0.0.1", 0, None, SOON).unwrap();
        let port = server.server().port();
        let threads: Vec<_> = xs
            .into_iter()
            .enumerate()
            .map(|(rank, x)| {
                let weights = weights.each_ref().map(Tensor::copy);
                std::thread::spawn(move || {
                    let store = Store::connect("127.0.0.1", port, None, SOON).unwrap();
                    let place = (rank, size);
                    let group =
                        ProcessGroup::form(&store, "test", place, Transport::Gloo, SOON).unwrap();
                    let each = 4 / size as i64;
                    let own = each * rank as i64..each * (rank as i64 + 1);
                    let experts = layer(&weights, own, gate);
                    if x.size()[0] > 0 {
                        return both_ways(&experts, &x, Some(&group));
                    }
                    experts.serve(&group, true).unwrap();
                    let [out, dx] = [(); 2].map(|()| Tensor::zeros([0, 8], FLOAT));
                    let grads = [&experts.gate_up.weight, &experts.down.weight].map(Tensor::grad);
                    let [gate_up, down] = grads;
                    [out, dx, experts.router_ed.zeros_like(), gate_up, down]
                })
            })
            .collect();
        let found: Vec<[Tensor; 5]> =
            threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        for (found, expected) in found.iter().zip(&expected) {
            let Some(expected) = expected else { continue };
            for (found, expected) in found[..3].iter().zip(&expected[..3]) {
                assert!(is_close(found, expected), "a rank's tokens: {found} {expected}");
            }
        }
        for which in 3..5 {
            let whole: Vec<Tensor> = found.iter().map(|all| all[which].shallow_clone()).collect();
            let sum = expected.iter().flatten().map(|all| all[which].shallow_clone());
            let sum = sum.reduce(|a, b| a + b).unwrap();
            assert!(is_close(&Tensor::cat(&whole, 0), &sum), "gradients of experts {which}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// Outputs and gradients of experts that are owned are those of ranks that have all of them,
        /// whoever has how many tokens; the gradients of experts are sums over ranks.
        #[test]
        fn owners_compute_what_ranks_with_all_experts_compute(
            size in 0_usize..3, lengths in prop::array::uniform4(0_i64..9), seed in 0_i64..1000,
        ) {
            let mut lengths = lengths[..[1, 2, 4][size]].to_vec();
            // Somebody has tokens.
            lengths[0] = lengths[0].max(1);
            compare(&lengths, seed, Gate::SoftmaxNormalised);
            compare(&lengths, seed, Gate::SigmoidInput);
        }
    }
}
