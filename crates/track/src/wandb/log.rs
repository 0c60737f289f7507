//! LevelDB's log format as W&B writes it: records in blocks of 32 KiB, cut where a block ends.
//!
//! ```text
//! u32 crc | u16 length | u8 type (1 whole, 2 first, 3 middle, 4 last) | data      little endian
//! ```
//!
//! The crc is plain CRC-32 over type and data, not LevelDB's masked CRC-32C.

/// Before the first record: name, magic number, version.
pub(crate) const HEADER: [u8; 7] = [b':', b'W', b'&', b'B', 0xe1, 0xbe, 0];

const BLOCK: u64 = 32 << 10;
const HEAD: u64 = 7;

/// Adds a record that will stand at byte `at` of the file.
pub(crate) fn add(out: &mut Vec<u8>, mut at: u64, mut record: &[u8]) {
    let mut is_first = true;
    loop {
        let room = BLOCK - at % BLOCK;
        if room < HEAD {
            // No head fits: the rest of the block is zeros.
            out.extend(std::iter::repeat_n(0, room as usize));
            at += room;
            continue;
        }
        let length = record.len().min((room - HEAD) as usize);
        let (data, rest) = record.split_at(length);
        let kind = match (is_first, rest.is_empty()) {
            (true, true) => 1,
            (true, false) => 2,
            (false, false) => 3,
            (false, true) => 4,
        };
        let mut crc = crc32fast::Hasher::new();
        crc.update(&[kind]);
        crc.update(data);
        out.extend(crc.finalize().to_le_bytes());
        out.extend((length as u16).to_le_bytes());
        out.push(kind);
        out.extend(data);
        at += HEAD + length as u64;
        (record, is_first) = (rest, false);
        if record.is_empty() {
            return;
        }
    }
}

/// The records of a file; ends at the first that is not whole.
#[cfg(test)]
pub(crate) fn read(file: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(file[..7], HEADER);
    let (mut records, mut open, mut at) = (Vec::new(), None, 7_usize);
    while at < file.len() {
        let room = BLOCK as usize - at % BLOCK as usize;
        if room < HEAD as usize {
            at += room;
            continue;
        }
        let (head, rest) = file[at..].split_at(7);
        let length = usize::from(u16::from_le_bytes([head[4], head[5]]));
        assert!(length + 7 <= room, "a record is cut where its block ends");
        let data = &rest[..length];
        let crc = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        assert_eq!(crc, crc32fast::hash(&[&head[6..7], data].concat()));
        assert_eq!(open.is_none(), head[6] <= 2, "a record begins and goes on in order");
        // A beginning has no data where a block has room for its head alone.
        open.get_or_insert_with(Vec::new).extend(data);
        if matches!(head[6], 1 | 4) {
            records.extend(open.take());
        }
        at += 7 + length;
    }
    records
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_begins_where_a_block_has_room_for_its_head_alone() {
        let records = vec![vec![1; BLOCK as usize - 3 * HEADER.len()], vec![2; 5]];
        let mut file = HEADER.to_vec();
        for record in &records {
            let at = file.len() as u64;
            add(&mut file, at, record);
        }
        assert_eq!(file.len() as u64, BLOCK + HEAD + 5);
        assert_eq!(read(&file), records);
    }

    proptest! {
        #[test]
        fn records_of_any_size_come_back_from_their_blocks(
            sizes in prop::collection::vec(1_usize..100_000, 1..12),
        ) {
            let records: Vec<Vec<u8>> =
                sizes.iter().map(|size| (0..*size).map(|i| (i % 251) as u8).collect()).collect();
            let mut file = HEADER.to_vec();
            for record in &records {
                let at = file.len() as u64;
                add(&mut file, at, record);
            }
            prop_assert_eq!(read(&file), records);
        }
    }
}
