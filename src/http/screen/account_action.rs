//! What an action on the account page leads to.

use crate::http::response::HttpResponse;
use crate::pages::{AccountNotice, Security};

pub(super) enum ActionAnswer {
    /// It was done, or refused: the section says so.
    Notice(AccountNotice),
    /// The section with something in it that is shown once.
    Section(Box<SectionAnswer>),
    Http(Box<HttpResponse>),
}

pub(super) struct SectionAnswer {
    pub(super) security: Security,
    /// Why nothing was done.
    pub(super) notice: Option<AccountNotice>,
}
