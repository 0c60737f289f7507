//! That oneDNN obeys a limit which is set in a running process, as `cpu.rs` sets it: it must not
//! look before its first product. Each case is a process of its own, since oneDNN looks only once.
//! And that MKL asks `mkl.rs` what this processor is.

#![cfg(target_arch = "x86_64")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use scalerl_torch::cpu::{self, CpuLeaves, IsaLimit};
use scalerl_torch::mkl;
use scalerl_torch::tch::{Device, Kind, Tensor};

/// The limit that a process is to set for itself.
const LIMIT: &str = "SCALERL_TEST_LIMIT";

/// One bf16 product after the limit was set inside the process, and a convolution, which goes to
/// oneDNN where bf16 products do not.
#[test]
#[ignore = "run by the others in a process of its own"]
#[expect(unsafe_code, reason = "setting a variable is the subject")]
fn a_product_under_a_limit() {
    let limit = std::env::var(LIMIT).unwrap();
    // A tensor, so that libtorch is up; no product yet.
    let a = Tensor::ones([64, 64], (Kind::BFloat16, Device::Cpu));
    if !limit.is_empty() {
        // SAFETY: the test runs alone in its process.
        unsafe { std::env::set_var("ONEDNN_MAX_CPU_ISA", limit) };
    }
    assert!((a.matmul(&a).double_value(&[0, 0]) - 64.0).abs() < 1e-9);
    let image = Tensor::ones([2, 16, 64, 64], (Kind::Float, Device::Cpu));
    let weights = Tensor::ones([16, 16, 1, 1], (Kind::Float, Device::Cpu));
    let sums = image.conv2d(&weights, None::<Tensor>, 1, 0, 1, 1);
    assert!((sums.double_value(&[0, 0, 0, 0]) - 16.0).abs() < 1e-9);
}

/// This binary again, for one of its tests.
fn child(test: &str) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--ignored", "--nocapture"]);
    child.env_remove("ONEDNN_MAX_CPU_ISA").env_remove("DNNL_MAX_CPU_ISA");
    child
}

/// What oneDNN says it uses.
fn instructions(limit: &str) -> String {
    let mut child = child("a_product_under_a_limit");
    let child = child.env(LIMIT, limit).env("ONEDNN_VERBOSE", "1").output().unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{limit}: {}\n{said}", child.status);
    let line = said.lines().find_map(|line| line.split_once("cpu,isa:"));
    line.unwrap_or_else(|| panic!("oneDNN says no instruction set:\n{said}")).1.to_owned()
}

#[test]
fn a_limit_set_before_the_first_product_is_obeyed() {
    assert_eq!(instructions("SSE41").trim(), "Intel SSE4.1");
    if std::is_x86_feature_detected!("avx2") {
        assert_eq!(instructions("AVX2").trim(), "Intel AVX2");
    }
    assert!(!instructions("AVX512_CORE_BF16").contains("AMX"));
}

#[test]
fn the_limit_is_decided_before_main() {
    let mut child = child("a_variable_that_was_there_before_main");
    assert!(child.env("ONEDNN_MAX_CPU_ISA", "SSE41").status().unwrap().success());
}

/// It is taken away before the first call that could ask for it.
#[test]
#[ignore = "run by the test above in a process of its own"]
#[expect(unsafe_code, reason = "as above")]
fn a_variable_that_was_there_before_main() {
    // SAFETY: the test runs alone in its process.
    unsafe { std::env::remove_var("ONEDNN_MAX_CPU_ISA") };
    let expected = IsaLimit::Given { variable: "ONEDNN_MAX_CPU_ISA", value: "SSE41".to_owned() };
    assert_eq!(*cpu::limit(), expected);
}

/// Without a limit AMX is used exactly where `cpu.rs` calls it usable and the kernel permits it:
/// a machine that hides the palette has died of the product above before this mattered.
#[test]
fn amx_is_used_only_where_it_is_usable() {
    let usable = IsaLimit::None { has_amx: true };
    if instructions("").contains("AMX") {
        assert_eq!(cpu::decide(&CpuLeaves::read(), |_| None), usable);
    }
}

/// A float32 product goes to MKL, which asks `mkl.rs` and not itself: a program's function comes
/// before a library's.
#[test]
fn mkl_asks_us_before_its_first_product() {
    let a = Tensor::ones([256, 256], (Kind::Float, Device::Cpu));
    let sum = a.matmul(&a).double_value(&[255, 255]);
    assert!((sum - 256.0).abs() < 1e-9, "{sum}");
    assert!(mkl::was_asked());
}
