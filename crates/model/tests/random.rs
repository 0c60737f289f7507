//! Random models on several threads. Alone in its process, because libtorch's generator is one for
//! all threads and other tests draw from it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use scalerl_model::bench::Shape;
use scalerl_model::folder::Model;
use scalerl_torch::tch::{Device, Kind, Tensor};

fn draw(seed: i64) -> Vec<Tensor> {
    let shape =
        Shape { layers: 1, width: 32, heads: 4, kv_heads: 2, feed_forward: 64, vocabulary: 99 };
    Model::random(shape.config().unwrap(), seed, Kind::Float, Device::Cpu).unwrap().parameters
}

#[test]
fn models_drawn_at_once_get_the_numbers_of_their_own_seeds() {
    let expected: Vec<Vec<Tensor>> = (0..4).map(draw).collect();
    for _ in 0..20 {
        let threads: Vec<_> = (0..4).map(|seed| std::thread::spawn(move || draw(seed))).collect();
        for (thread, expected) in threads.into_iter().zip(&expected) {
            assert_eq!(&thread.join().unwrap(), expected);
        }
    }
}
