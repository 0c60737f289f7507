//! That MKL uses the AVX-512 a processor has, whoever made it.
//!
//! MKL asks for the maker before it asks for the instructions: on an AMD processor with AVX-512 its
//! float32 products stay with AVX2, and a step takes nearly twice the time (docs/bench/train.md). The
//! question is a function of its own with a public name, and a program's own function of that name
//! is called instead. Ours says yes where the instructions are there and the system saves their
//! registers; everywhere else it answers as MKL would. Which sums come out differs in the last bits,
//! as between any two processors.
//!
//! Not here: oneDNN, which looks at the instructions alone (`cpu.rs`).

#![expect(unsafe_code, reason = "a function that another library calls by its name")]

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cpu::CpuLeaves;

/// Set to anything, MKL goes by the maker again: for measuring one beside the other.
pub const BY_MAKER: &str = "SCALERL_MKL_BY_MAKER";

/// AVX-512 F, DQ, CD, BW and VL in leaf 7.0's EBX: what MKL's AVX-512 code was written for.
const AVX_512: u32 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31;
/// What the system must save of a thread: SSE, AVX, mask registers and both halves of the wide ones.
const SAVED: u64 = 0xe6;

/// What MKL is told of this process's processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MklPath {
    /// Made by Intel: MKL looks at the instructions by itself.
    Intel,
    /// Another maker's with AVX-512, which MKL is told to use.
    ByInstructions,
    /// Another maker's: MKL's code for it, AVX2 at most.
    ByMaker,
}

impl std::fmt::Display for MklPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Intel => "MKL chooses by this processor's instructions",
            Self::ByInstructions => "MKL is told to use the AVX-512 of this processor",
            Self::ByMaker => "MKL uses AVX2 at most on this maker's processor",
        })
    }
}

/// What MKL is told on a processor.
pub fn decide(cpu: &CpuLeaves, asked_by_maker: bool) -> MklPath {
    let has_avx_512 =
        cpu.highest >= 7 && cpu.leaf_7_ebx & AVX_512 == AVX_512 && cpu.xcr0 & SAVED == SAVED;
    match (cpu.is_intel, has_avx_512 && !asked_by_maker) {
        (true, _) => MklPath::Intel,
        (false, true) => MklPath::ByInstructions,
        (false, false) => MklPath::ByMaker,
    }
}

/// What MKL is told in this process.
pub fn path() -> MklPath {
    static PATH: OnceLock<MklPath> = OnceLock::new();
    *PATH.get_or_init(|| decide(&CpuLeaves::read(), std::env::var_os(BY_MAKER).is_some()))
}

static WAS_ASKED: AtomicBool = AtomicBool::new(false);

/// Whether MKL has asked yet: it does at its first product, and only where our symbol comes first.
pub fn was_asked() -> bool {
    WAS_ASKED.load(Ordering::Relaxed)
}

/// MKL's own question, answered by us: a program's symbol comes before a library's.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[unsafe(no_mangle)]
extern "C" fn mkl_serv_intel_cpu_true() -> c_int {
    WAS_ASKED.store(true, Ordering::Relaxed);
    c_int::from(path() != MklPath::ByMaker)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read from a virtual machine on a Zen 5 EPYC (family 26, model 2).
    const ZEN_5: CpuLeaves = CpuLeaves {
        highest: 0x20,
        is_intel: false,
        leaf_1_ecx: 0xfffa_3203,
        leaf_7_ebx: 0xf1bf_07ab,
        leaf_7_edx: 0x10,
        leaf_1d_eax: 0,
        palette: [0; 3],
        xcr0: 0xe7,
    };

    #[test]
    fn mkl_is_told_of_avx_512_where_it_is_whole_and_saved() {
        assert_eq!(decide(&ZEN_5, false), MklPath::ByInstructions);
        let broken = [
            CpuLeaves { leaf_7_ebx: ZEN_5.leaf_7_ebx & !(1 << 31), ..ZEN_5 },
            CpuLeaves { leaf_7_ebx: ZEN_5.leaf_7_ebx & !(1 << 16), ..ZEN_5 },
            CpuLeaves { xcr0: 7, ..ZEN_5 },
            CpuLeaves { xcr0: 0x67, ..ZEN_5 },
            CpuLeaves { xcr0: 0, ..ZEN_5 },
            CpuLeaves { highest: 4, ..ZEN_5 },
            CpuLeaves::default(),
        ];
        for cpu in broken {
            assert_eq!(decide(&cpu, false), MklPath::ByMaker, "{cpu:?}");
        }
    }

    #[test]
    fn intel_is_left_alone_and_the_maker_can_be_asked_for() {
        assert_eq!(decide(&CpuLeaves { is_intel: true, ..ZEN_5 }, false), MklPath::Intel);
        assert_eq!(decide(&CpuLeaves { is_intel: true, xcr0: 0, ..ZEN_5 }, true), MklPath::Intel);
        assert_eq!(decide(&ZEN_5, true), MklPath::ByMaker);
    }
}
