//! Who should not get in does not: Redis' password and certificate, the token of the run's own door,
//! and what strangers send there.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::bench::{audit, files, folder, reading, said, train};
use crate::run::{Alive, until_all_have_ended};
use crate::server::{Kind, PASSWORD, Redis, speaks_tls};

const SHORT: [&str; 3] = ["cluster.generators=1", "budget.steps=3", "evaluation.generations=1"];

fn finish(run: &str, mut command: Command, redis: &Redis) {
    command.env("SCALERL_REDIS", redis.url());
    let said = Alive::start(run, command).end();
    assert_eq!(said.code, Some(0), "{}\n{}", said.out, said.err);
    until_all_have_ended(run);
    audit(&reading(run), 8);
    assert!(!said.err.contains(PASSWORD) && !said.out.contains(PASSWORD), "{}", said.err);
    for (name, bytes) in files(&folder().join(run)) {
        let is_there = bytes.windows(PASSWORD.len()).any(|part| part == PASSWORD.as_bytes());
        assert!(!is_there, "{} holds the password", name.display());
    }
}

#[test]
fn a_password_is_needed_and_kept_out_of_everything() {
    let Some(redis) = Redis::start() else { return };
    finish("password", train("scalerl", "password", &SHORT), &redis);
    let mut wrong = train("scalerl", "wrong-password", &SHORT);
    wrong.env("SCALERL_REDIS", redis.url().replace(PASSWORD, "another-one"));
    let wrong = said(wrong);
    assert!(wrong.code == Some(1) && wrong.err.contains("password"), "{wrong:?}");
    assert!(!wrong.err.contains("another-one"), "{wrong:?}");
}

fn openssl(place: &Path, words: &str) -> bool {
    let done = Command::new("openssl").current_dir(place).args(words.split(' ')).output();
    done.is_ok_and(|done| done.status.success())
}

/// An authority of the test's own and a server's certificate from it.
fn certificates() -> Option<PathBuf> {
    let place = folder().join("certificates");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    let new = "-newkey rsa:2048 -nodes -sha256";
    let acts = [
        format!("req -x509 {new} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-authority"),
        format!("req {new} -keyout server.key -out server.csr -subj /CN=localhost"),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -sha256 \
         -extfile names -out server.pem"
            .to_owned(),
    ];
    if acts.iter().all(|act| openssl(&place, act)) {
        return Some(place);
    }
    println!("SKIPPED: openssl makes no certificates here");
    None
}

#[test]
fn rediss_is_encrypted_and_the_servers_certificate_is_checked() {
    let Some(keys) = certificates().filter(|_| speaks_tls()) else { return };
    let Some(redis) = Redis::of(Kind { tls: Some(keys.clone()), ..Kind::default() }) else {
        return;
    };
    let mut trusting = train("scalerl", "encrypted", &SHORT);
    trusting.env("SSL_CERT_FILE", keys.join("ca.pem"));
    finish("encrypted", trusting, &redis);
    let mut other = train("scalerl", "unknown-authority", &SHORT);
    other.env("SCALERL_REDIS", redis.url());
    let other = said(other);
    assert!(other.code == Some(1) && other.err.contains("certificate"), "{other:?}");
    let plain = redis.url().replace("rediss://", "redis://");
    let mut plain_words = train("scalerl", "plain-words", &SHORT);
    plain_words.env("SCALERL_REDIS", plain);
    assert_eq!(said(plain_words).code, Some(1), "no plain words where TLS is spoken");
}

/// Ports on which a process listens, and the addresses: from the kernel's own table.
fn listening(pid: u32) -> Vec<(bool, u16)> {
    let sockets: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            let text = link.to_string_lossy().into_owned();
            Some(text.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
        })
        .collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap();
        for words in text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()) {
            // 0A: listens; the tenth word is the socket's number.
            if words[3] == "0A" && sockets.iter().any(|socket| socket == words[9]) {
                let (address, port) = words[1].rsplit_once(':').unwrap();
                let is_loopback = address == "0100007F"
                    || address == "00000000000000000000000001000000"
                    || address == "0000000000000000FFFF00000100007F";
                found.push((is_loopback, u16::from_str_radix(port, 16).unwrap()));
            }
        }
    }
    found
}

/// What one hears who says this, until the other side ends it.
fn answer(port: u16, said: &[u8]) -> usize {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return 0 };
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // It may be closed before all is sent.
    let _ = stream.write_all(said);
    let (mut heard, mut bytes) = (0, [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        heard += count;
    }
    heard
}

#[test]
fn strangers_hear_nothing_and_disturb_nothing() {
    let Some(redis) = Redis::start() else { return };
    let run = "strangers";
    let mut alive = Alive::endless(run, &redis, &["cluster.trainers=2", "cluster.generators=1"]);
    alive.until_healthy(&["trainer-1", "generator-0"]);
    let open = listening(alive.id());
    assert!(!open.is_empty() && open.iter().all(|(is_loopback, _)| *is_loopback), "{open:?}");
    let nonsense: [&[u8]; 3] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nobody\r\n\r\n",
        &vec![0xff; 1 << 16],
        &vec![0; 1 << 20],
    ];
    for (_, port) in open {
        for said in nonsense {
            let heard = answer(port, said);
            println!("port {port}: {} bytes said, {heard} heard", said.len());
            assert!(heard <= 64, "port {port} told a stranger {heard} bytes");
        }
    }
    alive.go_on(5);
    alive.stop_and_audit();
    until_all_have_ended(run);
}
