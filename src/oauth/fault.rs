//! What is wrong with a record that an administrator adds or changes, as data.
//!
//! A program acts on the code and the fields. The detail is a sentence about the rule and the value. It names no flag,
//! no key of a file and no command, since only the caller knows where the values come from.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of rule that a change breaks, in the manner of Kubernetes' `field.Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    /// A value is missing.
    Required,
    /// A value is malformed.
    Invalid,
    TooLong,
    /// A list has too many values.
    TooMany,
    /// There is no such record.
    NotFound,
    /// Another record has this name already.
    AlreadyExists,
    /// A value is well-formed, but other values or the service do not allow it.
    NotAllowed,
    /// Another record needs what would be taken away.
    InUse,
    /// The stored state is not the expected one. The same request may succeed later.
    Conflict,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordName {
    /// The kind of record, as in `client`.
    pub kind: String,
    /// Its identifier among those of its kind.
    pub id: String,
}

/// One rule that a change breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<RecordName>,
    /// The kind of rule.
    pub code: FaultCode,
    /// The members of the record that the rule is about, by their names in a state file. None if it is about the whole
    /// record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// The rule and the value, for people.
    pub detail: String,
}

impl FaultCode {
    /// A fault of these members.
    pub fn at<const N: usize>(self, fields: [&str; N], detail: impl Into<String>) -> Fault {
        Fault {
            subject: None,
            code: self,
            fields: fields.map(str::to_owned).into(),
            detail: detail.into(),
        }
    }

    /// A fault of a whole record.
    pub fn of(self, kind: &str, id: &str, detail: impl Into<String>) -> Fault {
        self.at([], detail).about(kind, id)
    }
}

impl Fault {
    /// Names the record, unless it is named already.
    #[must_use]
    pub fn about(mut self, kind: &str, id: &str) -> Self {
        self.subject.get_or_insert_with(|| RecordName {
            kind: kind.to_owned(),
            id: id.to_owned(),
        });
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.id)
    }
}
