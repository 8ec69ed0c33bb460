//! Writes the GGUF of a synthetic model: deterministic in the description, fast at any size.
//!
//! Blocks are drawn directly in their quantised form instead of quantising floats, so that a model
//! of billions of weights takes seconds. Scales are set so that activations keep the size that they
//! have in a trained model; everything else about the weights is noise.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use candle_core::quantized::GgmlDType;
use formats::geometry::Geometry;
use half::{bf16, f16};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};

use self::plan::{plan_metadata, plan_tensors};
use super::gguf::{Blocks, TensorPlan, write_gguf};

mod plan;

/// Part of the file's key: rises when the same description begins to give other bytes.
const GENERATOR: &str = "arc-synthetic-2";

/// Blocks that are drawn at a time.
const BATCH_BLOCKS: usize = 4096;

/// Returns the GGUF of the description at `description`, writing it if it is not there yet.
///
/// The file is keyed by the description's hash and appears whole or not at all, so that processes
/// may ask for it at the same time.
///
/// # Errors
/// The description cannot be read or is wrong; the file cannot be written.
pub fn ensure_synthetic(description: &Path) -> anyhow::Result<PathBuf> {
    let text = fs::read_to_string(description).with_context(|| {
        format!("cannot read the model description `{}`", description.display())
    })?;
    let geometry = Geometry::parse(&text)
        .with_context(|| format!("invalid model description `{}`", description.display()))?;
    let name = description
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let path = target_dir(description).join("synthetic").join(file_name(&name, &text));
    if !path.is_file() {
        write_synthetic(&geometry, &name, &path)
            .with_context(|| format!("cannot write the synthetic model `{}`", path.display()))?;
    }
    Ok(path)
}

/// Writes the model at `path` by way of a temporary file beside it.
///
/// # Errors
/// Those of the file system; the temporary file is removed.
pub fn write_synthetic(geometry: &Geometry, name: &str, path: &Path) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let temporary = path.with_extension(format!("tmp-{}", std::process::id()));
    let plans = plan_tensors(geometry);
    let result = File::create(&temporary)
        .and_then(|file| {
            let mut writer = BufWriter::with_capacity(1 << 20, file);
            let metadata = plan_metadata(geometry, name);
            let mut noise = Noise { geometry, drawn: 0 };
            write_gguf(&mut writer, &metadata, &plans, &mut noise)
        })
        .and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// `NAME-HASH.gguf`, the hash over the description and the generator's version.
fn file_name(name: &str, text: &str) -> String {
    let digest = Sha256::new().chain_update(GENERATOR).chain_update(text).finalize();
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{name}-{hash}.gguf")
}

/// Cargo's target folder: `CARGO_TARGET_DIR`, or the one of the workspace that holds the
/// description, or that of the current folder.
fn target_dir(description: &Path) -> PathBuf {
    if let Some(dir) = std::env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty()) {
        return dir.into();
    }
    description
        .canonicalize()
        .ok()
        .and_then(|path| {
            let root = path.ancestors().find(|dir| dir.join("Cargo.lock").is_file())?;
            Some(root.join("target"))
        })
        .unwrap_or_else(|| "target".into())
}

/// Draws the data of one tensor after the other, each from a stream of its own.
struct Noise<'a> {
    geometry: &'a Geometry,
    drawn: u64,
}

impl Blocks for Noise<'_> {
    fn write_blocks(&mut self, plan: &TensorPlan, writer: &mut dyn Write) -> io::Result<()> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.geometry.seed);
        rng.set_stream(self.drawn);
        self.drawn += 1;
        let (mean, deviation) = self.distribution(plan);
        let block_bytes = plan.dtype.type_size();
        let mut buffer = vec![0; block_bytes * BATCH_BLOCKS.min(plan.blocks())];
        let mut left = plan.blocks();
        while left > 0 {
            let blocks = left.min(BATCH_BLOCKS);
            let bytes = &mut buffer[..blocks * block_bytes];
            if plan.dtype.block_size() == 1 {
                draw_floats(&mut rng, plan.dtype, mean, deviation, bytes);
            } else {
                rng.fill_bytes(bytes);
                for block in bytes.chunks_exact_mut(block_bytes) {
                    set_scales(plan.dtype, deviation, rng.next_u32(), block);
                }
            }
            writer.write_all(bytes)?;
            left -= blocks;
        }
        Ok(())
    }
}

impl Noise<'_> {
    /// Mean and standard deviation of a tensor's elements.
    fn distribution(&self, plan: &TensorPlan) -> (f32, f32) {
        let row = plan.dims[plan.dims.len() - 1] as f32;
        if plan.name.ends_with("norm.weight") {
            (1.0, 0.1)
        } else if plan.name.ends_with(".bias") {
            (0.0, 0.1)
        } else if plan.name == "token_embd.weight" && !self.geometry.tied_embeddings {
            (0.0, 1.0)
        } else {
            (0.0, row.sqrt().recip())
        }
    }
}

