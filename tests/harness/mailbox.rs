//! The mails that wait in the outbox of a service in this process.

use idsvc::flow::Core;
use idsvc::mail::{Content, Message};
use idsvc::store::StoreError;
use idsvc::store::records::OutboxEntry;
use idsvc::store::records::outbox_entry::Channel;
use idsvc::store::tables::OUTBOX;

use super::{ISSUER, Server};

/// A mail, as its recipient reads it.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) message: Message,
}

impl Server {
    /// The mails since the last call, oldest first. They are removed, as if they had been sent.
    pub(crate) async fn mails(&self) -> Vec<Mail> {
        let core = &self.app.core;
        let take = core.store.write("take_mails", |tx| -> Result<_, StoreError> {
            let entries = OUTBOX.scan(&*tx, .., usize::MAX)?;
            for (key, _) in &entries {
                OUTBOX.remove(tx, key)?;
            }
            Ok(entries)
        });
        let entries = take.await.unwrap();
        let sent = entries
            .into_iter()
            .filter(|(_, entry)| entry.channel == Channel::Mail);
        sent.map(|((_, id), entry)| Mail {
            message: open(core, id, &entry),
        })
        .collect()
    }

    /// The only mail since the last call.
    pub(crate) async fn mail(&self) -> Mail {
        let mut mails = self.mails().await;
        assert_eq!(mails.len(), 1, "{mails:?}");
        mails.remove(0)
    }

    /// The only mail for a new password since the last call.
    pub(crate) async fn reset_mail(&self) -> Mail {
        let mut mails = self.mails().await;
        mails.retain(|mail| matches!(mail.message.content, Content::ResetPassword { .. }));
        assert_eq!(mails.len(), 1, "{mails:?}");
        mails.remove(0)
    }
}

fn open(core: &Core, id: uuid::Uuid, entry: &OutboxEntry) -> Message {
    let plain = core
        .sealer
        .open_text(&OutboxEntry::context(id), &entry.sealed)
        .unwrap();
    serde_json::from_str(&plain).unwrap()
}

impl Mail {
    /// The path and query of the link.
    pub(crate) fn link(&self) -> String {
        let link = match &self.message.content {
            Content::SignUp { link, .. }
            | Content::AlreadySignedUp { link }
            | Content::Invitation { link, .. }
            | Content::ResetPassword { link, .. }
            | Content::SignIn { link, .. }
            | Content::VerifyAddress { link, .. }
            | Content::AddressChanged { link: Some(link), .. }
            | Content::FactorAdded { link, .. }
            | Content::FactorRemoved { link, .. }
            | Content::NewDevice { link, .. }
            | Content::FactorsEnd { link: Some(link), .. }
            | Content::PasswordChanged { link, .. } => link,
            Content::Test
            | Content::AddressChanged { link: None, .. }
            | Content::FactorsEnd { link: None, .. } => panic!("it has no link"),
        };
        link.strip_prefix(ISSUER).unwrap().to_owned()
    }

    /// The code.
    pub(crate) fn code(&self) -> String {
        match &self.message.content {
            Content::SignUp { code, .. } | Content::SignIn { code, .. } => code.clone(),
            Content::ResetPassword { code, .. } => code.clone().unwrap(),
            other => panic!("no code in {other:?}"),
        }
    }
}
