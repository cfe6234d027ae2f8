//! Every sentence of the pages, in every language.
//!
//! A text with `{}` has a name or a number put in its place.

#[macro_use]
mod entries;
#[macro_use]
mod factor_texts;
#[macro_use]
mod device_texts;

mod ar;
mod de;
mod en;
mod es;
mod fr;
mod ja;
mod places;

pub use self::ar::AR;
pub use self::de::DE;
pub use self::en::EN;
pub use self::es::ES;
pub use self::fr::FR;
pub use self::ja::JA;
pub use self::places::{PLACE, PLACE_OPTIONAL, PLURAL};

use std::collections::BTreeMap;

with_device_texts! { with_factor_texts! { texts! {
    /// Heading and button of the sign-in page.
    pub sign_in: &'static str,
    /// Which application asked for the sign-in; `{}` is its name.
    pub sign_in_to: &'static str,
    /// Label.
    pub user_name: &'static str,
    /// Label.
    pub password: &'static str,
    /// Button that goes on with the present session; `{}` is the user.
    pub continue_as: &'static str,
    /// Between that button and the sign-in form.
    pub other_account: &'static str,
    /// The sign-in failed: wrong password, unknown or disabled user.
    pub problem_credentials: &'static str,
    /// The sign-in was not looked at: too many attempts.
    pub problem_throttled: &'static str,
    /// After either of them, if many attempts with this name have failed.
    pub problem_failed_often: &'static str,
    /// The sign-in was not looked at: too much to do.
    pub problem_busy: &'static str,
    /// The sign-in was not looked at: there is no memory for it.
    pub problem_out_of_memory: &'static str,
    /// The form was too old.
    pub problem_expired: &'static str,
    /// The page was opened under another address than that of the service; `{}` is that of the service.
    pub problem_elsewhere: &'static str,
    /// Between the sign-in form and the providers.
    pub other_way: &'static str,
    /// Link that leads to a provider; `{}` is its name.
    pub continue_with: &'static str,
    /// The user turned round at the provider.
    pub problem_provider_cancelled: &'static str,
    /// The provider's word does not count.
    pub problem_provider_failed: &'static str,
    /// The provider does not answer.
    pub problem_provider_unavailable: &'static str,
    /// The provider vouches for a person who is not a user here.
    pub problem_not_admitted: &'static str,
    /// The application accepts no password, and none of its providers is in service.
    pub problem_no_way: &'static str,
    /// An action on the account page needs this sign-in.
    pub problem_reauthentication_required: &'static str,
    /// Label.
    pub email: &'static str,
    /// Link beside the password.
    pub forgot_password: &'static str,
    /// Link, heading and button.
    pub create_account: &'static str,
    /// Link.
    pub back_to_sign_in: &'static str,
    /// Heading.
    pub recover_title: &'static str,
    /// What to do, and what follows.
    pub recover_lead: &'static str,
    /// What to do, and what follows.
    pub sign_up_lead: &'static str,
    /// Heading.
    pub check_mail_title: &'static str,
    /// What was sent; `{}` is the name or address that was typed.
    pub check_mail_reset: &'static str,
    /// What was sent; `{}` is the address that was typed.
    pub check_mail_sign_up: &'static str,
    /// Label.
    pub code: &'static str,
    /// What to do if no mail comes; [`Text::send_again`] follows.
    pub check_mail_note: &'static str,
    /// Link.
    pub send_again: &'static str,
    /// Heading.
    pub new_password_title: &'static str,
    /// Whose password; `{}` is the name to sign in with.
    pub new_password_lead: &'static str,
    /// For whom the operator requires another password.
    pub other_password_lead: &'static str,
    /// Whose account; `{}` is the address.
    pub new_account_lead: &'static str,
    /// The form was too old.
    pub problem_form_expired: &'static str,
    /// No mail was sent.
    pub problem_no_address: &'static str,
    /// No mail was sent.
    pub problem_address_not_allowed: &'static str,
    /// No mail was sent.
    pub problem_address_at_provider: &'static str,
    /// No account was created.
    pub problem_address_taken: &'static str,
    /// The code was not accepted.
    pub problem_code_wrong: &'static str,
    /// The code was not accepted.
    pub problem_code_over: &'static str,
    /// Link and heading.
    pub sign_in_by_mail: &'static str,
    /// What to do, and what follows.
    pub sign_in_by_mail_lead: &'static str,
    /// Who signs in; `{}` is the name to sign in with.
    pub sign_in_by_link_lead: &'static str,
    /// Heading: a link from a mail was opened in another browser.
    pub error_other_browser: &'static str,
    /// What happened, and what the reader can do.
    pub error_other_browser_advice: &'static str,
    /// Heading and button.
    pub secure_account: &'static str,
    /// What the button does; `{}` is the name to sign in with.
    pub secure_lead: &'static str,
    /// The link also sets the address back.
    pub secure_restores_address: &'static str,
    /// Heading.
    pub secured_title: &'static str,
    /// What to do next; `{}` is the name to sign in with.
    pub secured_lead: &'static str,
    /// Heading: a link from a mail cannot be used.
    pub error_link: &'static str,
    /// What happened, and what the reader can do.
    pub error_link_advice: &'static str,
    /// Heading.
    pub consent_title: &'static str,
    /// Before the list of scopes; `{}` is the application.
    pub consent_lead: &'static str,
    /// Who is signed in; `{}` is the user.
    pub consent_user: &'static str,
    /// After it, for an application whose identifier is the address of its metadata; `{}` is the host.
    pub consent_document: &'static str,
    /// After it, for an application that registered itself: who gets access; `{}` is the host.
    pub consent_host: &'static str,
    /// The same, if an application on the user's device gets access.
    pub consent_device: &'static str,
    /// After it: a warning.
    pub consent_trust: &'static str,
    /// The application registered itself; `{}` is the service.
    pub consent_unverified: &'static str,
    /// Link to sign in as another user.
    pub consent_not_you: &'static str,
    /// A consent did not count, because a user has signed in since the page was shown.
    pub problem_consent_again: &'static str,
    /// Button.
    pub allow: &'static str,
    /// Button.
    pub deny: &'static str,
    /// What the scope `openid` gives.
    pub scope_openid: &'static str,
    /// What the scope `profile` gives.
    pub scope_profile: &'static str,
    /// What the scope `email` gives.
    pub scope_email: &'static str,
    /// What the scope `phone` gives.
    pub scope_phone: &'static str,
    /// What the scope `address` gives.
    pub scope_address: &'static str,
    /// What the scope `offline_access` gives.
    pub scope_offline_access: &'static str,
    /// What the scope `groups` gives.
    pub scope_groups: &'static str,
    /// What access to an API gives; `{}` is the name of the API.
    pub scope_api: &'static str,
    /// Heading.
    pub logout_title: &'static str,
    /// Who is signed in; `{}` is the user.
    pub logout_user: &'static str,
    /// What signing out does, and how not to.
    pub logout_lead: &'static str,
    /// Button.
    pub sign_out: &'static str,
    /// Heading.
    pub logged_out_title: &'static str,
    /// Heading; `{}` is the name of the service.
    pub logged_out_of: &'static str,
    /// What to do next.
    pub logged_out_lead: &'static str,
    /// Where a session may still be open.
    pub logged_out_elsewhere: &'static str,
    /// Button.
    pub sign_in_again: &'static str,
    /// Button that leads to an application; `{}` is its name.
    pub back_to: &'static str,
    /// Heading: the request is at fault.
    pub error_request: &'static str,
    /// Heading: there is no such page.
    pub error_not_found: &'static str,
    /// Heading: the sign-in has expired, or belongs to another browser.
    pub error_stale: &'static str,
    /// Heading: a sign-in cannot go on, and the browser sent no cookie.
    pub error_cookies: &'static str,
    /// Heading: the page was opened under another address.
    pub error_elsewhere: &'static str,
    /// Heading: a limit is exceeded.
    pub error_throttled: &'static str,
    /// Heading: too much to do.
    pub error_busy: &'static str,
    /// Heading: the service is at fault.
    pub error_server: &'static str,
    /// What the reader can do in any case. For templates: each of the service's pages says more.
    pub error_advice: &'static str,
    /// What happened, and what the reader can do.
    pub error_request_advice: &'static str,
    /// What happened, and what the reader can do.
    pub error_not_found_advice: &'static str,
    /// What happened to a sign-in that has expired, and what the reader can do.
    pub error_stale_advice: &'static str,
    /// What the reader can do about missing cookies.
    pub error_cookies_advice: &'static str,
    /// Where the page is to be opened. The place is the address of the service.
    pub error_elsewhere_advice: &'static str,
    /// What happened, and what the reader can do.
    pub error_throttled_advice: &'static str,
    /// What happened, and what the reader can do.
    pub error_server_advice: &'static str,
    /// Heading of what developers need.
    pub error_details: &'static str,
    /// Button.
    pub try_again: &'static str,
    /// Link to the help of the operator.
    pub contact: &'static str,
    /// Label.
    pub request_id: &'static str,
    /// Heading.
    pub form_post_title: &'static str,
    /// What is happening, and what to do if nothing does.
    pub form_post_lead: &'static str,
    /// Button.
    pub proceed: &'static str,
    /// Heading.
    pub home_title: &'static str,
    /// What the development server is for.
    pub home_lead: &'static str,
    /// Who can sign in; `{}` is the example user.
    pub home_user: &'static str,
    /// Where the example user's password is.
    pub home_password: &'static str,
    /// Heading.
    pub home_endpoints: &'static str,
    /// Heading.
    pub home_commands: &'static str,
    /// Button that copies a text.
    pub copy: &'static str,
    /// The same for a moment after that.
    pub copied: &'static str,
    /// Heading, and link to the page with the mails of the development server.
    pub dev_mail_title: &'static str,
    /// What the page shows.
    pub dev_mail_lead: &'static str,
    /// In the place of the list.
    pub dev_mail_none: &'static str,
    /// Heading: a mail as a server would get it.
    pub dev_mail_source: &'static str,
    /// Heading.
    pub tokens_title: &'static str,
    /// What the page shows.
    pub tokens_lead: &'static str,
    /// Heading: a token's JOSE header.
    pub token_header: &'static str,
    /// Heading: a token's claims.
    pub token_payload: &'static str,
    /// Label: a token as it was sent.
    pub token_raw: &'static str,
    /// Heading: the answer of the token endpoint.
    pub token_response: &'static str,
    /// Button that shows what was typed as a password.
    pub show_password: &'static str,
    /// While a new password is typed; `{}` is how many characters are missing.
    pub strength_missing: &'static str,
    /// The same, for a password of few different characters.
    pub strength_weak: &'static str,
    /// The same, for a password of some length.
    pub strength_fair: &'static str,
    /// The same, for a long one.
    pub strength_strong: &'static str,
    /// Subject; `{}` is the name of the product, as in all other texts of mails if they do not say otherwise.
    pub mail_test_subject: &'static str,
    /// First sentence.
    pub mail_test_lead: &'static str,
    /// Why this mail came.
    pub mail_test_why: &'static str,
    /// Subject of two mails: for a new account, and for a new address.
    pub mail_confirm_subject: &'static str,
    /// Button of two mails: for a new account, and of an invitation.
    pub mail_create_account: &'static str,
    /// First sentence.
    pub mail_sign_up_lead: &'static str,
    /// Why this mail came.
    pub mail_sign_up_why: &'static str,
    /// Subject: an account was asked for with an address that has one.
    pub mail_known_subject: &'static str,
    /// First sentence.
    pub mail_known_lead: &'static str,
    /// Why this mail came.
    pub mail_known_why: &'static str,
    /// Subject.
    pub mail_invitation_subject: &'static str,
    /// First sentence.
    pub mail_invitation_lead: &'static str,
    /// Why this mail came.
    pub mail_invitation_why: &'static str,
    /// Subject.
    pub mail_reset_subject: &'static str,
    /// First sentence.
    pub mail_reset_lead: &'static str,
    /// Button.
    pub mail_reset_button: &'static str,
    /// Why this mail came.
    pub mail_reset_why: &'static str,
    /// Subject.
    pub mail_sign_in_subject: &'static str,
    /// First sentence.
    pub mail_sign_in_lead: &'static str,
    /// Why this mail came.
    pub mail_sign_in_why: &'static str,
    /// First sentence.
    pub mail_verify_lead: &'static str,
    /// Button.
    pub mail_verify_button: &'static str,
    /// Why this mail came.
    pub mail_verify_why: &'static str,
    /// Subject: a browser that was not used before signed in.
    pub mail_device_subject: &'static str,
    /// First sentence.
    pub mail_device_lead: &'static str,
    /// Subject.
    pub mail_password_subject: &'static str,
    /// First sentence.
    pub mail_password_lead: &'static str,
    /// Subject.
    pub mail_address_subject: &'static str,
    /// First sentence.
    pub mail_address_lead: &'static str,
    /// Why this mail came.
    pub mail_address_why: &'static str,
    /// Why this mail came: for all other mails that say what happened.
    pub mail_notice_why: &'static str,
    /// Before the button, in mails that say what happened.
    pub mail_secure_lead: &'static str,
    /// Button.
    pub mail_secure: &'static str,
    /// Before the link.
    pub mail_link: &'static str,
    /// Before the code.
    pub mail_code: &'static str,
    /// `{}` is a time.
    pub mail_expires: &'static str,
    /// Label.
    pub mail_device: &'static str,
    /// Label.
    pub mail_network: &'static str,
    /// Label.
    pub mail_time: &'static str,
    /// Label.
    pub mail_new_address: &'static str,
    /// Heading of the account page.
    pub account_title: &'static str,
    /// The account page within a sentence, where an application has its name.
    pub account_name: &'static str,
    /// Link and heading: the name and the settings of the user.
    pub account_profile: &'static str,
    /// Link to the sessions.
    pub account_devices: &'static str,
    /// Link to the applications.
    pub account_apps: &'static str,
    /// Label.
    pub account_display_name: &'static str,
    /// Heading.
    pub account_sessions: &'static str,
    /// Beside the browser that shows the page.
    pub account_this_browser: &'static str,
    /// In the place of a browser's name.
    pub account_unknown_device: &'static str,
    /// Before the time of a sign-in.
    pub account_signed_in: &'static str,
    /// Before the time of the last use.
    pub account_last_used: &'static str,
    /// Button.
    pub account_sign_out_others: &'static str,
    /// Heading.
    pub account_applications: &'static str,
    /// What can be done with them.
    pub account_applications_note: &'static str,
    /// In the place of the list.
    pub account_no_applications: &'static str,
    /// Before a time.
    pub account_since: &'static str,
    /// Button.
    pub account_disconnect: &'static str,
    /// Label.
    pub claim_given_name: &'static str,
    /// Label.
    pub claim_family_name: &'static str,
    /// Label.
    pub claim_nickname: &'static str,
    /// Label.
    pub claim_phone_number: &'static str,
    /// The present address; `{}` is the address.
    pub account_email_present: &'static str,
    /// Label.
    pub account_email_new: &'static str,
    /// Button.
    pub account_email_change: &'static str,
    /// It was done.
    pub account_email_requested: &'static str,
    /// The operator does not allow the new address.
    pub account_email_not_allowed: &'static str,
    /// The address was changed a short time ago.
    pub account_email_wait: &'static str,
    /// It was done.
    pub account_profile_edited: &'static str,
    /// Link and heading: the account as a whole.
    pub account_data: &'static str,
    /// What the file has in it.
    pub account_export_note: &'static str,
    /// Button.
    pub account_export: &'static str,
    /// What the button ends.
    pub account_delete_note: &'static str,
    /// Label; `{}` is the name to sign in with.
    pub account_delete_confirm: &'static str,
    /// Heading and button.
    pub account_delete: &'static str,
    /// The account was not deleted.
    pub problem_delete_confirm: &'static str,
    /// Heading and button.
    pub verify_address: &'static str,
    /// What the button does; `{}` is the address.
    pub verify_address_lead: &'static str,
    /// Heading.
    pub address_verified_title: &'static str,
    /// What holds now; `{}` is the address.
    pub address_verified_lead: &'static str,
    /// A time within the last minute.
    pub just_now: &'static str,
    /// A time in the past, in the forms of its number: see [`PLURAL`].
    pub minutes_ago: &'static str,
    /// The same.
    pub hours_ago: &'static str,
    /// The same.
    pub days_ago: &'static str,
    /// What a new password does.
    pub account_password_note: &'static str,
    /// In the place of the form for a password.
    pub account_no_password: &'static str,
    /// Label.
    pub account_current_password: &'static str,
    /// Label.
    pub account_new_password: &'static str,
    /// Beside it; `{}` is a number.
    pub account_password_rule: &'static str,
    /// Button.
    pub account_change_password: &'static str,
    /// Heading.
    pub account_language: &'static str,
    /// Label.
    pub account_language_label: &'static str,
    /// The choice to leave it to the browser.
    pub account_language_automatic: &'static str,
    /// Button.
    pub account_save: &'static str,
    /// It was done.
    pub account_password_changed: &'static str,
    /// It was done.
    pub account_signed_out: &'static str,
    /// It was done.
    pub account_disconnected: &'static str,
    /// It was done.
    pub account_language_chosen: &'static str,
    /// Nothing was done yet.
    pub account_action_pending: &'static str,
    /// The password was not changed.
    pub problem_current_password: &'static str,
    /// The password was not changed.
    pub problem_too_short: &'static str,
    /// The password was not changed; `{}` is a number of bytes.
    pub problem_too_long: &'static str,
    /// The password was not changed.
    pub problem_guessable: &'static str,
    /// The password was not changed.
    pub problem_same_password: &'static str,
    /// Nothing was done.
    pub problem_expired_account: &'static str,
} } }
