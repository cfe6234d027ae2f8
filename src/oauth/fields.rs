//! Records whose fields are listed once.
//!
//! From one list [`fields!`] makes the record, the type of its changes, and the names of the fields with the form of
//! their values in a file. [`Field`] applies the change of one field.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::jose::jwk::{JwkSet, PublicKey};
use crate::oauth::fault::{Fault, FaultCode};
use crate::oauth::list_edits::{ListEdits, edit_list, edit_lists, edit_texts, replaced};

/// The form of a value in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    /// Several texts.
    Texts,
    /// `true` or `false`.
    Flag,
    /// A whole number, zero or more.
    Number,
    /// A universally unique identifier.
    Uuid,
    Table,
    /// Several tables.
    Tables,
    TextOrTable,
}

impl Form {
    pub fn fits(self, value: &Value) -> bool {
        let all =
            |is_fit: fn(&Value) -> bool| value.as_array().is_some_and(|values| values.iter().all(is_fit));
        match self {
            Self::Text => value.is_string(),
            Self::Texts => all(Value::is_string),
            Self::Flag => value.is_boolean(),
            Self::Number => value.is_u64(),
            Self::Uuid => value.as_str().is_some_and(|text| Uuid::try_parse(text).is_ok()),
            Self::Table => value.is_object(),
            Self::Tables => all(Value::is_object),
            Self::TextOrTable => value.is_string() || value.is_object(),
        }
    }

    /// The name of the form in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Texts => "a list of texts, as in [\"one\", \"other\"]",
            Self::Flag => "true or false",
            Self::Number => "a whole number",
            Self::Uuid => "a uuid, as in 0193b2a4-7a10-7cc0-8000-000000000001",
            Self::Table => "a table, as in { name = \"value\" }",
            Self::Tables => "a list of tables",
            Self::TextOrTable => "a text or a table",
        }
    }
}

/// A field of a record that an operator may change.
pub trait Field {
    /// The new value as the operator sends it.
    type Change;
    /// The form of the new value in a file.
    const FORM: Form;

    /// Applies a change. Faults of the new value are added to `faults`, with `name`.
    fn change(&mut self, to: Self::Change, name: &str, faults: &mut Vec<Fault>);

    /// The change to the list after the edits.
    fn edited(
        &self,
        _: ListEdits<Option<Self::Change>>,
        name: &str,
        faults: &mut Vec<Fault>,
    ) -> Option<Self::Change> {
        faults.push(FaultCode::NotAllowed.at([name], format!("{} is not a list", in_words(name))));
        None
    }
}

/// A value that is stored as it was sent.
pub trait Plain {
    /// The form of the value in a file.
    const FORM: Form = Form::Text;
}

impl Plain for bool {
    const FORM: Form = Form::Flag;
}

impl Plain for u64 {
    const FORM: Form = Form::Number;
}

impl<T: Plain> Field for T {
    type Change = T;
    const FORM: Form = T::FORM;

    fn change(&mut self, to: T, _: &str, _: &mut Vec<Fault>) {
        *self = to;
    }
}

/// Whether a value is the default. Such a value is not written, as in rows from before the field existed.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A value, or none. An empty text stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removable<T>(pub Option<T>);

impl<T> From<T> for Removable<T> {
    fn from(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: Serialize> Serialize for Removable<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Removable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if value == "" {
            return Ok(Self(None));
        }
        T::deserialize(value).map(Self::from).map_err(D::Error::custom)
    }
}

impl<T: Plain> Field for Option<T> {
    type Change = Removable<T>;
    const FORM: Form = T::FORM;

    fn change(&mut self, to: Removable<T>, _: &str, _: &mut Vec<Fault>) {
        *self = to.0;
    }
}

impl<T: Plain + Ord + Clone + Serialize> Field for BTreeSet<T> {
    type Change = Vec<T>;
    const FORM: Form = Form::Texts;

    fn change(&mut self, to: Vec<T>, _: &str, _: &mut Vec<Fault>) {
        *self = to.into_iter().collect();
    }

    fn edited(
        &self,
        edits: ListEdits<Option<Vec<T>>>,
        name: &str,
        faults: &mut Vec<Fault>,
    ) -> Option<Vec<T>> {
        Some(edit_list(self.iter().cloned(), edits, name, faults))
    }
}

impl Field for String {
    type Change = Self;
    const FORM: Form = Form::Text;

    fn change(&mut self, to: Self, _: &str, _: &mut Vec<Fault>) {
        *self = to;
    }
}

