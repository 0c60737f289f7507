//! TensorBoard event files: scalar summaries, one row per step.
//!
//! Scalars come in two forms, `simple_value` (TensorFlow 1, PyTorch, tensorboardX) and a tensor
//! without dimensions (TensorFlow 2, JAX, `tensorboard.plugins.scalar`). Everything else (images,
//! histograms, text) is passed over. All files of one folder are one run. A step written twice,
//! as after a restart from a checkpoint, keeps the later value.

use std::collections::{BTreeMap, HashMap};

use crate::error::IngestError;
use crate::format::Format;
use crate::protobuf::{Field, Fields};
use crate::table::{Cell, Table};
use crate::tfrecord::{End, Records};

/// The time of a row, in Unix seconds.
pub(crate) const WALL_TIME: &str = "wall_time";

/// The scalars of one run, gathered over its files.
#[derive(Default)]
pub(crate) struct Events {
    /// By step: the latest wall time, and the value of each tag.
    rows: BTreeMap<i64, Row>,
    tags: Vec<String>,
    places: HashMap<String, usize>,
    rewritten: usize,
    notes: Vec<String>,
}

#[derive(Default)]
struct Row {
    wall_time: f64,
    values: BTreeMap<usize, f64>,
}

impl Events {
    /// Adds the events of one file; files come in the order they were written.
    pub(crate) fn add(&mut self, file: &str, bytes: &[u8]) -> Result<(), IngestError> {
        let malformed = |place: usize, problem: &str| IngestError::Malformed {
            file: file.to_owned(),
            format: Format::TensorBoard,
            place: format!("byte {place}"),
            problem: problem.to_owned(),
        };
        let mut records = Records::new(bytes);
        let mut count = 0;
        let mut undecodable = 0_usize;
        for record in records.by_ref() {
            count += 1;
            undecodable += usize::from(self.event(record).is_none());
        }
        match records.end() {
            End::Complete => {}
            End::Cut(place) if count == 0 => {
                return Err(malformed(place, "not an event file, or cut before its first record"));
            }
            End::Damaged(place) if count == 0 => {
                return Err(malformed(place, "not an event file (checksum of the first record)"));
            }
            End::Cut(_) => self.notes.push(format!(
                "{file}: ends inside a record, as a file does that is still being written."
            )),
            End::Damaged(place) => self.notes.push(format!(
                "{file}: the record at byte {place} is damaged; it and what follows were left out."
            )),
        }
        if undecodable > 0 {
            self.notes.push(format!("{file}: {undecodable} events could not be decoded."));
        }
        Ok(())
    }

    fn event(&mut self, event: &[u8]) -> Option<()> {
        let (mut wall_time, mut step, mut summaries) = (0.0, 0, Vec::new());
        let mut fields = Fields::new(event);
        for (number, field) in fields.by_ref() {
            match number {
                1 => wall_time = field.double()?,
                2 => step = field.int()?,
                5 => summaries.push(field.bytes()?),
                _ => {}
            }
        }
        if fields.is_broken() {
            return None;
        }
        for summary in summaries {
            let values = Fields::new(summary).filter(|(number, _)| *number == 1);
            for value in values.filter_map(|(_, field)| field.bytes()) {
                if let Some((tag, value)) = scalar(value) {
                    self.set(wall_time, step, tag, value);
                }
            }
        }
        Some(())
    }

    fn set(&mut self, wall_time: f64, step: i64, tag: &str, value: f64) {
        let place = self.places.get(tag).copied().unwrap_or_else(|| {
            self.tags.push(tag.to_owned());
            self.places.insert(tag.to_owned(), self.tags.len() - 1);
            self.tags.len() - 1
        });
        let row = self.rows.entry(step).or_default();
        row.wall_time = row.wall_time.max(wall_time);
        self.rewritten += usize::from(row.values.insert(place, value).is_some());
    }

    /// The table, with the step and the wall time beside the tags.
    pub(crate) fn into_table(mut self) -> (Table, Vec<String>) {
        let mut table = Table::default();
        for (index, (step, row)) in self.rows.iter().enumerate() {
            table.push_row(index + 1);
            table.set("step", Cell::Number(*step as f64));
            table.set(WALL_TIME, Cell::Number(row.wall_time));
            for (place, value) in &row.values {
                table.set(&self.tags[*place], Cell::Number(*value));
            }
        }
        if self.rewritten > 0 {
            let count = self.rewritten;
            self.notes.push(format!(
                "{count} values were written twice for the same step (a restart); the later \
                 ones are used."
            ));
        }
        (table, self.notes)
    }
}

