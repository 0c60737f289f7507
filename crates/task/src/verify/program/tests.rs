//! Programs and services that score, fail, hang and lie.

use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;

fn shell(script: &str) -> ProgramVerifier {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let options = ProgramOptions { command, timeout_s: 2.0, ..ProgramOptions::default() };
    ProgramVerifier::try_new(options).unwrap()
}

#[test]
fn a_program_reads_the_question_and_scores() {
    let verifier = shell(r#"grep -q '"answer":"42"' && echo '{"correct": true}'"#);
    let verdict = verifier.verify(&Problem::with_answer("42"), &Answer::whole("x"));
    assert_eq!(verdict, Outcome::Correct);
}

#[test]
fn a_score_is_the_reward_as_it_is() {
    for (printed, score, is_correct) in [("0.7", 0.7, true), ("0.2", 0.2, false)] {
        let verifier =
            shell(&format!("cat >/dev/null; echo noise; echo '{{\"score\": {printed}}}'"));
        assert_eq!(ask(&verifier), Outcome::Scored { score, is_correct });
    }
    for printed in ["1.5", "-0.1", "1e999"] {
        let verifier = shell(&format!("cat >/dev/null; echo '{{\"score\": {printed}}}'"));
        assert!(matches!(ask(&verifier), Outcome::Error { .. }), "{printed}");
    }
}

#[test]
fn a_program_sees_the_answer_and_all_that_was_written() {
    let verifier = shell(
        r#"grep -q '"completion":"8".*"full_completion":"7</think>8"' && echo '{"correct": true}'"#,
    );
    let answer = Answer::cut(&scalerl_recipe::Format::default(), "7</think>8");
    assert_eq!(verifier.verify(&Problem::with_answer(""), &answer), Outcome::Correct);
}

fn ask(verifier: &ProgramVerifier) -> Outcome {
    verifier.verify(&Problem::with_answer(""), &Answer::whole("x"))
}

#[test]
fn failures_of_a_program_are_errors() {
    for script in ["exit 1", "echo hello", "sleep 9", "yes", "echo '{}'", "kill -9 $$"] {
        let outcome = ask(&shell(script));
        assert!(matches!(outcome, Outcome::Error { .. }), "{script}: {outcome:?}");
    }
}

#[test]
fn a_program_inherits_nothing_but_its_streams_and_leaves_nothing() {
    let (reader, _writer) = std::io::pipe().unwrap();
    rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::empty()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
    let script = format!(
        "cat >/dev/null; [ -e /proc/self/fd/{number} ] || echo '{{\"correct\": true}}'; sleep 30 &"
    );
    // The child that it leaves holds its output open: killed with it, nobody waits.
    assert_eq!(ask(&shell(&script)), Outcome::Correct);
}

fn kept(script: &str) -> ProgramVerifier {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let kept = Some(Kept { processes: 1, log: VerifierLog::default() });
    let options = ProgramOptions { command, timeout_s: 2.0, kept, ..ProgramOptions::default() };
    ProgramVerifier::try_new(options).unwrap()
}

/// Counts its questions, so that one that was started anew begins at 1 again.
const LOOP: &str = r#"n=0; while read -r line; do
    id=${line#*\"id\":}; id=${id%%[,\}]*}; n=$((n+1)); case $line in
    *\"full_completion\":\"exit*) exit 3;; *hang*) sleep 30;; *nonsense*) echo hello;;
    *twice*) echo "{\"id\": $id, \"score\": 0.5}"; echo "{\"id\": $id, \"score\": 1}";;
    *silent-error*) echo "{\"id\": $id, \"error\": \"cannot\"}";;
    *) echo "{\"id\": $id, \"score\": 0.$n}";; esac; done"#;

