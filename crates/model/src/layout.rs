//! Which learned tensors a model has, and which tensors of a Hugging Face file they come from.
//!
//! The network keeps queries, keys and values in one matrix, and gate and up in one: fewer and
//! larger products. A [`Parameter`] lists its [`Source`]s in row order, so reading is stacking
//! rows, saving is cutting them apart again, and both follow from this one table.

use std::ops::Range;

use crate::config::{ExpertTensors, FeedForward, ModelConfig, NormWeight, QueryKeyNorm};

/// How a parameter starts in a model made from nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Normal,
    Ones,
    Zeros,
}

/// One tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub tensor: String,
    /// Shape in the file.
    pub shape: Vec<i64>,
    /// The file holds the last two dimensions the other way round.
    pub is_transposed: bool,
}

/// One learned tensor of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    pub shape: Vec<i64>,
    pub sources: Vec<Source>,
    pub start: Start,
}

impl Parameter {
    /// Whether it has a matrix for each expert of a layer.
    pub fn is_of_experts(&self) -> bool {
        self.name.rsplit('.').next().is_some_and(|last| last.starts_with("experts_"))
    }
}

struct Table<'a> {
    config: &'a ModelConfig,
    parameters: Vec<Parameter>,
}

/// Every parameter of a model, in the order in which optimizers and checkpoints keep them.
pub fn layout(config: &ModelConfig) -> Vec<Parameter> {
    let mut table = Table { config, parameters: Vec::new() };
    table.one("embedding", "model.embed_tokens.weight", &[config.vocabulary, config.width]);
    for index in 0..config.layers.len() {
        table.attention(index);
        table.feed_forward(index);
    }
    table.norm("norm", "model.norm.weight", config.width);
    if !config.is_head_tied {
        table.one("head", "lm_head.weight", &[config.vocabulary, config.width]);
    }
    table.parameters
}

