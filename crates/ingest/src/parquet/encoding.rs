//! The encodings of values inside a page.
//!
//! Counts come from page headers that the caller has checked against the rows allowed for the
//! file's size, so a run of a billion equal values cannot be asked for.

use super::Room;
use super::schema::Kind;
use crate::table::Cell;

/// Decoded values of one column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Values {
    Numbers(Vec<f64>),
    Texts(Vec<String>),
}

impl Values {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.len(),
            Self::Texts(texts) => texts.len(),
        }
    }

    /// One value as a cell; text that is a number, or says that there is none, is taken so.
    pub(super) fn cell(&self, index: usize, scale: f64) -> Option<Cell> {
        match self {
            Self::Numbers(numbers) => Some(Cell::Number(numbers[index] * scale)),
            Self::Texts(texts) => Cell::parse(&texts[index]),
        }
    }

    fn pick(&self, indices: &[u32], room: &mut Room) -> Result<Self, String> {
        let beyond = || "an index beyond the dictionary".to_owned();
        Ok(match self {
            Self::Numbers(numbers) => {
                let one = |index: &u32| numbers.get(*index as usize).copied();
                let picked: Option<_> = indices.iter().map(one).collect();
                Self::Numbers(picked.ok_or_else(beyond)?)
            }
            Self::Texts(texts) => {
                let one = |index: &u32| texts.get(*index as usize);
                let picked: Option<Vec<&String>> = indices.iter().map(one).collect();
                let picked = picked.ok_or_else(beyond)?;
                room.take(0, picked.iter().map(|text| text.len()).sum())?;
                Self::Texts(picked.into_iter().cloned().collect())
            }
        })
    }
}