/// An empty text removes the value.
impl Field for Option<String> {
    type Change = String;
    const FORM: Form = Form::Text;

    fn change(&mut self, to: String, name: &str, faults: &mut Vec<Fault>) {
        if !to.is_empty() {
            check_text(faults, name, &to);
        }
        *self = Some(to).filter(|text| !text.is_empty());
    }
}

/// A lifetime in seconds, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Lifetime(u64);

impl From<Lifetime> for Duration {
    fn from(lifetime: Lifetime) -> Self {
        Self::from_secs(lifetime.0)
    }
}

/// Zero removes the value.
impl Field for Option<Lifetime> {
    type Change = u64;
    const FORM: Form = Form::Number;

    fn change(&mut self, to: u64, _: &str, _: &mut Vec<Fault>) {
        *self = (to > 0).then_some(Lifetime(to));
    }
}

/// Empty texts and repetitions are left out.
impl Field for Vec<String> {
    type Change = Self;
    const FORM: Form = Form::Texts;

    fn change(&mut self, to: Self, _: &str, _: &mut Vec<Fault>) {
        self.clear();
        for text in to {
            if !text.is_empty() && !self.contains(&text) {
                self.push(text);
            }
        }
    }

    fn edited(&self, edits: ListEdits<Option<Self>>, name: &str, faults: &mut Vec<Fault>) -> Option<Self> {
        Some(edit_list(self.iter().cloned(), edits, name, faults))
    }
}

/// Empty texts are left out.
impl Field for BTreeSet<String> {
    type Change = Vec<String>;
    const FORM: Form = Form::Texts;

    fn change(&mut self, to: Vec<String>, _: &str, _: &mut Vec<Fault>) {
        *self = to.into_iter().filter(|text| !text.is_empty()).collect();
    }

    fn edited(
        &self,
        edits: ListEdits<Option<Vec<String>>>,
        name: &str,
        faults: &mut Vec<Fault>,
    ) -> Option<Vec<String>> {
        Some(edit_list(self.iter().cloned(), edits, name, faults))
    }
}

/// Each text replaces the one with its name. An empty text removes it.
impl Field for BTreeMap<String, String> {
    type Change = Self;
    const FORM: Form = Form::Table;

    fn change(&mut self, to: Self, name: &str, faults: &mut Vec<Fault>) {
        for (key, text) in to {
            if text.is_empty() {
                self.remove(&key);
            } else {
                check_text(faults, name, &text);
                self.insert(key, text);
            }
        }
    }

    fn edited(&self, edits: ListEdits<Option<Self>>, name: &str, faults: &mut Vec<Fault>) -> Option<Self> {
        Some(edit_texts(self, edits, name, faults))
    }
}

/// Each list replaces the stored list of the same key. An empty list removes the key.
impl Field for BTreeMap<String, BTreeSet<String>> {
    type Change = BTreeMap<String, Vec<String>>;
    const FORM: Form = Form::Table;

    fn change(&mut self, to: Self::Change, _: &str, _: &mut Vec<Fault>) {
        for (key, texts) in to {
            let texts: BTreeSet<_> = texts.into_iter().filter(|text| !text.is_empty()).collect();
            if texts.is_empty() {
                self.remove(&key);
            } else {
                self.insert(key, texts);
            }
        }
    }

    fn edited(
        &self,
        edits: ListEdits<Option<Self::Change>>,
        name: &str,
        faults: &mut Vec<Fault>,
    ) -> Option<Self::Change> {
        Some(edit_lists(self, edits, name, faults))
    }
}

/// Public keys, each a JSON Web Key (RFC 7517 section 4).
impl Field for Vec<Value> {
    type Change = Self;
    const FORM: Form = Form::Tables;

    fn change(&mut self, to: Self, name: &str, faults: &mut Vec<Fault>) {
        self.clear();
        if !to.is_empty() {
            match jwks_of(&json!({ "keys": to }).to_string()) {
                Ok(keys) => *self = keys,
                Err(problem) => faults.push(FaultCode::Invalid.at([name], problem)),
            }
        }
    }
}

/// The supported keys of a JWK Set.
pub fn jwks_of(document: &str) -> Result<Vec<Value>, String> {
    let set = JwkSet::parse(document.as_bytes()).map_err(|error| error.to_string())?;
    if set.keys.is_empty() {
        return Err("the key set has no key for signatures that is RSA, P-256, P-384 or Ed25519".to_owned());
    }
    Ok(set.keys.iter().map(jwk_of).collect())
}

