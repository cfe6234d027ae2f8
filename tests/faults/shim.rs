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

/// The unit that a disk writes atomically, as in `shim.c`.
const SECTOR: usize = 512;
/// Marks an entry that holds a length instead of a number of bytes, as in `shim.c`.
const WAS_LENGTH: u64 = u64::MAX;

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
    NoIpv6,
    Failed,
}

/// Built once by the C compiler that building the service needs anyway.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join("shim.so");
    let built = folder.join(format!("shim-{}.so", Random::system().uuid_v4()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/shim.c");
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

/// The losses of a power failure: parts of files, their new lengths, and new files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    pub(super) sectors: usize,
    pub(super) lengths: usize,
    pub(super) names: usize,
}

impl std::ops::AddAssign for Lost {
    fn add_assign(&mut self, other: Self) {
        self.sectors += other.sectors;
        self.lengths += other.lengths;
        self.names += other.names;
    }
}

/// The faults, which can change while the service runs.
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
            .with("UNDO_NAMES", &undo("undo-names"))
    }

    /// Cuts the power of a disk that no process uses any more: of what was written and not synced, each sector, each length
    /// and each name is as it was with a probability of `lost` in 256. How many were.
    pub(super) fn cut_power(&self, database: &Path, lost: u8, random: &Random) -> Lost {
        let journal = database.with_extension("redb.journal");
        let is_lost = || random.bytes::<1>()[0] <= lost;
        let mut sum = self.forget("undo", database, is_lost);
        sum += self.forget("undo-journal", &journal, is_lost);
        let names = self.folder.path().join("undo-names");
        for name in std::fs::read_to_string(&names).unwrap_or_default().lines() {
            if is_lost() && Path::new(name).exists() {
                std::fs::remove_file(name).unwrap();
                sum.names += 1;
            }
        }
        std::fs::write(&names, "").unwrap();
        sum
    }

    fn forget(&self, undo: &str, file: &Path, is_lost: impl Fn() -> bool) -> Lost {
        let undo = self.folder.path().join(undo);
        let records = std::fs::read(&undo).unwrap_or_default();
        let mut sectors: BTreeMap<u64, &[u8]> = BTreeMap::new();
        let mut length = None;
        let mut rest = records.as_slice();
        while let Some((head, after)) = rest.split_first_chunk::<16>() {
            let number = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().unwrap());
            if number(8) == WAS_LENGTH {
                length.get_or_insert(number(0));
                rest = after;
                continue;
            }
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
        let mut lost = Lost::default();
        // A journal that was removed has nothing to forget.
        if sectors.is_empty() && length.is_none() || !file.exists() {
            return lost;
        }
        let file = File::options().write(true).open(file).unwrap();
        for (at, before) in sectors {
            if is_lost() {
                file.write_all_at(before, at).unwrap();
                lost.sectors += 1;
            }
        }
        if let Some(length) = length.filter(|_| is_lost()) {
            file.set_len(length).unwrap();
            lost.lengths += 1;
        }
        lost
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
