//! The server as a client sees it: every page, and everything that must be refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod journal;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use journal::{Writer, finished};
use scalerl_watch::{Server, ServerOptions, StartError};

fn start(folder: &Path, api_key: Option<&str>) -> Server {
    Server::start(&options(folder, "127.0.0.1:0", api_key)).unwrap()
}

fn options(folder: &Path, address: &str, api_key: Option<&str>) -> ServerOptions {
    let api_key = api_key.map(str::to_owned);
    ServerOptions { folders: vec![folder.to_owned()], address: address.to_owned(), api_key }
}

/// Status, head and body of a request as it is written.
fn raw(server: &Server, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(server.url().strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

fn ask(server: &Server, method: &str, path: &str, headers: &str) -> (u16, String, String) {
    let host = server.url().strip_prefix("http://").unwrap().to_owned();
    raw(
        server,
        &format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\n"),
    )
}

fn get(server: &Server, path: &str) -> (u16, String) {
    let (status, _, body) = ask(server, "GET", path, "");
    (status, body)
}

/// The page of a run once its journal has been read.
fn read_run(server: &Server, slug: &str) -> String {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let (status, body) = get(server, &format!("/run/{slug}"));
        assert_eq!(status, 200);
        if body.contains("class=\"tiles\"") || Instant::now() > end {
            return body;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_finished_run_is_listed_shown_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    finished(folder.path(), "one");
    finished(folder.path(), "two");
    let server = start(folder.path(), None);
    let (status, list) = get(&server, "/");
    assert_eq!(status, 200);
    for piece in ["/run/one", "/run/two", "ended", "60 <small>of 100</small>", "<polyline"] {
        assert!(list.contains(piece), "{piece}: {list}");
    }
    let page = read_run(&server, "one");
    for piece in [
        "its steps are done",
        "Pass rate on held-out",
        "Of 6 live forecasts",
        "Share of device time by role",
        "Gradient norm",
        "the policy has hardly any choice left",
        "One process generates and trains.",
    ] {
        assert!(page.contains(piece), "{piece}");
    }
    let (status, parts) = get(&server, "/run/one/parts");
    assert_eq!(status, 200);
    assert!(parts.starts_with("{\"state\":\"ended\",\"parts\":[{\"id\":\"head\""), "{parts}");
    let (status, compared) = get(&server, "/compare?runs=one,two,three");
    assert_eq!(status, 200);
    assert!(compared.contains(">two<") && !compared.contains("three"));
    // Each with the band of its last forecast.
    for piece in ["the last forecast", "one\nforecast at", "two\nforecast at"] {
        assert!(compared.contains(piece), "{piece}: {compared}");
    }
    for path in ["/assets/board.css", "/assets/watch.css", "/assets/board.js", "/assets/watch.js"] {
        assert_eq!(get(&server, path).0, 200, "{path}");
    }
}

#[test]
fn nothing_outside_the_runs_can_be_read() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::write(outer.path().join("secret.txt"), "TOP SECRET").unwrap();
    let runs = outer.path().join("runs");
    let path = finished(&runs, "one");
    std::os::unix::fs::symlink(
        outer.path().join("secret.txt"),
        path.join("samples/step-000001.jsonl"),
    )
    .unwrap();
    let server = start(&runs, None);
    for path in [
        "/run/..%2f..%2fsecret.txt",
        "/run/../../secret.txt",
        "/run/one/../../secret.txt",
        "/run/%2e%2e/parts",
        "/run/one%2f..%2f..%2fsecret.txt/samples",
        "/assets/..%2f..%2fsecret.txt",
        "/assets/../../../etc/passwd",
        "/secret.txt",
        "//etc/passwd",
        "/run/one%00/parts",
    ] {
        let (status, body) = get(&server, path);
        assert!(status == 404 || status == 400, "{path}: {status}");
        assert!(!body.contains("SECRET") && !body.contains("root:"), "{path}: {body}");
    }
    let (status, body) = get(&server, "/run/one/samples?step=1");
    assert_eq!(status, 200);
    assert!(!body.contains("SECRET"), "a link is not followed: {body}");
}

#[test]
fn what_a_model_writes_never_becomes_part_of_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&folder.path().join("run"));
    writer.steps(1..=10);
    writer.trouble(10);
    writer.sample(10, "</pre><script>alert(1)</script><img src=x onerror=alert(2)> 42");
    let server = start(folder.path(), None);
    let page = read_run(&server, "run");
    assert!(page.contains("&lt;img src=x"), "the verifier's reason is shown as text");
    assert!(!page.contains("<img"));
    let (_, found) = get(&server, "/run/run/samples?text=42");
    assert!(found.contains("&lt;script&gt;alert(1)") && found.contains("&lt;b&gt;1+1"), "{found}");
    assert!(!found.contains("<script") && !found.contains("<img") && !found.contains("<b>1"));
    let (_, none) = get(&server, "/run/run/samples?text=%3Cscript%3Enothing");
    assert!(none.contains("Nothing was found") && !none.contains("<script"));
    let (_, head, _) = ask(&server, "GET", "/", "");
    assert!(head.contains("content-security-policy: default-src 'self';"), "{head}");
    assert!(
        head.contains("x-content-type-options: nosniff") && head.contains("x-frame-options: deny")
    );
    assert!(!page.contains(" style=\"") && !page.contains("onclick"), "the policy forbids both");
}

