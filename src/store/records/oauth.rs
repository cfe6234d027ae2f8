//! Clients and what is granted to them, as they are kept.

use crate::oauth::Client;
use crate::oauth::authorize::LoginTransaction;
use crate::oauth::code::AuthorizationCode;
use crate::oauth::refresh::RefreshFamily;
use crate::store::record::Record;

impl Record for Client {}

impl Record for LoginTransaction {}

impl Record for AuthorizationCode {}

impl Record for RefreshFamily {}
