//! Groups among threads of one process.

use super::*;

const SOON: Duration = Duration::from_secs(10);

/// Runs `act` as every rank of a group, each on a thread; returns what each said.
fn ranks<T: Send + 'static>(size: usize, act: fn(ProcessGroup) -> T) -> Vec<T> {
    let server = Store::listen("127.0.0.1", 0, None, SOON).unwrap();
    let port = server.server().port();
    let threads: Vec<_> = (0..size)
        .map(|rank| {
            std::thread::spawn(move || {
                let store = Store::connect("127.0.0.1", port, None, SOON).unwrap();
                let place = (rank, size);
                act(ProcessGroup::form(&store, "test", place, Transport::Gloo, SOON).unwrap())
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor).unwrap()
}

#[test]
fn operations_do_what_their_names_say_with_any_number_of_ranks() {
    for size in 1..=3 {
        let total = (1..=size).sum::<usize>() as f32;
        let everybody = ranks(size, |group| {
            let (rank, size) = (group.rank(), group.size() as i64);
            let own = Tensor::from_slice(&[rank as f32 + 1.0]);
            let sum = own.copy();
            group.all_reduce(&sum, Reduce::Sum).unwrap();
            let most = own.copy();
            group.all_reduce(&most, Reduce::Max).unwrap();
            let all = Tensor::zeros([size], tch::kind::FLOAT_CPU);
            group.all_gather(&all, &own).unwrap();
            let part = Tensor::zeros([1], tch::kind::FLOAT_CPU);
            group.reduce_scatter(&part, &(&all * (rank as f64 + 1.0))).unwrap();
            let told = [own.copy(), &own * 10.0];
            group.broadcast(&told, group.size() - 1).unwrap();
            let lists: Vec<Tensor> =
                if rank == 0 { (0..size).map(|_| part.zeros_like()).collect() } else { vec![] };
            group.gather(&lists, &own).unwrap();
            let back = own.zeros_like();
            let doubled: Vec<Tensor> = lists.iter().map(|tensor| tensor * 2.0).collect();
            group.scatter(&back, &doubled).unwrap();
            group.barrier().unwrap();
            [sum, most, all, part, told[1].copy(), back].map(|tensor| numbers(&tensor))
        });
        for (rank, [sum, most, all, part, told, back]) in everybody.into_iter().enumerate() {
            let own = rank as f32 + 1.0;
            assert_eq!((sum, most), (vec![total], vec![size as f32]));
            assert_eq!(all, (1..=size).map(|rank| rank as f32).collect::<Vec<_>>());
            assert_eq!((part, told), (vec![own * total], vec![size as f32 * 10.0]));
            assert_eq!(back, [own * 2.0]);
        }
    }
}

#[test]
fn operations_under_way_come_to_what_those_that_are_waited_for_do() {
    for size in 1..=3 {
        let everybody = ranks(size, |group| {
            let (rank, size) = (group.rank() as f64, group.size() as i64);
            let own = Tensor::from_slice(&[rank as f32 + 1.0, 0.5]);
            let ramp = Tensor::arange(2 * size, tch::kind::FLOAT_CPU) * (rank + 1.0);
            let [all, waited] = [(); 2].map(|()| Tensor::zeros([2 * size], tch::kind::FLOAT_CPU));
            let [part, summed] = [(); 2].map(|()| Tensor::zeros([2], tch::kind::FLOAT_CPU));
            group.all_gather(&waited, &own).unwrap();
            group.reduce_scatter(&summed, &ramp.copy()).unwrap();
            // Both at once, and seen through in the other order.
            let gathering = group.start_all_gather(&all, &own).unwrap();
            let scattering = group.start_reduce_scatter(&part, &ramp).unwrap();
            group.finish(scattering).unwrap();
            group.finish(gathering).unwrap();
            (numbers(&all), numbers(&waited), numbers(&part), numbers(&summed))
        });
        for (all, waited, part, summed) in everybody {
            assert_eq!((all, part), (waited, summed));
        }
    }
}

#[test]
fn an_operation_under_way_is_late_by_the_deadline_that_began_with_it() {
    let said = ranks(2, |mut group| {
        if group.rank() == 1 {
            std::thread::sleep(Duration::from_millis(1200));
            return None;
        }
        group.set_timeout(Duration::from_millis(600));
        let own = Tensor::zeros([1], tch::kind::FLOAT_CPU);
        let all = Tensor::zeros([2], tch::kind::FLOAT_CPU);
        let begun = std::time::Instant::now();
        let gathering = group.start_all_gather(&all, &own).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let late = group.finish(gathering).unwrap_err();
        Some((late, begun.elapsed()))
    });
    let (late, took) = said[0].clone().unwrap();
    assert!(matches!(late, CollectiveError::Late { .. }), "{late}");
    assert!(late.to_string().starts_with("all-gather in group"), "{late}");
    assert!(took < Duration::from_millis(1100), "{took:?}");
}

#[test]
fn a_rank_that_does_not_take_part_is_an_error_in_time_and_so_is_one_that_leaves() {
    let said = ranks(2, |mut group| {
        if group.rank() == 1 {
            std::thread::sleep(Duration::from_millis(1200));
            return None;
        }
        group.set_timeout(Duration::from_millis(400));
        let late = group.barrier().unwrap_err();
        group.set_timeout(SOON);
        Some((late, group.barrier().unwrap_err()))
    });
    let (late, gone) = said[0].clone().unwrap();
    assert!(matches!(late, CollectiveError::Late { .. }), "{late}");
    assert!(matches!(gone, CollectiveError::Failed { .. }), "{gone}");
    assert!(gone.to_string().contains("rank 0 of 2"), "{gone}");
}

#[test]
fn a_group_whose_other_half_never_comes_is_an_error_in_time() {
    let store = Store::listen("127.0.0.1", 0, None, SOON).unwrap();
    let soon = Duration::from_millis(500);
    let error = ProcessGroup::form(&store, "half", (0, 2), Transport::Gloo, soon).unwrap_err();
    // Late by its own deadline: the store's, which is longer, would be named otherwise.
    assert!(matches!(error, CollectiveError::Late { .. }), "{error}");
    assert!(error.to_string().contains("within 0.5 s"), "{error}");
}

/// How many rows rank `from` has for rank `to` in a round: none, a few, or everything for one of them.
fn rows_between(round: usize, from: usize, to: usize) -> i64 {
    match round {
        0 => 0,
        1 => i64::from(to == 1) * 5,
        _ => ((from * 31 + to * 17 + round * 7) % 4) as i64,
    }
}

#[test]
fn an_exchange_loses_nothing_and_its_gradients_are_those_of_what_was_sent() {
    for size in 1..=4 {
        let rounds = 6;
        let everybody = ranks(size, |group| {
            let (rank, size) = (group.rank(), group.size());
            let mut said = Vec::new();
            for round in 0..6 {
                let between = |from: usize, to: usize| rows_between(round, from, to);
                let sent: Vec<i64> = (0..size).map(|to| between(rank, to)).collect();
                let received: Vec<i64> = (0..size).map(|from| between(from, rank)).collect();
                // A row says whose it is and for whom, and where it stood.
                let number = |to: usize, place: i64| (100 * rank + 10 * to) as f32 + place as f32;
                let own: Vec<f32> = (0..size)
                    .flat_map(|to| (0..between(rank, to)).map(move |place| number(to, place)))
                    .collect();
                let rows = Tensor::from_slice(&own).unsqueeze(1)
                    * Tensor::ones([1, 3], tch::kind::FLOAT_CPU);
                let rows = rows.set_requires_grad(true);
                let parcels = Parcels { sent, received };
                let there = group.exchange(&rows, &parcels).unwrap();
                let back = group.exchange(&(&there * 2.0), &parcels.returned()).unwrap();
                let is_same = back.equal(&(&rows * 2.0));
                // Σ (2 row)², by whoever has it in the end.
                let loss = (&back * &back).sum(tch::Kind::Float);
                loss.backward();
                let is_gradient = rows.grad().equal(&(rows.detach() * 8.0));
                let heads: Vec<f32> = numbers(&there.detach().narrow(1, 0, 1).flatten(0, -1));
                said.push((is_same, is_gradient, heads));
            }
            assert_eq!(group.record().exchanges(), 6 * 4, "there and back, twice");
            said
        });
        for round in 0..rounds {
            for (to, said) in everybody.iter().enumerate() {
                let (is_same, is_gradient, heads) = &said[round];
                assert!(*is_same && *is_gradient, "{size} {round} {to}");
                let expected: Vec<f32> = (0..size)
                    .flat_map(|from| {
                        (0..rows_between(round, from, to))
                            .map(move |place| (100 * from + 10 * to) as f32 + place as f32)
                    })
                    .collect();
                assert_eq!(*heads, expected, "in the order of ranks");
            }
        }
    }
}

#[test]
fn a_group_that_one_rank_aborts_fails_at_once_for_those_who_wait_for_it() {
    let said = ranks(3, |group| {
        let own = Tensor::zeros([1], tch::kind::FLOAT_CPU);
        let all = Tensor::zeros([3], tch::kind::FLOAT_CPU);
        // One is under way, which all have begun.
        let gathering = group.start_all_gather(&all, &own).unwrap();
        if group.rank() == 1 {
            drop(gathering);
            std::thread::sleep(Duration::from_millis(200));
            group.abort().unwrap();
            let refused = group.barrier().unwrap_err();
            // The others hear of it while this rank lives.
            std::thread::sleep(Duration::from_secs(2));
            return (Duration::ZERO, refused.to_string());
        }
        group.finish(gathering).unwrap();
        let started = std::time::Instant::now();
        let parcels = Parcels { sent: vec![1; 3], received: vec![1; 3] };
        let rows = Tensor::zeros([3, 2], tch::kind::FLOAT_CPU).set_requires_grad(true);
        let error = group.exchange(&rows, &parcels).unwrap_err();
        let failed = matches!(group.record().failure(), Some(CollectiveError::Failed { .. }));
        assert!(failed, "{error}");
        (started.elapsed(), error.to_string())
    });
    for (took, said) in said {
        assert!(took < Duration::from_millis(1500), "{took:?}: {said}");
        assert!(said.contains("in group `test`"), "{said}");
    }
}
