//! The protobuf wire format, as much of it as event files need: fields in, borrowed slices out.
//!
//! Nothing is allocated and no schema is known here; `tensorboard.rs` names the field numbers.
//! Groups (long deprecated) end the walk, as does any malformed byte.

/// The value of one field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    /// The bytes of a message, string or packed list.
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// A double.
    pub(crate) fn double(self) -> Option<f64> {
        if let Self::Fixed64(bytes) = self { Some(f64::from_le_bytes(bytes)) } else { None }
    }

    /// A float.
    pub(crate) fn float(self) -> Option<f32> {
        if let Self::Fixed32(bytes) = self { Some(f32::from_le_bytes(bytes)) } else { None }
    }

    /// A signed integer (protobuf's int32 and int64 are two's complement on the wire).
    pub(crate) fn int(self) -> Option<i64> {
        if let Self::Varint(value) = self { Some(value.cast_signed()) } else { None }
    }
}

/// Walks over the fields of a message.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    is_broken: bool,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { rest: message, is_broken: false }
    }

    /// Whether the walk ended at a malformed byte.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn advance(&mut self) -> Option<(u64, Field<'a>)> {
        let key = varint(&mut self.rest)?;
        let field = match key & 7 {
            0 => Field::Varint(varint(&mut self.rest)?),
            1 => Field::Fixed64(*self.take(8)?.first_chunk()?),
            2 => {
                let length = varint(&mut self.rest)?;
                Field::Bytes(self.take(usize::try_from(length).ok()?)?)
            }
            5 => Field::Fixed32(*self.take(4)?.first_chunk()?),
            _ => return None,
        };
        Some((key >> 3, field))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_broken || self.rest.is_empty() {
            return None;
        }
        let field = self.advance();
        self.is_broken = field.is_none();
        field
    }
}

/// Takes a variable-length integer off the front.
pub(crate) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_wire_type_are_walked() {
        let message = [
            0x08, 0x96, 0x01, // field 1, varint 150
            0x11, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, // field 2, double 1.0
            0x1a, 2, b'h', b'i', // field 3, bytes
            0x25, 0, 0, 0x80, 0x3f, // field 4, float 1.0
        ];
        let fields: Vec<_> = Fields::new(&message).collect();
        assert_eq!(fields[0], (1, Field::Varint(150)));
        assert_eq!(fields[1].1.double(), Some(1.0));
        assert_eq!(fields[2].1.bytes(), Some(&b"hi"[..]));
        assert_eq!(fields[3].1.float(), Some(1.0));
    }

    #[test]
    fn a_length_beyond_the_message_breaks_the_walk() {
        let mut fields = Fields::new(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]);
        assert_eq!(fields.next(), None);
        assert!(fields.is_broken());
    }

    #[test]
    fn negative_integers_keep_their_sign() {
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(varint(&mut bytes).map(u64::cast_signed), Some(-1));
        let mut endless: &[u8] = &[0x80; 12];
        assert_eq!(varint(&mut endless), None);
    }
}
