use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;

/// A data directory that does not exist yet.
struct Scratch {
    path: PathBuf,
    _folder: TempDir,
}

impl Scratch {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        Self {
            path: folder.path().join("data"),
            _folder: folder,
        }
    }

    fn open(&self) -> Result<DataDir, DataDirError> {
        DataDir::open(&self.path, IfMissing::Create, &Random::system())
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_first_start_makes_everything_closed_to_others() {
    let scratch = Scratch::new();
    let absent = DataDir::open(&scratch.path, IfMissing::Refuse, &Random::system());
    assert!(matches!(absent, Err(DataDirError::Absent(_))));
    assert!(!scratch.path.exists());
    let first = scratch.open().unwrap().sealer.fingerprint();
    assert_eq!(mode(&scratch.path), 0o700);
    assert_eq!(mode(&scratch.path.join(MASTER_KEY)), 0o600);
    assert_eq!(mode(&scratch.path.join(DATABASE)), 0o600);
    assert_eq!(fs::read_dir(&scratch.path).unwrap().count(), 2);
    assert_eq!(scratch.open().unwrap().sealer.fingerprint(), first);
}

#[test]
fn a_missing_or_foreign_or_broken_key_is_refused_with_the_remedy() {
    let scratch = Scratch::new();
    drop(scratch.open().unwrap());
    let key = scratch.path.join(MASTER_KEY);
    let saved = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    assert!(matches!(scratch.open(), Err(DataDirError::KeyMissing(_))));
    assert!(!key.exists());
    fs::write(&key, "00".repeat(32)).unwrap();
    assert!(matches!(scratch.open(), Err(DataDirError::KeyForeign(_))));
    fs::write(&key, "not a key").unwrap();
    assert!(matches!(scratch.open(), Err(DataDirError::KeyMalformed(_))));
    fs::write(&key, saved).unwrap();
    assert!(scratch.open().is_ok());
}

#[test]
fn a_missing_or_empty_database_beside_a_key_is_refused_and_nothing_is_made() {
    let scratch = Scratch::new();
    let first = scratch.open().unwrap().sealer.fingerprint();
    let database = scratch.path.join(DATABASE);
    let saved = fs::read(&database).unwrap();
    for if_missing in [IfMissing::Create, IfMissing::Refuse] {
        fs::remove_file(&database).unwrap();
        let refused = || DataDir::open(&scratch.path, if_missing, &Random::system()).err();
        assert!(matches!(refused(), Some(DataDirError::DatabaseMissing(_))));
        assert!(!database.exists());
        fs::write(&database, "").unwrap();
        assert!(matches!(refused(), Some(DataDirError::DatabaseMissing(_))));
        assert_eq!(fs::metadata(&database).unwrap().len(), 0);
    }
    fs::write(&database, saved).unwrap();
    assert_eq!(scratch.open().unwrap().sealer.fingerprint(), first);
    fs::write(&database, "").unwrap();
    fs::remove_file(scratch.path.join(MASTER_KEY)).unwrap();
    assert_ne!(scratch.open().unwrap().sealer.fingerprint(), first);
}

#[test]
fn a_first_start_that_was_cut_off_is_finished_by_the_next() {
    let scratch = Scratch::new();
    fs::create_dir(&scratch.path).unwrap();
    fs::write(scratch.path.join(DATABASE), "").unwrap();
    drop(scratch.open().unwrap());

    let scratch = Scratch::new();
    fs::create_dir(&scratch.path).unwrap();
    drop(Store::open(&scratch.path.join(DATABASE), Options::default()).unwrap());
    drop(scratch.open().unwrap());

    let scratch = Scratch::new();
    fs::create_dir(&scratch.path).unwrap();
    drop(Store::open(&scratch.path.join(DATABASE), Options::default()).unwrap());
    let key = read_or_create_key(&scratch.path, &Random::system()).unwrap();
    assert_eq!(
        scratch.open().unwrap().sealer.fingerprint(),
        Sealer::new(&key).fingerprint()
    );
}

#[test]
fn a_closed_file_is_refused_with_the_remedy() {
    let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
    let path = PathBuf::from("/data/idsvc.redb");
    let errors = [
        io_error(&path)(denied()),
        store_error(store::OpenError::Io {
            path,
            source: denied(),
        }),
    ];
    for error in errors.map(|error| error.to_string()) {
        assert!(error.contains("run this as the user that owns"), "{error}");
    }
}

#[test]
fn a_link_that_leads_nowhere_is_called_one() {
    let scratch = Scratch::new();
    std::os::unix::fs::symlink("/nowhere/at/all", &scratch.path).unwrap();
    let said = scratch.open().err().unwrap().to_string();
    fs::remove_file(&scratch.path).unwrap();
    assert!(said.contains("symbolic link to /nowhere/at/all"), "{said}");
}

#[test]
fn the_issuer_is_fixed_once() {
    let scratch = Scratch::new();
    let data = scratch.open().unwrap();
    assert!(matches!(data.fixed_issuer_or(None), Err(DataDirError::NoIssuer)));
    data.fix_or_check_issuer("https://a.example").unwrap();
    data.fix_or_check_issuer("https://a.example").unwrap();
    for configured in [None, Some("https://A.example")] {
        assert_eq!(data.fixed_issuer_or(configured).unwrap(), "https://a.example");
    }
    assert!(matches!(
        data.fix_or_check_issuer("https://A.example"),
        Err(DataDirError::IssuerChanged { configured, stored, .. })
            if configured == "https://A.example" && stored == "https://a.example"
    ));
}

#[test]
fn the_development_server_keeps_away_from_the_data_of_others() {
    let (own, foreign) = (Scratch::new(), Scratch::new());
    let data = own.open().unwrap();
    data.claim_for_development().unwrap();
    data.fix_or_check_issuer("https://localhost:8443").unwrap();
    data.claim_for_development().unwrap();
    let data = foreign.open().unwrap();
    data.fix_or_check_issuer("https://id.example.com").unwrap();
    assert!(matches!(
        data.claim_for_development(),
        Err(DataDirError::NotForDevelopment)
    ));
}

#[test]
fn a_second_process_is_told_who_has_it() {
    let scratch = Scratch::new();
    let _first = scratch.open().unwrap();
    assert!(matches!(
        scratch.open(),
        Err(DataDirError::Open(store::OpenError::AlreadyOpen { .. }))
    ));
}

#[test]
fn init_makes_a_directory_that_the_first_start_uses_and_no_second_key() {
    let scratch = Scratch::new();
    let fingerprint = node::init(&scratch.path, None, &Random::system()).unwrap();
    assert!(scratch.path.join(DATABASE).exists());
    let refused = node::init(&scratch.path, None, &Random::system());
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains("master.key is there already") && said.contains("copy it"),
        "{said}"
    );
    assert_eq!(scratch.open().unwrap().sealer.fingerprint(), fingerprint);
    fs::remove_file(scratch.path.join(DATABASE)).unwrap();
    assert!(matches!(scratch.open(), Err(DataDirError::DatabaseMissing(_))));
}

