//! The loop over pages against torch operations, and both against a whole packed sequence.

use std::path::Path;

use super::*;
use scalerl_model::network::PackedAttention;

fn config() -> ModelConfig {
    let value = serde_json::json!({
        "model_type": "llama", "vocab_size": 32, "hidden_size": 48, "intermediate_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
    });
    ModelConfig::from_json(value, Path::new("config.json")).unwrap()
}

fn heads(tokens: i64) -> Heads {
    let make = |heads: i64| Tensor::randn([tokens, heads, 8], (Kind::Float, Device::Cpu));
    Heads { q: make(6), k: make(2), v: make(2) }
}

fn cut(heads: &Heads, from: usize, count: usize) -> Heads {
    let part = |x: &Tensor| x.narrow(0, from as i64, count as i64);
    Heads { q: part(&heads.q), k: part(&heads.k), v: part(&heads.v) }
}

/// Two sequences written in chunks on scattered pages equal the same sequences at once.
#[test]
fn chunks_on_scattered_pages_equal_whole_sequences() {
    tch::manual_seed(2);
    let pages: [Vec<Page>; 2] = [vec![7, 2, 9, 0], vec![4, 8, 1, 3]];
    let lengths = [14_usize, 11];
    let whole = [heads(14), heads(11)];
    let spans = [Span::Full, Span::Chunk(5), Span::Window(5), Span::Window(1)];
    for (span, is_plain) in spans.into_iter().flat_map(|span| [(span, false), (span, true)]) {
        let cache = KvCache::new(&config(), 10, 4, (Kind::Float, Device::Cpu)).unwrap();
        let mut outputs = [Vec::new(), Vec::new()];
        for cuts in [[0..6, 0..1], [6..7, 1..9], [7..14, 9..11]] {
            let ids: Vec<Vec<i64>> = cuts.iter().map(|cut| vec![0; cut.len()]).collect();
            let pieces: Vec<Piece> = (0..2)
                .map(|s| Piece { tokens: &ids[s], from: cuts[s].start, pages: &pages[s] })
                .collect();
            let batch = Batch::new(&pieces, Device::Cpu).unwrap();
            let parts = [0, 1].map(|s| cut(&whole[s], cuts[s].start, cuts[s].len()));
            let join =
                |pick: fn(&Heads) -> &Tensor| Tensor::cat(&[pick(&parts[0]), pick(&parts[1])], 0);
            let joined = Heads { q: join(|h| &h.q), k: join(|h| &h.k), v: join(|h| &h.v) };
            let attention = PagedAttention::new(&cache, &batch);
            let out = if is_plain {
                attention.plain(1, span, &joined).unwrap()
            } else {
                attention.attend(1, span, &joined).unwrap()
            };
            let split = out.split_with_sizes([cuts[0].len() as i64, cuts[1].len() as i64], 0);
            outputs.iter_mut().zip(split).for_each(|(list, part)| list.push(part));
        }
        for s in 0..2 {
            let packed = PackedAttention::new(&[lengths[s] as i64], &[span], Device::Cpu).unwrap();
            let expected = packed.attend(1, span, &whole[s]).unwrap();
            let found = Tensor::cat(&outputs[s], 0);
            assert!(found.allclose(&expected, 1e-5, 1e-6, false), "{span:?}, plain {is_plain}");
        }
    }
}

#[test]
fn pages_are_read_before_any_is_written() {
    let mut cache = KvCache::new(&config(), 3, 4, (Kind::Float, Device::Cpu)).unwrap();
    for page in 0..3 {
        let _ = cache.storage.select(1, page).fill_(page as f64);
    }
    cache.copy_pages(&[(0, 1), (1, 2)]).unwrap();
    let content: Vec<f64> =
        (0..3).map(|page| cache.storage.double_value(&[1, page, 0, 0, 0])).collect();
    assert!(content.iter().zip([0.0, 0.0, 1.0]).all(|(a, b)| (a - b).abs() < 1e-9), "{content:?}");
}
