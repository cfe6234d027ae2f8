//! Parts that several pages are made of.

use maud::{Markup, html};

use super::text::PLACE;
use super::{TemplateContext, Text};

/// A hidden field.
pub fn hidden(name: &str, value: &str) -> Markup {
    html! { input type="hidden" name=(name) value=(value); }
}

/// The hidden fields of a form that belongs to a login transaction.
pub fn transaction_fields(transaction: &str, csrf: &str) -> Markup {
    html! {
        (hidden("transaction", transaction))
        (hidden("csrf", csrf))
    }
}

/// A sentence with `part` in place of its `{}`.
///
/// `part` comes from outside. `bdi` isolates it, so that its writing direction does not change that of the sentence.
pub fn sentence(template: &str, part: &str) -> Markup {
    around(template, &html! { bdi.name { (part) } })
}

/// A sentence with a link to `href` in place of its `{}`. A sentence without a `{}` has no link.
pub fn sentence_with_link(template: &str, href: &str) -> Markup {
    around(template, &html! { a href=(href) { bdi { (href) } } })
}

fn around(template: &str, part: &Markup) -> Markup {
    html! {
        @match template.split_once(PLACE) {
            Some((before, after)) => { (before) (part) (after) },
            None => { (template) },
        }
    }
}

/// The way back to an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationLink {
    pub name: String,
    /// Its address, from the client's record.
    pub href: String,
}

impl ApplicationLink {
    /// The link to a made-up application.
    pub fn sample() -> Self {
        Self {
            name: "Acme Notes".to_owned(),
            href: "https://notes.example".to_owned(),
        }
    }

    pub fn label(&self, text: &Text<'_>) -> Markup {
        // A line box around the parts: a button is a flex box, which would drop the space between them.
        html! { span { (sentence(text.back_to, &self.name)) } }
    }

    /// Adds the fields for templates, empty if there is no application.
    pub fn fill_context(link: Option<&Self>, context: &mut TemplateContext) {
        context.text("application", link.map_or("", |link| &link.name));
        context.text("application_href", link.map_or("", |link| &link.href));
    }
}

/// A user, as pages name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Person {
    /// The display name.
    pub name: String,
    /// The name to sign in with. Two users may have the same display name, but not the same account.
    pub account_id: String,
}

impl Person {
    /// A made-up user.
    pub fn sample() -> Self {
        Self {
            name: "Alice Example".to_owned(),
            account_id: "alice@example.com".to_owned(),
        }
    }

    /// A sentence with the user in place of its `{}`: the display name, and the account id if it differs.
    pub fn in_sentence(&self, template: &str) -> Markup {
        let person = html! {
            bdi.name { (self.name) }
            @if self.account_id != self.name { " (" bdi { (self.account_id) } ")" }
        };
        around(template, &person)
    }
}

/// A field for a password, with a button that shows what was typed.
///
/// The script [`super::asset::File::Reveal`] shows the button. Without the script it stays hidden and leaves no gap.
pub struct PasswordField<'a> {
    /// The id in the page.
    pub id: &'a str,
    /// The name in the form.
    pub name: &'static str,
    pub label: &'a str,
    /// Address and text of a link on the line of the label.
    pub label_link: Option<(&'a str, &'a str)>,
    /// For password managers: `current-password` or `new-password`.
    pub autocomplete: &'static str,
    /// The label of the enter key on a screen keyboard.
    pub enterkeyhint: &'static str,
    /// The least number of characters of a new password. The rule is shown under the field; its id is the id of the field
    /// and `-hint`. As the user types, the script says there what is missing.
    pub least: Option<usize>,
    /// The ids of the elements that explain the field.
    pub described_by: Option<&'a str>,
    /// Whether the typed password is wrong.
    pub is_invalid: bool,
    /// Whether the field has the focus at first.
    pub has_focus: bool,
}

impl PasswordField<'_> {
    /// Draws the field with its label.
    pub fn draw(&self, text: &Text<'_>) -> Markup {
        let invalid = self.is_invalid.then_some("true");
        html! {
            div.field {
                @if let Some((href, link)) = self.label_link {
                    div.label-line {
                        label for=(self.id) { (self.label) }
                        a href=(href) data-optional { (link) }
                    }
                } @else {
                    label for=(self.id) { (self.label) }
                }
                div.secret {
                    // Left to right in every language: a password that is shown is read as it was typed.
                    input id=(self.id) name=(self.name) type="password" required dir="ltr"
                        autocomplete=(self.autocomplete) autocapitalize="none" autocorrect="off" spellcheck="false"
                        enterkeyhint=(self.enterkeyhint)
                        aria-describedby=[self.described_by] aria-invalid=[invalid] autofocus[self.has_focus];
                    button.reveal type="button" hidden aria-controls=(self.id) aria-pressed="false"
                        aria-label=(text.show_password) title=(text.show_password) {
                        svg viewBox="0 0 24 24" aria-hidden="true" {
                            path d="M2 12s3.5-6.5 10-6.5S22 12 22 12s-3.5 6.5-10 6.5S2 12 2 12zm13 0a3 3 0 1 1-6 0 3 3 0 0 1 6 0z" {}
                            path.strike d="m4 4 16 16" {}
                        }
                    }
                }
                @if let Some(least) = self.least {
                    p.note id={ (self.id) "-hint" } aria-live="polite" data-strength-of=(self.id) data-least=(least)
                        data-missing=(text.strength_missing) data-weak=(text.strength_weak)
                        data-fair=(text.strength_fair) data-strong=(text.strength_strong) {
                        (sentence(text.account_password_rule, &least.to_string()))
                    }
                }
            }
        }
    }
}

/// A field for a short code of digits: from a mail, or from an authenticator app.
pub struct CodeField<'a> {
    pub label: &'a str,
    /// The id of the element that explains what went wrong, if anything did.
    pub described_by: Option<&'a str>,
    /// Whether the typed code is wrong.
    pub is_invalid: bool,
    /// Whether the field has the focus at first.
    pub has_focus: bool,
}

impl CodeField<'_> {
    /// Draws the field with its label.
    pub fn draw(&self) -> Markup {
        html! {
            div.field {
                label for="code" { (self.label) }
                input.code #code name="code" type="text" required dir="ltr" inputmode="numeric"
                    autocomplete="one-time-code" maxlength="12" enterkeyhint="go"
                    aria-describedby=[self.described_by] aria-invalid=[self.is_invalid.then_some("true")]
                    autofocus[self.has_focus];
            }
        }
    }
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
    fn two_people_of_one_name_are_told_apart() {
        let alice = Person::sample();
        assert_eq!(
            alice.in_sentence("as {}.").into_string(),
            "as <bdi class=\"name\">Alice Example</bdi> (<bdi>alice@example.com</bdi>)."
        );
        let nameless = Person {
            name: alice.account_id.clone(),
            ..alice
        };
        assert_eq!(
            nameless.in_sentence("as {}.").into_string(),
            "as <bdi class=\"name\">alice@example.com</bdi>."
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
