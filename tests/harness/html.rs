//! As much of HTML as the service's own pages have.

use std::collections::BTreeMap;

/// A form as a browser would submit it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// The origin that the browser will send with the form.
    pub(crate) origin: &'static str,
    pub(crate) method: String,
    pub(crate) action: String,
    /// Names and values of its inputs, in order.
    pub(crate) fields: Vec<(String, String)>,
    /// Names and values of its buttons.
    pub(crate) buttons: Vec<(String, String)>,
}

impl Form {
    /// The value of an input.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The form with these values instead of its own.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.retain(|(known, _)| known != name);
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The form without an input.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(known, _)| known != name);
        self
    }
}

/// The forms of a page that was served from `origin`.
pub(crate) fn forms(page: &str, origin: &'static str) -> Vec<Form> {
    let mut forms: Vec<Form> = Vec::new();
    for tag in tags(page) {
        let (name, rest) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
        let attributes = attributes(rest);
        let attribute = |name: &str| attributes.get(name).cloned().unwrap_or_default();
        let named = || {
            attributes
                .contains_key("name")
                .then(|| (attribute("name"), attribute("value")))
        };
        match (name, forms.last_mut()) {
            ("form", _) => forms.push(Form {
                origin,
                method: attribute("method"),
                action: attribute("action"),
                fields: Vec::new(),
                buttons: Vec::new(),
            }),
            // A browser sends a box only if it is checked.
            ("input", Some(_)) if attribute("type") == "checkbox" => {}
            ("input", Some(form)) => form.fields.extend(named()),
            ("button", Some(form)) => form.buttons.extend(named()),
            _ => {}
        }
    }
    forms
}

/// The text of the first element with this name.
pub(crate) fn text_of(page: &str, element: &str) -> String {
    let open = format!("<{element}");
    let from = page
        .match_indices(&open)
        .map(|(at, _)| at + open.len())
        .find(|at| page[*at..].starts_with(['>', ' ']))
        .unwrap_or_else(|| panic!("no {element} in {page}"));
    let content = page[from..].split_once('>').unwrap().1;
    let content = content.split_once(&format!("</{element}>")).unwrap().0;
    let mut text = String::new();
    let mut is_tag = false;
    for character in content.chars() {
        match character {
            '<' => is_tag = true,
            '>' => is_tag = false,
            _ if !is_tag => text.push(character),
            _ => {}
        }
    }
    unescape(&text)
}

fn tags(page: &str) -> impl Iterator<Item = &str> {
    page.split('<')
        .skip(1)
        .filter_map(|piece| piece.split_once('>'))
        .map(|(tag, _)| tag)
}

fn attributes(mut rest: &str) -> BTreeMap<String, String> {
    let mut attributes = BTreeMap::new();
    loop {
        rest = rest.trim_start();
        let end = rest.find([' ', '=']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.is_empty() {
            return attributes;
        }
        let (value, after) = match after.strip_prefix("=\"") {
            Some(quoted) => quoted.split_once('"').unwrap(),
            None => ("", after),
        };
        attributes.insert(name.to_owned(), unescape(value));
        rest = after;
    }
}

fn unescape(text: &str) -> String {
    text.replace("&quot;", "\"")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}

#[test]
fn a_form_is_read_as_it_is_drawn() {
    let page = r#"<h1 class="x">A &amp; <b>B</b></h1><form class="f" method="post" action="/login?a=1&amp;b=2">
        <input type="hidden" name="csrf" value="&quot;&lt;"><input required name="empty" autofocus>
        <button type="submit" name="decision" value="allow">Go</button></form>"#;
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        forms(page, "https://a.example"),
        [Form {
            origin: "https://a.example",
            method: "post".to_owned(),
            action: "/login?a=1&b=2".to_owned(),
            fields: vec![field("csrf", "\"<"), field("empty", "")],
            buttons: vec![field("decision", "allow")],
        }]
    );
    assert_eq!(text_of(page, "h1"), "A & B");
}
