//! Every sentence of the pages: its name, its form, and what it is for. `assets/locales/TAG.toml` has it in a language.

use std::collections::BTreeMap;

/// How a text marks the place of a name or a number.
pub const PLACE: &str = "{}";

/// What a text has besides words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Words only.
    Plain,
    /// The place of a name or a number.
    Place,
    /// A place that came when themes had been written with the text: that of a theme may be without it.
    OptionalPlace,
    /// A form for each kind of number, separated by `|`: see [`crate::pages::moment`].
    Plural,
}

/// A text in no language yet.
#[derive(Debug)]
pub struct Sentence {
    /// Its name in language files.
    pub name: &'static str,
    /// What it has besides words.
    pub form: Form,
    read: for<'a> fn(&Text<'a>) -> &'a str,
}

impl Sentence {
    pub fn named(name: &str) -> Option<&'static Self> {
        SENTENCES.iter().find(|sentence| sentence.name == name)
    }

    /// The sentence in the language of `text`.
    pub fn of<'a>(&self, text: &Text<'a>) -> &'a str {
        (self.read)(text)
    }
}

/// A language of the service itself.
#[derive(Debug)]
pub struct BuiltIn {
    /// The language tag.
    pub tag: &'static str,
    pub name: &'static str,
    pub text: &'static Text<'static>,
}

// `EN`, `DE` and so on, and `BUILT_IN`, the list of them: `packaging/embed.rs` makes them of `assets/locales`.
include!(concat!(env!("OUT_DIR"), "/locales.rs"));

macro_rules! sentences {
    ($($name:ident: $form:ident, $use:literal;)*) => {
        /// The texts of one language, of this service or of a theme.
        #[derive(Clone, Copy, Debug)]
        pub struct Text<'a> {
            $(#[doc = $use] pub $name: &'a str,)*
        }

        /// Every sentence, in the order of the pages.
        pub const SENTENCES: &[Sentence] = &[$(Sentence {
            name: stringify!($name),
            form: Form::$form,
            read: |text| text.$name,
        },)*];

        impl<'a> Text<'a> {
            /// These texts, with others in the place of some.
            #[must_use]
            pub fn with(mut self, others: &'a BTreeMap<String, String>) -> Self {
                $(if let Some(other) = others.get(stringify!($name)) {
                    self.$name = other;
                })*
                self
            }
        }
    };
}

