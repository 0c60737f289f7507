//! Compiles the C++ shim against the libtorch that torch-sys found and lets our binaries find it.

use std::path::PathBuf;

fn main() {
    let library = PathBuf::from(
        std::env::var("DEP_TCH_LIBTORCH_LIB")
            .expect("torch-sys did not say where libtorch is: run `make setup` first"),
    );
    // Not resolved: binaries follow the symlink .libtorch, wherever `make setup` points it later.
    let library = std::path::absolute(&library).expect("this process has a folder");
    assert!(library.is_dir(), "libtorch is missing at {}: run `make setup`", library.display());
    let include = library.parent().expect("lib has a parent").join("include");
    println!("cargo::rerun-if-changed=shim");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .file("shim/adamw.cpp")
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
        // Calls into libtorch and no loops: more optimisation only takes longer to compile.
        .opt_level(1)
        // As one: reading libtorch's headers is most of the work, and once is enough.
        .file("shim/all.cpp")
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
