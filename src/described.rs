//! Enums and records whose doc comments are text at run time too: the reference pages of the guide are made of it.

/// Declares an enum of named values, or a record of members that are sent as JSON.
///
/// An enum gets `ALL`, and for each value its name and its meaning, the doc comment. A record gets `MEMBERS`: the name of
/// each member as it is sent, and its doc comment. Members that are flattened come last, and are not among them.
macro_rules! described {
    (
        $(#[doc = $about:literal])*
        $(#[derive($($derive:tt)*)])?
        $(#[serde($($serde:tt)*)])?
        pub enum $name:ident {
            $($(#[doc = $doc:literal])* $variant:ident = $value:literal,)*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $(#[derive($($derive)*)])?
        $(#[serde($($serde)*)])?
        pub enum $name {
            $($(#[doc = $doc])* $variant,)*
        }

        impl $name {
            pub const ALL: [Self; [$($value,)*].len()] = [$(Self::$variant,)*];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $value,)*
                }
            }

            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),*).trim_ascii(),)*
                }
            }
        }
    };
    (
        $(#[doc = $about:literal])*
        #[derive($($derive:tt)*)]
        pub struct $name:ident $(<$life:lifetime>)? {
            $(
                $(#[doc = $doc:literal])*
                $(#[serde(rename = $rename:literal $(, skip_serializing_if = $rename_skip:literal)?)])?
                $(#[serde(skip_serializing_if = $skip:literal)])?
                pub $field:ident: $type:ty,
            )*
            $(
                #[serde(flatten)]
                $(#[doc = $flat_doc:literal])*
                pub $flat:ident: $flat_type:ty,
            )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive($($derive)*)]
        pub struct $name $(<$life>)? {
            $(
                $(#[doc = $doc])*
                $(#[serde(rename = $rename $(, skip_serializing_if = $rename_skip)?)])?
                $(#[serde(skip_serializing_if = $skip)])?
                pub $field: $type,
            )*
            $(
                #[serde(flatten)]
                $(#[doc = $flat_doc])*
                pub $flat: $flat_type,
            )*
        }

        impl $(<$life>)? $name $(<$life>)? {
            /// The names of the members and what they say, without those that are flattened.
            pub const MEMBERS: &'static [(&'static str, &'static str)] = &[
                $((described!(@name $field $($rename)?), concat!($($doc),*).trim_ascii()),)*
            ];
        }
    };
    (@name $field:ident $rename:literal) => { $rename };
    (@name $field:ident) => { stringify!($field) };
}

pub(crate) use described;
