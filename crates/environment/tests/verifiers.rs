//! What keeps a verifiers environment from being played, told before a run. The package itself is
//! played in `real_packages.rs`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod scripted;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use scripted::environments;

/// A Python in which `import verifiers` finds this source.
fn python_with(folder: &Path, source: &str) -> String {
    let package = folder.join("packages/verifiers");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::write(package.join("__init__.py"), source).unwrap();
    let python = folder.join("python");
    let packages = folder.join("packages");
    let text = format!("#!/bin/sh\nPYTHONPATH={} exec python3 -S \"$@\"\n", packages.display());
    std::fs::write(&python, text).unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    python.display().to_string()
}

fn refused(python: &str, folder: &Path) -> String {
    let choice = format!(
        "{{ type = \"verifiers\", python = \"{python}\", environment = \"some_environment\" }}"
    );
    environments(&choice, folder).err().unwrap()
}

#[test]
fn another_version_is_refused_with_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    for version in ["0.3.9", "0.5.0", "1.0"] {
        let python = python_with(folder.path(), &format!("__version__ = '{version}'"));
        let error = refused(&python, folder.path());
        let expected = format!("environment.environment: verifiers {version} is installed there");
        assert!(error.contains(&expected), "{error}");
        assert!(error.contains("-m pip install verifiers==0.4.0"), "{error}");
    }
}

#[test]
fn a_python_without_the_package_or_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let python = python_with(folder.path(), "raise ModuleNotFoundError(name='verifiers')");
    let error = refused(&python, folder.path());
    assert!(error.contains("has no verifiers; install it"), "{error}");
    let error = refused("/not/there/python", folder.path());
    assert!(error.contains("environment.python"), "{error}");
    assert!(error.contains("cannot start /not/there/python"), "{error}");
}
