use super::*;

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
    for setting in reference::SETTINGS {
        let (section, name) = setting
            .key
            .split_once('.')
            .map_or(("", setting.key), |(section, name)| (section, name));
        let text = if section.is_empty() {
            format!("{name} = {}", setting.example)
        } else {
            format!("[{section}]\n{name} = {}", setting.example)
        };
        let parsed = file::parse(&text, Path::new("example"));
        assert_eq!(
            (parsed.values.len(), parsed.faults.len()),
            (1, 0),
            "{}",
            setting.key
        );
    }
}
