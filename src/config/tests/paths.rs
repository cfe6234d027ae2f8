//! Paths, and the files that settings name.

use super::*;

#[test]
fn paths_are_written_out_and_a_data_directory_is_one() {
    for key in ["data_dir", "theme_dir", "tls.cert", "tls.key", "outbound.ca_file"] {
        for path in ["~", "~/idsvc"] {
            let said = faults(&sources_of(&[(key, path)], &[], WHOLE));
            assert!(
                said.contains(&format!("{key} = {path:?}: only a shell expands ~")),
                "{said}"
            );
        }
    }
    let file = std::env::current_exe().unwrap();
    let said = faults(&sources_of(&[("data_dir", file.to_str().unwrap())], &[], WHOLE));
    assert!(said.contains("is no directory"), "{said}");
    assert!(resolve(&sources_of(&[("data_dir", "~idsvc")], &[], WHOLE)).is_ok());
}

#[test]
fn authorities_that_cannot_be_read_are_a_fault_of_the_service_only() {
    for (file, problem) in [
        ("/nonexistent/ca.pem", "cannot be read"),
        ("/dev/null", "no certificate authority"),
    ] {
        let sources = sources_of(&[("outbound.ca_file", file)], &[], WHOLE);
        let said = faults(&sources);
        assert!(
            said.contains(file) && said.contains(problem) && said.lines().count() == 1,
            "{said}"
        );
        assert!(resolve_settings(&sources).is_ok());
    }
}

#[test]
fn a_fault_beside_a_file_does_not_hide_that_the_file_cannot_be_read() {
    for (beside, value, file) in [
        ("outbound.allow", "x", "outbound.ca_file"),
        ("tls.mtls_listen", "x", "tls.mtls_ca"),
        ("mail.reply_to", "x", "mail.password_file"),
    ] {
        let mail = [
            ("mail.url", "smtps://user@mail.example"),
            ("mail.from", "a@b.example"),
        ];
        let mut flags = vec![(beside, value), (file, "/nonexistent")];
        flags.extend(mail.iter().filter(|_| beside.starts_with("mail")));
        let said = faults(&sources_of(&flags, &[], WHOLE));
        assert!(said.contains(beside), "{said}");
        assert!(said.contains(file) && said.contains("/nonexistent"), "{said}");
    }
}
