//! Which instructions libtorch's oneDNN may use on this CPU, decided before its first product.
//!
//! Some virtual machines show AMX and hide its tile palette (CPUID leaf 0x1D is zero). oneDNN then
//! sees AMX, finds no palette to configure, and its first bf16 product dies of an illegal
//! instruction (`tilezero` without a configuration). So where AMX is shown but cannot be used, the
//! environment variable that oneDNN reads at its first primitive is set to leave AMX out. A
//! setting of the user's own is never touched.
//!
//! The variable must be there before oneDNN looks and before threads read the environment, also in
//! tests that call tch and nothing else. So it is set by an initialiser that the loader runs
//! before `main`; every binary with this crate in it has it.
//!
//! Not here: asking the kernel for permission to use tiles. oneDNN asks (arch_prctl), and does
//! without AMX when it is refused.

#![expect(unsafe_code, reason = "CPUID, and the environment before main")]

use std::fmt;
use std::sync::OnceLock;

/// oneDNN's own name first: it is the one it prefers.
const VARIABLES: [&str; 2] = ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"];

/// The most that oneDNN can use without AMX, but for float16 arithmetic, which we never ask for.
const WITHOUT_AMX: &str = "AVX512_CORE_BF16";

/// What a CPU and its hypervisor say about AMX and AVX-512. Leaf and sub-leaf, then the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuLeaves {
    /// Leaf 0, EAX. A leaf above it says nothing, whatever it returns.
    pub highest: u32,
    /// Leaf 0, EBX, EDX and ECX spell GenuineIntel.
    pub is_intel: bool,
    /// Leaf 1, ECX: bit 27 is OSXSAVE.
    pub leaf_1_ecx: u32,
    /// Leaf 7.0, EBX: bits 16, 17, 28, 30 and 31 are AVX-512 F, DQ, CD, BW and VL.
    pub leaf_7_ebx: u32,
    /// Leaf 7.0, EDX: bit 24 is AMX-TILE.
    pub leaf_7_edx: u32,
    /// Leaf 0x1D.0, EAX: the highest palette.
    pub leaf_1d_eax: u32,
    /// Leaf 0x1D.1: EAX, EBX, ECX of palette 1.
    pub palette: [u32; 3],
    /// What the system saves of a thread: bits 17 and 18 are the tiles. Zero without OSXSAVE.
    pub xcr0: u64,
}

/// What was decided for this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IsaLimit {
    /// The user, or the process that started this one, has set a limit.
    Given { variable: &'static str, value: String },
    /// No limit is needed.
    None { has_amx: bool },
    /// AMX is shown and cannot be used: it is left out.
    WithoutAmx { because: AmxDefect },
}

/// Why AMX that is shown cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AmxDefect {
    /// The hypervisor hides the tile palette.
    NoPalette,
    /// The system does not save tiles when it switches threads.
    NotEnabled,
}

impl fmt::Display for IsaLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given { variable, value } => {
                write!(f, "oneDNN limited to {value} by {variable}, set from outside")
            }
            Self::None { has_amx: true } => write!(f, "no limit for oneDNN, AMX is usable"),
            Self::None { has_amx: false } => write!(f, "no limit for oneDNN, no AMX"),
            Self::WithoutAmx { because } => {
                let because = match because {
                    AmxDefect::NoPalette => "hides its tile palette (CPUID leaf 0x1D)",
                    AmxDefect::NotEnabled => "does not enable its tiles (XCR0 bits 17, 18)",
                };
                write!(
                    f,
                    "oneDNN limited to {WITHOUT_AMX}: this machine shows AMX but {because}, and \
                     using it would end the process; {} overrides this",
                    VARIABLES[0]
                )
            }
        }
    }
}

