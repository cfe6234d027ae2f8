//! The PostgreSQL servers that tests use: databases of their own, and no server without its test process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::postgres::{Cluster, is_running, until};

#[test]
fn databases_are_separate_unless_one_is_the_template() {
    let cluster = Cluster::shared();
    let (one, other) = (cluster.database("one"), cluster.database("other"));
    one.sql("CREATE TABLE t AS SELECT 'row of one' AS name");
    other.sql("CREATE TABLE t AS SELECT 'row of other' AS name");
    assert_eq!(one.sql("SELECT name FROM t"), "row of one");
    assert_eq!(other.sql("SELECT name FROM t"), "row of other");

    let copy = cluster.database_from(&one);
    copy.sql("INSERT INTO t VALUES ('row of the copy')");
    assert_eq!(copy.sql("SELECT count(*) FROM t"), "2");
    assert_eq!(one.sql("SELECT name FROM t"), "row of one");
}

/// The test runs itself in another process, which starts a server and is killed.
#[test]
fn a_server_ends_with_its_test_process_and_its_folder_is_removed() {
    const HOLDS: &str = "IDSVC_TEST_HOLDS_A_SERVER";
    if std::env::var_os(HOLDS).is_some() {
        let cluster = Cluster::shared();
        let report = format!("\nserver {} {}\n", cluster.id(), cluster.folder().display());
        std::io::stdout().write_all(report.as_bytes()).unwrap();
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let name = "postgres::a_server_ends_with_its_test_process_and_its_folder_is_removed";
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", name])
        .env(HOLDS, "yes")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let report = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("server "));
    let report = report.unwrap();
    let (id, folder) = report["server ".len()..].split_once(' ').unwrap();
    let (id, folder) = (Pid::from_raw(id.parse().unwrap()).unwrap(), Path::new(folder));
    assert!(is_running(id) && folder.join("data").exists());

    let parent = Pid::from_child(&process);
    kill_process(parent, Signal::KILL).unwrap();
    process.wait().unwrap();
    until(|| !is_running(id) && !folder.exists(), || report.clone());
}
