use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::config::form::Shape;

#[test]
fn the_reference_sets_the_defaults_when_its_keys_are_uncommented() {
    let text: String = reference_text::reference()
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if !key.is_empty() && !key.starts_with(' ') => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let from_reference = resolve(&sources_of(
        &[],
        &[],
        &text
            .replace("[tls]", "[tls]\ncert = \"c.pem\"\nkey = \"k.pem\"")
            .replacen("\nlisten", "\nbase_url = \"https://id.example.com\"\nlisten", 1),
    ))
    .unwrap();
    let from_nothing = resolve(&sources_of(&[], &[], WHOLE)).unwrap();
    assert_eq!(format!("{from_reference:?}"), format!("{from_nothing:?}"));
    let uncommented = file::parse(&reference_text::reference(), Path::new("reference"));
    assert_eq!(uncommented, file::ParsedFile::default());
}

#[test]
fn examples_are_of_the_form_they_show() {
    for setting in reference::settings() {
        let text = format!("{} = {}", setting.key, setting.example);
        let parsed = file::parse(&text, Path::new("example"));
        assert_eq!(
            (parsed.values.len(), parsed.faults.len()),
            (1, 0),
            "{}",
            setting.key
        );
    }
}

/// The types of the schema, and its bounds, are those of the settings.
#[test]
fn the_schema_has_every_setting_and_nothing_else() {
    let schema = schema::schema();
    let sections: BTreeSet<_> = reference::settings()
        .filter_map(setting::Setting::section)
        .collect();
    let mut known = 0;
    for setting in reference::settings() {
        let section = setting
            .section()
            .map_or(&schema, |name| &schema["properties"][name]);
        assert_eq!(section["additionalProperties"], false, "{}", setting.key);
        let property = &section["properties"][setting.name()];
        let (kind, keyword) = match setting.form.shape() {
            Shape::Text | Shape::Time { .. } => ("string", "pattern"),
            Shape::Words(_) => ("string", "enum"),
            Shape::Number { .. } => ("integer", "maximum"),
            Shape::Flag => ("boolean", "type"),
            Shape::List { .. } => ("array", "items"),
        };
        assert_eq!(property["type"], kind, "{}", setting.key);
        for keyword in [keyword, "description", "examples"] {
            assert!(!property[keyword].is_null(), "{}: {keyword}", setting.key);
        }
        assert_eq!(
            property["default"].is_null(),
            setting.default.is_none(),
            "{}",
            setting.key
        );
        known += 1;
    }
    let properties = |object: &Value| object["properties"].as_object().unwrap().len();
    let in_sections: usize = sections
        .iter()
        .map(|name| properties(&schema["properties"][name]))
        .sum();
    assert_eq!(properties(&schema) - sections.len() + in_sections, known);
}

#[test]
fn the_schema_has_the_bounds_that_are_enforced() {
    let schema = schema::schema();
    let property = |section: &str, name: &str| schema["properties"][section]["properties"][name].clone();
    let port = &schema["properties"]["redirect_port"];
    assert_eq!((&port["minimum"], &port["maximum"]), (&json!(1), &json!(65_535)));
    let modes = json!(["files", "acme", "self-signed", "off"]);
    assert_eq!(property("tls", "mode")["enum"], modes);
    assert_eq!(property("accounts", "self_service")["items"]["enum"][5], "email");
    let code = property("lifetimes", "code");
    assert!(
        code["description"]
            .as_str()
            .unwrap()
            .ends_with(" Allowed: 1s to 10m.")
    );
    assert_eq!(code["pattern"], r"^(\s*[0-9]+\s*[smhd]\s*)$");
    assert_eq!(
        property("keys", "rotate_every")["pattern"],
        r"^(\s*[0-9]+\s*[smhd]\s*|off)$"
    );
    assert_eq!(property("password", "iterations")["default"], 2);
}

#[test]
fn every_default_and_every_example_can_be_read() {
    for setting in reference::settings() {
        for literal in setting.default.into_iter().chain([setting.example]) {
            assert_eq!(
                setting.form.check(&literal.raw()),
                Ok(()),
                "{} = {literal}",
                setting.key
            );
        }
    }
}
