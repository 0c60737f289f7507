//! The framing of TensorBoard event files: length, checksum, data, checksum.
//!
//! ```text
//! u64 length | u32 masked crc32c(length) | data | u32 masked crc32c(data)     little endian
//! ```
//!
//! A file that is still being written may end inside a record; that is the normal end of a live
//! log. A checksum that fails is damage: reading stops there, and the reason is kept.

/// Why no further record follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing is left over.
    Complete,
    /// The last record is not written out yet, from this byte on.
    Cut(usize),
    /// The checksum of the record at this byte is wrong.
    Damaged(usize),
}

/// Walks over the records of a file.
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    position: usize,
    end: Option<End>,
}

impl<'a> Records<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, end: None }
    }

    /// Why the walk ended; complete while it has not.
    pub(crate) fn end(&self) -> End {
        self.end.unwrap_or(End::Complete)
    }

    fn advance(&mut self) -> Result<&'a [u8], End> {
        let rest = &self.bytes[self.position..];
        if rest.is_empty() {
            return Err(End::Complete);
        }
        let cut = End::Cut(self.position);
        let header = rest.first_chunk::<12>().ok_or(cut)?;
        let length = checked_length(header).ok_or(End::Damaged(self.position))?;
        let end = usize::try_from(length).ok().and_then(|length| length.checked_add(12));
        let data = end.and_then(|end| rest.get(12..end)).ok_or(cut)?;
        let checksum = rest[12 + data.len()..].first_chunk::<4>().ok_or(cut)?;
        if u32::from_le_bytes(*checksum) != masked_crc32c(data) {
            return Err(End::Damaged(self.position));
        }
        self.position += 16 + data.len();
        Ok(data)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.end.is_some() {
            return None;
        }
        self.advance().map_err(|end| self.end = Some(end)).ok()
    }
}

/// Whether a file begins with the header of a record whose checksum fits.
pub(crate) fn begins_with_record(bytes: &[u8]) -> bool {
    bytes.first_chunk::<12>().is_some_and(|header| checked_length(header).is_some())
}

fn checked_length(header: &[u8; 12]) -> Option<u64> {
    let (length, checksum) = header.split_first_chunk::<8>()?;
    let checksum = u32::from_le_bytes(*checksum.first_chunk()?);
    (checksum == masked_crc32c(length)).then(|| u64::from_le_bytes(*length))
}

/// CRC-32C, rotated and offset as TFRecord does so that checksums of checksums stay useful.
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    let crc = !bytes
        .iter()
        .fold(!0_u32, |crc, byte| (crc >> 8) ^ CASTAGNOLI[usize::from((crc as u8) ^ byte)]);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

const CASTAGNOLI: [u32; 256] = castagnoli();

const fn castagnoli() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

/// One record: `data` with its length and checksums around it.
pub fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = length.to_vec();
    record.extend(masked_crc32c(&length).to_le_bytes());
    record.extend(data);
    record.extend(masked_crc32c(data).to_le_bytes());
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        // The check value of CRC-32C for "123456789" is 0xe3069283 (RFC 3720, appendix B.4 kind).
        let unmasked = 0xe306_9283_u32;
        let masked = unmasked.rotate_right(15).wrapping_add(0xa282_ead8);
        assert_eq!(masked_crc32c(b"123456789"), masked);
    }

    #[test]
    fn a_cut_file_gives_its_whole_records_and_damage_is_told_apart() {
        let mut bytes = frame(b"one");
        bytes.extend(frame(b"two"));
        let whole: Vec<_> = Records::new(&bytes).collect();
        assert_eq!(whole, [b"one", b"two"]);

        let mut cut = Records::new(&bytes[..bytes.len() - 1]);
        assert_eq!(cut.by_ref().count(), 1);
        assert_eq!(cut.end(), End::Cut(19));

        let mut damaged = bytes.clone();
        damaged[19 + 13] ^= 1;
        let mut records = Records::new(&damaged);
        assert_eq!(records.by_ref().count(), 1);
        assert_eq!(records.end(), End::Damaged(19));
    }

    #[test]
    fn a_length_beyond_the_file_is_a_cut_and_allocates_nothing() {
        let length = u64::MAX.to_le_bytes();
        let mut bytes = length.to_vec();
        bytes.extend(masked_crc32c(&length).to_le_bytes());
        let mut records = Records::new(&bytes);
        assert_eq!(records.by_ref().count(), 0);
        assert_eq!(records.end(), End::Cut(0));
    }
}
