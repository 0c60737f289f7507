//! What is opened and what is refused, on real devices, pipes and sockets.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn named_pipe(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a pipe");
    path
}

fn said(result: io::Result<impl std::fmt::Debug>) -> String {
    result.expect_err("it is refused").to_string()
}

#[test]
fn devices_pipes_sockets_and_folders_are_no_files() {
    let folder = folder();
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, kind) in [
        (PathBuf::from("/dev/zero"), "a device"),
        (PathBuf::from("/dev/null"), "a device"),
        (named_pipe(&folder), "a named pipe"),
        (socket, "a socket"),
        (folder.path().to_owned(), "a folder"),
    ] {
        let expected = format!("this is {kind}, not a regular file");
        assert_eq!(said(open(&path)), expected);
        assert_eq!(said(open_input(&path)), expected);
        assert_eq!(said(read(&path, DOCUMENT)), expected);
    }
}

#[test]
fn a_link_is_what_it_leads_to() {
    let folder = folder();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
    assert!(said(open(&link)).contains("a device"));
}

#[test]
fn a_pipe_that_is_held_already_is_an_input() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
    File::from(writer).write_all(b"a\nb\n").unwrap();
    assert!(said(open(&path)).contains("a pipe"));
    assert_eq!(read_input_to_string(&path, DOCUMENT).unwrap(), "a\nb\n");
}

#[test]
fn a_stream_without_a_size_has_a_limit() {
    assert_eq!(read_stream(&b"abcd"[..], 4).unwrap(), b"abcd");
    let error = read_stream(io::repeat(0), 1 << 10).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn a_held_pipe_has_a_limit_too() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
    // Its writer writes for as long as somebody reads.
    let endless = std::thread::spawn(move || {
        let mut writer = File::from(writer);
        while writer.write_all(&[0; 4096]).is_ok() {}
    });
    assert!(said(read_input_to_string(&path, 1 << 20)).contains("larger than 1 MiB"));
    drop(reader);
    endless.join().unwrap();
}

#[test]
fn a_file_beyond_its_limit_is_refused_without_reading_it() {
    let folder = folder();
    let path = folder.path().join("large");
    // All holes: it takes no room on the disk.
    let file = File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    assert!(said(read(&path, DOCUMENT)).contains("larger than 64 MiB"));
    assert!(said(open_within(&path, DOCUMENT)).contains("larger than 64 MiB"));
    fs::write(&path, "12345").unwrap();
    assert_eq!(read_to_string(&path, 5).unwrap(), "12345");
    assert!(said(read_to_string(&path, 4)).contains("larger than 4 bytes"));
}

#[test]
fn a_panic_becomes_its_message() {
    assert_eq!(caught(|| 3), Ok(3));
    assert_eq!(caught(|| -> usize { panic!("plain") }), Err("plain".to_owned()));
    assert_eq!(caught(|| -> usize { panic!("number {}", 7) }), Err("number 7".to_owned()));
}

#[test]
fn bytes_that_are_no_text_are_named() {
    let folder = folder();
    let path = folder.path().join("bytes");
    fs::write(&path, b"ab\xff").unwrap();
    assert!(said(read_to_string(&path, DOCUMENT)).contains("byte 2"));
}

#[test]
fn a_line_beyond_its_limit_ends_the_reading() {
    let endless = BufReader::new(io::repeat(b'x'));
    let mut lines = Lines::new(endless, 1 << 16);
    assert!(said(lines.next().unwrap()).contains("this line is larger than 64 KiB"));
    let mut lines = Lines::new(&b"123\r\n1234"[..], 3);
    assert_eq!(lines.next().unwrap().unwrap(), "123");
    assert!(lines.next().unwrap().is_err());
}

#[test]
fn a_record_beyond_its_limit_ends_the_reading() {
    let meter = RecordMeter::new(8);
    let mut reader = meter.over(&b"0123456789"[..]);
    let mut bytes = [0; 5];
    reader.read_exact(&mut bytes).unwrap();
    assert!(said(reader.read_exact(&mut bytes)).contains("this record is larger than 8 bytes"));
    meter.restart();
    assert_eq!(reader.read(&mut bytes).unwrap(), 2);
}

proptest! {
    #[test]
    fn short_lines_are_those_of_the_standard_library(text in "[ab\r\n]{0,40}") {
        let ours: Vec<String> = Lines::new(text.as_bytes(), 100).map(Result::unwrap).collect();
        let theirs: Vec<String> = text.as_bytes().lines().map(Result::unwrap).collect();
        prop_assert_eq!(ours, theirs);
    }
}

#[test]
fn a_full_disk_is_told_from_a_file_that_is_too_large_to_read() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().write_all(b"1");
    assert!(is_disk_full(&full.unwrap_err()));
    let over_the_limit = io::Error::from_raw_os_error(rustix::io::Errno::FBIG.raw_os_error());
    assert!(is_disk_full(&over_the_limit));
    let folder = folder();
    let path = folder.path().join("long");
    std::fs::write(&path, "12345").unwrap();
    let too_large = read(&path, 4).unwrap_err();
    assert_eq!(too_large.kind(), io::ErrorKind::FileTooLarge);
    assert!(!is_disk_full(&too_large));
    assert!(!is_disk_full(&open(&folder.path().join("missing")).unwrap_err()));
}
