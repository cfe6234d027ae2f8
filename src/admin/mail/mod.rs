//! The outbox: what waits in it, and a mail that tests the way.

mod list;
mod test;

pub use self::list::{ListMails, QueuedMail};
pub use self::test::{TestMail, TestedMail, test_message};
