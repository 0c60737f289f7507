//! Two things the binary must know: where it was built from, and where libtorch is. Link arguments
//! do not travel from crate to crate, so the build script of `torch` hands over the folder and
//! this one repeats the line.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SCALERL_RELOCATABLE");
    // A program for other machines names no folder of this one: its launcher finds libtorch there.
    let is_relocatable = std::env::var_os("SCALERL_RELOCATABLE").is_some();
    let folder = std::env::var("DEP_SCALERL_SHIM_LIBTORCH").ok();
    if let Some(folder) = folder.filter(|_| !is_relocatable) {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
    // Absent in a source archive: runs then say that they do not know.
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        let changes = git(&[
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            "../../crates",
            "../../recipes",
        ]);
        let mark = if changes.is_some_and(|changes| !changes.is_empty()) { "+changes" } else { "" };
        println!("cargo::rustc-env=SCALERL_COMMIT={commit}{mark}");
    }
    for folder in ["../../crates", "../../recipes"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    // HEAD names the branch, the log grows with every commit on it.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file]);
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
