//! A header survives writing and reading; a file that is not whole is an error, never a panic.

use std::io::{self, Write};

use candle_core::quantized::GgmlDType;
use proptest::prelude::*;

use super::*;

struct Zeros;

impl Blocks for Zeros {
    fn write_blocks(&mut self, plan: &TensorPlan, writer: &mut dyn Write) -> io::Result<()> {
        writer.write_all(&vec![0; plan.bytes() as usize])
    }
}

fn plan(name: &str, dtype: GgmlDType, dims: &[usize]) -> TensorPlan {
    TensorPlan { name: name.to_owned(), dtype, dims: dims.to_vec() }
}

fn sample() -> Vec<u8> {
    let metadata = [
        ("general.architecture", Value::String("llama".to_owned())),
        ("a.unsigned", Value::Unsigned(7)),
        ("a.large", Value::Unsigned(1 << 40)),
        ("a.signed", Value::Signed(-3)),
        ("a.float", Value::Float(0.5)),
        ("a.bool", Value::Bool(true)),
        ("a.words", Value::Array(Array::String(vec!["x".to_owned(), "yz".to_owned()]))),
        ("a.floats", Value::Array(Array::Float(vec![1.0, -2.0]))),
        ("a.ids", Value::Array(Array::Signed(vec![-1, 2]))),
        ("a.counts", Value::Array(Array::Unsigned(vec![9]))),
        ("a.flags", Value::Array(Array::Bool(vec![true, false]))),
    ]
    .map(|(key, value)| (key.to_owned(), value));
    let plans = [
        plan("one", GgmlDType::F32, &[3]),
        plan("two", GgmlDType::Q8_0, &[2, 64]),
        plan("three", GgmlDType::Q4K, &[1, 2, 256]),
    ];
    let mut bytes = Vec::new();
    write_gguf(&mut bytes, &metadata, &plans, &mut Zeros).unwrap();
    bytes
}

fn parse(bytes: &[u8]) -> Result<Gguf, GgufError> {
    Gguf::parse(bytes, bytes.len() as u64)
}

fn offset_of(haystack: &[u8], needle: &[u8]) -> usize {
    haystack.windows(needle.len()).position(|window| window == needle).unwrap()
}

#[test]
fn what_is_written_is_read_back() {
    let bytes = sample();
    let gguf = parse(&bytes).unwrap();
    assert_eq!(gguf.version, 3);
    assert_eq!(gguf.metadata.len(), 11);
    assert_eq!(gguf.need_u64("a.large").unwrap(), 1 << 40);
    assert_eq!(gguf.metadata["a.signed"], Value::Signed(-3));
    assert_eq!(gguf.metadata["a.ids"], Value::Array(Array::Signed(vec![-1, 2])));
    assert_eq!(gguf.metadata["a.flags"], Value::Array(Array::Bool(vec![true, false])));
    assert_eq!(gguf.opt_strings("a.words").unwrap().unwrap(), ["x", "yz"]);
    let three = gguf.tensor("three").unwrap();
    assert_eq!((three.dims.as_slice(), three.bytes), ([1, 2, 256].as_slice(), 288));
    assert_eq!(three.offset % DEFAULT_ALIGNMENT, 0);
    assert_eq!(gguf.parameters(), 3 + 128 + 512);
    assert_eq!(gguf.main_type(), Some(TensorType::Q4K));
    // Candle's own reader agrees on where everything is.
    let candle =
        candle_core::quantized::gguf_file::Content::read(&mut io::Cursor::new(&bytes)).unwrap();
    for (name, info) in &gguf.tensors {
        let theirs = &candle.tensor_infos[name];
        assert_eq!(theirs.shape.dims(), info.dims);
        assert_eq!(candle.tensor_data_offset + theirs.offset, info.offset);
    }
}

#[test]
fn an_unknown_tensor_type_is_named_with_what_is_supported() {
    let mut bytes = sample();
    // The type follows the name, the number of dimensions and the one dimension.
    let at = offset_of(&bytes, b"one") + 3 + 4 + 8;
    bytes[at..at + 4].copy_from_slice(&19u32.to_le_bytes());
    let error = parse(&bytes).unwrap_err().to_string();
    assert!(error.starts_with("tensor `one` has type IQ1_S (19), which is not"), "{error}");
    assert!(error.contains(&format!("offset {at}")) && error.contains("Q4_1"), "{error}");
}

#[test]
fn a_length_that_the_file_cannot_hold_is_refused_before_it_is_allocated() {
    let sample = sample();
    for (needle, skip) in [
        (b"a.words".as_slice(), 7 + 4 + 4),     // Array length.
        (b"a.words".as_slice(), 7 + 4 + 4 + 8), // Length of its first text.
        (b"one".as_slice(), 3 + 4),             // First dimension.
        (b"GGUF".as_slice(), 8),                // Tensor count.
        (b"GGUF".as_slice(), 16),               // Metadata count.
    ] {
        for value in [u64::MAX, u64::MAX / 2, 1 << 62, 1 << 40] {
            let mut bytes = sample.clone();
            let at = offset_of(&bytes, needle) + skip;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let error = parse(&bytes).unwrap_err().to_string();
            assert!(error.contains("offset"), "{error}");
        }
    }
}

