//! Undoes the compression of a page, never beyond the size that was announced and allowed.

use std::io::Read;

/// Pages are a megabyte by default; this is far above what any writer is set to.
const LARGEST_PAGE: usize = 256 << 20;

/// Undoes compression by Parquet's codec number. The result has exactly `size` bytes.
pub(super) fn unpack(codec: i64, packed: &[u8], size: usize) -> Result<Vec<u8>, String> {
    if size > LARGEST_PAGE {
        return Err(format!("a page of {size} bytes"));
    }
    let unpacked = match codec {
        0 => packed.to_vec(),
        1 => snappy(packed, size)?,
        2 => bounded(flate2::read::MultiGzDecoder::new(packed), size)?,
        6 => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(packed);
            bounded(decoder.map_err(|error| error.to_string())?, size)?
        }
        3 => return Err(unknown("LZO")),
        4 => return Err(unknown("Brotli")),
        5 | 7 => return Err(unknown("LZ4")),
        other => return Err(unknown(&format!("number {other}"))),
    };
    if unpacked.len() == size {
        Ok(unpacked)
    } else {
        Err(format!("a page unpacks to {} bytes instead of {size}", unpacked.len()))
    }
}

fn unknown(codec: &str) -> String {
    format!("compression {codec} is not read; write with snappy, zstd, gzip or none")
}

fn snappy(packed: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let announced = snap::raw::decompress_len(packed).map_err(|error| error.to_string())?;
    // Three bytes of Snappy make at most 64 bytes: an honest length is below this.
    if announced > size || announced > packed.len().saturating_mul(32) {
        return Err(format!("a Snappy page announces {announced} bytes"));
    }
    snap::raw::Decoder::new().decompress_vec(packed).map_err(|error| error.to_string())
}

/// Reads until the end, or one byte more than announced.
fn bounded(reader: impl Read, size: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let mut reader = reader.take(size as u64 + 1);
    reader.read_to_end(&mut unpacked).map_err(|error| error.to_string())?;
    Ok(unpacked)
}
