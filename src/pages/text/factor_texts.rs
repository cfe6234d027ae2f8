//! The texts about factors and passkeys, and some others. They are members of the same list as the
//! others, which would be too long for one file.

/// Adds the texts to the list in `texts!`.
macro_rules! with_factor_texts {
    ($texts:ident! { $($others:tt)* }) => {
        $texts! {
            $($others)*
            /// The same as [`Text::problem_throttled`], if it is known how many minutes there are to wait.
            pub problem_throttled_wait: &'static str,
            /// Heading on the consent page: scopes that tell who the user is.
            pub scopes_identity: &'static str,
            /// Heading on the consent page: scopes of no API.
            pub scopes_other: &'static str,
            /// Heading on the consent page: the scope `offline_access`.
            pub scopes_offline: &'static str,
            /// Subject; `{}` is the product.
            pub mail_factor_added_subject: &'static str,
            /// What happened; `{}` is the product.
            pub mail_factor_added_lead: &'static str,
            /// Subject; `{}` is the product.
            pub mail_factor_removed_subject: &'static str,
            /// What happened; `{}` is the product.
            pub mail_factor_removed_lead: &'static str,
            /// Heading of the page for the second step.
            pub second_factor_title: &'static str,
            /// What the person types: the code of an application.
            pub second_factor_lead: &'static str,
            /// Why the person sets up a factor now.
            pub second_factor_required: &'static str,
            /// Label of the box that remembers this browser. `{}` is the number of days.
            pub second_factor_remember: &'static str,
            /// What the person types: a recovery code.
            pub second_factor_recovery_lead: &'static str,
            /// What the person uses: a passkey, and nothing else.
            pub second_factor_passkey_lead: &'static str,
            /// Label.
            pub recovery_code: &'static str,
            /// Link.
            pub second_factor_use_recovery: &'static str,
            /// Link.
            pub second_factor_use_app: &'static str,
            /// The code was not accepted.
            pub problem_second_factor: &'static str,
            /// Too many codes were wrong.
            pub problem_second_factor_limit: &'static str,
            /// Link and heading: what confirms a sign-in.
            pub account_security: &'static str,
            /// What the section is for.
            pub security_lead: &'static str,
            /// Name of a factor.
            pub factor_passkey: &'static str,
            /// Name of a factor.
            pub factor_totp: &'static str,
            /// Name of a factor.
            pub factor_recovery_codes: &'static str,
            /// Before a time.
            pub factor_added_at: &'static str,
            /// How many recovery codes are unused; `{}` is the number.
            pub factor_codes_left: &'static str,
            /// Button.
            pub factor_remove: &'static str,
            /// Opens what can be done with a factor.
            pub factor_change: &'static str,
            /// What removing a factor does.
            pub factor_remove_note: &'static str,
            /// What removing the last factor but the recovery codes does.
            pub factor_remove_last: &'static str,
            /// After it, if no second step is asked for then.
            pub factor_remove_ends_step: &'static str,
            /// What removing the recovery codes does.
            pub factor_remove_codes: &'static str,
            /// Button and heading.
            pub totp_add: &'static str,
            /// How to add the key to an application.
            pub totp_scan: &'static str,
            /// Before the key as text.
            pub totp_type: &'static str,
            /// Label.
            pub totp_code: &'static str,
            /// Button.
            pub recovery_renew: &'static str,
            /// Before it, if the user has passkeys and no other factor: what recovery codes change.
            pub recovery_first: &'static str,
            /// Heading.
            pub recovery_title: &'static str,
            /// What to do with them.
            pub recovery_note: &'static str,
            /// Link after the person has kept the codes.
            pub recovery_kept: &'static str,
            /// Button.
            pub recovery_print: &'static str,
            /// It was done.
            pub security_added: &'static str,
            /// It was done.
            pub security_removed: &'static str,
            /// It was not done.
            pub problem_too_many_factors: &'static str,
            /// Button.
            pub passkey_sign_in: &'static str,
            /// The passkey was not accepted.
            pub problem_passkey: &'static str,
            /// The browser brought no passkey.
            pub passkey_not_used: &'static str,
            /// Shown in browsers without scripts, if a passkey is the only way.
            pub passkey_needs_script: &'static str,
            /// Nobody has this passkey.
            pub problem_passkey_unknown: &'static str,
            /// Heading.
            pub passkeys: &'static str,
            /// What a passkey is.
            pub passkeys_note: &'static str,
            /// Button.
            pub passkey_add: &'static str,
            /// After the link to add a passkey, where the application takes nothing else.
            pub passkey_then_again: &'static str,
            /// Label.
            pub factor_name: &'static str,
            /// Button.
            pub factor_rename: &'static str,
            /// Beside a passkey that other devices have too.
            pub passkey_synced: &'static str,
            /// Heading of the page that offers a passkey; [`Text::passkeys_note`] follows.
            pub passkey_offer_title: &'static str,
            /// Button.
            pub passkey_create: &'static str,
            /// Button that declines the offer.
            pub passkey_later: &'static str,
            /// No passkey was added.
            pub problem_passkey_add: &'static str,
            /// The device has a passkey of the user.
            pub problem_passkey_exists: &'static str,
            /// It was done.
            pub passkey_added: &'static str,
            /// A factor has another name.
            pub factor_renamed: &'static str,
        }
    };
}