impl CpuLeaves {
    /// What this machine says.
    #[cfg(target_arch = "x86_64")]
    pub fn read() -> Self {
        use std::arch::x86_64::{__cpuid_count, _xgetbv};

        #[target_feature(enable = "xsave")]
        fn saved() -> u64 {
            // SAFETY: register 0 exists wherever XGETBV does.
            unsafe { _xgetbv(0) }
        }

        let first = __cpuid_count(0, 0);
        let highest = first.eax;
        let maker = [first.ebx, first.edx, first.ecx].map(u32::to_le_bytes);
        let leaf = |number: u32, part: u32| {
            let found = __cpuid_count(number.min(highest), part);
            if number <= highest { [found.eax, found.ebx, found.ecx, found.edx] } else { [0; 4] }
        };
        let leaf_1_ecx = leaf(1, 0)[2];
        let [eax, ebx, ecx, _] = leaf(0x1d, 1);
        Self {
            highest,
            is_intel: maker.as_flattened() == b"GenuineIntel",
            leaf_1_ecx,
            leaf_7_ebx: leaf(7, 0)[1],
            leaf_7_edx: leaf(7, 0)[3],
            leaf_1d_eax: leaf(0x1d, 0)[0],
            palette: [eax, ebx, ecx],
            // SAFETY: OSXSAVE says that XGETBV may be executed.
            xcr0: if leaf_1_ecx & 1 << 27 == 0 { 0 } else { unsafe { saved() } },
        }
    }

    /// Other processors have no AMX.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn read() -> Self {
        Self::default()
    }

    fn shows_amx(&self) -> bool {
        self.highest >= 7 && self.leaf_7_edx & 1 << 24 != 0
    }

    /// Why AMX that is shown cannot be used; `None` when it can.
    fn amx_defect(&self) -> Option<AmxDefect> {
        const TILES: u64 = 1 << 17 | 1 << 18;
        let [sizes, names, rows] = self.palette;
        // Bytes of all tiles and of one, of a row, the number of tiles and of rows.
        let is_whole = [sizes & 0xffff, sizes >> 16, names & 0xffff, names >> 16, rows & 0xffff]
            .iter()
            .all(|field| *field != 0);
        if self.highest < 0x1d || self.leaf_1d_eax == 0 || !is_whole {
            Some(AmxDefect::NoPalette)
        } else if self.xcr0 & TILES != TILES {
            Some(AmxDefect::NotEnabled)
        } else {
            None
        }
    }
}

/// The limit for a machine, given what the environment says already.
pub fn decide(cpu: &CpuLeaves, environment: impl Fn(&str) -> Option<String>) -> IsaLimit {
    for variable in VARIABLES {
        // oneDNN takes an empty variable for an absent one.
        if let Some(value) = environment(variable).filter(|value| !value.is_empty()) {
            return IsaLimit::Given { variable, value };
        }
    }
    match cpu.amx_defect() {
        Some(because) if cpu.shows_amx() => IsaLimit::WithoutAmx { because },
        _ => IsaLimit::None { has_amx: cpu.shows_amx() },
    }
}

/// What was decided for this process.
pub fn limit() -> &'static IsaLimit {
    static LIMIT: OnceLock<IsaLimit> = OnceLock::new();
    LIMIT.get_or_init(|| {
        let limit = decide(&CpuLeaves::read(), |name| std::env::var(name).ok());
        if matches!(limit, IsaLimit::WithoutAmx { .. }) {
            // SAFETY: the first call is `BEFORE_MAIN`'s, when there is one thread.
            unsafe { std::env::set_var(VARIABLES[0], WITHOUT_AMX) };
        }
        limit
    })
}