/// Decodes `count` values by Parquet's encoding number.
pub(super) fn decode(
    encoding: i64,
    kind: Kind,
    data: &[u8],
    count: usize,
    dictionary: Option<&Values>,
    room: &mut Room,
) -> Result<Values, String> {
    if count == 0 {
        return Ok(Values::Numbers(Vec::new()));
    }
    match encoding {
        0 => plain(kind, data, count),
        2 | 8 => {
            let dictionary = dictionary.ok_or("a dictionary page is missing")?;
            let (width, runs) = data.split_first().ok_or("an empty page of indices")?;
            let indices = run_lengths(runs, u32::from(*width), count)?;
            dictionary.pick(&indices, room)
        }
        3 if kind == Kind::Boolean => {
            let (_, runs) = data.split_first_chunk::<4>().ok_or("a page without a length")?;
            let bits = run_lengths(runs, 1, count)?;
            Ok(Values::Numbers(bits.into_iter().map(f64::from).collect()))
        }
        5 if matches!(kind, Kind::Int32 | Kind::Int64) => {
            let (numbers, _) = deltas(data, count)?;
            // 32-bit columns wrap around at 32 bits.
            let is_narrow = kind == Kind::Int32;
            let value = |n: i64| if is_narrow { f64::from(n as i32) } else { n as f64 };
            Ok(Values::Numbers(numbers.into_iter().map(value).collect()))
        }
        6 if kind == Kind::Text => {
            let (lengths, mut rest) = deltas(data, count)?;
            let mut text = |length: i64| {
                let (taken, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                rest = after;
                Some(String::from_utf8_lossy(taken).into_owned())
            };
            let texts = lengths.into_iter().map(&mut text).collect::<Option<Vec<_>>>();
            Ok(Values::Texts(texts.ok_or("strings beyond the page")?))
        }
        9 => {
            let width = kind.width().ok_or("byte-stream-split of values without a width")?;
            let total = count.checked_mul(width).filter(|total| *total <= data.len());
            total.ok_or("a page shorter than its values")?;
            let byte = |value: usize, stream: usize| data[stream * count + value];
            let joined: Vec<u8> =
                (0..count).flat_map(|v| (0..width).map(move |s| byte(v, s))).collect();
            plain(kind, &joined, count)
        }
        other => Err(format!("encoding number {other} is not read; write with the defaults")),
    }
}

/// Values one after the other; booleans as bits, strings with their length before them.
pub(super) fn plain(kind: Kind, data: &[u8], count: usize) -> Result<Values, String> {
    let short = || "a page shorter than its values".to_owned();
    let fixed = |width: usize| {
        let total = count.checked_mul(width).filter(|total| *total <= data.len());
        total.map(|total| data[..total].chunks_exact(width)).ok_or_else(short)
    };
    Ok(Values::Numbers(match kind {
        Kind::Boolean => {
            if count.div_ceil(8) > data.len() {
                return Err(short());
            }
            (0..count).map(|i| f64::from((data[i / 8] >> (i % 8)) & 1)).collect()
        }
        Kind::Int32 => fixed(4)?.map(|b| f64::from(i32::from_le_bytes(first(b)))).collect(),
        Kind::Int64 => fixed(8)?.map(|b| i64::from_le_bytes(first(b)) as f64).collect(),
        Kind::Float => fixed(4)?.map(|b| f64::from(f32::from_le_bytes(first(b)))).collect(),
        Kind::Double => fixed(8)?.map(|b| f64::from_le_bytes(first(b))).collect(),
        Kind::Text => {
            let mut rest = data;
            let mut texts = Vec::new();
            for _ in 0..count {
                let (length, after) = rest.split_first_chunk::<4>().ok_or_else(short)?;
                let length = u32::from_le_bytes(*length) as usize;
                let (text, after) = after.split_at_checked(length).ok_or_else(short)?;
                texts.push(String::from_utf8_lossy(text).into_owned());
                rest = after;
            }
            return Ok(Values::Texts(texts));
        }
    }))
}

/// The bytes of one value; chunks have exactly that many.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

/// Parquet's hybrid of run lengths and bit packing; `count` values of `width` bits.
pub(super) fn run_lengths(data: &[u8], width: u32, count: usize) -> Result<Vec<u32>, String> {
    if width > 32 {
        return Err(format!("values of {width} bits"));
    }
    let mut values = Vec::new();
    let mut rest = data;
    while values.len() < count {
        let left = count - values.len();
        let header = crate::protobuf::varint(&mut rest).ok_or("a page of runs is cut off")?;
        if header & 1 == 1 {
            let groups = usize::try_from(header >> 1).map_err(|_| "a run too long")?;
            let bytes = groups.saturating_mul(width as usize).min(rest.len());
            let (packed, after) = rest.split_at(bytes);
            rest = after;
            let held = if width == 0 { usize::MAX } else { bytes * 8 / width as usize };
            let wanted = left.min(groups.saturating_mul(8)).min(held);
            if wanted == 0 {
                return Err("a page of runs is cut off".to_owned());
            }
            values.extend((0..wanted).map(|i| bits(packed, i * width as usize, width) as u32));
        } else {
            let run = usize::try_from(header >> 1).map_err(|_| "a run too long")?;
            let (value, after) = rest
                .split_at_checked((width as usize).div_ceil(8))
                .ok_or("a page of runs is cut off")?;
            rest = after;
            if run == 0 {
                return Err("an empty run".to_owned());
            }
            let value = bits(value, 0, width) as u32;
            values.extend(std::iter::repeat_n(value, run.min(left)));
        }
    }
    Ok(values)
}

/// `width` bits (at most 64) from bit `start` on, least significant first; zero beyond the end.
fn bits(data: &[u8], start: usize, width: u32) -> u64 {
    let mut value = 0_u128;
    for (place, byte) in data.iter().skip(start / 8).take(9).enumerate() {
        value |= u128::from(*byte) << (8 * place);
    }
    let mask = (1_u128 << width) - 1;
    ((value >> (start % 8)) & mask) as u64
}

/// Delta binary packing: a first value, then blocks of bit-packed differences.
fn deltas(data: &[u8], count: usize) -> Result<(Vec<i64>, &[u8]), String> {
    let cut = || "a page of differences is cut off".to_owned();
    let mut rest = data;
    let mut header = || crate::protobuf::varint(&mut rest).ok_or_else(cut);
    let block = header()?;
    let miniblocks = header()?;
    let total = header()?;
    let mut value = zigzag(header()?);
    let is_sane = miniblocks > 0 && block <= 1 << 20 && block.is_multiple_of(miniblocks);
    let per_miniblock = if is_sane { (block / miniblocks) as usize } else { 0 };
    if per_miniblock == 0 || !per_miniblock.is_multiple_of(8) || total != count as u64 {
        return Err("a page of differences has a broken header".to_owned());
    }
    let mut values = vec![value];
    while values.len() < count {
        let smallest = zigzag(crate::protobuf::varint(&mut rest).ok_or_else(cut)?);
        let (widths, after) = rest.split_at_checked(miniblocks as usize).ok_or_else(cut)?;
        rest = after;
        for width in widths {
            let left = count - values.len();
            if left == 0 {
                break;
            }
            if *width > 64 {
                return Err(format!("differences of {width} bits"));
            }
            let length = per_miniblock * usize::from(*width) / 8;
            let (packed, after) = rest.split_at_checked(length).ok_or_else(cut)?;
            rest = after;
            for i in 0..left.min(per_miniblock) {
                let difference = bits(packed, i * usize::from(*width), u32::from(*width));
                value = value.wrapping_add(smallest).wrapping_add(difference.cast_signed());
                values.push(value);
            }
        }
    }
    Ok((values, rest))
}

fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_packed_bits_alternate() {
        // A run of four 7s (3 bits), then one packed group 0..=7 (the example of the format).
        let data = [4 << 1, 7, (1 << 1) | 1, 0x88, 0xc6, 0xfa];
        let values = run_lengths(&data, 3, 12).unwrap();
        assert_eq!(values, [7, 7, 7, 7, 0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_run_longer_than_the_page_gives_what_the_page_has() {
        let endless = [0xfe, 0xff, 0xff, 0xff, 0x0f, 1];
        assert_eq!(run_lengths(&endless, 1, 3).unwrap(), [1, 1, 1]);
        assert!(run_lengths(&[], 1, 3).is_err());
        assert!(run_lengths(&[3], 4, 3).is_err());
    }

    #[test]
    fn differences_are_added_up() {
        // 7, 5, 3, 1, 2, 3, 4, 5: the example of the format; block 128, 4 miniblocks.
        let mut data = vec![0x80, 0x01, 4, 8, 14, 3, 2, 0, 0, 0];
        data.extend([0xc0, 0x3f, 0, 0, 0, 0, 0, 0]);
        assert_eq!(deltas(&data, 8).unwrap().0, [7, 5, 3, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_count_beyond_the_page_is_refused() {
        assert!(plain(Kind::Double, &[0; 16], usize::MAX).is_err());
        let mut room = Room(100);
        assert!(decode(9, Kind::Double, &[0; 16], usize::MAX, None, &mut room).is_err());
        assert_eq!(plain(Kind::Boolean, &[0b10], 2), Ok(Values::Numbers(vec![0.0, 1.0])));
    }
}