/// Tag and number of a `Summary.Value`, if it is a scalar.
fn scalar(value: &[u8]) -> Option<(&str, f64)> {
    let (mut tag, mut number) = (None, None);
    for (field_number, field) in Fields::new(value) {
        match field_number {
            1 => tag = field.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok()),
            2 => number = field.float().map(f64::from),
            8 => number = field.bytes().and_then(tensor),
            _ => {}
        }
    }
    Some((tag?, number?))
}

/// The one number of a `TensorProto` without dimensions (or all of size one).
fn tensor(tensor: &[u8]) -> Option<f64> {
    let (mut kind, mut content, mut value) = (0, None, None);
    for (number, field) in Fields::new(tensor) {
        match (number, field) {
            (1, field) => kind = field.int()?,
            (2, Field::Bytes(shape)) if !is_single(shape) => return None,
            (4, Field::Bytes(bytes)) => content = Some(bytes),
            (5, Field::Fixed32(bytes)) => value = Some(f64::from(f32::from_le_bytes(bytes))),
            (5, Field::Bytes(packed)) => {
                value = packed.first_chunk().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
            }
            (6, Field::Fixed64(bytes)) => value = Some(f64::from_le_bytes(bytes)),
            (6, Field::Bytes(packed)) => {
                value = packed.first_chunk().map(|bytes| f64::from_le_bytes(*bytes));
            }
            (7 | 10, Field::Varint(integer)) => value = Some(integer.cast_signed() as f64),
            (7 | 10, Field::Bytes(mut packed)) => {
                value = crate::protobuf::varint(&mut packed).map(|v| v.cast_signed() as f64);
            }
            _ => {}
        }
    }
    value.or_else(|| from_content(kind, content?))
}

/// Raw little-endian content by TensorFlow's `DataType` number.
fn from_content(kind: i64, content: &[u8]) -> Option<f64> {
    match kind {
        1 => Some(f64::from(f32::from_le_bytes(content.try_into().ok()?))),
        2 => Some(f64::from_le_bytes(content.try_into().ok()?)),
        3 => Some(f64::from(i32::from_le_bytes(content.try_into().ok()?))),
        9 => Some(i64::from_le_bytes(content.try_into().ok()?) as f64),
        14 => {
            let bfloat16 = u32::from(u16::from_le_bytes(content.try_into().ok()?));
            Some(f64::from(f32::from_bits(bfloat16 << 16)))
        }
        _ => None,
    }
}

/// Whether a `TensorShapeProto` has only dimensions of size one.
fn is_single(shape: &[u8]) -> bool {
    Fields::new(shape).filter(|(number, _)| *number == 2).all(|(_, dimension)| {
        let size =
            dimension.bytes().and_then(|bytes| Fields::new(bytes).find(|(number, _)| *number == 1));
        size.and_then(|(_, size)| size.int()) == Some(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tfrecord::frame;

    fn event(step: u8, tag: &str, value: f32) -> Vec<u8> {
        let mut scalar = vec![0x0a, tag.len() as u8];
        scalar.extend(tag.bytes());
        scalar.push(0x15);
        scalar.extend(value.to_le_bytes());
        let mut event = vec![0x09];
        event.extend((1000.0 + f64::from(step)).to_le_bytes());
        event.extend([0x10, step, 0x2a, scalar.len() as u8 + 2, 0x0a, scalar.len() as u8]);
        event.extend(scalar);
        frame(&event)
    }

    #[test]
    fn a_step_written_twice_keeps_the_later_value() {
        let mut events = Events::default();
        events
            .add("first", &[event(1, "eval/acc", 0.25), event(2, "eval/acc", 0.5)].concat())
            .unwrap();
        events.add("second", &event(2, "eval/acc", 0.75)).unwrap();
        let (table, notes) = events.into_table();
        let values: Vec<_> = table.column("eval/acc").unwrap().numbers().collect();
        assert_eq!(values, [(0, 0.25), (1, 0.75)]);
        assert_eq!(table.column(WALL_TIME).unwrap().number(1), Some(1002.0));
        assert!(notes[0].contains("written twice"));
    }

    #[test]
    fn a_tensor_of_one_element_is_a_scalar_and_a_vector_is_not() {
        let mut content = vec![0x08, 1, 0x22, 4];
        content.extend(0.5_f32.to_le_bytes());
        assert_eq!(tensor(&content), Some(0.5));
        let mut vector = vec![0x08, 1, 0x12, 4, 0x12, 2, 0x08, 2, 0x22, 8];
        vector.extend([0; 8]);
        assert_eq!(tensor(&vector), None);
    }

    #[test]
    fn garbage_is_an_error_that_names_the_byte() {
        let error = Events::default().add("x", b"not an event file at all").unwrap_err();
        assert!(error.to_string().contains("byte 0"), "{error}");
    }
}