#[test]
fn tensors_that_overlap_or_repeat_are_refused() {
    let mut bytes = sample();
    let at = offset_of(&bytes, b"two") + 3 + 4 + 16 + 4;
    bytes[at..at + 8].copy_from_slice(&0u64.to_le_bytes());
    let error = parse(&bytes).unwrap_err().to_string();
    assert!(error.contains("tensors `one` and `two` overlap"), "{error}");
    let mut bytes = sample_with_names("same", "same");
    let error = parse(&bytes).unwrap_err().to_string();
    assert!(error.contains("tensor `same` appears twice"), "{error}");
    bytes[0] = b'g';
    let error = parse(&bytes).unwrap_err().to_string();
    assert!(error.starts_with("not a GGUF file"), "{error}");
}

fn sample_with_names(one: &str, two: &str) -> Vec<u8> {
    let plans = [plan(one, GgmlDType::F32, &[8]), plan(two, GgmlDType::F32, &[8])];
    let mut bytes = Vec::new();
    write_gguf(&mut bytes, &[], &plans, &mut Zeros).unwrap();
    bytes
}

#[test]
fn old_versions_and_bad_alignments_are_named() {
    let mut bytes = sample();
    bytes[4] = 1;
    let error = parse(&bytes).unwrap_err().to_string();
    assert!(
        error.starts_with("GGUF version 1 is not supported, only 2 and 3 (offset 4); "),
        "{error}"
    );
    assert!(error.ends_with("convert the model anew"), "{error}");
    bytes[4..8].copy_from_slice(&3u32.to_be_bytes());
    let error = parse(&bytes).unwrap_err().to_string();
    assert!(error.starts_with("the file is big-endian GGUF (version 3)"), "{error}");
    let metadata = [("general.alignment".to_owned(), Value::Unsigned(0))];
    let mut bytes = Vec::new();
    write_gguf(&mut bytes, &metadata, &[], &mut Zeros).unwrap();
    let error = parse(&bytes).unwrap_err().to_string();
    assert!(error.starts_with("metadata key `general.alignment`: must be a power"), "{error}");
}

/// Lists within lists are read over, and what follows is read.
#[test]
fn nested_lists_are_skipped() {
    let mut bytes = sample();
    let at = offset_of(&bytes, b"a.counts") + 8;
    // The list of one u64 becomes a list of one list of one text of two bytes.
    let list = |id: u32, count: u64| [&id.to_le_bytes()[..], &count.to_le_bytes()].concat();
    let nested = [&9u32.to_le_bytes()[..], &list(9, 1), &list(8, 1), &2u64.to_le_bytes(), b"xy"];
    bytes.splice(at..at + 4 + 4 + 8 + 8, nested.concat());
    let gguf = parse(&bytes).map_err(|error| error.to_string());
    // Everything after it has moved, so the data no longer fit: pad the end.
    bytes.extend([0; 64]);
    let gguf = gguf.or_else(|_| parse(&bytes)).unwrap();
    assert_eq!(gguf.metadata["a.counts"], Value::Array(Array::Skipped(1)));
    assert_eq!(gguf.metadata["a.flags"], Value::Array(Array::Bool(vec![true, false])));
    assert_eq!(gguf.tensors.len(), 3);
}

#[test]
fn what_is_cut_within_the_table_names_its_tensor() {
    let bytes = sample();
    let at = offset_of(&bytes, b"three") + 5 + 4 + 3;
    let error = parse(&bytes[..at]).unwrap_err().to_string();
    assert!(error.contains("a dimension of tensor `three` at offset"), "{error}");
}

/// Every cut of the file, wherever it falls, is an error that says where.
#[test]
fn a_truncated_file_is_an_error_at_every_length() {
    let bytes = sample();
    for length in 0..bytes.len() - 32 {
        let error = parse(&bytes[..length]).unwrap_err();
        assert!(error.to_string().contains("offset"), "cut at {length}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Whatever is overwritten, the parser returns: it neither panics nor allocates beyond the file.
    #[test]
    fn a_corrupt_file_never_panics(
        at in any::<prop::sample::Index>(),
        patch in prop::collection::vec(any::<u8>(), 1..12),
    ) {
        let mut bytes = sample();
        let header = bytes.len() - 600;
        let at = at.index(header);
        bytes[at..at + patch.len()].copy_from_slice(&patch);
        if let Ok(gguf) = parse(&bytes) {
            prop_assert!(gguf.weight_bytes() <= bytes.len() as u64);
        }
    }
}
