//! What a claim of a user may be.

use serde_json::Value;

/// How deep the value of a claim may be nested. An answer nests it a little deeper than it was when it came in, and no
/// reader of JSON follows for ever.
pub const DEEPEST: usize = 64;

/// Whether whoever reads JSON can follow the value, wherever it stands.
pub fn is_followable(value: &Value) -> bool {
    is_nested_within(value, DEEPEST)
}

fn is_nested_within(value: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return !(value.is_array() || value.is_object());
    };
    match value {
        Value::Array(values) => values.iter().all(|value| is_nested_within(value, depth)),
        Value::Object(members) => members.values().all(|value| is_nested_within(value, depth)),
        _ => true,
    }
}
