//! Thrift's compact protocol, decoded into a tree of borrowed values.
//!
//! Lists are grown element by element, each of which takes at least a byte of input, so a length
//! that lies ends in an error and not in an allocation.

/// Structures in Parquet's metadata nest about eight deep.
const DEEPEST: usize = 24;

/// A decoded value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    Bool(bool),
    Int(i64),
    Double,
    Bytes(&'a [u8]),
    List(Vec<Value<'a>>),
    Struct(Vec<(i16, Value<'a>)>),
    Map,
}

impl Value<'_> {
    /// The field of a structure.
    pub(super) fn get(&self, id: i16) -> Option<&Self> {
        let Self::Struct(fields) = self else { return None };
        fields.iter().find(|(known, _)| *known == id).map(|(_, value)| value)
    }

    /// An integer field.
    pub(super) fn int(&self, id: i16) -> Option<i64> {
        if let Self::Int(value) = self.get(id)? { Some(*value) } else { None }
    }

    /// A field that counts or places something.
    pub(super) fn size(&self, id: i16) -> Option<usize> {
        usize::try_from(self.int(id)?).ok()
    }

    /// A list field; empty where it is missing.
    pub(super) fn list(&self, id: i16) -> &[Self] {
        if let Some(Self::List(values)) = self.get(id) { values } else { &[] }
    }

    /// A string field.
    pub(super) fn text(&self, id: i16) -> Option<String> {
        self.get(id)?.as_text()
    }

    /// The string itself.
    pub(super) fn as_text(&self) -> Option<String> {
        if let Self::Bytes(bytes) = self {
            Some(String::from_utf8_lossy(bytes).into_owned())
        } else {
            None
        }
    }
}

/// Decodes a structure and says how many bytes it took.
pub(super) fn structure(bytes: &[u8]) -> Option<(Value<'_>, usize)> {
    let mut reader = Reader { rest: bytes };
    let value = reader.structure(DEEPEST)?;
    Some((value, bytes.len() - reader.rest.len()))
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn structure(&mut self, deeper: usize) -> Option<Value<'a>> {
        let mut fields = Vec::new();
        let mut id = 0_i16;
        loop {
            let header = self.byte()?;
            if header == 0 {
                return Some(Value::Struct(fields));
            }
            let step = header >> 4;
            id = if step == 0 {
                i16::try_from(self.signed()?).ok()?
            } else {
                id.checked_add(i16::from(step))?
            };
            fields.push((id, self.value(header & 15, deeper.checked_sub(1)?, true)?));
        }
    }

    fn value(&mut self, kind: u8, deeper: usize, is_field: bool) -> Option<Value<'a>> {
        Some(match kind {
            // A field's truth is its type; a list element's is a byte.
            1 | 2 if is_field => Value::Bool(kind == 1),
            1 | 2 => Value::Bool(self.byte()? == 1),
            3 => Value::Int(i64::from(self.byte()?.cast_signed())),
            4..=6 => Value::Int(self.signed()?),
            7 => {
                self.take(8)?;
                Value::Double
            }
            8 => {
                let length = usize::try_from(self.unsigned()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            9 | 10 => self.list(deeper)?,
            11 => self.map(deeper)?,
            12 => self.structure(deeper)?,
            _ => return None,
        })
    }

    fn list(&mut self, deeper: usize) -> Option<Value<'a>> {
        let header = self.byte()?;
        let count = if header >> 4 == 15 { self.unsigned()? } else { u64::from(header >> 4) };
        let deeper = deeper.checked_sub(1)?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(self.value(header & 15, deeper, false)?);
        }
        Some(Value::List(values))
    }

    /// Maps are not used by Parquet; they are walked over.
    fn map(&mut self, deeper: usize) -> Option<Value<'a>> {
        let count = self.unsigned()?;
        let deeper = deeper.checked_sub(1)?;
        if count > 0 {
            let kinds = self.byte()?;
            for _ in 0..count {
                self.value(kinds >> 4, deeper, false)?;
                self.value(kinds & 15, deeper, false)?;
            }
        }
        Some(Value::Map)
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    fn unsigned(&mut self) -> Option<u64> {
        crate::protobuf::varint(&mut self.rest)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_of_every_kind_is_decoded() {
        let bytes = [
            0x15, 0x2a, // 1: i32 21
            0x11, // 2: true
            0x18, 2, b'h', b'i', // 3: string
            0x19, 0x25, 0x02, 0x04, // 4: list of two i32
            0x1c, 0x15, 0x01, 0x00, // 5: struct {1: -1}
            0x00, 0xff,
        ];
        let (value, length) = structure(&bytes).unwrap();
        assert_eq!(length, bytes.len() - 1);
        assert_eq!(value.int(1), Some(21));
        assert_eq!(value.get(2), Some(&Value::Bool(true)));
        assert_eq!(value.text(3).as_deref(), Some("hi"));
        assert_eq!(value.list(4), [Value::Int(1), Value::Int(2)]);
        assert_eq!(value.get(5).unwrap().int(1), Some(-1));
    }

    #[test]
    fn a_list_longer_than_its_input_is_refused() {
        assert_eq!(structure(&[0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x0f, 2, 2]), None);
    }

    #[test]
    fn endless_nesting_is_refused() {
        assert_eq!(structure(&[0x1c; 100]), None);
    }
}
