//! The texts about devices that people allow on another device. They are members of the same list as the others.

/// Adds the texts to the list in `texts!`.
macro_rules! with_device_texts {
    ($outer:ident! { $texts:ident! { $($others:tt)* } }) => {
        $outer! { $texts! {
            $($others)*
            /// Heading of the page that takes the code of a device.
            pub device_title: &'static str,
            /// What to type.
            pub device_lead: &'static str,
            /// When not to go on: a swindler may have sent the code.
            pub device_warning: &'static str,
            /// The code was not accepted.
            pub problem_user_code: &'static str,
            /// The code can no longer be used.
            pub problem_device_over: &'static str,
            /// Heading of the page that asks for the decision.
            pub device_decision_title: &'static str,
            /// Before the code.
            pub device_compare: &'static str,
            /// Label.
            pub device_address: &'static str,
            /// Label: when the device asked.
            pub device_asked: &'static str,
            /// After the address of the device, if that of the browser differs; `{}` is the latter.
            pub device_other_address: &'static str,
            /// Heading after the decision.
            pub device_allowed_title: &'static str,
            /// What to do next.
            pub device_allowed_lead: &'static str,
            /// Heading after the decision.
            pub device_denied_title: &'static str,
            /// What follows.
            pub device_denied_lead: &'static str,
            /// Heading and button on the first page of the development server.
            pub home_device: &'static str,
            /// What the button does.
            pub home_device_lead: &'static str,
            /// What to do with the code that the page shows.
            pub home_device_wait: &'static str,
        } }
    };
}