#[test]
fn another_sites_name_for_this_machine_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), None);
    for host in ["evil.example", "evil.example:7070", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"]
    {
        let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        assert_eq!(raw(&server, &request).0, 421, "{host}");
    }
    for host in ["localhost:1", "127.0.0.1", "[::1]:9", "127.0.0.2"] {
        let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        assert_eq!(raw(&server, &request).0, 200, "{host}");
    }
}

#[test]
fn only_the_token_stops_and_only_what_lives() {
    let folder = tempfile::tempdir().unwrap();
    finished(folder.path(), "run");
    let server = start(folder.path(), None);
    let wrong = [String::new(), "x-watch-token: 0\r\n".to_owned(), {
        let mut token = server.token().to_owned();
        token.replace_range(0..1, if token.starts_with('a') { "b" } else { "a" });
        format!("x-watch-token: {token}\r\n")
    }];
    for headers in wrong {
        let (status, _, body) = ask(&server, "POST", "/run/run/stop", &headers);
        assert_eq!(status, 403, "{body}");
    }
    let right = format!("x-watch-token: {}\r\n", server.token());
    let (status, _, body) = ask(&server, "POST", "/run/run/stop", &right);
    assert_eq!((status, body.contains("no process holds this run")), (409, true), "{body}");
    assert_eq!(ask(&server, "GET", "/run/run/stop", &right).0, 405);
    assert_eq!(ask(&server, "POST", "/run/other/stop", &right).0, 404);
}

