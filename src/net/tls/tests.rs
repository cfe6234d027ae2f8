//! Tests of certificates that change, expire or cannot be used.

use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use super::super::outbound::OutboundPolicy;
use super::*;

#[test]
fn what_lasts_is_told_when_it_begins_when_it_changes_and_once_a_day() {
    let mut reminder = DailyReminder(None);
    let mut is_due = |condition, now| reminder.is_due(condition, now);
    assert!(!is_due(None, 0));
    assert!(is_due(Some("a week"), 1));
    assert!(!is_due(Some("a week"), DAY));
    assert!(is_due(Some("a week"), DAY + 1));
    assert!(is_due(Some("a day"), DAY + 2));
    assert!(!is_due(Some("a day"), DAY + 3));
    assert!(!is_due(None, DAY + 4));
    assert!(is_due(Some("a day"), DAY + 5));
}

async fn in_time(future: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_mins(1), future)
        .await
        .unwrap();
}

/// The log of this thread while the guard lives.
fn logged() -> (Arc<Mutex<Vec<u8>>>, tracing::subscriber::DefaultGuard) {
    #[derive(Clone)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines(Arc::default());
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    (lines.0, tracing::subscriber::set_default(subscriber))
}

#[test]
fn a_certificate_that_cannot_be_used_is_not_warned_of() {
    let directory = TempDir::new().unwrap();
    let begin = rustls::pki_types::UnixTime::now().as_secs();
    self_signed::self_signed(directory.path(), &[], begin).unwrap();
    let certs = directory.path().join("certs");
    let (certificate, key) = (certs.join("self-signed.pem"), certs.join("self-signed.key"));
    let (lines, _guard) = logged();
    let host = Some("localhost".to_owned());
    let acceptor = Acceptor::from_files(
        &certificate,
        &key,
        host,
        KnownRoots::of(&OutboundPolicy::default()),
        begin,
    )
    .unwrap();
    let foreign = rcgen::generate_simple_self_signed(["other.example".to_owned()]).unwrap();
    std::fs::write(&certificate, foreign.cert.pem()).unwrap();
    let refused = acceptor.reload(begin);
    assert!(
        matches!(refused, Err(TlsError::KeyMismatch { .. })),
        "{refused:?}"
    );
    let said = || String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    assert_eq!(said(), "");
    std::fs::write(&key, foreign.signing_key.serialize_pem()).unwrap();
    assert!(acceptor.reload(begin).unwrap());
    assert!(said().contains("not for localhost"), "{}", said());
}

#[tokio::test]
async fn a_certificate_that_runs_out_in_a_running_service_is_told_in_time_and_every_day() {
    let directory = TempDir::new().unwrap();
    let begin = rustls::pki_types::UnixTime::now().as_secs();
    self_signed::self_signed(directory.path(), &[], begin).unwrap();
    let (certificate, key) = (
        directory.path().join("certs/self-signed.pem"),
        directory.path().join("certs/self-signed.key"),
    );
    let host = Some("other.example".to_owned());
    let (lines, _guard) = logged();
    let acceptor = Acceptor::from_files(
        &certificate,
        &key,
        host,
        KnownRoots::of(&OutboundPolicy::default()),
        begin,
    )
    .unwrap();
    let end = acceptor.not_after().unwrap();
    let said = || String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    assert!(said().contains("not for other.example"), "{}", said());
    assert!(!said().contains("expire"), "{}", said());
    let clock = Arc::new(AtomicU64::new(begin));
    let reader = Arc::clone(&clock);
    let watch =
        tokio::spawn(acceptor.watch(Duration::from_millis(10), move || reader.load(Ordering::Relaxed)));
    // The task reads the clock when it begins.
    tokio::task::yield_now().await;
    for (moment, part) in [
        (end - 6 * DAY, "expires in 144 hours"),
        (end - 5 * DAY, "expires in 120 hours"),
        (end - DAY / 2, "expires in 12 hours"),
        (end + 1, "has expired"),
    ] {
        clock.store(moment, Ordering::Relaxed);
        until(|| said().contains(part)).await;
    }
    let before = said().matches("WARN").count();
    std::fs::write(&key, "no key").unwrap();
    for errors in 1..=2 {
        until(|| said().matches("keeping the old certificate").count() >= errors).await;
        clock.store(end + 2 * DAY, Ordering::Relaxed);
    }
    assert_eq!(before, 5, "{}", said());
    watch.abort();
}

/// Waits until it is so.
async fn until(is_so: impl Fn() -> bool) {
    in_time(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_intermediate_that_expires_in_a_running_service_is_told_in_time_and_every_day() {
    let begin = rustls::pki_types::UnixTime::now().as_secs();
    let end = begin + 10 * DAY;
    let moment =
        |seconds: u64| time::OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).unwrap()).unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority
        .distinguished_name
        .push(rcgen::DnType::CommonName, "Root");
    let root = rcgen::Issuer::new(authority.clone(), rcgen::KeyPair::generate().unwrap());
    authority
        .distinguished_name
        .push(rcgen::DnType::CommonName, "Between");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    (authority.not_before, authority.not_after) = (moment(begin - 365 * DAY), moment(end));
    let key = rcgen::KeyPair::generate().unwrap();
    let between = authority.signed_by(&key, &root).unwrap().pem();
    let issuer = rcgen::Issuer::new(authority, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["id.example".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap().pem();

    let directory = TempDir::new().unwrap();
    let file = directory.path().join("pair.pem");
    std::fs::write(&file, own + &between + &key.serialize_pem()).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let known_roots = KnownRoots::of(&OutboundPolicy::default());
    let (lines, _guard) = logged();
    let acceptor = Acceptor::from_files(&file, &file, None, known_roots, begin).unwrap();
    let said = || String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    assert_eq!(said(), "");
    let clock = Arc::new(AtomicU64::new(begin));
    let reader = Arc::clone(&clock);
    let watch =
        tokio::spawn(acceptor.watch(Duration::from_millis(10), move || reader.load(Ordering::Relaxed)));
    // The task reads the clock when it begins.
    tokio::task::yield_now().await;
    for (moment, part) in [
        (end - 6 * DAY, "(CN=Between) expires in 144 hours"),
        (end - 5 * DAY, "(CN=Between) expires in 120 hours"),
        (end + 1, "(CN=Between) has expired"),
    ] {
        clock.store(moment, Ordering::Relaxed);
        until(|| said().contains(part)).await;
    }
    assert_eq!(said().matches("WARN").count(), 3, "{}", said());
    watch.abort();
}
