//! Compiles the C++ shim against the libtorch that torch-sys found and lets our binaries find it.

use std::path::PathBuf;

fn main() {
    let library = PathBuf::from(
        std::env::var("DEP_TCH_LIBTORCH_LIB")
            .expect("torch-sys did not say where libtorch is: run `make setup` first"),
    );
    let library = library.canonicalize().unwrap_or_else(|error| {
        panic!("libtorch is missing at {}: {error}; run `make setup`", library.display())
    });
    let include = library.parent().expect("lib has a parent").join("include");
    println!("cargo::rerun-if-changed=shim");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .file("shim/fused.cpp")
        .file("shim/paged.cpp")
        .flag("-fopenmp")
        .flag("-ffast-math")
        .compile("scalerl_fused");
    // The vectorised exp that -ffast-math calls.
    println!("cargo::rustc-link-lib=mvec");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .file("shim/c10d.cpp")
        .file("shim/graph.cpp")
        .file("shim/shim.cpp")
        .include("shim/gloo_names")
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .define("USE_C10D_GLOO", None)
        .warnings(false)
        .compile("scalerl_shim");
    // A RUNPATH: a machine that names another torch 2.11 in LD_LIBRARY_PATH uses that one.
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", library.display());
    // Dependents repeat the line above in their own build scripts: link arguments do not travel.
    println!("cargo::metadata=libtorch={}", library.display());
}
