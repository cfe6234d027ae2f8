//! The process is killed at random instants, under load, again and again. What was answered holds; what was
//! consumed or revoked stays so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use idsvc::random::Random;

use crate::harness::process::{Running, Service};

const CYCLES: usize = 50;
/// Grants that a worker keeps at once. All of them together stay far from the most that one user may have at a client.
const MOST_ALIVE: usize = 5;
const WORKERS: usize = 4;
const REDIRECT_URI: &str = "https://app.example/cb";
const PASSWORD: &str = "correct horse battery staple";

/// One relying party with what it was told so far.
#[derive(Default)]
struct Worker {
    /// The newest refresh token of each family that is alive.
    alive: Vec<String>,
    /// Codes that were redeemed, each with the newest token of its family.
    spent: Vec<(String, String)>,
    /// Tokens of families that were revoked, and that must stay so.
    dead: Vec<String>,
    answers: usize,
}

struct Stage<'a> {
    process: &'a Running<'a>,
    basic: &'a str,
    session: &'a str,
    random: Random,
}

impl Stage<'_> {
    fn below(&self, bound: usize) -> usize {
        usize::try_from(u64::from_be_bytes(self.random.bytes()) % bound as u64).unwrap()
    }

    /// Status and body of a token request, when an answer came.
    fn token(&self, path: &str, form: &[(&str, &str)]) -> Option<(u16, serde_json::Value)> {
        let reply = self
            .process
            .post_form(path, &[("Authorization", self.basic)], form)?;
        let body = if reply.body.is_empty() {
            serde_json::Value::Null
        } else {
            reply.json()
        };
        Some((reply.status, body))
    }

    fn refresh(&self, token: &str) -> Option<(u16, serde_json::Value)> {
        self.token(
            "/oauth2/token",
            &[("grant_type", "refresh_token"), ("refresh_token", token)],
        )
    }

    fn redeem(&self, code: &str) -> Option<(u16, serde_json::Value)> {
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", REDIRECT_URI),
        ];
        self.token("/oauth2/token", &form)
    }

    fn authorize(&self) -> Option<String> {
        let target = format!(
            "/oauth2/authorize?response_type=code&client_id=load&redirect_uri={REDIRECT_URI}&scope=services:all"
        );
        let reply = self
            .process
            .request("GET", &target, &[("Cookie", self.session)], "")?;
        let location = reply.header("location")?;
        let code = location
            .split(['?', '&'])
            .find_map(|pair| pair.strip_prefix("code="));
        Some(code.unwrap_or_else(|| panic!("no code in {location}")).to_owned())
    }
}

fn refresh_token(body: &serde_json::Value) -> String {
    body["refresh_token"]
        .as_str()
        .unwrap_or_else(|| panic!("no refresh token in {body}"))
        .to_owned()
}

impl Worker {
    /// Does one thing; nothing when the process was gone before the answer. Whatever may or may not
    /// have happened then is not claimed any more.
    fn act(&mut self, stage: &Stage<'_>) -> Option<()> {
        match stage.below(10) {
            0..=1 if self.alive.len() < MOST_ALIVE => self.begin(stage)?,
            2 if self.alive.len() > 1 => {
                let token = self.alive.swap_remove(stage.below(self.alive.len()));
                let (status, _) = stage.token("/oauth2/revoke", &[("token", &token)])?;
                assert_eq!(status, 200);
                self.dead.push(token);
            }
            3 if !self.spent.is_empty() => {
                let (code, token) = self.spent.swap_remove(stage.below(self.spent.len()));
                self.alive.retain(|alive| *alive != token);
                let (status, body) = stage.redeem(&code)?;
                assert_eq!(
                    (status, body["error"].as_str()),
                    (400, Some("invalid_grant")),
                    "a code came back"
                );
                self.dead.push(token);
            }
            _ if self.alive.is_empty() => self.begin(stage)?,
            _ => {
                let at = stage.below(self.alive.len());
                let (status, body) = stage.refresh(&self.alive[at])?;
                assert_eq!(status, 200, "an answered token does not work: {body}");
                self.moved_on(at, refresh_token(&body));
            }
        }
        self.answers += 1;
        Some(())
    }

    fn begin(&mut self, stage: &Stage<'_>) -> Option<()> {
        let code = stage.authorize()?;
        let (status, body) = stage.redeem(&code)?;
        assert_eq!(status, 200, "an answered code does not work: {body}");
        let token = refresh_token(&body);
        self.alive.push(token.clone());
        self.spent.push((code, token));
        Some(())
    }

