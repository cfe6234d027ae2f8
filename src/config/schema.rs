//! The JSON Schema of the file (draft 2020-12), as `idsvc config schema` prints it and editors read it.

use serde_json::{Map, Value, json};

use super::duration::PATTERN;
use super::form::Shape;
use super::reference::settings;
use super::setting::{Literal, Setting};

/// The schema: an object for each section, and no other keys.
pub fn schema() -> Value {
    let mut top = Map::new();
    let mut sections: Map<String, Value> = Map::new();
    for setting in settings() {
        let properties = match setting.section() {
            Some(section) => {
                let section = sections.entry(section).or_insert_with(|| object(&Map::new()));
                section.get_mut("properties").and_then(Value::as_object_mut)
            }
            None => Some(&mut top),
        };
        if let Some(properties) = properties {
            properties.insert(setting.name().to_owned(), property(setting));
        }
    }
    top.extend(sections);
    let mut schema = object(&top);
    if let Some(schema) = schema.as_object_mut() {
        schema.insert(
            "$schema".to_owned(),
            json!("https://json-schema.org/draft/2020-12/schema"),
        );
        schema.insert("title".to_owned(), json!("Settings of idsvc"));
    }
    schema
}

fn object(properties: &Map<String, Value>) -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn property(setting: &Setting) -> Value {
    let shape = setting.form.shape();
    let mut described = setting.doc.replace('\n', " ");
    if let Shape::Time {
        bounds: Some(bounds),
        takes_off,
    } = &shape
    {
        let off = if *takes_off { ", or off" } else { "" };
        described = format!("{described} Allowed: {bounds}{off}.");
    }
    let mut property = typed(shape);
    property.insert("description".to_owned(), described.into());
    property.insert("examples".to_owned(), json!([value(setting.example)]));
    if let Some(default) = setting.default {
        property.insert("default".to_owned(), value(default));
    }
    property.into()
}

/// The type, with its bounds.
fn typed(shape: Shape) -> Map<String, Value> {
    let keywords = match shape {
        Shape::Text => json!({ "type": "string", "pattern": r"\S" }),
        Shape::Words(words) => json!({ "type": "string", "enum": words }),
        Shape::Number { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Shape::Time { takes_off, .. } => {
            let off = if takes_off { "|off" } else { "" };
            json!({ "type": "string", "pattern": format!("^({PATTERN}{off})$") })
        }
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::List { words: None } => json!({ "type": "array", "items": { "type": "string" } }),
        Shape::List { words: Some(words) } => {
            json!({ "type": "array", "items": { "type": "string", "enum": words } })
        }
    };
    match keywords {
        Value::Object(keywords) => keywords,
        _ => Map::new(),
    }
}

fn value(literal: Literal) -> Value {
    match literal {
        Literal::Text(text) => text.into(),
        Literal::Number(number) => number.into(),
        Literal::Flag(flag) => flag.into(),
        Literal::List(items) => json!(items),
    }
}