#[test]
fn a_node_has_a_master_key_and_no_database_file() {
    let address = Address::parse("postgres://idsvc:s3cret@db.example.com/idsvc").unwrap();
    let scratch = Scratch::new();
    let lock = || node::lock(&scratch.path, &address);
    let said = lock().unwrap_err().to_string();
    assert!(
        said.ends_with("copy it from another node, or run idsvc init on the first node"),
        "{said}"
    );
    assert!(!scratch.path.exists());
    let fingerprint = node::init(&scratch.path, Some(&address), &Random::system()).unwrap();
    assert_eq!(fs::read_dir(&scratch.path).unwrap().count(), 1);
    assert_eq!(
        (mode(&scratch.path), mode(&scratch.path.join(MASTER_KEY))),
        (0o700, 0o600)
    );
    assert!(matches!(
        node::init(&scratch.path, Some(&address), &Random::system()),
        Err(DataDirError::KeyPresent(_))
    ));
    let held = lock().unwrap();
    assert!(matches!(
        lock(),
        Err(DataDirError::Open(store::OpenError::AlreadyOpen { path })) if path == scratch.path
    ));
    drop(held);
    drop(lock().unwrap());
    let database = scratch.path.join(DATABASE);
    for file in [&database, &journal_of(&database)] {
        fs::write(file, "rows").unwrap();
        let said = lock().unwrap_err().to_string();
        let both = [file.to_str().unwrap(), "postgres://idsvc:…@db.example.com/idsvc"];
        assert!(
            both.iter().all(|part| said.contains(part)) && !said.contains("s3cret"),
            "{said}"
        );
        fs::remove_file(file).unwrap();
    }
    let store = Store::in_memory(Options::default()).unwrap();
    let data = DataDir::with_key(&scratch.path, store.clone(), None, &Random::system()).unwrap();
    assert_eq!(data.sealer.fingerprint(), fingerprint);
    fs::remove_file(scratch.path.join(MASTER_KEY)).unwrap();
    node::init(&scratch.path, Some(&address), &Random::system()).unwrap();
    let foreign = DataDir::with_key(&scratch.path, store, None, &Random::system());
    assert!(matches!(foreign, Err(DataDirError::KeyForeign(_))));
}
