//! Encrypted backups: to recipients or with a passphrase, asked for or scheduled, through pipes, by the tool `age` too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::harness::process::{Service, run_with_input, said, shown};
use crate::harness::report::report;
use crate::harness::terminal::OnTerminal;

const IDENTITY: &str = "AGE-SECRET-KEY-1CZKX2R84YGK7TQWLZNMEW8FNSXFKFT00FGX9GYJC7T2YE9VS5P9QSNUAP2";
const RECIPIENT: &str = "age16ua0d5zkwf58egyk2zwxgc2kpq5uawsrk252pv8cdmwh7eh9devshc397d";
const OTHER_IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const OTHER_RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
const PASSPHRASE: &str = "correct horse battery staple";
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// A service with a user and the files of the secrets.
fn service() -> Service {
    let service = Service::new();
    service.json(&["user", "add", "alice@example.com", "--no-password", "--json"]);
    let write = |name: &str, text: &str| {
        let path = service.folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("identity", &format!("# made by age-keygen\n{IDENTITY}\n"));
    write("other", OTHER_IDENTITY);
    write("passphrase", &format!("{PASSPHRASE}\n"));
    write("wrong", "another passphrase");
    service
}

fn is_encrypted(bytes: &[u8]) -> bool {
    const PLAIN: &[u8] = b"idsvc backup";
    bytes.starts_with(b"age-encryption.org/v1\n") && !bytes.windows(PLAIN.len()).any(|part| part == PLAIN)
}

/// Runs a command with standard input on another data directory, which must not exist.
fn restore(service: &Service, words: &[&str], input: &[u8]) -> Output {
    let data = service.folder.path().join("new");
    let words = [&["restore"], words, &["--master-key", "data/master.key"]].concat();
    run_with_input(service.command(&words).env("IDSVC_DATA_DIR", &data), input)
}

/// Restores into a new directory, looks for the user, and removes the directory.
fn assert_restored(service: &Service, words: &[&str], input: &[u8]) {
    let restored = restore(service, words, input);
    assert!(restored.status.success(), "{words:?}: {}", said(&restored));
    let data = service.folder.path().join("new");
    let mut list = service.command(&["user", "list", "--json"]);
    let users = list.env("IDSVC_DATA_DIR", &data).output().unwrap();
    assert!(shown(&users).contains("alice@example.com"), "{words:?}");
    fs::remove_dir_all(data).unwrap();
}

/// Restores, expects a refusal in one sentence, and that nothing is there.
fn assert_refused(service: &Service, words: &[&str], input: &[u8], code: i32, sentence: &str) {
    let refused = restore(service, words, input);
    let said = said(&refused);
    assert_eq!(refused.status.code(), Some(code), "{words:?}: {said}");
    assert!(said.contains(sentence), "{words:?}: {said}");
    assert!(!service.folder.path().join("new").exists(), "{words:?}: {said}");
}

/// Types these lines into a program that asks for a passphrase. Whether it succeeds.
fn typing(command: &Command, lines: &[&str]) -> bool {
    let mut program = OnTerminal::start(command);
    program.wait_for_prompt();
    for line in lines {
        program.type_in(&format!("{line}\n"));
    }
    program.end().success()
}

#[test]
fn an_encrypted_backup_is_made_beside_a_service_and_without_one_and_restored() {
    let service = service();
    let mut running = service.serve();
    let online = service.json(&["backup", "--to", RECIPIENT, "--to", OTHER_RECIPIENT, "--json"]);
    let file = online["file"].as_str().unwrap().to_owned();
    assert!(file.ends_with("Z.backup.age"), "{file}");
    assert_eq!(
        (&online["encrypted"], &online["verified"]),
        (&true.into(), &true.into())
    );
    let second = service.json(&["backup", "--to", RECIPIENT, "--json"]);
    assert!(second["file"].as_str().unwrap().ends_with(".backup.age"));
    running.kill();
    let by_passphrase = service.json(&["backup", "saved", "--passphrase-file", "passphrase", "--json"]);
    let plain = service.json(&["backup", "plain", "--json"]);
    assert_eq!(
        (&by_passphrase["encrypted"], &plain["encrypted"]),
        (&true.into(), &false.into())
    );
    for (name, made) in [(file.as_str(), &online), ("saved", &by_passphrase)] {
        let bytes = fs::read(service.folder.path().join(name)).unwrap();
        assert!(is_encrypted(&bytes), "{name}");
        assert_eq!(made["bytes"], bytes.len());
    }
    for identity in ["identity", "other"] {
        assert_restored(&service, &[&file, "--identity", identity], b"");
    }
    assert_restored(&service, &[&file, "--identity", "-"], IDENTITY.as_bytes());
    assert_restored(&service, &["saved", "--passphrase-file", "passphrase"], b"");
    assert_restored(
        &service,
        &["saved", "--passphrase-file", "-"],
        PASSPHRASE.as_bytes(),
    );
    assert_restored(&service, &["plain", "--identity", "identity"], b"");
    let text = shown(&service.run(&["backup", "--to", RECIPIENT]));
    assert!(
        text.lines()
            .any(|line| line.split_whitespace().eq(["encrypted", "yes"])),
        "{text}"
    );
}

#[test]
fn without_the_secret_nothing_is_restored_and_the_flag_to_give_is_named() {
    let service = service();
    service.json(&["backup", "keys", "--to", RECIPIENT, "--json"]);
    service.json(&["backup", "secret", "--passphrase-file", "passphrase", "--json"]);
    let flag = "backup is encrypted to recipients: add --identity FILE";
    assert_refused(&service, &["keys"], b"", 2, flag);
    assert_refused(&service, &["secret"], b"", 2, "add --passphrase-file FILE");
    assert_refused(
        &service,
        &["keys", "--identity", "other"],
        b"",
        1,
        "no identity opens the file",
    );
    let wrong = "the passphrase does not open the file";
    assert_refused(&service, &["secret", "--passphrase-file", "wrong"], b"", 1, wrong);
    let hint = "hint: name its file with --passphrase-file";
    assert_refused(&service, &["secret", "--identity", "identity"], b"", 1, hint);
    let hint = "hint: name its file with --identity";
    assert_refused(
        &service,
        &["keys", "--passphrase-file", "passphrase"],
        b"",
        1,
        hint,
    );
    let line = "passphrase cannot be read: line 1 is not an X25519 identity";
    assert_refused(&service, &["keys", "--identity", "passphrase"], b"", 1, line);
    assert_refused(
        &service,
        &["keys", "--identity", "none"],
        b"",
        1,
        "none cannot be read",
    );
    assert_refused(
        &service,
        &["-", "--identity", "-"],
        b"",
        2,
        "standard input is read once",
    );
    assert_refused(
        &service,
        &[
            "keys",
            "--identity",
            "identity",
            "--passphrase-file",
            "passphrase",
        ],
        b"",
        2,
        "cannot be used with",
    );
    // The directory is looked at before anything is asked.
    let words = ["restore", "secret"];
    assert!(said(&service.run(&words)).contains("is there already"));
}

#[test]
fn a_recipient_that_is_none_is_refused_and_an_identity_is_not_repeated() {
    let service = service();
    let mut several = Vec::from(["backup", "saved"]);
    several.extend(["--to", RECIPIENT].iter().cycle().take(202));
    for (words, sentence) in [
        (
            &["backup", "saved", "--to", IDENTITY][..],
            "it is an identity, which is secret",
        ),
        (
            &["backup", "saved", "--to", RECIPIENT, "--to", "age1"],
            "--to: value 2",
        ),
        (
            &["backup", "saved", "--to", "ssh-ed25519 AAAA"],
            "not an X25519 recipient",
        ),
        (
            &[
                "backup",
                "saved",
                "--to",
                RECIPIENT,
                "--passphrase-file",
                "passphrase",
            ],
            "cannot be used with",
        ),
        (&several, "more than 100 recipients"),
    ] {
        let refused = service.run(words);
        let said = said(&refused);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(
            said.contains(sentence) && !said.contains(&IDENTITY[20..]),
            "{said}"
        );
    }
    let folder = service.folder.path();
    fs::write(folder.join("empty"), "\n").unwrap();
    fs::write(folder.join("lines"), "one\ntwo\n").unwrap();
    fs::write(folder.join("paragraph"), "one\n\n").unwrap();
    for (file, sentence) in [
        ("empty", "it is empty"),
        ("lines", "several lines"),
        ("paragraph", "several lines"),
        ("none", "No such file"),
    ] {
        let refused = service.run(&["backup", "saved", "--passphrase-file", file]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains(sentence), "{}", said(&refused));
    }
    assert!(!folder.join("saved").exists());
}

#[test]
fn an_encrypted_backup_that_was_changed_or_cut_restores_nothing() {
    let service = service();
    service.json(&["backup", "saved", "--to", RECIPIENT, "--json"]);
    let whole = fs::read(service.folder.path().join("saved")).unwrap();
    let words = ["-", "--identity", "identity"];
    let header = whole.windows(4).position(|part| part == b"\n---").unwrap();
    for end in [
        0,
        10,
        40,
        header,
        header + 40,
        header + 60,
        whole.len() / 2,
        whole.len() - 1,
    ] {
        assert_refused(&service, &words, &whole[..end], 1, "error: ");
    }
    for at in [
        25,
        header - 5,
        header + 10,
        header + 55,
        header + 75,
        whole.len() / 2,
        whole.len() - 1,
    ] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        assert_refused(&service, &words, &changed, 1, "error: ");
    }
    let longer = [&whole[..], b"more"].concat();
    assert_refused(&service, &words, &longer, 1, "its encryption does not fit");
    assert_restored(&service, &words, &whole);
}

