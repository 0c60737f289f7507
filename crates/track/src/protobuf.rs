//! Writing the protobuf wire format: a message is a `Vec<u8>` that fields are added to.
//!
//! Reading it is `scalerl-ingest`'s. Field numbers stand with the formats that have them.

/// Adds a varint field.
pub(crate) fn int(message: &mut Vec<u8>, number: u32, value: i64) {
    varint(message, u64::from(number) << 3);
    varint(message, value.cast_unsigned());
}

/// Adds a double.
pub(crate) fn double(message: &mut Vec<u8>, number: u32, value: f64) {
    varint(message, u64::from(number) << 3 | 1);
    message.extend(value.to_le_bytes());
}

/// Adds a float.
pub(crate) fn float(message: &mut Vec<u8>, number: u32, value: f32) {
    varint(message, u64::from(number) << 3 | 5);
    message.extend(value.to_le_bytes());
}

/// Adds a string, bytes or a message.
pub(crate) fn bytes(message: &mut Vec<u8>, number: u32, value: impl AsRef<[u8]>) {
    let value = value.as_ref();
    varint(message, u64::from(number) << 3 | 2);
    varint(message, value.len() as u64);
    message.extend(value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push((value as u8) | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_specification_shows_them() {
        // protobuf.dev/programming-guides/encoding: field 1 = 150, field 2 = "testing".
        let mut message = Vec::new();
        int(&mut message, 1, 150);
        bytes(&mut message, 2, "testing");
        assert_eq!(message, b"\x08\x96\x01\x12\x07testing");
        let mut negative = Vec::new();
        int(&mut negative, 1, -1);
        assert_eq!(negative.len(), 11, "two's complement in ten bytes");
    }
}
