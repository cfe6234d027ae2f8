//! What the engine's errors mean to the store.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ::redb::{CommitError, DatabaseError, StorageError, TableError, TransactionError};

use crate::store::{OpenError, StoreError};

pub(super) fn unexpected(what: &str) -> StoreError {
    StoreError::Damaged(format!("the engine refused {what}"))
}

pub(super) fn io_failed(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            StoreError::NoSpace
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            StoreError::ReadOnly(Arc::new(error))
        }
        _ => StoreError::Io(Arc::new(error)),
    }
}

pub(super) fn storage_failed(error: StorageError) -> StoreError {
    match error {
        StorageError::Io(error) => io_failed(error),
        StorageError::Corrupted(what) => StoreError::Damaged(what),
        StorageError::ValueTooLarge(bytes) => StoreError::TooLarge(bytes),
        StorageError::PreviousIo | StorageError::DatabaseClosed => StoreError::Interrupted,
        other => StoreError::Damaged(other.to_string()),
    }
}

pub(super) fn transaction_failed(error: TransactionError) -> StoreError {
    match error {
        TransactionError::Storage(error) => storage_failed(error),
        other => StoreError::Damaged(other.to_string()),
    }
}

pub(super) fn table_failed(error: TableError) -> StoreError {
    match error {
        TableError::Storage(error) => storage_failed(error),
        other => StoreError::Damaged(other.to_string()),
    }
}

pub(super) fn commit_failed(error: CommitError) -> StoreError {
    match error {
        CommitError::Storage(error) => storage_failed(error),
        other => StoreError::Damaged(other.to_string()),
    }
}

pub(super) fn reopen_failed(error: DatabaseError) -> StoreError {
    match error {
        DatabaseError::Storage(error) => storage_failed(error),
        DatabaseError::DatabaseAlreadyOpen => StoreError::Taken,
        other => StoreError::Damaged(other.to_string()),
    }
}

pub(super) fn refused(path: &Path, error: DatabaseError) -> OpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::AlreadyOpen { path },
        DatabaseError::Storage(StorageError::Io(source))
            if !matches!(
                source.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
            ) =>
        {
            OpenError::Io { path, source }
        }
        other => OpenError::Damaged {
            path,
            what: other.to_string(),
        },
    }
}
