//! Samples: every page in every state, with made-up users. Tests, the preview and the loading of a theme draw them.

use super::layout;
use crate::pages::dev::{DevDevice, DevMails, DevTokens, Home};
use crate::pages::{
    Account, AccountNotice, AccountSection, AddressForm, AddressProblem, CheckMail, ChoiceProblem,
    ChoosePassword, CodeProblem, ConfirmLink, Consent, Device, DeviceDecision, DeviceProblem, ErrorKind,
    ErrorPage, FormPost, LinkAction, Locale, LoggedOut, Login, LoginProblem, LogoutConfirm, NoAccess, Page,
    PasskeyOffer, SecondFactor, SecondFactorProblem,
};
use crate::themes::Theme;
use crate::themes::{Finding, RenderedPage, TemplateContext};

/// A page in one of its states.
pub struct Sample {
    /// The state in a word; empty for pages with one state only.
    pub state: &'static str,
    pub page: Box<dyn AnyPage>,
}

/// A page of any kind.
pub trait AnyPage: Send + Sync {
    /// The page's name.
    fn name(&self) -> &'static str;
    /// The whole document.
    fn draw(&self, theme: &Theme, locale: &Locale) -> RenderedPage;
    /// The whole document by the theme's template; `None` if it has none.
    fn draw_by_template(&self, theme: &Theme, locale: &Locale) -> Result<Option<String>, Vec<Finding>>;
    fn template_context(&self, theme: &Theme, locale: &Locale) -> TemplateContext;
}

impl<P: Page + Send + Sync> AnyPage for P {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn draw(&self, theme: &Theme, locale: &Locale) -> RenderedPage {
        theme.draw(self, locale)
    }

    fn draw_by_template(&self, theme: &Theme, locale: &Locale) -> Result<Option<String>, Vec<Finding>> {
        theme.draw_by_template(self, locale)
    }

    fn template_context(&self, theme: &Theme, locale: &Locale) -> TemplateContext {
        let mut context = TemplateContext::default();
        layout::fill(self, theme, locale, None, &mut context);
        context
    }
}

/// Every page in every state.
pub fn all() -> Vec<Sample> {
    fn states<P: Page + Send + Sync + 'static>(
        names: &[&'static str],
        pages: Vec<P>,
    ) -> impl Iterator<Item = Sample> {
        let names: Vec<_> = names.to_vec();
        pages.into_iter().enumerate().map(move |(at, page)| Sample {
            state: names.get(at).copied().unwrap_or_default(),
            page: Box::new(page),
        })
    }
    let mut all = Vec::new();
    let problems = LoginProblem::ALL.map(LoginProblem::kind);
    all.extend(states(
        &[
            &["first", "choice", "providers", "providers-only", "failed-often"][..],
            &problems,
        ]
        .concat(),
        Login::samples(),
    ));
    let first = ["reset", "sign-up", "sign-in"];
    let problems = AddressProblem::ALL.map(AddressProblem::kind);
    all.extend(states(&[&first[..], &problems].concat(), AddressForm::samples()));
    let problems = CodeProblem::ALL.map(CodeProblem::kind);
    all.extend(states(&[&first[..], &problems].concat(), CheckMail::samples()));
    let problems = SecondFactorProblem::ALL.map(SecondFactorProblem::kind);
    all.extend(states(
        &[&["first", "recovery", "setup", "remember"][..], &problems].concat(),
        SecondFactor::samples(),
    ));
    all.extend(states(&["first", "refused"], PasskeyOffer::samples()));
    let problems = ChoiceProblem::ALL.map(ChoiceProblem::kind);
    all.extend(states(
        &[&["reset", "sign-up", "required"][..], &problems].concat(),
        ChoosePassword::samples(),
    ));
    all.extend(states(
        &LinkAction::ALL.map(LinkAction::kind),
        ConfirmLink::samples(),
    ));
    all.extend(states(&["first", "again", "host", "device"], Consent::samples()));
    all.extend(states(&["first", "alone"], NoAccess::samples()));
    let problems = DeviceProblem::ALL.map(DeviceProblem::kind);
    all.extend(states(
        &[&["first", "filled"][..], &problems].concat(),
        Device::samples(),
    ));
    all.extend(states(
        &["first", "elsewhere", "allowed", "denied"],
        DeviceDecision::samples(),
    ));
    all.extend(states(&["known", "unknown"], LogoutConfirm::samples()));
    all.extend(states(&["application", "first"], LoggedOut::samples()));
    all.extend(states(&ErrorKind::ALL.map(ErrorKind::name), ErrorPage::samples()));
    let sections = AccountSection::ALL.map(AccountSection::name);
    let bare = [
        "profile-bare",
        "password-bare",
        "security-bare",
        "devices-bare",
        "applications-bare",
        "data-bare",
    ];
    let notices = AccountNotice::ALL.map(AccountNotice::kind);
    all.extend(states(
        &[
            &sections[..],
            &bare,
            &notices,
            &["security-setup", "security-codes"],
        ]
        .concat(),
        Account::samples(),
    ));
    all.extend(states(&[], vec![FormPost::sample()]));
    all.extend(states(&[], vec![Home::sample()]));
    all.extend(states(&[], vec![DevTokens::sample()]));
    all.extend(states(&[], vec![DevDevice::sample()]));
    all.extend(states(&["first", "none"], DevMails::samples()));
    all
}
