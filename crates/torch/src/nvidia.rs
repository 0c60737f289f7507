//! NVIDIA's libraries that we open by name, opened from where they lie beside libtorch.
//!
//! pip and `scalerl setup` put them into `nvidia/*/lib` next to `torch/`. torch's own libraries look
//! there by themselves (their RPATH says so); cudarc asks the loader for `libnvrtc.so.13` and NVRTC
//! for its built-ins, and the loader knows nothing of that folder. A library that is open already
//! is found by its name, so opening them by path first is all that LD_LIBRARY_PATH was needed for.
//!
//! Not here: which libraries torch needs and where they come from (`scripts/setup/libtorch.py`).

use std::fs;
use std::path::{Path, PathBuf};

use crate::shim;

/// What is asked for by name, in the order of opening: NVRTC looks for its built-ins.
const BY_NAME: [&str; 2] = ["libnvrtc-builtins.so.", "libnvrtc.so."];

/// Opens what lies beside libtorch. Returns what could not be opened, with reasons; what does not
/// lie there is left to the loader's own search.
pub fn open_beside_torch() -> Vec<String> {
    let Some(site) = torch_folder().as_deref().and_then(Path::parent).map(Path::to_owned) else {
        return Vec::new();
    };
    beside(&site).iter().filter_map(|library| shim::open_for_all(library).err()).collect()
}

/// The folder `torch/` of the libtorch in this process, from its own map.
pub fn torch_folder() -> Option<PathBuf> {
    let library = loaded_from("libtorch_cpu.so")?;
    // torch/lib/libtorch_cpu.so
    Some(library.parent()?.parent()?.to_owned())
}

/// Where the loader found a library.
pub fn loaded_from(name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| line.find('/').map(|start| &line[start..]));
    path.map(Path::new).find(|path| path.ends_with(name)).map(Path::to_owned)
}

/// The libraries of `nvidia/*/lib` that are asked for by name.
fn beside(site: &Path) -> Vec<PathBuf> {
    let list = |folder: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<_> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        paths
    };
    let libraries: Vec<PathBuf> =
        list(&site.join("nvidia")).iter().flat_map(|package| list(&package.join("lib"))).collect();
    let starts_with = |path: &&PathBuf, start: &str| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(start))
    };
    let named = BY_NAME.iter().map(|start| libraries.iter().find(|path| starts_with(path, start)));
    named.flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn the_built_ins_are_opened_before_the_compiler_that_looks_for_them() {
        let site = std::env::temp_dir().join(format!("scalerl-nvidia-{}", std::process::id()));
        for name in ["libnvrtc.so.13", "libnvrtc.alt.so.13", "libnvrtc-builtins.so.13.0"] {
            touch(&site.join("nvidia/cu13/lib").join(name));
        }
        touch(&site.join("nvidia/cudnn/lib/libcudnn.so.9"));
        let found = beside(&site);
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap()).collect();
        fs::remove_dir_all(&site).unwrap();
        assert_eq!(names, ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"]);
    }

    #[test]
    fn a_torch_without_nvidia_beside_it_leaves_the_search_to_the_loader() {
        assert!(beside(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn the_loaded_libtorch_lies_in_a_folder_torch() {
        crate::device::open();
        let folder = torch_folder().unwrap();
        assert!(folder.join("lib/libtorch_cpu.so").exists(), "{}", folder.display());
    }

    /// Where the wheels of NVIDIA lie beside torch NVRTC is found by name, with or without a driver.
    #[test]
    fn what_lies_beside_torch_is_found_by_name_once_it_is_open() {
        let site = torch_folder().and_then(|folder| folder.parent().map(Path::to_owned)).unwrap();
        let problems = open_beside_torch();
        assert!(problems.is_empty(), "{problems:?}");
        for library in beside(&site) {
            let name = library.file_name().and_then(|name| name.to_str()).unwrap().to_owned();
            assert!(shim::can_open(&name).is_ok(), "{name} lies beside torch and is not found");
        }
    }
}
