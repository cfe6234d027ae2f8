use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::flow::deliver::within;
use crate::flow::outbox::DrawnMail;
use crate::mail::{Content, Message};
use crate::oauth::FaultCode;

/// How long the result of a test is waited for.
const TEST_TIMEOUT: Duration = Duration::from_secs(100);

/// A mail that tests the settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestMail {
    /// The address of the recipient.
    pub to: String,
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestedMail {
    pub id: Uuid,
    /// Whether the server took it.
    pub sent: bool,
    /// The answer of the server, or the problem.
    pub answer: String,
}

impl Operation for TestMail {
    const NAME: &'static str = "mail test";
    const EFFECT: Effect = Effect::Write;
    type Output = TestedMail;

    /// Queues the mail and waits for the result of its first attempt, which is the only one. The mail is recorded before
    /// the wait: it is sent even if the service stops meanwhile.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<TestedMail>> {
        let core = admin.core;
        if !core.policy.sends_mail {
            let detail = "mail.url is not set, so the service sends no mail";
            return Err(FaultCode::Invalid.at([], detail).into());
        }
        let drawn = DrawnMail::draw(core, &test_message(&self.to), core.clock.now())?;
        let id = drawn.id();
        let result = core.delivery_waiters.of(id);
        let write = core.store.write(Self::NAME, move |tx| drawn.put(tx));
        write.await?;
        admin.record(Self::NAME, Done::about(id, ()));
        core.outbox_filled.notify_one();
        let (sent, answer) = match within(TEST_TIMEOUT, result).await {
            Some(Ok(answer)) => (true, answer),
            Some(Err(problem)) => (false, problem),
            None => (false, "there is no result yet, and the mail waits".to_owned()),
        };
        Ok(Done::unrecorded(TestedMail { id, sent, answer }))
    }
}

pub fn test_message(to: &str) -> Message {
    Message {
        to: to.to_owned(),
        languages: None,
        zone: None,
        client_id: None,
        content: Content::Test,
    }
}
