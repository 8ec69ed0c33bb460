//! The tensor types that are read: those that candle has.

use candle_core::quantized::GgmlDType;

/// Number in the file, name, and candle's type.
pub const SUPPORTED_TYPES: [(u32, &str, GgmlDType); 15] = [
    (0, "F32", GgmlDType::F32),
    (1, "F16", GgmlDType::F16),
    (30, "BF16", GgmlDType::BF16),
    (2, "Q4_0", GgmlDType::Q4_0),
    (3, "Q4_1", GgmlDType::Q4_1),
    (6, "Q5_0", GgmlDType::Q5_0),
    (7, "Q5_1", GgmlDType::Q5_1),
    (8, "Q8_0", GgmlDType::Q8_0),
    (9, "Q8_1", GgmlDType::Q8_1),
    (10, "Q2_K", GgmlDType::Q2K),
    (11, "Q3_K", GgmlDType::Q3K),
    (12, "Q4_K", GgmlDType::Q4K),
    (13, "Q5_K", GgmlDType::Q5K),
    (14, "Q6_K", GgmlDType::Q6K),
    (15, "Q8_K", GgmlDType::Q8K),
];

/// The type with that number in a GGUF file; `None` if it is not supported.
pub fn tensor_type_from_id(id: u32) -> Option<GgmlDType> {
    SUPPORTED_TYPES.iter().find(|entry| entry.0 == id).map(|entry| entry.2)
}

/// The number of a type in a GGUF file.
pub fn tensor_type_id(dtype: GgmlDType) -> u32 {
    entry(dtype).0
}

/// The name of a type as GGUF's tools write it, for example `Q4_1`.
pub fn tensor_type_name(dtype: GgmlDType) -> &'static str {
    entry(dtype).1
}

fn entry(dtype: GgmlDType) -> &'static (u32, &'static str, GgmlDType) {
    SUPPORTED_TYPES
        .iter()
        .find(|entry| entry.2 == dtype)
        .expect("the table has every variant of GgmlDType, as a test holds")
}