/// Fills `bytes` with floats of a uniform distribution.
fn draw_floats(
    rng: &mut ChaCha8Rng,
    dtype: GgmlDType,
    mean: f32,
    deviation: f32,
    bytes: &mut [u8],
) {
    let half_width = 3f32.sqrt() * deviation;
    for element in bytes.chunks_exact_mut(dtype.type_size()) {
        // The upper 24 bits, so that every draw is exact in a float.
        let unit = (rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0;
        let value = mean + half_width * unit;
        match dtype {
            GgmlDType::F32 => element.copy_from_slice(&value.to_le_bytes()),
            GgmlDType::F16 => element.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            GgmlDType::BF16 => element.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
            other => unreachable!("{other:?} has blocks of more than one element"),
        }
    }
}

/// Sets the scales of a block of random bytes so that its elements have mean 0 and about the
/// deviation asked for; `jitter` moves the scale of each block by up to a half, so that no two
/// blocks can be confused without a trace.
///
/// The offsets are those of ggml's block structures.
fn set_scales(dtype: GgmlDType, deviation: f32, jitter: u32, block: &mut [u8]) {
    let deviation = deviation * (0.5 + (jitter >> 8) as f32 / (1 << 24) as f32);
    let put = |block: &mut [u8], at: usize, value: f32| {
        block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
    };
    // Each divisor is the root mean square of the block's integers, times that of its sub-scales.
    match dtype {
        GgmlDType::Q4_0 => put(block, 0, deviation / 4.637),
        GgmlDType::Q4_1 => {
            put(block, 0, deviation / 4.61);
            put(block, 2, deviation / 4.61 * -7.5);
        }
        GgmlDType::Q5_0 => put(block, 0, deviation / 9.247),
        GgmlDType::Q5_1 => {
            put(block, 0, deviation / 9.233);
            put(block, 2, deviation / 9.233 * -15.5);
        }
        GgmlDType::Q8_0 => put(block, 0, deviation / 73.9),
        GgmlDType::Q2K => {
            // Scale and minimum of each sub-block are the nibbles of one byte: made equal.
            block[..16].iter_mut().for_each(|byte| *byte = (*byte & 15) * 17);
            let scale = deviation / (1.118 * 8.803);
            put(block, 80, scale);
            put(block, 82, scale * 1.5);
        }
        GgmlDType::Q3K => put(block, 108, deviation / (2.345 * 18.47)),
        GgmlDType::Q4K | GgmlDType::Q5K => {
            // Six-bit scales and minima of eight sub-blocks, packed into 12 bytes: made equal.
            block.copy_within(4..8, 8);
            block[12..16].iter_mut().for_each(|byte| *byte = (*byte & 15) * 17);
            let (rms, middle) = if dtype == GgmlDType::Q4K { (4.61, 7.5) } else { (9.233, 15.5) };
            let scale = deviation / (rms * 36.7);
            put(block, 0, scale);
            put(block, 2, scale * middle);
        }
        GgmlDType::Q6K => put(block, 208, deviation / (18.48 * 73.9)),
        other => unreachable!("{other:?} is not a type that a description can name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use candle_core::quantized::{QStorage, QTensor};

    fn geometry(quantisation: &str) -> Geometry {
        Geometry::parse(&format!(
            "architecture = \"qwen2\"\nlayers = 1\nhidden = 256\nheads = 4\nkv_heads = 2\n\
             ffn = 512\nvocab = 128\ncontext = 64\nquantisation = \"{quantisation}\"\nseed = 5\n"
        ))
        .unwrap()
    }

    /// Every type's blocks decode to numbers of mean 0 and the deviation that was asked for.
    #[test]
    fn every_type_has_the_deviation_that_was_asked_for() {
        for name in [
            "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k",
            "q5_k", "q6_k",
        ] {
            let geometry = geometry(name);
            let plan = plan_tensors(&geometry)
                .into_iter()
                .find(|plan| plan.name == "blk.0.ffn_up.weight")
                .unwrap();
            let mut data = Vec::new();
            Noise { geometry: &geometry, drawn: 3 }.write_blocks(&plan, &mut data).unwrap();
            assert_eq!(data.len() as u64, plan.bytes());
            let storage =
                QStorage::from_data(std::borrow::Cow::Owned(data), &Device::Cpu, plan.dtype);
            let tensor = QTensor::new(storage.unwrap(), plan.dims.clone()).unwrap();
            let values: Vec<f32> =
                tensor.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
            let count = values.len() as f32;
            let mean = values.iter().sum::<f32>() / count;
            let deviation = (values.iter().map(|v| v * v).sum::<f32>() / count).sqrt();
            // 1/16 was asked for; the jitter (0.5 to 1.5 of it) raises the root mean square by 4 %.
            // Signed types are centred half a step off: 0.0067 for the coarsest, four bits.
            assert!(mean.abs() < 0.008, "{name}: mean {mean}");
            assert!((deviation - 0.065).abs() < 0.004, "{name}: deviation {deviation}");
        }
    }

    #[test]
    fn the_same_description_gives_the_same_bytes_and_another_seed_others() {
        let dir = tempfile::tempdir().unwrap();
        let write = |seed: u64, file: &str| {
            let path = dir.path().join(file);
            let geometry = Geometry { seed, ..geometry("q4_k") };
            write_synthetic(&geometry, "x", &path).unwrap();
            fs::read(path).unwrap()
        };
        let first = write(1, "a.gguf");
        assert!(first == write(1, "b.gguf"));
        assert!(first != write(2, "c.gguf"));
    }

    #[test]
    fn a_failed_write_leaves_no_file_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("x"), "").unwrap();
        // The rename fails, because a folder that is not empty has the name.
        write_synthetic(&geometry("q8_0"), "x", &path).unwrap_err();
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["taken"]);
    }
}
