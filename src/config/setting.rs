//! What a setting is. One block says all of it: flag, environment variable, reference and schema follow.

use std::fmt;

use super::form::AnyForm;
use super::source::RawValue;

pub struct Setting<F: ?Sized = dyn AnyForm> {
    /// The key in the file, dotted.
    pub key: &'static str,
    /// The explanation in the reference.
    pub doc: &'static str,
    /// The default, if there is one.
    pub default: Option<Literal>,
    pub example: Literal,
    /// The name of the value in the help of the flag.
    pub value_name: &'static str,
    /// The help of the flag. `None` if the flag belongs to every command.
    pub help: Option<&'static str>,
    /// Which values it takes.
    pub form: F,
}

/// A value in the block of a setting. `Display` writes TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Literal {
    /// A string.
    Text(&'static str),
    Number(u64),
    /// `true` or `false`.
    Flag(bool),
    /// A list of strings.
    List(&'static [&'static str]),
}

impl Literal {
    /// The value as if it were written in the file.
    pub(super) fn raw(self) -> RawValue {
        match self {
            Self::Text(text) => RawValue::Text(text.to_owned()),
            Self::Number(number) => RawValue::Number(i64::try_from(number).unwrap_or(i64::MAX)),
            Self::Flag(flag) => RawValue::Flag(flag),
            Self::List(items) => RawValue::List(items.iter().map(|item| (*item).to_owned()).collect()),
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::List(items) => write!(f, "{items:?}"),
        }
    }
}

impl<F: ?Sized> Setting<F> {
    /// The environment variable that sets it: `IDSVC_` and the key in upper case, dots as underscores.
    pub fn env_name(&self) -> String {
        format!("IDSVC_{}", self.key.to_uppercase().replace('.', "_"))
    }

    /// The flag of `idsvc serve` that sets it, with its dashes.
    pub fn flag_name(&self) -> String {
        format!("--{}", self.flag())
    }

    /// The name of that flag, without its dashes.
    pub fn flag(&self) -> String {
        match self.key {
            // This flag sets up a whole public service, so its name is short.
            "acme.domains" => "acme".to_owned(),
            key => key.replace(['.', '_'], "-"),
        }
    }

    /// The section of the file; keys at the top have none.
    pub fn section(&self) -> Option<&'static str> {
        self.key.split_once('.').map(|(section, _)| section)
    }

    /// The key without its section.
    pub fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }
}

impl<F: AnyForm + ?Sized> Setting<F> {
    /// The message about a value of the wrong type.
    pub(super) fn wrong_type(&self) -> String {
        let Self { key, example, .. } = self;
        let wanted = self.form.shape().wanted();
        format!("{key} must be {wanted}, as in {key} = {example}")
    }
}