#[test]
fn an_encrypted_backup_goes_through_pipes() {
    let service = service();
    let _running = service.serve();
    for (flags, with) in [
        (["--to", RECIPIENT], ["--identity", "identity"]),
        (
            ["--passphrase-file", "passphrase"],
            ["--passphrase-file", "passphrase"],
        ),
    ] {
        let made = service.run(&[&["backup", "-"], &flags[..]].concat());
        assert!(made.status.success(), "{}", said(&made));
        assert!(is_encrypted(&made.stdout));
        let bytes = format!("{} bytes", made.stdout.len());
        assert!(said(&made).contains(&bytes), "{}", said(&made));
        assert!(said(&made).contains("A restore needs it"), "{}", said(&made));
        assert_restored(&service, &[&["-"], &with[..]].concat(), &made.stdout);
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = service.command(&["backup", "-", "--to", RECIPIENT]);
    let unwritable = command.stdout(full).output().unwrap();
    assert_eq!(unwritable.status.code(), Some(1));
    assert!(
        said(&unwritable).contains("cannot be written"),
        "{}",
        said(&unwritable)
    );
}

#[test]
fn a_backup_with_the_master_key_says_who_can_sign_tokens() {
    let service = service();
    for (flags, sentence) in [
        (
            &[][..],
            "the backup is not encrypted, and any reader of the file can sign tokens",
        ),
        (
            &["--to", RECIPIENT],
            "any holder of an identity that the backup is encrypted to",
        ),
        (
            &["--passphrase-file", "passphrase"],
            "any reader who has the passphrase",
        ),
    ] {
        let made = service.run(&[&["backup", "--with-master-key"], flags].concat());
        assert!(
            made.status.success() && said(&made).contains(sentence),
            "{}",
            said(&made)
        );
    }
    service.json(&[
        "backup",
        "saved",
        "--with-master-key",
        "--to",
        RECIPIENT,
        "--json",
    ]);
    let data = service.folder.path().join("alone");
    let mut command = service.command(&["restore", "saved", "--identity", "identity"]);
    let restored = command.env("IDSVC_DATA_DIR", &data).output().unwrap();
    assert!(restored.status.success(), "{}", said(&restored));
    assert!(data.join("master.key").exists());
}

#[test]
fn an_encrypted_backup_counts_as_a_backup_where_files_are_replaced_or_swept() {
    const LEFT: &str = "0123456789abcdef0123456789abcdef.partial";
    let service = service();
    let folder = service.folder.path();
    let cut = folder.join(format!("monday.{LEFT}"));
    fs::write(&cut, "age-encryption.org/v1\n-> X255").unwrap();
    let other = folder.join(format!("film.{LEFT}"));
    fs::write(&other, "agent").unwrap();
    service.json(&["backup", "saved", "--to", RECIPIENT, "--json"]);
    assert!(!cut.exists() && other.exists());
    assert!(said(&service.run(&["backup", "saved"])).contains("--replace"));
    service.json(&["backup", "saved", "--replace", "--json"]);
    service.json(&["backup", "saved", "--to", RECIPIENT, "--replace", "--json"]);
    assert!(is_encrypted(&fs::read(folder.join("saved")).unwrap()));
    service.json(&[
        "backup",
        "saved",
        "--passphrase-file",
        "passphrase",
        "--replace",
        "--json",
    ]);
    assert_restored(&service, &["saved", "--passphrase-file", "passphrase"], b"");
}

#[test]
fn on_a_terminal_restore_asks_for_the_passphrase() {
    let service = service();
    service.json(&["backup", "saved", "--passphrase-file", "passphrase", "--json"]);
    let folder = service.folder.path();
    let data = folder.join("new");
    let mut command = service.command(&["restore", "saved", "--master-key", "data/master.key"]);
    command.env("IDSVC_DATA_DIR", &data);
    let restore = |line: &str| typing(&command, &[line]);
    assert!(!restore("another passphrase") && !data.exists());
    assert!(!restore("") && !data.exists());
    assert!(restore(PASSPHRASE) && data.join("idsvc.redb").exists());
}

/// Both directions, with recipients and a passphrase.
#[test]
fn the_tool_age_and_the_service_read_each_others_files() {
    if Command::new("age").arg("--version").output().is_err() {
        return report("backups and the tool age", "NOT RUN: age is not installed");
    }
    let service = service();
    let folder = service.folder.path();
    let tool = |words: &[&str]| {
        let mut age = Command::new("age");
        age.args(words).current_dir(folder);
        age
    };
    let age = |words: &[&str]| {
        let run = tool(words).output().unwrap();
        assert!(run.status.success(), "{words:?}: {}", said(&run));
        run.stdout
    };
    // Enough for several chunks.
    let users = (0..1000).map(|number| format!("{{\"email\":\"user-{number}@example.com\"}}\n"));
    fs::write(folder.join("users"), users.collect::<String>()).unwrap();
    service.json(&["user", "import", "users", "--json"]);
    service.json(&[
        "backup",
        "keys",
        "--to",
        OTHER_RECIPIENT,
        "--to",
        RECIPIENT,
        "--json",
    ]);
    service.json(&["backup", "secret", "--passphrase-file", "passphrase", "--json"]);
    service.json(&["backup", "plain", "--json"]);
    assert!(fs::metadata(folder.join("plain")).unwrap().len() > 3 * 65_536);
    let plain = age(&["-d", "-i", "identity", "keys"]);
    assert!(plain.starts_with(b"idsvc backup 1\n"));
    assert_restored(&service, &["-"], &plain);
    let decrypting = tool(&["-d", "-o", "opened", "secret"]);
    assert!(typing(&decrypting, &[PASSPHRASE]));
    assert_restored(&service, &["opened"], b"");

    age(&["-r", RECIPIENT, "-o", "theirs", "plain"]);
    assert_restored(&service, &["theirs", "--identity", "identity"], b"");
    let encrypting = tool(&["-p", "-o", "their-secret", "plain"]);
    assert!(typing(&encrypting, &[PASSPHRASE; 2]));
    assert_restored(
        &service,
        &["their-secret", "--passphrase-file", "passphrase"],
        b"",
    );
}

/// The one scheduled backup, once it is there.
fn scheduled(service: &Service) -> String {
    let folder = service.data().join("backups");
    let begun = Instant::now();
    loop {
        let entries = fs::read_dir(&folder).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let whole: Vec<_> = names.filter(|name| !name.ends_with(".partial")).collect();
        if let [name] = &whole[..] {
            return format!("data/backups/{name}");
        }
        assert!(begun.elapsed() < LONGEST_WAIT, "{}", service.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn scheduled_backups_are_encrypted_as_the_settings_say() {
    for (variable, value, with) in [
        ("IDSVC_BACKUP_TO", RECIPIENT, ["--identity", "identity"]),
        (
            "IDSVC_BACKUP_PASSPHRASE_FILE",
            "passphrase",
            ["--passphrase-file", "passphrase"],
        ),
    ] {
        let service = service().with(variable, value);
        let mut running = service.serve();
        let name = scheduled(&service);
        assert!(
            name.starts_with("data/backups/scheduled-") && name.ends_with("Z.backup.age"),
            "{name}"
        );
        let bytes = fs::read(service.folder.path().join(&name)).unwrap();
        assert!(is_encrypted(&bytes));
        let doctor = shown(&service.run(&["doctor", "--all"]));
        assert!(doctor.contains(", encrypted"), "{doctor}");
        running.terminate();
        assert_restored(&service, &[&[name.as_str()], &with[..]].concat(), b"");
        assert!(!service.log().contains(PASSPHRASE));
    }
}

#[test]
fn recipients_and_passphrases_that_do_not_work_are_faults_of_the_settings() {
    let service = service();
    let folder = service.folder.path();
    fs::write(folder.join("empty"), "").unwrap();
    fs::write(folder.join("paragraph"), "one\n\n").unwrap();
    let both = [RECIPIENT, "passphrase"];
    for (flags, sentence) in [
        (
            &["--backup-to", "age1x"][..],
            "backup.to: value 1: it is not an X25519 recipient",
        ),
        (
            &["--backup-to", RECIPIENT, "--backup-to", IDENTITY],
            "value 2: it is an identity",
        ),
        (
            &["--backup-passphrase-file", "none"],
            "none cannot be read: No such file",
        ),
        (&["--backup-passphrase-file", "paragraph"], "several lines"),
        (
            &["--backup-passphrase-file", "empty"],
            "empty cannot be read: it is empty",
        ),
        (
            &["--backup-to", both[0], "--backup-passphrase-file", both[1]],
            "are both set",
        ),
    ] {
        for command in [&["config", "check"][..], &["serve"]] {
            let refused = service.run(&[command, flags].concat());
            let told = said(&refused) + &shown(&refused);
            assert_eq!(refused.status.code(), Some(1), "{flags:?}: {told}");
            assert!(
                told.contains(sentence) && !told.contains(&IDENTITY[20..]),
                "{told}"
            );
        }
    }
    for flags in [
        ["--backup-to", RECIPIENT],
        ["--backup-passphrase-file", "passphrase"],
    ] {
        let checked = service.run(&[&["config", "check"], &flags[..]].concat());
        assert!(checked.status.success(), "{}", said(&checked));
        assert!(!said(&checked).contains("open to others"), "{}", said(&checked));
    }
    fs::set_permissions(folder.join("passphrase"), fs::Permissions::from_mode(0o644)).unwrap();
    let checked = service.run(&["config", "check", "--backup-passphrase-file", "passphrase"]);
    let told = said(&checked) + &shown(&checked);
    assert!(
        told.contains("the passphrase is open to others (644): chmod 640"),
        "{told}"
    );
}
