//! Launching AdamW's kernels (`adamw.cu`): a table of tensors, one launch a kind of gradient.

use tch::{Kind, TchError, Tensor};

use super::launch::{Argument, Grid, launch};
use super::mailbox::Mailbox;
use super::pointer;
use crate::adamw::{Lists, Numbers};
use crate::shim;

/// Numbers of one block, as adamw.cu says.
const PORTION: i64 = 16384;
const THREADS: u32 = 256;
/// Blocks of a norm: fixed, and so is the order of its sum.
const NORM_BLOCKS: i64 = 2048;
/// Words of 8 bytes of one row of the table, and of the settings of a step.
const PIECE_WORDS: usize = 8;
const STEP_WORDS: i64 = 6;

/// The tensors whose gradients are of one kind.
struct Table {
    kind: Kind,
    words: Vec<i64>,
    blocks: i64,
}

impl Table {
    fn count(&self) -> i32 {
        (self.words.len() / PIECE_WORDS) as i32
    }
}

/// Takes a step; see `crate::adamw::step`.
pub(crate) fn step(
    lists: &Lists,
    given: Option<&Tensor>,
    numbers: &Numbers,
    mail: &mut Mailbox,
) -> Result<Option<f64>, TchError> {
    let device = lists.parameters[0].device();
    let moments = lists.first[0].kind();
    // Outlives the launches: torch's allocator hands its memory to later work of this stream alone.
    let grads: Vec<Tensor> =
        lists.grads.iter().map(Tensor::f_contiguous).collect::<Result<_, _>>()?;
    let mut placed = Vec::new();
    for table in tables(lists, &grads) {
        placed.push((shim::upload(&table.words, device)?, table));
    }
    let norm_rows: Vec<i64> = placed.iter().map(|(_, t)| t.blocks.min(NORM_BLOCKS)).collect();
    let sums = Tensor::f_empty([norm_rows.iter().sum::<i64>()], (Kind::Double, device))?;
    if given.is_none() {
        let mut from = 0;
        for ((words, table), rows) in placed.iter().zip(&norm_rows) {
            let part = sums.f_narrow(0, from, *rows)?;
            from += rows;
            let mut arguments = [
                pointer(words, Kind::Int64, table.words.len() as i64),
                Argument::Int(table.count()),
                Argument::Long(table.blocks),
                pointer(&part, Kind::Double, *rows),
            ];
            launch(squares_name(table.kind), device, grid(*rows), &mut arguments)?;
        }
    }
    let norm = Tensor::f_empty(&[] as &[i64], (Kind::Float, device))?;
    let settings = Tensor::f_empty([STEP_WORDS], (Kind::Int64, device))?;
    begin(lists, (&sums, given), &norm, &settings, numbers)?;
    // On its way before the step itself: the host goes on while the device still writes.
    let ticket = match given {
        None => Some(mail.collect(&norm.f_view_dtype(Kind::Int)?, 1)?),
        Some(_) => None,
    };
    for (words, table) in &placed {
        let mut arguments = [
            pointer(words, Kind::Int64, table.words.len() as i64),
            Argument::Int(table.count()),
            pointer(&settings, Kind::Int64, STEP_WORDS),
        ];
        launch(step_name(table.kind, moments), device, grid(table.blocks), &mut arguments)?;
    }
    let read = |ticket| -> Result<f64, TchError> {
        Ok(f64::from(f32::from_bits(mail.receive(ticket)?[0].cast_unsigned())))
    };
    ticket.map(read).transpose()
}

fn begin(
    lists: &Lists,
    (sums, given): (&Tensor, Option<&Tensor>),
    norm: &Tensor,
    settings: &Tensor,
    numbers: &Numbers,
) -> Result<(), TchError> {
    let none = Argument::Pointer(std::ptr::null_mut());
    let count = lists.steps.numel() as i64;
    let adamw = &numbers.adamw;
    let mut arguments = [
        pointer(sums, Kind::Double, sums.numel() as i64),
        Argument::Int(if given.is_none() { sums.numel() as i32 } else { 0 }),
        given.map_or(none, |given| pointer(given, Kind::Float, 1)),
        pointer(norm, Kind::Float, 1),
        pointer(lists.steps, Kind::Float, count),
        Argument::Int(count as i32),
        pointer(settings, Kind::Int64, STEP_WORDS),
        Argument::Double(adamw.lr),
        Argument::Double(adamw.betas.0),
        Argument::Double(adamw.betas.1),
        Argument::Double(adamw.weight_decay),
        Argument::Double(adamw.epsilon),
        Argument::Double(numbers.largest_norm),
        Argument::Long(numbers.seed.cast_signed()),
    ];
    launch("adamw_begin", lists.steps.device(), grid(1), &mut arguments)
}

fn grid(blocks: i64) -> Grid {
    Grid { blocks: blocks as u32, threads: THREADS, shared_bytes: 0 }
}

fn squares_name(kind: Kind) -> &'static str {
    if kind == Kind::BFloat16 { "squares_bf16" } else { "squares_float" }
}

fn step_name(grads: Kind, moments: Kind) -> &'static str {
    match (grads, moments) {
        (Kind::BFloat16, Kind::BFloat16) => "adamw_bf16_bf16",
        (Kind::BFloat16, _) => "adamw_bf16_float",
        (_, Kind::BFloat16) => "adamw_float_bf16",
        _ => "adamw_float_float",
    }
}

/// One table a kind of gradient; tensors without numbers are in none.
fn tables(lists: &Lists, grads: &[Tensor]) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for (index, grad) in grads.iter().enumerate() {
        let (kind, length) = (grad.kind(), grad.numel() as i64);
        let words = row(lists, index, grad);
        if length > 0 {
            let known = tables.iter().position(|table| table.kind == kind);
            let at = known.unwrap_or_else(|| {
                tables.push(Table { kind, words: Vec::new(), blocks: 0 });
                tables.len() - 1
            });
            let table = &mut tables[at];
            table.words.extend(words);
            table.words.extend([lists.places[index], length, table.blocks]);
            table.blocks += (length + PORTION - 1) / PORTION;
        }
    }
    tables
}

/// The addresses of one tensor's numbers, all checked.
fn row(lists: &Lists, index: usize, grad: &Tensor) -> [i64; 5] {
    let count = grad.numel() as i64;
    let moments = lists.first[0].kind();
    let grad_kind = if grad.kind() == Kind::BFloat16 { Kind::BFloat16 } else { Kind::Float };
    let address = |tensor: &Tensor, kind: Kind| {
        assert_eq!(tensor.device(), lists.parameters[0].device(), "one device a step");
        let Argument::Pointer(address) = pointer(tensor, kind, count) else {
            unreachable!("a pointer's argument is a pointer")
        };
        address.addr() as i64
    };
    [
        address(grad, grad_kind),
        address(&lists.first[index], moments),
        address(&lists.second[index], moments),
        address(&lists.parameters[index], Kind::Float),
        lists.rounded.map_or(0, |rounded| address(&rounded[index], Kind::BFloat16)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_kernels_of_the_source() {
        let source = include_str!("adamw.cu");
        for grads in [Kind::Float, Kind::BFloat16] {
            assert!(source.contains(squares_name(grads)));
            for moments in [Kind::Float, Kind::BFloat16] {
                assert!(source.contains(step_name(grads, moments)));
            }
        }
        assert!(source.contains(&format!("#define PORTION {PORTION}")));
    }
}
