//! What users change themselves on the account page: the profile, the address, and the account as a whole.

use maud::{Markup, html};

use super::Text;
use super::form::{hidden, sentence};
use super::proof::{ProofForms, ProofRequest};

/// What the operator lets the user do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfService {
    /// The claims that the user edits: name of the claim and present value.
    pub claims: Vec<(String, String)>,
    /// The present e-mail address, if users may change theirs.
    pub email: Option<String>,
    /// Whether this user may change it now.
    pub changes_email: bool,
    /// Whether the user may export the data.
    pub exports: bool,
    /// Whether the user may delete the account.
    pub deletes: bool,
}

impl SelfService {
    /// A user who may do everything.
    pub fn sample() -> Self {
        let claim = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Self {
            claims: vec![
                claim("name", "Alice Example"),
                claim("phone_number", "+32 2 555 01 23"),
            ],
            email: Some("alice@example.com".to_owned()),
            changes_email: true,
            exports: true,
            deletes: true,
        }
    }

    /// Whether there is anything about the account as a whole.
    pub fn has_data(&self) -> bool {
        self.exports || self.deletes
    }

    /// The fields of the form for the profile.
    pub(super) fn profile_fields(&self, text: &Text<'_>) -> Markup {
        html! {
            (hidden("fields", &self.claims.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")))
            @for (name, value) in &self.claims {
                @let (label, autocomplete) = claim_field(name, text);
                div.field {
                    label for={ "claim-" (name) } { (label) }
                    input id={ "claim-" (name) } name=(name) type="text" value=(value) dir="auto" maxlength="200"
                        autocomplete=(autocomplete);
                }
            }
            button.button.button-quiet type="submit" { (text.account_save) }
        }
    }

    /// The fields of the form for the address.
    pub(super) fn email_fields(proof: &ProofRequest, text: &Text<'_>) -> Markup {
        html! {
            div.field {
                label for="email" { (text.account_email_new) }
                input #email name="email" type="email" required dir="auto" autocomplete="email" autocapitalize="none"
                    autocorrect="off" spellcheck="false";
            }
            (proof.draw("proof-email", text))
            button.button.button-quiet type="submit" { (text.account_email_change) }
        }
    }

    /// The section with the address and the form for another one; empty if users do not change theirs.
    pub(super) fn email_section(
        &self,
        form: &dyn Fn(&Markup) -> Markup,
        proof: &ProofRequest,
        text: &Text<'_>,
    ) -> Markup {
        html! {
            @if let Some(present) = &self.email {
                section aria-labelledby="address" {
                    h2 #address { (text.email) }
                    @if !present.is_empty() { p.note { (sentence(text.account_email_present, present)) } }
                    @if self.changes_email {
                        (form(&Self::email_fields(proof, text)))
                    } @else {
                        p.note { (text.account_email_wait) }
                    }
                }
            }
        }
    }

    /// The forms about the account as a whole; empty if the user may do nothing with it.
    pub(super) fn data(&self, account_id: &str, forms: ProofForms<'_>, text: &Text<'_>) -> Markup {
        let form = forms.form;
        let export = html! {
            button.button.button-quiet type="submit" { (text.account_export) }
        };
        html! {
            @if self.exports {
                section aria-labelledby="data" {
                    h2 #data { (text.account_data) }
                    p.note { (text.account_export_note) }
                    (form("export", &export))
                }
            }
            @if self.deletes {
                section aria-labelledby="delete" {
                    h2 #delete { (text.account_delete) }
                    p.note { (text.account_delete_note) }
                    (form("delete", &Self::deletion_fields(account_id, forms.proof, text)))
                }
            }
        }
    }

    /// The fields of the form that deletes the account. The user types the account identifier, so that no slip deletes it.
    fn deletion_fields(account_id: &str, proof: &ProofRequest, text: &Text<'_>) -> Markup {
        html! {
            div.field {
                label for="confirm" { (sentence(text.account_delete_confirm, account_id)) }
                input #confirm name="confirm" type="text" required dir="auto" autocomplete="off" autocapitalize="none"
                    autocorrect="off" spellcheck="false";
            }
            (proof.draw("proof-deletion", text))
            button.button.button-quiet type="submit" { (text.account_delete) }
        }
    }
}

/// The label of a claim, and what browsers fill in.
fn claim_field<'a>(name: &str, text: &Text<'a>) -> (&'a str, &'static str) {
    match name {
        "given_name" => (text.claim_given_name, "given-name"),
        "family_name" => (text.claim_family_name, "family-name"),
        "nickname" => (text.claim_nickname, "nickname"),
        "phone_number" => (text.claim_phone_number, "tel"),
        _ => (text.account_display_name, "name"),
    }
}
