//! Generated RSA keys, judged by OpenSSL. Where no `openssl` is installed there is no judge, and the run says
//! so: the unit tests have ring check every key they make.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use idsvc::jose::rsa_keygen;
use idsvc::random::Random;

use crate::harness::report::report;

const KEYS: usize = 200;

#[test]
fn openssl_finds_no_fault_with_two_hundred_keys() {
    if Command::new("openssl").arg("version").output().is_err() {
        return report("keys judged by OpenSSL", "NOT RUN: openssl is not installed");
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || (first..KEYS).step_by(threads).for_each(|_| judge_one()));
        }
    });
}

fn judge_one() {
    let key = rsa_keygen::generate(&Random::system()).unwrap();
    let mut openssl = Command::new("openssl")
        .args(["rsa", "-check", "-noout", "-inform", "DER"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    openssl.stdin.take().unwrap().write_all(&key).unwrap();
    let verdict = openssl.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&verdict.stdout);
    assert!(
        verdict.status.success() && said.contains("RSA key ok"),
        "{said}{}",
        String::from_utf8_lossy(&verdict.stderr)
    );
}
