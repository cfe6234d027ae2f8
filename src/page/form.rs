//! Parts that several pages are made of.

use maud::{Markup, html};

use super::text::PLACE;

/// A field that is sent and not seen.
pub fn hidden(name: &str, value: &str) -> Markup {
    html! { input type="hidden" name=(name) value=(value); }
}

/// A sentence with one `{}`, where `part` stands.
///
/// `part` comes from somebody else: it is set apart, so that its writing direction does not turn the
/// sentence around.
pub fn sentence(template: &str, part: &str) -> Markup {
    let (before, after) = template.split_once(PLACE).unwrap_or((template, ""));
    html! { (before) bdi.name { (part) } (after) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_takes_its_part_in_the_middle_and_escapes_it() {
        assert_eq!(
            sentence("to {} now", "<b>").into_string(),
            "to <bdi class=\"name\">&lt;b&gt;</bdi> now"
        );
    }

    #[test]
    fn a_hidden_value_cannot_leave_its_attribute() {
        assert_eq!(
            hidden("csrf", "\"><script>").into_string(),
            "<input type=\"hidden\" name=\"csrf\" value=\"&quot;&gt;&lt;script&gt;\">"
        );
    }
}