/// The key as it is stored, without a generated `kid`: a key without a `kid` is used for tokens with any `kid`.
pub fn jwk_of(key: &PublicKey) -> Value {
    let mut jwk = key.to_jwk();
    if let (None, Some(members)) = (key.kid(), jwk.as_object_mut()) {
        members.remove("kid");
    }
    jwk
}

/// Checks a text that people read: it must not be empty or too long, or have control characters.
pub fn check_text(faults: &mut Vec<Fault>, field: &str, text: &str) {
    const LONGEST: usize = 1024;
    let mut refuse = |code: FaultCode, rule: &str| {
        faults.push(code.at([field], format!("{} {rule}", in_words(field))));
    };
    if text.trim().is_empty() {
        refuse(FaultCode::Invalid, "is empty");
    }
    if text.chars().any(char::is_control) {
        refuse(FaultCode::Invalid, "has control characters");
    }
    if text.len() > LONGEST {
        refuse(FaultCode::TooLong, &format!("is longer than {LONGEST} bytes"));
    }
}

/// The name of a field in a sentence.
pub fn in_words(field: &str) -> String {
    field.replace('_', " ")
}

/// A kind of record with its article.
pub fn with_article(kind: &str) -> String {
    match kind {
        "api" => "an API".to_owned(),
        kind => format!("a {}", in_words(kind)),
    }
}

/// Puts the whole list after the edits into the change `to` of a field.
pub(crate) fn edit<F: Field>(
    stored: &F,
    to: &mut Option<F::Change>,
    edits: ListEdits<Option<F::Change>>,
    name: &str,
    faults: &mut Vec<Fault>,
) {
    if to.is_some() {
        faults.push(replaced(name));
    } else {
        *to = stored.edited(edits, name, faults);
    }
}

/// Makes the record, the type of its changes, and the names and forms of the fields from a list of fields.
///
/// A line is `name as "outside name": Type = default value;`. Without `as` the field has the same name in JSON and in
/// files. Without `=` the default value is the default of the type.
macro_rules! fields {
    (
        $(#[$about_record:meta])* $record:ident;
        $(#[$about_change:meta])* $change:ident;
        $( $(#[$about:meta])* $field:ident $(as $name:literal)?: $type:ty $(= $default:expr)?; )*
    ) => {
        $(#[$about_record])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $record {
            $( $(#[$about])* $(#[serde(rename = $name)])? pub $field: $type, )*
        }

        impl Default for $record {
            fn default() -> Self {
                Self { $( $field: $crate::oauth::fields::fields!(@default $($default)?), )* }
            }
        }

        $(#[$about_change])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $change {
            $( $(#[$about])* $(#[serde(rename = $name)])?
               pub $field: Option<<$type as $crate::oauth::fields::Field>::Change>, )*
            /// What is added to lists that are not replaced, and what is removed from them.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub edits: Option<Box<$crate::oauth::list_edits::ListEdits<Self>>>,
        }

        impl $change {
            /// The names of the fields in JSON and in files, and the forms of their values in a file.
            pub const FIELDS: &'static [(&'static str, $crate::oauth::fields::Form)] = &[ $( (
                $crate::oauth::fields::fields!(@name $field $($name)?),
                <$type as $crate::oauth::fields::Field>::FORM,
            ), )* ];

            /// The change with whole lists in the place of edits of the lists in `record`. Faults are added to `faults`.
            #[must_use]
            pub fn apply_edits(mut self, record: &$record, faults: &mut Vec<$crate::oauth::Fault>) -> Self {
                let Some(edits) = self.edits.take() else {
                    return self;
                };
                let $crate::oauth::list_edits::ListEdits { add, remove } = *edits;
                $(
                    let edits = $crate::oauth::list_edits::ListEdits { add: add.$field, remove: remove.$field };
                    if edits.is_some() {
                        let name = $crate::oauth::fields::fields!(@name $field $($name)?);
                        $crate::oauth::fields::edit(&record.$field, &mut self.$field, edits, name, faults);
                    }
                )*
                self
            }

            /// Applies the change to a record. Faults are added to `faults`.
            pub fn apply(self, record: &mut $record, faults: &mut Vec<$crate::oauth::Fault>) {
                let change = self.apply_edits(record, faults);
                $( if let Some(to) = change.$field {
                    let name = $crate::oauth::fields::fields!(@name $field $($name)?);
                    $crate::oauth::fields::Field::change(&mut record.$field, to, name, faults);
                } )*
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
}
pub(crate) use fields;
