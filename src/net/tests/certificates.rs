//! Certificates that change under running connections.

use super::*;

#[tokio::test]
async fn a_new_certificate_serves_the_next_connection() {
    let (old, new) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let now = UnixTime::now().as_secs();
    let (_, old_certificate) = self_signed(&old);
    let (_, new_certificate) = self_signed(&new);
    let (certificate, key) = (
        old.path().join("certs/self-signed.pem"),
        old.path().join("certs/self-signed.key"),
    );
    let acceptor = Acceptor::from_files(&certificate, &key, None, now).unwrap();
    let server = Server::start(Limits::default(), Some(acceptor.clone())).await;
    let mut before = secured(&server, &old_certificate, &[]).await.unwrap();
    assert!(!acceptor.reload(now).unwrap());

    std::fs::copy(new.path().join("certs/self-signed.pem"), &certificate).unwrap();
    assert!(acceptor.reload(now).is_err());
    secured(&server, &old_certificate, &[]).await.unwrap();

    std::fs::copy(new.path().join("certs/self-signed.key"), &key).unwrap();
    assert!(acceptor.reload(now).unwrap());
    secured(&server, &new_certificate, &[]).await.unwrap();
    assert!(secured(&server, &old_certificate, &[]).await.is_err());
    ask(&mut before, GET, "from 127.0.0.1").await;
}

#[tokio::test]
async fn a_watched_certificate_is_exchanged_without_being_asked() {
    let (old, new) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (_, old_certificate) = self_signed(&old);
    let (_, new_certificate) = self_signed(&new);
    let (certificate, key) = (
        old.path().join("certs/self-signed.pem"),
        old.path().join("certs/self-signed.key"),
    );
    let acceptor = Acceptor::from_files(&certificate, &key, None, UnixTime::now().as_secs()).unwrap();
    let server = Server::start(Limits::default(), Some(acceptor.clone())).await;
    let watch = tokio::spawn(acceptor.watch(Duration::from_millis(20), || UnixTime::now().as_secs()));
    secured(&server, &old_certificate, &[]).await.unwrap();
    for (from, to) in [
        ("certs/self-signed.key", &key),
        ("certs/self-signed.pem", &certificate),
    ] {
        let beside = old.path().join("beside");
        std::fs::copy(new.path().join(from), &beside).unwrap();
        std::fs::rename(beside, to).unwrap();
    }
    in_time(async {
        while secured(&server, &new_certificate, &[]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    watch.abort();
}
