//! Turns the errors of redb and of the operating system into those of the store.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ::redb::{DatabaseError, Error, StorageError};

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

pub(super) fn engine_failed(error: impl Into<Error>) -> StoreError {
    match error.into() {
        Error::Io(error) => io_failed(error),
        Error::Corrupted(what) => StoreError::Damaged(what),
        Error::ValueTooLarge(bytes) => StoreError::TooLarge(bytes),
        Error::PreviousIo | Error::DatabaseClosed => StoreError::Interrupted,
        Error::DatabaseAlreadyOpen => StoreError::Taken,
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
