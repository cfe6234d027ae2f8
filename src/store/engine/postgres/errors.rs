//! Turns the errors of PostgreSQL into those of the store.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, ErrorPosition, SqlState};

use crate::store::engine::TableId;
use crate::store::{StoreError, tables};

/// What to do after a call has failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// The database has rolled the call back, and it may succeed at once.
    Conflict,
    /// There is no connection, so the call was not sent.
    Unconnected(StoreError),
    /// The connection cannot be used any longer. Whether the call was carried out is not known.
    Disconnected(StoreError),
    /// The database has rolled the call back, because it cannot use one of the tables.
    Table(TableFault),
    /// The database has refused the call.
    Refused(StoreError),
}

/// Why a table cannot be used.
#[derive(Debug)]
pub(super) struct TableFault {
    pub(super) table: TableId,
    pub(super) error: StoreError,
}

impl TableFault {
    /// Whether another session has locked the table.
    pub(super) fn is_lock(&self) -> bool {
        matches!(self.error, StoreError::Locked(_))
    }
}

impl CallError {
    pub(super) fn of(error: &Error) -> Self {
        let Some(code) = error.code() else {
            return Self::Disconnected(unreachable(error));
        };
        let is_locked = *code == SqlState::LOCK_NOT_AVAILABLE;
        let is_missing = *code == SqlState::INSUFFICIENT_PRIVILEGE || *code == SqlState::UNDEFINED_TABLE;
        if (is_locked || is_missing)
            && let Some(table) = error.as_db_error().and_then(table_of)
        {
            let error = if is_locked {
                StoreError::Locked(table.name())
            } else {
                refused(error, code)
            };
            return Self::Table(TableFault { table, error });
        }
        match code.code().get(..2) {
            // Another commit has held one of the locks for long.
            _ if is_locked => Self::Conflict,
            _ if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED => {
                Self::Conflict
            }
            // The server shuts down, has just started, or is a standby.
            Some("57" | "08" | "25") => Self::Disconnected(unreachable(error)),
            _ => Self::Refused(refused(error, code)),
        }
    }

    /// The error of a call that is not sent again.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Refused(error) | Self::Disconnected(error) | Self::Unconnected(error) => error,
            Self::Table(fault) => fault.error,
            Self::Conflict => StoreError::Busy,
        }
    }
}

/// The table of the statement in a function that has failed. Each has one table.
fn table_of(error: &DbError) -> Option<TableId> {
    let statement = match error.position() {
        Some(ErrorPosition::Internal { query, .. }) => query,
        _ => error.where_()?,
    };
    let is_named = |table: &TableId| {
        let name = format!("idsvc.{}", table.name());
        let mut uses = statement.match_indices(&name).map(|(at, name)| at + name.len());
        uses.any(|end| {
            let next = statement.get(end..).and_then(|rest| rest.chars().next());
            !next.is_some_and(|next| next == '_' || next.is_alphanumeric())
        })
    };
    tables::all().find(is_named)
}

/// The error of a statement that is not sent again.
pub(super) fn failed(error: &Error) -> StoreError {
    CallError::of(error).into_error()
}

/// The error of a database that cannot be reached.
pub(super) fn unreachable(error: &Error) -> StoreError {
    StoreError::Unreachable(describe(error))
}

fn refused(error: &Error, code: &SqlState) -> StoreError {
    if *code == SqlState::DISK_FULL {
        return StoreError::NoSpace;
    }
    if matches!(
        *code,
        SqlState::UNDEFINED_FUNCTION | SqlState::INVALID_SCHEMA_NAME | SqlState::UNDEFINED_TABLE
    ) {
        return StoreError::NotSetUp;
    }
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return StoreError::Forbidden(describe(error));
    }
    if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED {
        return StoreError::Damaged(describe(error));
    }
    StoreError::Refused(describe(error))
}

/// The message with its causes. PostgreSQL's messages have no value of a row, and none has the password.
pub(super) fn describe(error: &Error) -> String {
    if let Some(reported) = error.as_db_error() {
        return format!("{} ({})", reported.message(), reported.code().code());
    }
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
