//! The tensor types that are read, with their numbers, names and blocks as ggml defines them.

use candle_core::quantized::GgmlDType;

/// The element type of a tensor.
#[allow(missing_docs, reason = "the names are ggml's")]
#[allow(non_camel_case_types, reason = "Q4_0 is written so wherever it is spoken of")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Q8K,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
}

/// A type as the file format has it.
#[derive(Debug)]
struct Entry {
    id: u32,
    name: &'static str,
    tensor_type: TensorType,
    /// Elements of a block.
    block_size: usize,
    /// Bytes of a block.
    block_bytes: usize,
    /// Candle's name, where it knows the type.
    candle: Option<GgmlDType>,
}

const fn entry(
    id: u32,
    name: &'static str,
    tensor_type: TensorType,
    (block_size, block_bytes): (usize, usize),
    candle: Option<GgmlDType>,
) -> Entry {
    Entry { id, name, tensor_type, block_size, block_bytes, candle }
}

const TYPES: [Entry; 18] = {
    use TensorType as T;
    [
        entry(0, "F32", T::F32, (1, 4), Some(GgmlDType::F32)),
        entry(1, "F16", T::F16, (1, 2), Some(GgmlDType::F16)),
        entry(30, "BF16", T::BF16, (1, 2), Some(GgmlDType::BF16)),
        entry(2, "Q4_0", T::Q4_0, (32, 18), Some(GgmlDType::Q4_0)),
        entry(3, "Q4_1", T::Q4_1, (32, 20), Some(GgmlDType::Q4_1)),
        entry(6, "Q5_0", T::Q5_0, (32, 22), Some(GgmlDType::Q5_0)),
        entry(7, "Q5_1", T::Q5_1, (32, 24), Some(GgmlDType::Q5_1)),
        entry(8, "Q8_0", T::Q8_0, (32, 34), Some(GgmlDType::Q8_0)),
        entry(9, "Q8_1", T::Q8_1, (32, 36), Some(GgmlDType::Q8_1)),
        entry(10, "Q2_K", T::Q2K, (256, 84), Some(GgmlDType::Q2K)),
        entry(11, "Q3_K", T::Q3K, (256, 110), Some(GgmlDType::Q3K)),
        entry(12, "Q4_K", T::Q4K, (256, 144), Some(GgmlDType::Q4K)),
        entry(13, "Q5_K", T::Q5K, (256, 176), Some(GgmlDType::Q5K)),
        entry(14, "Q6_K", T::Q6K, (256, 210), Some(GgmlDType::Q6K)),
        entry(15, "Q8_K", T::Q8K, (256, 292), Some(GgmlDType::Q8K)),
        entry(20, "IQ4_NL", T::IQ4_NL, (32, 18), None),
        entry(23, "IQ4_XS", T::IQ4_XS, (256, 136), None),
        entry(39, "MXFP4", T::MXFP4, (32, 17), None),
    ]
};

/// Types that files may have and that are not read: for messages alone.
const OTHERS: [(u32, &str); 17] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
];

impl TensorType {
    /// All types that are read.
    pub fn all() -> impl Iterator<Item = Self> {
        TYPES.iter().map(|entry| entry.tensor_type)
    }

    /// The type with that number in a GGUF file; `None` if it is not supported.
    pub fn from_id(id: u32) -> Option<Self> {
        TYPES.iter().find(|entry| entry.id == id).map(|entry| entry.tensor_type)
    }

    /// Its number in a GGUF file.
    pub fn id(self) -> u32 {
        self.entry().id
    }

    /// Its name as GGUF's tools write it, for example `Q4_1`.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Elements of a block; rows are whole blocks.
    pub const fn block_size(self) -> usize {
        self.entry().block_size
    }

    /// Bytes of a block.
    pub const fn type_size(self) -> usize {
        self.entry().block_bytes
    }

    /// Candle's name, where it knows the type.
    pub fn candle(self) -> Option<GgmlDType> {
        self.entry().candle
    }

    const fn entry(self) -> &'static Entry {
        // The table is in the order of the variants, as a test holds.
        &TYPES[self as usize]
    }
}

impl From<GgmlDType> for TensorType {
    fn from(candle: GgmlDType) -> Self {
        let found = TYPES.iter().find(|entry| entry.candle == Some(candle));
        found.expect("the table has every type of candle's, as a test holds").tensor_type
    }
}

/// What is known of a type that is not read: its name, where ggml has one.
pub(super) fn describe_unsupported(id: u32) -> String {
    match OTHERS.iter().find(|entry| entry.0 == id) {
        Some((_, name)) => format!("{name} ({id})"),
        None => format!("{id}, which is unknown"),
    }
}

/// The names of all types that are read, separated by commas.
pub(super) fn supported_names() -> String {
    TYPES.each_ref().map(|entry| entry.name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_blocks_are_ggmls() {
        for (index, entry) in TYPES.iter().enumerate() {
            assert_eq!(entry.tensor_type as usize, index, "{entry:?}");
            assert_eq!(TensorType::from_id(entry.id), Some(entry.tensor_type));
            if let Some(candle) = entry.candle {
                assert_eq!(TensorType::from(candle), entry.tensor_type);
                assert_eq!(
                    (candle.block_size(), candle.type_size()),
                    (entry.block_size, entry.block_bytes)
                );
            }
            assert!(OTHERS.iter().all(|other| other.0 != entry.id));
        }
        assert_eq!(TensorType::from_id(19), None);
        assert_eq!(describe_unsupported(19), "IQ1_S (19)");
        assert_eq!(describe_unsupported(99), "99, which is unknown");
    }

    /// A new variant of candle's would not compile here.
    #[test]
    fn the_table_has_every_type_of_candles() {
        let known = |candle: GgmlDType| match candle {
            GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 => (),
            GgmlDType::Q4_0 | GgmlDType::Q4_1 | GgmlDType::Q5_0 | GgmlDType::Q5_1 => (),
            GgmlDType::Q8_0 | GgmlDType::Q8_1 | GgmlDType::Q2K | GgmlDType::Q3K => (),
            GgmlDType::Q4K | GgmlDType::Q5K | GgmlDType::Q6K | GgmlDType::Q8K => (),
        };
        known(GgmlDType::F32);
        assert_eq!(TYPES.iter().filter(|entry| entry.candle.is_some()).count(), 15);
    }
}
