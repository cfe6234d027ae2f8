//! The data directory belongs to the user of the service. What that user puts there leads no command of root's elsewhere.

use std::fs;

use super::harness::process::Service;

#[test]
fn the_development_server_reads_no_configuration_file_that_it_was_not_given() {
    let service = Service::new()
        .without("IDSVC_BASE_URL")
        .without("IDSVC_TLS_MODE")
        .without("IDSVC_LISTEN")
        .without("IDSVC_DATA_DIR")
        .with("IDSVC_CONFIG", "elsewhere.toml");
    let folder = service.folder.path();
    let production = folder.join("production");
    let text = format!(
        "data_dir = {:?}\nlisten = [\"127.0.0.1:1\"]",
        production.display()
    );
    fs::write(folder.join("idsvc.toml"), &text).unwrap();
    fs::write(folder.join("elsewhere.toml"), &text).unwrap();
    let listen = format!("127.0.0.1:{}", service.port);
    let mut running = service.start(&["serve", "--dev", "--listen", &listen]);
    running.until(|_| service.log().contains("\"ready\""));
    running.kill();
    assert!(!production.exists());
    assert!(folder.join("idsvc-data/dev/idsvc.redb").exists());
    let given = [
        "serve",
        "--dev",
        "--config",
        "elsewhere.toml",
        "--listen",
        &listen,
    ];
    let mut running = service.start(&given);
    running.until(|_| production.join("idsvc.redb").exists());
    running.kill();
}
