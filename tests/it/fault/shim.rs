//! Errors of the disk and jumps of the clock, made by a library between the real binary and the C library.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use idsvc::random::Random;

use crate::harness::process::{Folder, Service};

/// No space left on device.
pub(super) const ENOSPC: i64 = 28;
/// Read-only file system.
pub(super) const EROFS: i64 = 30;
/// Input/output error.
pub(super) const EIO: i64 = 5;

/// The numbers of `shim.c`, in its order.
#[derive(Clone, Copy)]
pub(super) enum Fault {
    Sync,
    Write,
    Open,
    Clock,
    Torn,
    Failed,
}

/// Built once by the C compiler that building the service needs anyway.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join("shim.so");
    let built = folder.join(format!("shim-{}.so", Random::system().uuid_v4()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fault/shim.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&built, &source])
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    std::fs::rename(&built, &library).unwrap();
    library
});

/// What is made to fail, changed while the service runs.
pub(super) struct Faults {
    numbers: File,
    folder: Folder,
}

impl Faults {
    pub(super) fn none() -> Self {
        let folder = Folder::new();
        let numbers = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.path().join("faults"))
            .unwrap();
        numbers.set_len(64).unwrap();
        Self { numbers, folder }
    }

    /// A service whose commands all run under these faults.
    pub(super) fn over(&self, service: Service) -> Service {
        service
            .with("LD_PRELOAD", LIBRARY.to_str().unwrap())
            .with("FAULTS", self.folder.path().join("faults").to_str().unwrap())
    }

    pub(super) fn set(&self, fault: Fault, number: i64) {
        self.numbers
            .write_all_at(&number.to_ne_bytes(), fault as u64 * 8)
            .unwrap();
    }

    /// How many calls were made to fail so far.
    pub(super) fn failed(&self) -> i64 {
        let mut bytes = [0; 8];
        self.numbers
            .read_exact_at(&mut bytes, Fault::Failed as u64 * 8)
            .unwrap();
        i64::from_ne_bytes(bytes)
    }
}
