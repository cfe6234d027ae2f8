//! Stores on PostgreSQL, which several services may share.

use std::sync::OnceLock;

use idsvc::store::{Address, Options, Store};

use super::postgres::{Cluster, Database};

/// The address of a new database that is set up.
pub(crate) fn address() -> Address {
    static TEMPLATE: OnceLock<Database> = OnceLock::new();
    let template = TEMPLATE.get_or_init(|| {
        let database = Cluster::shared().database("template");
        Store::migrate(&address_of(&database)).unwrap();
        database
    });
    address_of(&Cluster::shared().database_from(template))
}

fn address_of(database: &Database) -> Address {
    Address::parse(&database.url()).unwrap()
}

/// A store on a database of its own.
pub(crate) fn store() -> Store {
    Store::connect(&address(), Options::default()).unwrap()
}
