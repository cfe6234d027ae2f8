//! The page on which people type the code that a device shows (RFC 8628 section 3.3).

use maud::{Markup, html};

use super::form::hidden;
use super::moment::throttled;
use super::{Page, PageAddress, TemplateContext, Text};

/// Asks for the code of a device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Where the form is posted.
    pub action: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// The code as it was typed, or as the address has it. The person confirms it.
    pub user_code: String,
    /// Why the page is shown again.
    pub problem: Option<DeviceProblem>,
    /// After how many seconds the person may try again, if there were too many wrong codes.
    pub retry_after: Option<u64>,
}

/// Why a code was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceProblem {
    /// No device shows it.
    Wrong,
    /// It has expired, or a user has decided.
    Over,
    /// Too many wrong codes were typed; this one was not checked.
    Throttled,
    /// The form was too old or came from elsewhere.
    Expired,
}

impl DeviceProblem {
    /// Every problem, for tests and previews.
    pub const ALL: [Self; 4] = [Self::Wrong, Self::Over, Self::Throttled, Self::Expired];

    /// The word that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Wrong => "wrong",
            Self::Over => "over",
            Self::Throttled => "throttled",
            Self::Expired => "expired",
        }
    }
}

impl Device {
    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let first = Self {
            action: "/device".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            user_code: String::new(),
            problem: None,
            retry_after: None,
        };
        let filled = Self {
            user_code: "WDJB-MJHT".to_owned(),
            ..first.clone()
        };
        let failed = DeviceProblem::ALL.map(|problem| Self {
            problem: Some(problem),
            ..filled.clone()
        });
        let mut samples = vec![first, filled];
        samples.extend(failed);
        samples
    }

    /// Why the page is shown again, as a sentence; empty the first time.
    fn problem_text(&self, text: &Text<'_>) -> String {
        let sentence = match self.problem {
            Some(DeviceProblem::Throttled) => return throttled(self.retry_after, text),
            Some(DeviceProblem::Wrong) => text.problem_user_code,
            Some(DeviceProblem::Over) => text.problem_device_over,
            Some(DeviceProblem::Expired) => text.problem_form_expired,
            None => "",
        };
        sentence.to_owned()
    }

    fn problem(&self, text: &Text<'_>) -> Markup {
        html! {
            @if self.problem.is_some() { p.problem #problem role="alert" { (self.problem_text(text)) } }
        }
    }

    fn form(&self, text: &Text<'_>) -> Markup {
        let described_by = self.problem.map(|_| "problem");
        let invalid = (self.problem == Some(DeviceProblem::Wrong)).then_some("true");
        html! {
            form.stack method="post" action=(self.action) {
                (hidden("csrf", &self.csrf))
                div.field {
                    label for="user_code" { (text.code) }
                    input.code #user_code name="user_code" type="text" required dir="ltr" value=(self.user_code)
                        autocomplete="off" autocapitalize="characters" autocorrect="off" spellcheck="false"
                        maxlength="32" enterkeyhint="go" aria-describedby=[described_by] aria-invalid=[invalid]
                        autofocus;
                }
                button.button type="submit" { (text.proceed) }
            }
        }
    }
}

impl Page for Device {
    const NAME: &'static str = "device";

    fn title(&self, text: &Text<'_>) -> String {
        text.device_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (text.device_title) }
            p.lead { (text.device_lead) }
            (self.problem(text))
            (self.form(text))
            p.note { (text.device_warning) }
        }
    }

    fn address(&self) -> Option<PageAddress<'_>> {
        let code = Some(self.user_code.as_str()).filter(|code| !code.is_empty());
        Some(PageAddress {
            path: &self.action,
            parameters: code.map(|code| ("user_code", code)).into_iter().collect(),
        })
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("problem", || self.problem(text));
        context.part("form", || self.form(text));
        context.part("hidden", || hidden("csrf", &self.csrf));
        context.text("action", &self.action);
        context.text("csrf", &self.csrf);
        context.text("user_code", &self.user_code);
        context.text("problem_kind", self.problem.map_or("", DeviceProblem::kind));
        context.text("problem_text", &self.problem_text(text));
    }
}