    fn moved_on(&mut self, at: usize, token: String) {
        let before = std::mem::replace(&mut self.alive[at], token.clone());
        if let Some(spent) = self.spent.iter_mut().find(|(_, newest)| *newest == before) {
            spent.1 = token;
        }
    }

    /// After a restart: everything that was answered holds. Nothing when the process went away meanwhile.
    fn check(&mut self, stage: &Stage<'_>) -> Option<()> {
        for at in 0..self.alive.len() {
            let (status, body) = stage.refresh(&self.alive[at])?;
            assert_eq!(
                status, 200,
                "a token that was answered before the crash does not work: {body}"
            );
            self.moved_on(at, refresh_token(&body));
        }
        for token in &self.dead {
            let (status, body) = stage.refresh(token)?;
            assert_eq!(
                (status, body["error"].as_str()),
                (400, Some("invalid_grant")),
                "a revoked family came back"
            );
        }
        while self.spent.len() > 2 {
            let (code, token) = self.spent.swap_remove(stage.below(self.spent.len()));
            self.alive.retain(|alive| *alive != token);
            let (status, body) = stage.redeem(&code)?;
            assert_eq!(
                (status, body["error"].as_str()),
                (400, Some("invalid_grant")),
                "a spent code came back"
            );
            self.dead.push(token);
        }
        while self.alive.len() > 6 {
            self.alive.pop();
        }
        let surplus = self.dead.len().saturating_sub(10);
        self.dead.drain(..surplus);
        Some(())
    }
}

/// Signs in as a browser would and returns the session's cookie.
fn sign_in(process: &Running<'_>) -> String {
    let target = format!(
        "/oauth2/authorize?response_type=code&client_id=load&redirect_uri={REDIRECT_URI}&scope=services:all"
    );
    let (reply, _) = process.type_in(&target, "alice@example.com", PASSWORD);
    assert_eq!(reply.status, 303, "{reply:?}");
    let session = reply
        .headers("set-cookie")
        .find(|cookie| cookie.contains("session"))
        .unwrap();
    session.split(';').next().unwrap().to_owned()
}

#[test]
fn what_was_answered_survives_a_killed_process_and_nothing_comes_back_to_life() {
    use base64::Engine;

    let service = Service::new();
    let client = service.json(&[
        "client",
        "add",
        "load",
        "--redirect-uri",
        REDIRECT_URI,
        "--scope",
        "services:all",
        "--default-scope",
        "services:all",
        "--json",
    ]);
    let password_file = service.folder.path().join("password");
    std::fs::write(&password_file, PASSWORD).unwrap();
    let added = service
        .command(&["user", "add", "alice@example.com", "--password-stdin", "--json"])
        .stdin(std::fs::File::open(&password_file).unwrap())
        .output()
        .unwrap();
    assert!(
        added.status.success(),
        "{}",
        String::from_utf8_lossy(&added.stderr)
    );
    let secret = client["client_secret"].as_str().unwrap();
    let basic = format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(format!("load:{secret}"))
    );

    let session = sign_in(&service.serve());
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::default()).collect();
    let random = Random::system();
    for _ in 0..CYCLES {
        let mut process = service.serve();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for worker in &mut workers {
                let (process, over) = (&process, &over);
                let (basic, session) = (&basic, &session);
                scope.spawn(move || {
                    let stage = Stage {
                        process,
                        basic,
                        session,
                        random: Random::system(),
                    };
                    let mut went_on = worker.check(&stage);
                    while went_on.is_some() && !over.load(Ordering::Relaxed) {
                        went_on = worker.act(&stage);
                    }
                });
            }
            let after = 30 + u64::from(random.bytes::<1>()[0]);
            let id = process.id().to_string();
            thread::sleep(Duration::from_millis(after));
            let killed = std::process::Command::new("kill")
                .args(["-KILL", &id])
                .status()
                .unwrap();
            assert!(killed.success());
            over.store(true, Ordering::Relaxed);
        });
        process.kill();
    }
    let answers: usize = workers.iter().map(|worker| worker.answers).sum();
    assert!(answers > CYCLES, "only {answers} answers in {CYCLES} cycles");
    assert!(
        workers.iter().any(|worker| !worker.dead.is_empty()),
        "nothing was ever revoked"
    );
    let process = service.serve();
    for worker in &mut workers {
        let stage = Stage {
            process: &process,
            basic: &basic,
            session: &session,
            random: Random::system(),
        };
        worker.check(&stage).expect("the service is up");
    }
}
