//! A change that is on the disk is in force once it can be read, even if the write was reported as failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{admin, assert_faults, core, core_on, refusal};
use crate::admin::client;
use crate::admin::client::RevokeApiKey;
use crate::admin::client::tests::request;
use crate::admin::key;
use crate::admin::key::RotateKey;
use crate::admin::provider;
use crate::admin::provider::{AddProvider, ProviderFields};
use crate::admin::{AdminError, AdminResult};
use crate::flow::Core;
use crate::jose::alg::Algorithm;
use crate::oauth::FaultCode;
use crate::secret::Secret;
use crate::store::engine::redb::Redb;
use crate::store::engine::{Backend, CommitDecision, Snapshot, Tx};
use crate::store::schema::Schema;
use crate::store::tables::CLIENTS;
use crate::store::{Options, Store, StoreError};

/// A disk that reports failure for a write that it keeps. It answers no reads until it is repaired and reopened.
struct UnreliableDisk {
    engine: Redb,
    fails: AtomicBool,
    is_open: AtomicBool,
}

impl UnreliableDisk {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            engine: Redb::in_memory(1 << 20).unwrap(),
            fails: AtomicBool::new(false),
            is_open: AtomicBool::new(true),
        })
    }

    fn core(self: &Arc<Self>) -> Core {
        let options = Options {
            retry_pause: std::time::Duration::ZERO,
            ..Options::default()
        };
        core_on(Store::on(Arc::<Self>::clone(self), options, &Schema::CURRENT).unwrap())
    }

    /// Makes the change while writes are reported as failed. The disk is repaired when this returns.
    async fn fail_during<T>(&self, core: &Core, change: impl Future<Output = AdminResult<T>>) {
        self.fails.store(true, Ordering::SeqCst);
        let done = change.await;
        assert!(matches!(done, Err(AdminError::Store(_))), "{:?}", done.err());
        self.fails.store(false, Ordering::SeqCst);
        while !core.store.is_writable() {
            tokio::task::yield_now().await;
        }
    }
}

fn failed() -> StoreError {
    StoreError::Io(Arc::new(std::io::Error::other("a test says so")))
}

impl Backend for UnreliableDisk {
    fn read(&self, look: &mut dyn FnMut(&dyn Snapshot) -> Result<(), StoreError>) -> Result<(), StoreError> {
        if self.is_open.load(Ordering::SeqCst) {
            self.engine.read(look)
        } else {
            Err(failed())
        }
    }

    fn transact(&self, work: &mut dyn FnMut(&mut dyn Tx) -> CommitDecision) -> Result<(), StoreError> {
        self.engine.transact(work)?;
        if self.fails.load(Ordering::SeqCst) {
            self.is_open.store(false, Ordering::SeqCst);
            return Err(failed());
        }
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), StoreError> {
        self.engine.checkpoint()
    }

    fn recover(&self) -> Result<(), StoreError> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(failed());
        }
        self.engine.recover()?;
        self.is_open.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn compact(&self) -> Result<bool, StoreError> {
        self.engine.compact()
    }

    fn close(&self) {
        self.engine.close();
    }
}

#[tokio::test]
async fn what_was_kept_of_a_change_that_failed_is_in_force_when_the_store_is_back() {
    let disk = UnreliableDisk::new();
    let core = disk.core();
    for id in ["web", "app"] {
        admin(&core).call(request(id)).await.unwrap();
    }
    let made = admin(&core)
        .call(client::AddApiKey {
            client_id: "web".to_owned(),
        })
        .await
        .unwrap();
    let digest = Secret::parse(made.api_key.unwrap().reveal()).unwrap().digest();
    let which = RevokeApiKey {
        client_id: "web".to_owned(),
        id: made.id,
    };
    assert!(core.catalog().api_key(&digest).is_some());
    disk.fail_during(&core, admin(&core).call(which)).await;
    assert!(core.catalog().api_key(&digest).is_none());

    let disabling = admin(&core).call(client::DisableClient {
        client_id: "web".to_owned(),
    });
    disk.fail_during(&core, disabling).await;
    assert!(!core.catalog().client("web").unwrap().enabled);

    let grant_policy = core.grant_policy();
    let app = core.catalog().client("app").unwrap().clone();
    let removing = admin(&core).call(client::RemoveClient {
        client_id: "app".to_owned(),
    });
    disk.fail_during(&core, removing).await;
    let grant = *app.grant_types.first().unwrap();
    assert!(core.grant_policy().check_grant(&app, grant).is_err());
    assert!(grant_policy.check_grant(&app, grant).is_err());

    let fields = ProviderFields {
        issuer: Some("https://corp.example".to_owned()),
        audiences: Some(vec!["app".to_owned()]),
        exchange: Some(true),
        ..ProviderFields::default()
    };
    let id = "corp".to_owned();
    let request = AddProvider {
        id,
        client_secret: None,
        fields,
    };
    admin(&core).call(request).await.unwrap();
    let removing = admin(&core).call(provider::RemoveProvider {
        id: "corp".to_owned(),
    });
    disk.fail_during(&core, removing).await;
    assert!(core.catalog().provider("corp").is_none());

    let made = RotateKey {
        alg: Algorithm::EdDsa,
        at_once: true,
    };
    let kid = admin(&core).call(made).await.unwrap().kid;
    assert!(core.catalog().keyring().signer(Algorithm::EdDsa).is_some());
    disk.fail_during(&core, admin(&core).call(key::RetireKey { kid }))
        .await;
    assert!(core.catalog().keyring().signer(Algorithm::EdDsa).is_none());
}

#[tokio::test]
async fn a_service_that_reports_a_missing_client_has_read_the_store_again() {
    let core = core();
    admin(&core).call(request("web")).await.unwrap();
    let removed = core.store.write("test", |tx| CLIENTS.remove(tx, "web"));
    assert!(removed.await.unwrap());
    let refused = refusal(
        admin(&core)
            .call(client::RemoveClient {
                client_id: "web".to_owned(),
            })
            .await,
    );
    assert_faults(&refused, &[(FaultCode::NotFound, &[])]);
    assert!(core.catalog().client("web").is_none());
}
