//! Keeps mails in memory in place of sending them, for the development server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

use crate::clock::Timestamp;

/// The most mails that are kept.
const MAX_MAILS: usize = 200;

#[derive(Clone, Debug)]
pub struct CaughtMail {
    pub id: Uuid,
    pub at: Timestamp,
    /// The address of the recipient.
    pub to: String,
    pub subject: String,
    pub text: String,
    pub html: String,
    /// Header and body, as a server would get it.
    pub source: String,
}

/// The mails of the development server, the newest first.
#[derive(Debug, Default)]
pub struct Catcher(Mutex<VecDeque<Arc<CaughtMail>>>);

impl Catcher {
    /// Keeps a mail. The oldest makes room for it.
    pub fn catch(&self, mail: CaughtMail) {
        let mut mails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mails.truncate(MAX_MAILS - 1);
        mails.push_front(Arc::new(mail));
    }

    /// All mails, the newest first.
    pub fn mails(&self) -> Vec<Arc<CaughtMail>> {
        let mails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mails.iter().cloned().collect()
    }

    pub fn mail(&self, id: Uuid) -> Option<Arc<CaughtMail>> {
        self.mails().into_iter().find(|mail| mail.id == id)
    }
}