#[test]
fn another_address_needs_a_key_for_reading_too() {
    let folder = tempfile::tempdir().unwrap();
    finished(folder.path(), "run");
    let refused = Server::start(&options(folder.path(), "0.0.0.0:0", None)).unwrap_err();
    assert!(matches!(refused, StartError::NoKey { .. }), "{refused}");
    let server = start(folder.path(), Some("open sesame"));
    for path in ["/", "/list", "/run/run", "/run/run/parts", "/run/run/samples", "/events"] {
        let (status, body) = get(&server, path);
        assert_eq!(status, 401, "{path}");
        assert!(!body.contains("ended") && !body.contains("/run/run\""), "{path}: {body}");
    }
    let bearer = "authorization: Bearer open sesame\r\n";
    assert_eq!(ask(&server, "GET", "/run/run", bearer).0, 200);
    assert_eq!(ask(&server, "GET", "/list", "authorization: Bearer open\r\n").0, 401);
    let body = |key: &str| format!("content-length: {}\r\n\r\n{key}", key.len());
    let login = |key: &str| {
        let host = server.url().strip_prefix("http://").unwrap().to_owned();
        raw(
            &server,
            &format!("POST /login HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{}", body(key)),
        )
    };
    assert_eq!(login("wrong").0, 401);
    assert_eq!(login(&"x".repeat(5000)).0, 413);
    let (status, head, _) = login("open sesame");
    assert_eq!(status, 200);
    assert!(head.contains("httponly; samesite=strict"), "{head}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = format!("cookie: a=b; {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(ask(&server, "GET", "/list", &cookie).0, 200);
}

#[test]
fn a_page_is_told_of_new_steps_and_of_a_resume() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&folder.path().join("run"));
    writer.steps(1..=20);
    let server = start(folder.path(), None);
    assert!(read_run(&server, "run").contains("<b>20 <small>of 100</small></b>"));
    let host = server.url().strip_prefix("http://").unwrap().to_owned();
    let mut events = TcpStream::connect(&host).unwrap();
    events.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let request = format!("GET /events?run=run HTTP/1.1\r\nhost: {host}\r\n\r\n");
    events.write_all(request.as_bytes()).unwrap();
    let kept = writer.log.count();
    // The piece is there, and the page was told to ask for it.
    let mut told = |what: &str| {
        let (end, mut count) = (Instant::now() + Duration::from_mins(1), 0);
        while count == 0 || !get(&server, "/run/run/parts").1.contains(what) {
            assert!(Instant::now() < end, "{what} did not come");
            let mut bytes = [0; 4096];
            let read = events.read(&mut bytes).unwrap_or(0);
            count += String::from_utf8_lossy(&bytes[..read]).matches("data: {").count();
        }
    };
    writer.steps(21..=30);
    told("<b>30 <small>of 100</small></b>");
    writer.resume(kept, 20);
    told("<b>20 <small>of 100</small></b>");
    assert!(get(&server, "/run/run/parts").1.contains("resumed from step 20"));
}

#[test]
fn two_hundred_runs_are_listed_in_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let first = finished(folder.path(), "run-000");
    for number in 1..200 {
        let path = folder.path().join(format!("run-{number:03}"));
        std::fs::create_dir(&path).unwrap();
        for name in ["recipe.toml", "environment.json", "events.jsonl", "points.jsonl"] {
            std::fs::copy(first.join(name), path.join(name)).unwrap();
        }
    }
    let server = start(folder.path(), None);
    let begun = Instant::now();
    let (status, list) = get(&server, "/");
    assert_eq!((status, list.matches("<tr data-name").count()), (200, 200));
    let taken = begun.elapsed();
    // Twenty times what it takes on a quiet machine.
    assert!(taken < Duration::from_secs(10), "{taken:?}");
    let begun = Instant::now();
    get(&server, "/list");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn a_screen_has_as_many_lines_as_the_terminal_and_no_orders_from_files() {
    use scalerl_watch::{Key, Screen};
    let folder = tempfile::tempdir().unwrap();
    let path = finished(folder.path(), "run");
    let mut screen = Screen::default();
    for (width, height) in [(80, 24), (40, 8), (200, 60), (1, 1)] {
        assert!(screen.frame(width, height).len() <= height);
    }
    assert!(!screen.press(Key::Quit));
    screen.list(scalerl_watch::glances(&[folder.path().to_owned()]));
    assert!(screen.frame(100, 24)[2].contains("run  "), "{:?}", screen.frame(100, 24));
    assert!(screen.press(Key::Enter));
    assert_eq!(screen.open(), Some("run"));
    let digest = scalerl_watch::Follower::open(&path).unwrap().catch_up().unwrap();
    screen.tell(Some(digest), 1.0);
    let frame = screen.frame(100, 30);
    assert!(
        frame.len() <= 30 && frame[0].starts_with("run  ended: its steps are done  step 60 of 100")
    );
    assert!(frame.iter().any(|line| line.contains("device-hours: train")), "{frame:?}");
    assert!(frame.iter().all(|line| !line.contains('\x1b')));
    assert!(screen.press(Key::Back) && screen.open().is_none());
}
