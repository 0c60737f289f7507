//! The short form of `examples/fuzz.rs`: broken logs must give errors, never panics.

use scalerl_ingest::read_bytes;

#[path = "../fuzz/mutate.rs"]
mod mutate;

/// Enough to reach every branch of the mutator; the long run is the example's.
const INPUTS: usize = 3_000;

#[test]
fn no_reader_panics_on_broken_logs() {
    for target in mutate::targets() {
        let mut rng = mutate::Rng(7);
        let mut read = 0;
        for _ in 0..INPUTS {
            let (bytes, request) = mutate::input(&target, &mut rng);
            read += usize::from(read_bytes("fuzz", &bytes, &request).is_ok());
        }
        // A mutator that breaks everything at the door tests nothing behind it.
        assert!(read > INPUTS / 50, "{}: only {read} of {INPUTS} inputs were read", target.name);
    }
}