#[test]
fn a_program_that_is_kept_alive_is_asked_again_and_again() {
    let verifier = kept(LOOP);
    let ask = |text: &str| verifier.verify(&Problem::with_answer(""), &Answer::whole(text));
    let scored = |score: f64| Outcome::Scored { score, is_correct: score >= 0.5 };
    for (text, verdict) in [("x", Some(0.1)), ("x", Some(0.2)), ("silent-error", None)] {
        assert_eq!(ask(text), verdict.map_or_else(|| Outcome::error("cannot"), scored), "{text}");
    }
    assert_eq!(ask("x"), scored(0.4), "the same process");
    for (text, said) in [
        ("exit", "has ended (exit status: 3)"),
        ("hang", "no answer within 2 s"),
        ("nonsense", "broken"),
    ] {
        let Outcome::Error { reason } = ask(text) else { panic!("{text}") };
        assert!(reason.contains(said), "{text}: {reason}");
        assert_eq!(ask("x"), scored(0.1), "a process of its own after {text}");
    }
    // A second line to one question must not become the answer to the next.
    assert_eq!(ask("twice"), scored(0.5));
    let Outcome::Error { reason } = ask("x") else { panic!("another question's answer") };
    assert!(reason.contains("and was asked"), "{reason}");
    assert_eq!(ask("x"), scored(0.1));
}

#[test]
fn a_service_scores_over_http() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/score", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        for reply in [
            "200 OK\r\ncontent-length: 16\r\n\r\n{\"correct\":true}",
            "500 Broken\r\ncontent-length: 0\r\n\r\n",
        ] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0_u8; 4096];
            let _ = stream.read(&mut request).unwrap();
            write!(stream, "HTTP/1.1 {reply}").unwrap();
        }
    });
    let options = ProgramOptions { url, timeout_s: 5.0, ..ProgramOptions::default() };
    let verifier = ProgramVerifier::try_new(options).unwrap();
    assert_eq!(ask(&verifier), Outcome::Correct);
    assert!(matches!(ask(&verifier), Outcome::Error { .. }));
    server.join().unwrap();
}

#[test]
fn a_redirect_is_an_error_that_names_its_status() {
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Again", "308 For Ever"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Ends when nobody has asked again by the time the verdict is there.
        let server = std::thread::spawn(move || {
            let verdict = "HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"correct\":true}";
            let elsewhere = format!(
                "HTTP/1.1 {status}\r\nlocation: http://{address}/page\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            for reply in [elsewhere.as_str(), verdict] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0_u8; 4096];
                let length = stream.read(&mut request).unwrap();
                if request[..length].is_empty() {
                    return false;
                }
                stream.write_all(reply.as_bytes()).unwrap();
            }
            true
        });
        let url = format!("http://{address}/score");
        let options = ProgramOptions { url, timeout_s: 5.0, ..ProgramOptions::default() };
        let outcome = ask(&ProgramVerifier::try_new(options).unwrap());
        drop(std::net::TcpStream::connect(address));
        let was_followed = server.join().unwrap();
        let Outcome::Error { reason } = outcome else { panic!("{status}: {outcome:?}") };
        assert!(reason.contains(&status[..3]) && !was_followed, "{status}: {reason}");
    }
}

#[test]
fn a_program_that_is_not_there_is_refused_before_the_first_answer() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.txt");
    std::fs::write(&plain, "not a program").unwrap();
    for (name, expected) in [
        ("./no/such/score.py", "does not exist"),
        ("no-such-scorer-anywhere", "is not on PATH"),
        (plain.to_str().unwrap(), "is not executable"),
    ] {
        let options =
            ProgramOptions { command: vec![name.to_owned()], ..ProgramOptions::default() };
        let error = ProgramVerifier::try_new(options).err().unwrap().to_string();
        assert_eq!(error, format!("verifier.command: {name} {expected}"));
    }
}

#[test]
fn nothing_or_too_much_to_ask_is_refused() {
    let both =
        ProgramOptions { command: vec!["x".into()], url: "y".into(), ..ProgramOptions::default() };
    for options in [ProgramOptions::default(), both] {
        assert!(matches!(ProgramVerifier::try_new(options), Err(VerifierError::NoProgram { .. })));
    }
}