impl Table<'_> {
    fn push(&mut self, name: String, shape: &[i64], start: Start, sources: Vec<Source>) {
        self.parameters.push(Parameter { name, shape: shape.to_vec(), sources, start });
    }

    fn one(&mut self, name: &str, tensor: &str, shape: &[i64]) {
        self.push(name.to_owned(), shape, Start::Normal, vec![source(tensor, shape)]);
    }

    fn norm(&mut self, name: &str, tensor: &str, width: i64) {
        let start = match self.config.norm_weight {
            NormWeight::Plain => Start::Ones,
            NormWeight::OnePlus => Start::Zeros,
        };
        self.push(name.to_owned(), &[width], start, vec![source(tensor, &[width])]);
    }

    /// Matrices stacked by rows, and their biases where there are any.
    fn stacked(&mut self, name: &str, parts: &[(String, i64)], columns: i64, has_bias: bool) {
        let rows = parts.iter().map(|(_, rows)| rows).sum();
        let weights = parts.iter().map(|(t, r)| source(&format!("{t}.weight"), &[*r, columns]));
        self.push(name.to_owned(), &[rows, columns], Start::Normal, weights.collect());
        if has_bias {
            let biases = parts.iter().map(|(t, r)| source(&format!("{t}.bias"), &[*r]));
            self.push(format!("{name}_bias"), &[rows], Start::Zeros, biases.collect());
        }
    }

    fn attention(&mut self, index: usize) {
        let (c, layer) = (self.config, self.config.layers[index]);
        let (ours, theirs) = (format!("layers.{index}"), format!("model.layers.{index}"));
        let attention = format!("{theirs}.self_attn");
        let (queries, keys) = (c.heads * c.head_width, c.kv_heads * c.head_width);
        self.norm(
            &format!("{ours}.attention_norm"),
            &format!("{theirs}.{}.weight", c.names.attention_norm),
            c.width,
        );
        let parts = [("q", queries), ("k", keys), ("v", keys)]
            .map(|(letter, rows)| (format!("{attention}.{letter}_proj"), rows));
        self.stacked(&format!("{ours}.qkv"), &parts, c.width, c.has_qkv_bias);
        if layer.query_key_norm == QueryKeyNorm::Weighted {
            for (which, letter) in [("query", "q"), ("key", "k")] {
                let tensor = format!("{attention}.{letter}_norm.weight");
                self.norm(&format!("{ours}.{which}_norm"), &tensor, c.head_width);
            }
        }
        let output = [(format!("{attention}.o_proj"), c.width)];
        self.stacked(&format!("{ours}.output"), &output, queries, c.has_output_bias);
        if let Some(name) = c.names.attention_output_norm {
            let tensor = format!("{theirs}.{name}.weight");
            self.norm(&format!("{ours}.attention_output_norm"), &tensor, c.width);
        }
        self.norm(
            &format!("{ours}.mlp_norm"),
            &format!("{theirs}.{}.weight", c.names.mlp_norm),
            c.width,
        );
    }

    fn mlp(&mut self, ours: &str, theirs: &str, width: i64, has_bias: bool) {
        let parts = ["gate", "up"].map(|which| (format!("{theirs}.{which}_proj"), width));
        self.stacked(&format!("{ours}.gate_up"), &parts, self.config.width, has_bias);
        let down = [(format!("{theirs}.down_proj"), self.config.width)];
        self.stacked(&format!("{ours}.down"), &down, width, has_bias);
    }

    fn feed_forward(&mut self, index: usize) {
        let names = self.config.names;
        let theirs = format!("model.layers.{index}.{}", names.feed_forward);
        let ours = format!("layers.{index}");
        match self.config.layers[index].feed_forward {
            FeedForward::Dense { width } => {
                self.mlp(&ours, &theirs, width, self.config.has_mlp_bias);
            }
            FeedForward::Experts { count, width, shared_width, .. } => {
                self.one(
                    &format!("{ours}.router"),
                    &format!("{theirs}.{}.weight", names.router),
                    &[count, self.config.width],
                );
                self.experts(&ours, &format!("{theirs}.experts"), count, width);
                if let Some(shared) = shared_width {
                    let theirs = format!("{theirs}.shared_expert");
                    self.mlp(&format!("{ours}.shared"), &theirs, shared, false);
                }
            }
        }
        if let Some(name) = names.mlp_output_norm {
            let tensor = format!("model.layers.{index}.{name}.weight");
            self.norm(&format!("{ours}.mlp_output_norm"), &tensor, self.config.width);
        }
    }

    fn experts(&mut self, ours: &str, theirs: &str, count: i64, width: i64) {
        let d = self.config.width;
        let (up_sources, down_sources) = match self.config.names.experts {
            ExpertTensors::Together => (
                vec![transposed(&format!("{theirs}.gate_up_proj"), &[count, d, 2 * width])],
                vec![transposed(&format!("{theirs}.down_proj"), &[count, width, d])],
            ),
            ExpertTensors::Apart => {
                let tensor = |e: i64, which: &str| format!("{theirs}.{e}.{which}_proj.weight");
                let up = (0..count).flat_map(|e| {
                    ["gate", "up"].map(|which| source(&tensor(e, which), &[width, d]))
                });
                let down = (0..count).map(|e| source(&tensor(e, "down"), &[d, width]));
                (up.collect(), down.collect())
            }
        };
        let gate_up = format!("{ours}.experts_gate_up");
        self.push(gate_up, &[count, 2 * width, d], Start::Normal, up_sources);
        let down = format!("{ours}.experts_down");
        self.push(down, &[count, d, width], Start::Normal, down_sources);
    }
}

fn source(tensor: &str, shape: &[i64]) -> Source {
    Source { tensor: tensor.to_owned(), shape: shape.to_vec(), is_transposed: false }
}

fn transposed(tensor: &str, shape: &[i64]) -> Source {
    Source { is_transposed: true, ..source(tensor, shape) }
}

/// A layout's units, in its order: the embedding, each layer, the final norm, the head. What is shared out
/// over ranks comes and goes by them.
pub fn units(layout: &[Parameter]) -> Vec<Range<usize>> {
    let unit = |parameter: &Parameter| {
        let mut words = parameter.name.splitn(3, '.');
        match (words.next(), words.next()) {
            (Some("layers"), Some(index)) => format!("layers.{index}"),
            _ => parameter.name.clone(),
        }
    };
    let mut found: Vec<(String, Range<usize>)> = Vec::new();
    for (index, parameter) in layout.iter().enumerate() {
        let name = unit(parameter);
        match found.last_mut() {
            Some((last, range)) if *last == name => range.end = index + 1,
            _ => found.push((name, index..index + 1)),
        }
    }
    found.into_iter().map(|(_, range)| range).collect()
}