sentences! {
    sign_in: Plain, "Heading and button of the sign-in page.";
    sign_in_to: Place, "Which application asked for the sign-in; `{}` is its name.";
    user_name: Plain, "Label.";
    password: Plain, "Label.";
    continue_as: Place, "Button that goes on with the present session; `{}` is the user.";
    other_account: Plain, "Between that button and the sign-in form.";
    problem_credentials: Plain, "The sign-in failed: wrong password, unknown or disabled user.";
    problem_throttled: Plain, "The sign-in was not looked at: too many attempts.";
    problem_throttled_wait: Plural, "The same as [`Text::problem_throttled`], if it is known how many minutes there are to wait.";
    problem_failed_often: Plain, "After either of them, if many attempts with this name have failed.";
    problem_busy: Plain, "The sign-in was not looked at: too much to do.";
    problem_out_of_memory: Plain, "The sign-in was not looked at: there is no memory for it.";
    problem_expired: Plain, "The form was too old.";
    problem_elsewhere: Place, "The page was opened under another address than that of the service; `{}` is that of the service.";
    other_way: Plain, "Between the sign-in form and the providers.";
    continue_with: Place, "Link that leads to a provider; `{}` is its name.";
    problem_provider_cancelled: Plain, "The user turned round at the provider.";
    problem_provider_failed: Plain, "The provider's word does not count.";
    problem_provider_unavailable: Plain, "The provider does not answer.";
    problem_not_admitted: Plain, "The provider vouches for a person who is not a user here.";
    problem_no_way: Plain, "The application accepts no password, and none of its providers is in service.";
    problem_reauthentication_required: Plain, "An action on the account page needs this sign-in.";
    email: Plain, "Label.";
    forgot_password: Plain, "Link beside the password.";
    create_account: Plain, "Link, heading and button.";
    back_to_sign_in: Plain, "Link.";
    recover_title: Plain, "Heading.";
    recover_lead: Plain, "What to do, and what follows.";
    sign_up_lead: Plain, "What to do, and what follows.";
    check_mail_title: Plain, "Heading.";
    check_mail_reset: Place, "What was sent; `{}` is the name or address that was typed.";
    check_mail_sign_up: Place, "What was sent; `{}` is the address that was typed.";
    code: Plain, "Label.";
    check_mail_note: Plain, "What to do if no mail comes; [`Text::send_again`] follows.";
    send_again: Plain, "Link.";
    new_password_title: Plain, "Heading.";
    new_password_lead: Place, "Whose password; `{}` is the name to sign in with.";
    other_password_lead: Place, "For whom the operator requires another password.";
    new_account_lead: Place, "Whose account; `{}` is the address.";
    problem_form_expired: Plain, "The form was too old.";
    problem_no_address: Plain, "No mail was sent.";
    problem_address_not_allowed: Plain, "No mail was sent.";
    problem_address_at_provider: Plain, "No mail was sent.";
    problem_address_taken: Plain, "No account was created.";
    problem_code_wrong: Plain, "The code was not accepted.";
    problem_code_over: Plain, "The code was not accepted.";
    sign_in_by_mail: Plain, "Link and heading.";
    sign_in_by_mail_lead: Plain, "What to do, and what follows.";
    passkey_sign_in: Plain, "Button.";
    problem_passkey: Plain, "The passkey was not accepted.";
    passkey_not_used: Plain, "The browser brought no passkey.";
    passkey_needs_script: Plain, "Shown in browsers without scripts, if a passkey is the only way.";
    problem_passkey_unknown: Plain, "Nobody has this passkey.";
    passkeys: Plain, "Heading.";
    passkeys_note: Plain, "What a passkey is.";
    passkey_add: Plain, "Button.";
    passkey_then_again: Plain, "After the link to add a passkey, where the application takes nothing else.";
    factor_name: Plain, "Label.";
    factor_rename: Plain, "Button.";
    passkey_synced: Plain, "Beside a passkey that other devices have too.";
    passkey_offer_title: Plain, "Heading of the page that offers a passkey; [`Text::passkeys_note`] follows.";
    passkey_create: Plain, "Button.";
    passkey_later: Plain, "Button that declines the offer.";
    problem_passkey_add: Plain, "No passkey was added.";
    problem_passkey_exists: Plain, "The device has a passkey of the user.";
    passkey_added: Plain, "It was done.";
    factor_renamed: Plain, "A factor has another name.";
    sign_in_by_link_lead: Place, "Who signs in; `{}` is the name to sign in with.";
    error_other_browser: Plain, "Heading: a link from a mail was opened in another browser.";
    error_other_browser_advice: Plain, "What happened, and what the reader can do.";
    secure_account: Plain, "Heading and button.";
    secure_lead: Place, "What the button does; `{}` is the name to sign in with.";
    secure_restores_address: Place, "The link also sets the address back.";
    secured_title: Plain, "Heading.";
    secured_lead: Place, "What to do next; `{}` is the name to sign in with.";
    error_link: Plain, "Heading: a link from a mail cannot be used.";
    error_link_advice: Plain, "What happened, and what the reader can do.";
    error_link_used: Plain, "The same, of a link that was used.";
    error_link_expired: Plain, "The same, of a link that has expired.";
    error_invitation_revoked: Plain, "The same, of an invitation that was revoked.";
    error_invitation_replaced: Plain, "The same, of an invitation that a newer one has replaced.";
    error_link_undoes_nothing: Plain, "The same, of a mail that said what happened: the account has changed since.";
    consent_title: Plain, "Heading.";
    consent_lead: Place, "Before the list of scopes; `{}` is the application.";
    consent_user: Place, "Who is signed in; `{}` is the user.";
    consent_document: Place, "After it, for an application whose identifier is the address of its metadata; `{}` is the host.";
    consent_host: Place, "After it, for an application that registered itself: who gets access; `{}` is the host.";
    consent_device: Plain, "The same, if an application on the user's device gets access.";
    consent_trust: Plain, "After it: a warning.";
    consent_unverified: Place, "The application registered itself; `{}` is the service.";
    consent_policy: Place, "Link to the privacy policy of the application; `{}` is the host of the page.";
    consent_terms: Place, "Link to the terms of service of the application; `{}` is the host of the page.";
    consent_not_you: Plain, "Link to sign in as another user.";
    problem_consent_again: Plain, "A consent did not count, because a user has signed in since the page was shown.";
    allow: Plain, "Button.";
    deny: Plain, "Button.";
    scopes_identity: Plain, "Heading on the consent page: scopes that tell who the user is.";
    scopes_other: Plain, "Heading on the consent page: scopes of no API.";
    scopes_offline: Plain, "Heading on the consent page: the scope `offline_access`.";
    scope_openid: Plain, "What the scope `openid` gives.";
    scope_profile: Plain, "What the scope `profile` gives.";
    scope_email: Plain, "What the scope `email` gives.";
    scope_phone: Plain, "What the scope `phone` gives.";
    scope_address: Plain, "What the scope `address` gives.";
    scope_offline_access: Plain, "What the scope `offline_access` gives.";
    scope_groups: Plain, "What the scope `groups` gives.";
    scope_api: Place, "What access to an API gives; `{}` is the name of the API.";
    no_access_title: Place, "Heading: the user may not use an application; `{}` is its name.";
    no_access_advice: Plain, "Why, and whom to ask.";
    logout_title: Plain, "Heading.";
    logout_user: Place, "Who is signed in; `{}` is the user.";
    logout_lead: Plain, "What signing out does, and how not to.";
    sign_out: Plain, "Button.";
    logged_out_title: Plain, "Heading.";
    logged_out_of: Place, "Heading; `{}` is the name of the service.";
    logged_out_lead: Plain, "What to do next.";
    logged_out_elsewhere: Plain, "Where a session may still be open.";
    sign_in_again: Plain, "Button.";
    back_to: Place, "Button that leads to an application; `{}` is its name.";
    error_request: Plain, "Heading: the request is at fault.";
    error_not_found: Plain, "Heading: there is no such page.";
    error_stale: Plain, "Heading: the sign-in has expired, or belongs to another browser.";
    error_cookies: Plain, "Heading: a sign-in cannot go on, and the browser sent no cookie.";
    error_elsewhere: Plain, "Heading: the page was opened under another address.";
    error_foreign_form: Plain, "Heading: the browser does not say that a page of this service sent the form.";
    error_throttled: Plain, "Heading: a limit is exceeded.";
    error_busy: Plain, "Heading: too much to do.";
    error_server: Plain, "Heading: the service is at fault.";
    error_advice: Plain, "What the reader can do in any case. For templates: each of the service's pages says more.";
    error_request_advice: Plain, "What happened, and what the reader can do.";
    error_not_found_advice: Plain, "What happened, and what the reader can do.";
    error_stale_advice: Plain, "What happened to a sign-in that has expired, and what the reader can do.";
    error_cookies_advice: Plain, "What the reader can do about missing cookies.";
    error_elsewhere_advice: Place, "Where the page is to be opened. The place is the address of the service.";
    error_foreign_form_advice: Plain, "What happened to a form from elsewhere, and what the reader can do.";
    error_throttled_advice: Plain, "What happened, and what the reader can do.";
    error_server_advice: Plain, "What happened, and what the reader can do.";
    error_details: Plain, "Heading of what developers need.";
    try_again: Plain, "Button.";
    contact: Plain, "Link to the help of the operator.";
    request_id: Plain, "Label.";
    form_post_title: Plain, "Heading.";
    form_post_lead: Plain, "What is happening, and what to do if nothing does.";
    proceed: Plain, "Button.";
    show_password: Plain, "Button that shows what was typed as a password.";
    strength_missing: Place, "While a new password is typed; `{}` is how many characters are missing.";
    strength_weak: Plain, "The same, for a password of few different characters.";
    strength_fair: Plain, "The same, for a password of some length.";
    strength_strong: Plain, "The same, for a long one.";
    mail_test_subject: Place, "Subject; `{}` is the name of the product, as in all other texts of mails if they do not say otherwise.";
    mail_test_lead: Place, "First sentence.";
    mail_test_why: Place, "Why this mail came.";
    mail_confirm_subject: Place, "Subject of two mails: for a new account, and for a new address.";
    mail_create_account: Plain, "Button of two mails: for a new account, and of an invitation.";
    mail_sign_up_lead: Place, "First sentence.";
    mail_sign_up_why: Place, "Why this mail came.";
    mail_known_subject: Place, "Subject: an account was asked for with an address that has one.";
    mail_known_lead: Place, "First sentence.";
    mail_known_why: Place, "Why this mail came.";
    mail_invitation_subject: Place, "Subject.";
    mail_invitation_lead: Place, "First sentence.";
    mail_invitation_why: Place, "Why this mail came.";
    mail_reset_subject: Place, "Subject.";
    mail_reset_lead: Place, "First sentence.";
    mail_reset_button: Plain, "Button.";
    mail_reset_why: Place, "Why this mail came.";
    mail_sign_in_subject: Place, "Subject.";
    mail_sign_in_lead: Place, "First sentence.";
    mail_sign_in_why: Place, "Why this mail came.";
    mail_verify_lead: Place, "First sentence.";
    mail_verify_button: Plain, "Button.";
    mail_verify_why: Place, "Why this mail came.";
    mail_device_subject: Place, "Subject: a browser that was not used before signed in.";
    mail_device_lead: Place, "First sentence.";
    mail_password_subject: Place, "Subject.";
    mail_password_lead: Place, "First sentence.";
    mail_factor_added_subject: Place, "Subject; `{}` is the product.";
    mail_factor_added_lead: Place, "What happened; `{}` is the product.";
    mail_factor_removed_subject: Place, "Subject; `{}` is the product.";
    mail_factor_removed_lead: Place, "What happened; `{}` is the product.";
    mail_factors_end_subject: Place, "Subject; `{}` is the product.";
    mail_factors_end_lead: Place, "What the sign-in does after a day, and how to stop it; `{}` is the product.";
    mail_address_subject: Place, "Subject.";
    mail_address_lead: Place, "First sentence.";
    mail_address_why: Place, "Why this mail came.";
    mail_notice_why: Place, "Why this mail came: for all other mails that say what happened.";
    mail_secure_lead: Plain, "Before the button, in mails that say what happened.";
    mail_secure: Plain, "Button.";
    mail_link: Plain, "Before the link.";
    mail_code: Plain, "Before the code.";
    mail_expires: Place, "`{}` is a time.";
    mail_factor: Plain, "Label, before the factors that were added or removed.";
    mail_device: Plain, "Label.";
    mail_network: Plain, "Label.";
    mail_time: Plain, "Label.";
    mail_new_address: Plain, "Label.";
    account_title: Plain, "Heading of the account page.";
    account_name: Plain, "The account page within a sentence, where an application has its name.";
    account_profile: Plain, "Link and heading: the name and the settings of the user.";
    account_devices: Plain, "Link to the sessions.";
    account_apps: Plain, "Link to the applications.";
    account_display_name: Plain, "Label.";
    account_sessions: Plain, "Heading.";
    account_this_browser: Plain, "Beside the browser that shows the page.";
    account_unknown_device: Plain, "In the place of a browser's name.";
    account_signed_in: Plain, "Before the time of a sign-in.";
    account_last_used: Plain, "Before the time of the last use.";
    account_sign_out_others: Plain, "Button.";
    account_launcher: Plain, "Heading: the applications that the user may open.";
    account_launch: Plain, "Link to an application beside its name.";
    account_applications: Plain, "Heading.";
    account_applications_note: Plain, "What can be done with them.";
    account_no_applications: Plain, "In the place of the list.";
    account_since: Plain, "Before a time.";
    account_open: Place, "Link to an application, where a sign-in begins; `{}` is the host.";
    account_disconnect: Plain, "Button.";
    claim_given_name: Plain, "Label.";
    claim_family_name: Plain, "Label.";
    claim_nickname: Plain, "Label.";
    claim_phone_number: Plain, "Label.";
    account_email_present: Place, "The present address; `{}` is the address.";
    account_email_new: Plain, "Label.";
    account_email_change: Plain, "Button.";
    account_email_requested: Plain, "It was done.";
    account_email_not_allowed: Plain, "The operator does not allow the new address.";
    account_email_wait: Plain, "The address was changed a short time ago.";
    account_profile_edited: Plain, "It was done.";
    second_factor_title: Plain, "Heading of the page for the second step.";
    second_factor_lead: Plain, "What the person types: the code of an application.";
    second_factor_required: Plain, "Why the person sets up a factor now.";
    second_factor_remember: Plural, "Label of the box that remembers this browser. `{}` is the number of days.";
    second_factor_recovery_lead: Plain, "What the person types: a recovery code.";
    second_factor_passkey_lead: Plain, "What the person uses: a passkey, and nothing else.";
    recovery_code: Plain, "Label.";
    second_factor_none_left: Plain, "Button.";
    second_factor_none_left_note: Plain, "Before it: what it does.";
    second_factor_wait: Place, "When the second step ends, and how to stop that; `{}` is a time.";
    second_factor_use_recovery: Plain, "Link.";
    second_factor_use_app: Plain, "Link.";
    problem_second_factor: Plain, "The code was not accepted.";
    problem_second_factor_limit: Plain, "Too many codes were wrong.";
    account_security: Plain, "Link and heading: what confirms a sign-in.";
    security_lead: Plain, "What the section is for.";
    factor_passkey: Plain, "Name of a factor.";
    factor_totp: Plain, "Name of a factor.";
    factor_recovery_codes: Plain, "Name of a factor.";
    factor_added_at: Plain, "Before a time.";
    factor_codes_left: Place, "How many recovery codes are unused; `{}` is the number.";
    factor_remove: Plain, "Button.";
    factor_change: Plain, "Opens what can be done with a factor.";
    factor_remove_note: Plain, "What removing a factor does.";
    factor_remove_last: Plain, "What removing the last factor but the recovery codes does.";
    factor_remove_ends_step: Plain, "After it, if no second step is asked for then.";
    factor_remove_codes: Plain, "What removing the recovery codes does.";
    totp_add: Plain, "Button and heading.";
    totp_scan: Plain, "How to add the key to an application.";
    totp_type: Plain, "Before the key as text.";
    totp_code: Plain, "Label.";
    recovery_renew: Plain, "Button.";
    recovery_first: Plain, "Before it, if the user has passkeys and no other factor: what recovery codes change.";
    recovery_title: Plain, "Heading.";
    recovery_note: Plain, "What to do with them.";
    recovery_kept: Plain, "Link after the person has kept the codes.";
    recovery_print: Plain, "Button.";
    security_added: Plain, "It was done.";
    security_removed: Plain, "It was done.";
    problem_too_many_factors: Plain, "It was not done.";
    account_data: Plain, "Link and heading: the account as a whole.";
    account_export_note: Plain, "What the file has in it.";
    account_export: Plain, "Button.";
    account_delete_note: Plain, "What the button ends.";
    account_delete_confirm: Place, "Label; `{}` is the name to sign in with.";
    account_delete: Plain, "Heading and button.";
    problem_delete_confirm: Plain, "The account was not deleted.";
    verify_address: Plain, "Heading and button.";
    verify_address_lead: Place, "What the button does; `{}` is the address.";
    address_verified_title: Plain, "Heading.";
    address_verified_lead: Place, "What holds now; `{}` is the address.";
    just_now: Plain, "A time within the last minute.";
    minutes_ago: Plural, "A time in the past.";
    hours_ago: Plural, "The same.";
    days_ago: Plural, "The same.";
    account_password_note: Plain, "What a new password does.";
    account_no_password: Plain, "In the place of the form for a password.";
    account_current_password: Plain, "Label.";
    proof_password_or_code: Plain, "Label of a field that takes either.";
    proof_passkey: Plain, "Button in a form, in the place of the password.";
    problem_proof: Plain, "Neither the password nor a code nor a passkey was accepted. Nothing was done.";
    password_remove_added: Plain, "Before boxes with what confirms a sign-in, beside a new password.";
    password_remove_codes: Plain, "After them.";
    account_new_password: Plain, "Label.";
    account_password_rule: Place, "Beside it; `{}` is a number.";
    account_change_password: Plain, "Button.";
    account_language: Plain, "Heading.";
    account_language_label: Plain, "Label.";
    account_language_automatic: Plain, "The choice to leave it to the browser.";
    account_save: Plain, "Button.";
    account_password_changed: Plain, "It was done.";
    account_signed_out: Plain, "It was done.";
    account_disconnected: Plain, "It was done.";
    account_language_chosen: Plain, "It was done.";
    account_action_pending: Plain, "Nothing was done yet.";
    problem_current_password: Plain, "The password was not changed.";
    problem_too_short: Plain, "The password was not changed.";
    problem_too_long: OptionalPlace, "The password was not changed; `{}` is a number of bytes.";
    problem_guessable: Plain, "The password was not changed.";
    problem_same_password: Plain, "The password was not changed.";
    problem_expired_account: Plain, "Nothing was done.";
    device_title: Plain, "Heading of the page that takes the code of a device.";
    device_lead: Plain, "What to type.";
    device_warning: Plain, "When not to go on: a swindler may have sent the code.";
    problem_user_code: Plain, "The code was not accepted.";
    problem_device_over: Plain, "The code can no longer be used.";
    device_decision_title: Plain, "Heading of the page that asks for the decision.";
    device_compare: Plain, "Before the code.";
    device_address: Plain, "Label.";
    device_asked: Plain, "Label: when the device asked.";
    device_other_address: Place, "After the address of the device, if that of the browser differs; `{}` is the latter.";
    device_allowed_title: Plain, "Heading after the decision.";
    device_allowed_lead: Plain, "What to do next.";
    device_denied_title: Plain, "Heading after the decision.";
    device_denied_lead: Plain, "What follows.";
}
