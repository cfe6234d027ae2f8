//! Clients and what is granted to them, as they are kept.

use crate::oauth::Client;
use crate::oauth::authorize::LoginTransaction;
use crate::oauth::code::AuthorizationCode;
use crate::oauth::refresh::RefreshFamily;
use crate::store::table::Record;

impl Record for Client {
    const VERSION: u8 = 1;
}

impl Record for LoginTransaction {
    const VERSION: u8 = 1;
}

impl Record for AuthorizationCode {
    const VERSION: u8 = 1;
}

impl Record for RefreshFamily {
    const VERSION: u8 = 1;
}
