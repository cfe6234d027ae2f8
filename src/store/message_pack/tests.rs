//! The reader is compared with that of rmp-serde, which writes.

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Variant {
    Unit,
    Newtype(u64),
    Tuple(i8, Option<bool>),
    Struct {
        name: String,
        inner: Box<Option<Variant>>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Newtype(Vec<i64>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    variants: Vec<Variant>,
    newtype: Newtype,
    letter: char,
    small: f32,
    bytes: [u8; 3],
    uuid: uuid::Uuid,
    nothing: (),
    #[serde(default)]
    absent: u32,
    #[serde(flatten)]
    rest: serde_json::Map<String, Json>,
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut reader = Reader::new(bytes);
    let value = T::deserialize(&mut reader)?;
    if reader.is_at_end() {
        Ok(value)
    } else {
        Err(Malformed)
    }
}

fn variants() -> impl Strategy<Value = Variant> {
    let leaf = prop_oneof![
        Just(Variant::Unit),
        any::<u64>().prop_map(Variant::Newtype),
        any::<(i8, Option<bool>)>().prop_map(|(number, choice)| Variant::Tuple(number, choice)),
    ];
    leaf.prop_recursive(5, 10, 1, |inner| {
        (".{0,40}", proptest::option::of(inner)).prop_map(|(name, inner)| Variant::Struct {
            name,
            inner: Box::new(inner),
        })
    })
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        (-1e300..1e300).prop_map(Json::from),
        ".{0,300}".prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 60, 20, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..20).prop_map(Json::from),
            proptest::collection::btree_map("[a-z]{0,40}", inner, 0..20)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

fn rows() -> impl Strategy<Value = Row> {
    let ends = (any::<char>(), -1e30_f32..1e30, any::<[u8; 3]>(), any::<u128>());
    (
        proptest::collection::vec(variants(), 0..20),
        proptest::collection::vec(any::<i64>(), 0..40),
        proptest::collection::btree_map("x[a-z]{0,9}", json(), 0..3),
        ends,
    )
        .prop_map(|(variants, numbers, rest, (letter, small, bytes, uuid))| Row {
            variants,
            newtype: Newtype(numbers),
            letter,
            small,
            bytes,
            uuid: uuid::Uuid::from_u128(uuid),
            nothing: (),
            absent: 7,
            rest: rest.into_iter().collect(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_read(row in rows()) {
        let bytes = rmp_serde::to_vec_named(&row).unwrap();
        prop_assert_eq!(read::<Row>(&bytes).unwrap(), row);
    }

    #[test]
    fn cut_and_changed_bytes_are_read_as_the_other_reader_reads_them(
        row in rows(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()
    ) {
        let mut bytes = rmp_serde::to_vec_named(&row).unwrap();
        prop_assert!(read::<Row>(&bytes[..cut.index(bytes.len())]).is_err());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        // The other reader takes more: variants by number, and names that are not UTF-8.
        if let Ok(ours) = Row::deserialize(&mut Reader::new(&bytes)) {
            let theirs = Row::deserialize(&mut rmp_serde::Deserializer::from_read_ref(&bytes));
            prop_assert_eq!(format!("{ours:?}"), format!("{:?}", theirs.unwrap()));
        }
    }
}

#[test]
fn every_marker_is_read_at_every_width() {
    for (bytes, json) in [
        (&[0x7F][..], "127"),
        (&[0xCC, 0xFF], "255"),
        (&[0xCD, 1, 0], "256"),
        (&[0xCE, 1, 0, 0, 0], "16777216"),
        (
            &[0xCF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
            "18446744073709551615",
        ),
        (&[0xE0], "-32"),
        (&[0xD0, 0x80], "-128"),
        (&[0xD1, 0x80, 0], "-32768"),
        (&[0xD2, 0x80, 0, 0, 0], "-2147483648"),
        (&[0xD3, 0x80, 0, 0, 0, 0, 0, 0, 0], "-9223372036854775808"),
        (&[0xCA, 0x3F, 0x80, 0, 0], "1.0"),
        (&[0xCB, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0], "1.0"),
        (&[0xC0], "null"),
        (&[0xC2], "false"),
        (&[0xC3], "true"),
        (&[0xA1, b'a'], "\"a\""),
        (&[0xD9, 1, b'a'], "\"a\""),
        (&[0xDA, 0, 1, b'a'], "\"a\""),
        (&[0xDB, 0, 0, 0, 1, b'a'], "\"a\""),
        (&[0x91, 1], "[1]"),
        (&[0xDC, 0, 1, 1], "[1]"),
        (&[0xDD, 0, 0, 0, 1, 1], "[1]"),
        (&[0x81, 0xA1, b'a', 1], "{\"a\":1}"),
        (&[0xDE, 0, 1, 0xA1, b'a', 1], "{\"a\":1}"),
        (&[0xDF, 0, 0, 0, 1, 0xA1, b'a', 1], "{\"a\":1}"),
    ] {
        let read: Json = read(bytes).unwrap();
        assert_eq!(read.to_string(), json, "{bytes:x?}");
    }
    for extension in [0xC1, 0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8] {
        let bytes = [[extension].as_slice(), &[0; 20]].concat();
        let mut reader = Reader::new(&bytes);
        assert_eq!(Json::deserialize(&mut reader), Err(Malformed), "{extension:x}");
    }
}

#[test]
fn what_a_type_leaves_over_is_refused() {
    assert_eq!(read::<(u8, u8)>(&[0x92, 1, 2]), Ok((1, 2)));
    assert_eq!(read::<(u8, u8)>(&[0x93, 1, 2, 3]), Err(Malformed));
    assert_eq!(read::<(u8, u8)>(&[0x91, 1]), Err(Malformed));
    assert_eq!(read::<u8>(&[0xCD, 1, 0]), Err(Malformed));
    assert_eq!(read::<String>(&[0xA1, 0xFF]), Err(Malformed));
    // A length that no memory holds.
    assert_eq!(read::<Vec<u64>>(&[0xDD, 0xFF, 0xFF, 0xFF, 0xFF]), Err(Malformed));
}
