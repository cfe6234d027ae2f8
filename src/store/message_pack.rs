//! Reads `MessagePack`. [`Reader`] finds the next value, and this is compiled once. Only what hands the value to a type is
//! compiled for each of the two hundred types in records.
//!
//! Numbers of 128 bits and structures without members, which no record has, are refused. So are bytes where a list is read.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

/// How deep values may be nested. It must exceed the depth of JSON input (`serde_json` stops at 128), which is nested in a
/// record.
const MAX_DEPTH: u16 = 256;

const NIL: u8 = 0xC0;

/// The bytes are not what was to be read. What they are is left out: it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed")]
pub struct Malformed;

impl Error for Malformed {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self
    }
}

/// The next value, or how many values are inside it.
enum Value<'de> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'de str),
    Bytes(&'de [u8]),
    Array(u32),
    Map(u32),
}

/// Reads values from the front of bytes.
pub struct Reader<'de> {
    rest: &'de [u8],
    depth: u16,
}

impl<'de> Reader<'de> {
    pub fn new(bytes: &'de [u8]) -> Self {
        Self {
            rest: bytes,
            depth: 0,
        }
    }

    /// Whether nothing is left to read.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn value(&mut self) -> Result<Value<'de>, Malformed> {
        let [marker] = self.array()?;
        Ok(match marker {
            0x00..=0x7F => Value::Unsigned(marker.into()),
            0x80..=0x8F => Value::Map(u32::from(marker & 0x0F)),
            0x90..=0x9F => Value::Array(u32::from(marker & 0x0F)),
            0xA0..=0xBF => Value::Text(self.text(u32::from(marker & 0x1F))?),
            NIL => Value::Nil,
            0xC2 => Value::Bool(false),
            0xC3 => Value::Bool(true),
            0xC4..=0xC6 => {
                let length = self.length(marker - 0xC4)?;
                Value::Bytes(self.take(length)?)
            }
            0xCA => Value::Float(f32::from_be_bytes(self.array()?).into()),
            0xCB => Value::Float(f64::from_be_bytes(self.array()?)),
            0xCC..=0xCE => Value::Unsigned(self.length(marker - 0xCC)?.into()),
            0xCF => Value::Unsigned(u64::from_be_bytes(self.array()?)),
            0xD0 => Value::Signed(i8::from_be_bytes(self.array()?).into()),
            0xD1 => Value::Signed(i16::from_be_bytes(self.array()?).into()),
            0xD2 => Value::Signed(i32::from_be_bytes(self.array()?).into()),
            0xD3 => Value::Signed(i64::from_be_bytes(self.array()?)),
            0xD9..=0xDB => {
                let length = self.length(marker - 0xD9)?;
                Value::Text(self.text(length)?)
            }
            0xDC..=0xDD => Value::Array(self.length(marker - 0xDB)?),
            0xDE..=0xDF => Value::Map(self.length(marker - 0xDD)?),
            0xE0..=0xFF => Value::Signed(i8::from_be_bytes([marker]).into()),
            // The extensions, and what is never used.
            0xC1 | 0xC7..=0xC9 | 0xD4..=0xD8 => return Err(Malformed),
        })
    }

    /// A number of one, two or four bytes, as `size` is 0, 1 or 2.
    fn length(&mut self, size: u8) -> Result<u32, Malformed> {
        Ok(match size {
            0 => u8::from_be_bytes(self.array()?).into(),
            1 => u16::from_be_bytes(self.array()?).into(),
            _ => u32::from_be_bytes(self.array()?),
        })
    }

    fn text(&mut self, length: u32) -> Result<&'de str, Malformed> {
        std::str::from_utf8(self.take(length)?).map_err(|_| Malformed)
    }

    fn take(&mut self, length: u32) -> Result<&'de [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn enter(&mut self, count: u32) -> Result<Members<'_, 'de>, Malformed> {
        if self.depth == MAX_DEPTH {
            return Err(Malformed);
        }
        self.depth += 1;
        Ok(Members {
            reader: self,
            left: count,
        })
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Malformed;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match self.value()? {
            Value::Nil => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Unsigned(value) => visitor.visit_u64(value),
            Value::Signed(value) => visitor.visit_i64(value),
            Value::Float(value) => visitor.visit_f64(value),
            Value::Text(value) => visitor.visit_borrowed_str(value),
            Value::Bytes(value) => visitor.visit_borrowed_bytes(value),
            Value::Array(count) => {
                let mut members = self.enter(count)?;
                let read = visitor.visit_seq(&mut members)?;
                members.leave().map(|()| read)
            }
            Value::Map(count) => {
                let mut members = self.enter(count)?;
                let read = visitor.visit_map(&mut members)?;
                members.leave().map(|()| read)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match self.rest.split_first() {
            Some((&NIL, rest)) => {
                self.rest = rest;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        visitor.visit_newtype_struct(self)
    }

    /// A variant without members is its name, any other a map from its name to what is in it.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        match self.value()? {
            Value::Text(name) => visitor.visit_enum(name.into_deserializer()),
            Value::Map(1) => {
                let mut members = self.enter(0)?;
                let read = visitor.visit_enum(&mut members)?;
                members.leave().map(|()| read)
            }
            _ => Err(Malformed),
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// What is inside an array, a map or a variant.
struct Members<'a, 'de> {
    reader: &'a mut Reader<'de>,
    left: u32,
}

impl Members<'_, '_> {
    /// Fails if something was not read.
    fn leave(self) -> Result<(), Malformed> {
        self.reader.depth -= 1;
        if self.left == 0 { Ok(()) } else { Err(Malformed) }
    }

    fn begins_another(&mut self) -> bool {
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

impl<'de> SeqAccess<'de> for &mut Members<'_, 'de> {
    type Error = Malformed;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Malformed> {
        if !self.begins_another() {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        let left = usize::try_from(self.left).ok()?;
        // Each is at least one byte.
        Some(left.min(self.reader.rest.len()))
    }
}

impl<'de> MapAccess<'de> for &mut Members<'_, 'de> {
    type Error = Malformed;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Malformed> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Malformed> {
        seed.deserialize(&mut *self.reader)
    }
}

impl<'de> EnumAccess<'de> for &mut Members<'_, 'de> {
    type Error = Malformed;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Malformed> {
        Ok((seed.deserialize(&mut *self.reader)?, self))
    }
}

impl<'de> VariantAccess<'de> for &mut Members<'_, 'de> {
    type Error = Malformed;

    fn unit_variant(self) -> Result<(), Malformed> {
        <()>::deserialize(&mut *self.reader)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Malformed> {
        seed.deserialize(&mut *self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Malformed> {
        self.reader.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.reader.deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests;
