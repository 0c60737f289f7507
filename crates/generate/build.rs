//! Lets the tests find libtorch where it was built: link arguments do not travel from crate to
//! crate, so the build script of `torch` hands over the folder and this one repeats the line.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(folder) = std::env::var("DEP_SCALERL_SHIM_LIBTORCH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
