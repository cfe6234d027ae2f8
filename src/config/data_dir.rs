//! Where the data is.

use std::path::PathBuf;

use super::form::File;
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};

const DEV_DATA_DIR: &str = "./idsvc-data/dev";

pub(super) const SETTINGS: &[&Setting] = &[&DATA_DIR];

pub(super) static DATA_DIR: Setting<File> = Setting {
    key: "data_dir",
    doc: "Where everything that lasts is kept; created with mode 0700.\n\
         Left out: $STATE_DIRECTORY when the service manager sets it, else ./idsvc-data.",
    default: None,
    example: Literal::Text("/var/lib/idsvc"),
    value_name: "DIR",
    help: None,
    form: File,
};

pub(super) fn data_dir(reader: &mut Reader<'_>) -> Read<PathBuf> {
    if let Some(path) = reader.read_if_set(&DATA_DIR)? {
        if path.metadata().is_ok_and(|found| !found.is_dir()) {
            let message = format!("data_dir = {:?} is no directory: name another", path.display());
            return Err(reader.fault(&DATA_DIR, message));
        }
        return Ok(path);
    }
    if reader.sources.is_dev {
        return Ok(PathBuf::from(DEV_DATA_DIR));
    }
    let state_directory = reader.sources.state_directory.clone();
    Ok(state_directory.unwrap_or_else(|| PathBuf::from("./idsvc-data")))
}