/// Run by the loader before `main` and after libtorch was loaded, which does not look at the
/// variable until its first product (`tests/instructions.rs` holds it to that).
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn decide_early() {
        limit();
    }
    decide_early
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Read from a virtual machine on an Emerald Rapids Xeon (family 6, model 207).
    const EMERALD_RAPIDS: CpuLeaves = CpuLeaves {
        highest: 0x20,
        is_intel: true,
        leaf_1_ecx: 0xfffa_3203,
        leaf_7_ebx: 0,
        leaf_7_edx: 0xbfd1_4410,
        leaf_1d_eax: 1,
        palette: [0x0400_2000, 0x0008_0040, 0x10],
        xcr0: 0x602e7,
    };

    /// Read from a virtual machine on a Zen 4 EPYC (family 25, model 17).
    const ZEN_4: CpuLeaves = CpuLeaves {
        highest: 0x1c,
        is_intel: false,
        leaf_1_ecx: 0xfffa_3203,
        leaf_7_ebx: 0,
        leaf_7_edx: 0x10,
        leaf_1d_eax: 0,
        palette: [0; 3],
        xcr0: 0xe7,
    };

    /// As a Haswell says it: AVX2, no AVX-512, and 13 leaves.
    const HASWELL: CpuLeaves =
        CpuLeaves { highest: 13, leaf_1_ecx: 1 << 27, leaf_7_edx: 0, xcr0: 7, ..ZEN_4 };

    fn unset(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn amx_with_its_palette_is_used() {
        assert_eq!(decide(&EMERALD_RAPIDS, unset), IsaLimit::None { has_amx: true });
    }

    #[test]
    fn amx_without_its_palette_is_left_out() {
        let hidden = CpuLeaves { leaf_1d_eax: 0, palette: [0; 3], ..EMERALD_RAPIDS };
        let expected = IsaLimit::WithoutAmx { because: AmxDefect::NoPalette };
        assert_eq!(decide(&hidden, unset), expected);
        // A number of palettes without their sizes, and leaves that end before the palette.
        let empty = CpuLeaves { palette: [0; 3], ..EMERALD_RAPIDS };
        assert_eq!(decide(&empty, unset), expected);
        let few_leaves = CpuLeaves { highest: 0x1c, ..EMERALD_RAPIDS };
        assert_eq!(decide(&few_leaves, unset), expected);
    }

    #[test]
    fn amx_that_the_system_does_not_save_is_left_out() {
        for xcr0 in [0xe7, 0x202e7, 0x402e7, 0] {
            let cpu = CpuLeaves { xcr0, ..EMERALD_RAPIDS };
            let expected = IsaLimit::WithoutAmx { because: AmxDefect::NotEnabled };
            assert_eq!(decide(&cpu, unset), expected, "{xcr0:x}");
        }
    }

    #[test]
    fn a_cpu_without_amx_needs_no_limit() {
        let before_leaf_7 = CpuLeaves { highest: 4, ..EMERALD_RAPIDS };
        for cpu in [ZEN_4, HASWELL, CpuLeaves::default(), before_leaf_7] {
            assert_eq!(decide(&cpu, unset), IsaLimit::None { has_amx: false }, "{cpu:?}");
        }
    }

    #[test]
    fn a_limit_from_outside_wins_under_either_name_and_an_empty_one_is_none() {
        let hidden = CpuLeaves { leaf_1d_eax: 0, palette: [0; 3], ..EMERALD_RAPIDS };
        for variable in VARIABLES {
            let set = |name: &str| (name == variable).then(|| "ALL".to_owned());
            let expected = IsaLimit::Given { variable, value: "ALL".to_owned() };
            assert_eq!(decide(&hidden, set), expected);
        }
        let empty = |_: &str| Some(String::new());
        assert!(matches!(decide(&hidden, empty), IsaLimit::WithoutAmx { .. }));
    }

    #[test]
    fn a_reader_is_told_what_was_decided_and_why() {
        let said = IsaLimit::WithoutAmx { because: AmxDefect::NoPalette }.to_string();
        assert!(said.contains(WITHOUT_AMX) && said.contains("hides its tile palette"), "{said}");
        assert!(said.contains("ONEDNN_MAX_CPU_ISA overrides"), "{said}");
    }
}
