//! Instruction sets of the processor: which are there, which one runs, and one vocabulary of vector
//! operations over them.
//!
//! A kernel is written once, over `Simd`, and compiled for every set; `dispatch` runs the one
//! that [`Kernels`] names. All sets give the same bits: integers are exact, floats are multiplied
//! and added in the same order with the same roundings. Nothing here reads the environment.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod math;
mod scalar;

pub(super) use math::{bend, exp, sum16};
pub(super) use scalar::Scalar;

/// Which of the compiled kernels run. A value of this type says that the processor has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernels(Set);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Scalar,
    Avx2,
    AvxVnni,
    Avx512Vnni,
}

/// From the slowest to the fastest.
const SETS: [(&str, Set); 4] = [
    ("scalar", Set::Scalar),
    ("avx2", Set::Avx2),
    ("avxvnni", Set::AvxVnni),
    ("avx512vnni", Set::Avx512Vnni),
];

/// Why a name gives no kernels.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KernelsError {
    /// No kernels have the name.
    #[error("`{name}` is not a kernel path; known: scalar, avx2, avxvnni, avx512vnni")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The processor lacks their instructions.
    #[error("this processor cannot run the kernel path `{name}`; it can run: {available}")]
    Unavailable {
        /// The name.
        name: String,
        /// What it can run, separated by commas.
        available: String,
    },
}

impl Kernels {
    /// The plain ones, which every processor runs.
    pub const SCALAR: Self = Self(Set::Scalar);

    /// The fastest that this processor can run.
    pub fn detect() -> Self {
        Self::available().last().unwrap_or(Self::SCALAR)
    }

    /// All that this processor can run, the fastest last.
    pub fn available() -> impl Iterator<Item = Self> {
        SETS.into_iter().filter(|&(_, set)| has(set)).map(|(_, set)| Self(set))
    }

    /// The kernels of that name.
    ///
    /// # Errors
    /// The name is unknown, or this processor cannot run them.
    pub fn parse(name: &str) -> Result<Self, KernelsError> {
        let name = name.trim();
        let Some((_, set)) = SETS.into_iter().find(|entry| entry.0 == name) else {
            return Err(KernelsError::Unknown { name: name.to_owned() });
        };
        if !has(set) {
            let available: Vec<_> = Self::available().map(Self::name).collect();
            let (name, available) = (name.to_owned(), available.join(", "));
            return Err(KernelsError::Unavailable { name, available });
        }
        Ok(Self(set))
    }

    /// Their name in `ARC_CPU_KERNELS` and in the cell report.
    pub fn name(self) -> &'static str {
        SETS[self.index()].0
    }

    /// Position among all sets, from the slowest to the fastest.
    fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(target_arch = "x86_64")]
