//! Errors of the disk and jumps of the clock, made by a library between the real binary and the C library.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use idsvc::random::Random;
use tempfile::TempDir;

use crate::harness::process::Service;

/// No space left on device.
pub(super) const ENOSPC: i64 = 28;
/// Read-only file system.
pub(super) const EROFS: i64 = 30;
/// Input/output error.
pub(super) const EIO: i64 = 5;

/// What a disk writes as a whole or not at all, as in `shim.c`.
const SECTOR: usize = 512;

/// The numbers of `shim.c`, in its order.
#[derive(Clone, Copy)]
pub(super) enum Fault {
    Sync,
    Write,
    Open,
    Clock,
    Torn,
    SyncLies,
    Journal,
    Hangs,
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
    folder: TempDir,
}

impl Faults {
    pub(super) fn none() -> Self {
        let folder = TempDir::new().unwrap();
        let numbers = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.path().join("faults"))
            .unwrap();
        numbers.set_len(4096).unwrap();
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

    /// A service whose disk can lose its power, too.
    pub(super) fn over_mains(&self, service: Service) -> Service {
        let undo = |name: &str| self.folder.path().join(name).to_str().unwrap().to_owned();
        self.over(service)
            .with("UNDO", &undo("undo"))
            .with("UNDO_JOURNAL", &undo("undo-journal"))
    }

    /// Cuts the power of a disk that no process uses any more: of what was written and not synced, each sector is
    /// as it was with a probability of `lost` in 256. How many were.
    pub(super) fn cut_power(&self, database: &Path, lost: u8, random: &Random) -> usize {
        let journal = database.with_extension("redb.journal");
        self.forget("undo", database, lost, random) + self.forget("undo-journal", &journal, lost, random)
    }

    fn forget(&self, undo: &str, file: &Path, lost: u8, random: &Random) -> usize {
        let undo = self.folder.path().join(undo);
        let records = std::fs::read(&undo).unwrap_or_default();
        let mut sectors: BTreeMap<u64, &[u8]> = BTreeMap::new();
        let mut rest = records.as_slice();
        while let Some((head, after)) = rest.split_first_chunk::<16>() {
            let number = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().unwrap());
            // A record that is cut off belongs to a write that did not happen.
            let Some((bytes, next)) = after.split_at_checked(usize::try_from(number(8)).unwrap()) else {
                break;
            };
            for (at, sector) in (number(0)..).step_by(SECTOR).zip(bytes.chunks(SECTOR)) {
                sectors.entry(at).or_insert(sector);
            }
            rest = next;
        }
        std::fs::write(&undo, "").unwrap();
        // A journal that was removed has nothing to forget.
        if sectors.is_empty() || !file.exists() {
            return 0;
        }
        let file = File::options().write(true).open(file).unwrap();
        let mut count = 0;
        for (at, before) in sectors {
            if random.bytes::<1>()[0] <= lost {
                file.write_all_at(before, at).unwrap();
                count += 1;
            }
        }
        count
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
