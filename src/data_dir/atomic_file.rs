//! Files that appear complete or not at all.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::files::Folder;
use crate::random::Random;

const ENDING: &str = ".partial";
/// The number of digits in the random part of a name.
const DIGITS: usize = 32;

/// Removes unfinished files of ended processes from a folder, if `is_ours` accepts their name and content. Errors are
/// ignored: such a file stays.
pub fn sweep(folder: &Folder, is_ours: impl Fn(&str, &mut File) -> bool) {
    for (name, _) in folder.entries().unwrap_or_default() {
        let Some(name) = name.to_str().filter(|name| is_unfinished(name)) else {
            continue;
        };
        if let Ok(mut file) = folder.file(name)
            && file.try_lock().is_ok()
            && is_ours(name, &mut file)
        {
            let _ = folder.remove(name);
        }
    }
}

fn is_unfinished(name: &str) -> bool {
    let random = name.strip_suffix(ENDING).and_then(|name| name.rsplit_once('.'));
    random.is_some_and(|(_, random)| {
        random.len() == DIGITS && random.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// What happens to the file that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    Replace,
    /// It stays, and the other file is refused with `AlreadyExists`.
    Refuse,
}

/// A file under a temporary name. It is removed when it is dropped, unless [`AtomicFile::place`] renamed it.
pub struct AtomicFile<'a> {
    folder: &'a Folder,
    name: PathBuf,
    /// Locked while the process works on the file. [`sweep`] removes files without a lock only.
    locked_file: Option<File>,
    is_renamed: bool,
}

impl<'a> AtomicFile<'a> {
    /// Chooses an unused name for a file that will be called `target`. The file does not exist yet.
    pub fn new(folder: &'a Folder, target: impl AsRef<OsStr>, random: &Random) -> Self {
        let mut name = target.as_ref().to_owned();
        name.push(format!(".{}{ENDING}", random.uuid_v4().simple()));
        Self {
            folder,
            name: name.into(),
            locked_file: None,
            is_renamed: false,
        }
    }

    /// Creates the empty file with mode 0600.
    pub fn create(&mut self) -> io::Result<File> {
        let made = self.folder.create_file(&self.name, 0o600)?;
        // Without locks in the file system, nothing is swept.
        let _ = made.lock();
        if made.metadata()?.nlink() == 0 {
            // Another process swept the file before it was locked.
            return self.create();
        }
        self.locked_file = Some(made.try_clone()?);
        Ok(made)
    }

    /// The temporary path.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Opens the file again.
    pub fn open(&self) -> io::Result<File> {
        self.folder.file(&self.name)
    }

    /// Renames the file to `target`, durably.
    pub fn place(&mut self, target: impl AsRef<OsStr>, if_exists: IfExists) -> io::Result<()> {
        let target = target.as_ref();
        self.open()?.sync_all()?;
        if if_exists == IfExists::Replace {
            self.folder.rename(&self.name, target)?;
            self.is_renamed = true;
        } else {
            match self.folder.link(&self.name, target) {
                // The file system has no links, as on a memory stick.
                Err(error)
                    if error.kind() != io::ErrorKind::AlreadyExists && self.folder.stat(target).is_err() =>
                {
                    self.folder.rename(&self.name, target)?;
                    self.is_renamed = true;
                }
                linked => linked?,
            }
        }
        self.folder.sync()
    }
}

impl Drop for AtomicFile<'_> {
    fn drop(&mut self) {
        if !self.is_renamed {
            // The file may not exist, or may be linked under its final name too.
            let _ = self.folder.remove(&self.name);
        }
    }
}