fn has(set: Set) -> bool {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    match set {
        Set::Scalar => true,
        Set::Avx2 => avx2,
        Set::AvxVnni => avx2 && is_x86_feature_detected!("avxvnni"),
        Set::Avx512Vnni => {
            avx2 && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn has(set: Set) -> bool {
    set == Set::Scalar
}

/// Something that is computed with vectors.
pub(super) trait Kernel {
    /// What it gives.
    type Output;
    /// Computes it. Must be `#[inline(always)]`, as everything that it calls: only what ends up
    /// inside of the function that enables the instructions is compiled to them.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`.
    unsafe fn run<S: Simd>(self) -> Self::Output;
}

/// Runs a kernel with the instructions that `kernels` stands for.
#[cfg(target_arch = "x86_64")]
pub(super) fn dispatch<K: Kernel>(kernels: Kernels, kernel: K) -> K::Output {
    // SAFETY: a `Kernels` other than the scalar one is only made where `has` has found the
    // instructions.
    unsafe {
        match kernels.0 {
            Set::Scalar => kernel.run::<Scalar>(),
            Set::Avx2 => avx2::run::<_, avx2::Avx2>(kernel),
            Set::AvxVnni => avx2::run_vnni::<_, avx2::AvxVnni>(kernel),
            Set::Avx512Vnni => avx512::run(kernel),
        }
    }
}

/// Runs a kernel.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn dispatch<K: Kernel>(_kernels: Kernels, kernel: K) -> K::Output {
    // SAFETY: the scalar kernels need no instructions beyond the baseline.
    unsafe { kernel.run::<Scalar>() }
}

/// Vector operations of an instruction set. A vector has [`Simd::LANES`] lanes of 32 bits: floats
/// in `F`; in `I` either whole numbers or four bytes each.
///
/// # Safety
/// All functions need the instructions of the set. Pointers must be good for what is loaded or
/// stored, a whole vector where nothing else is said; they need no alignment.
pub(super) trait Simd: Copy + 'static {
    /// Lanes of a vector: 8 or 16.
    const LANES: usize;
    /// Rows of activations that products take at once.
    const MANY: usize;
    /// Vectors of a row of values that attention keeps in registers for each query.
    const VALUE_VECTORS: usize;
    type I: Copy;
    type F: Copy;

    unsafe fn load(from: *const u8) -> Self::I;
    unsafe fn store(to: *mut u8, a: Self::I);
    /// Asks for a cache line that will be loaded soon; it need not be there.
    unsafe fn prefetch(at: *const u8);
    unsafe fn splat_byte(byte: u8) -> Self::I;
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    /// Shifts 16-bit lanes to the right; bits of the higher byte come into the lower one.
    unsafe fn shr(a: Self::I, bits: i32) -> Self::I;
    /// Shifts 16-bit lanes to the left.
    unsafe fn shl(a: Self::I, bits: i32) -> Self::I;
    /// The byte of the table that each byte, below 16, is the index of.
    unsafe fn lookup(table: &[u8; 16], index: Self::I) -> Self::I;
    /// As many bytes as lanes, each in a lane of its own.
    unsafe fn widen(from: *const u8) -> Self::I;
    /// Sum over the vectors of `weights` of the products of four unsigned bytes, each below
    /// 2^`BITS`, with the four signed bytes at `activations + 4·index`, in each lane. `BITS` is at
    /// most 7.
    unsafe fn dot<const BITS: u32>(weights: &[Self::I], activations: *const i8) -> Self::I;
    /// The same for eight bits that hold a signed byte plus 128: what the 128 add is taken off by
    /// starting from `minus_128_sum`, -128 times the sum of the activations.
    unsafe fn dot_signed(
        weights: &[Self::I],
        activations: *const i8,
        minus_128_sum: i32,
    ) -> Self::I;

    unsafe fn splat(a: f32) -> Self::F;
    unsafe fn load_f32(from: *const f32) -> Self::F;
    unsafe fn store_f32(to: *mut f32, a: Self::F);
    unsafe fn load_f16(from: *const u8) -> Self::F;
    /// Rounds to the nearest F16, halves to the even one.
    unsafe fn store_f16(to: *mut u8, a: Self::F);
    unsafe fn load_bf16(from: *const u8) -> Self::F;
    unsafe fn load_i8(from: *const u8) -> Self::F;
    unsafe fn load_u8(from: *const u8) -> Self::F;
    /// Whole numbers as floats.
    unsafe fn to_f32(a: Self::I) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a·b + c`, rounded once.
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The greater of two numbers; `b` where one is not a number.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller of two numbers; `b` where one is not a number.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// To the nearest whole number, halves to the even one.
    unsafe fn round(a: Self::F) -> Self::F;
    /// `a · 2^n` for a whole `n`, where neither leaves the range of normal numbers.
    unsafe fn scale_by_power(a: Self::F, n: Self::F) -> Self::F;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name_and_a_wrong_name_is_an_error() {
        assert_eq!(Kernels::parse("scalar"), Ok(Kernels::SCALAR));
        for kernels in Kernels::available() {
            assert_eq!(Kernels::parse(kernels.name()), Ok(kernels));
        }
        assert_eq!(Kernels::available().last(), Some(Kernels::detect()));
        let error = Kernels::parse("avx3").unwrap_err().to_string();
        assert_eq!(error, "`avx3` is not a kernel path; known: scalar, avx2, avxvnni, avx512vnni");
        for (name, set) in SETS {
            if !has(set) {
                let error = Kernels::parse(name).unwrap_err().to_string();
                assert!(error.starts_with("this processor cannot run"), "{error}");
                assert!(error.contains("it can run: scalar"), "{error}");
            }
        }
    }
}
